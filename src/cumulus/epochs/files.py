"""Files of the output folder, written so that what a manifest lists is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ZSTD = pa.Codec("zstd", compression_level=1)
"""Half the bytes of lz4 on columns of events, and quicker to write; what moves and what is stored costs more."""


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table down to the disk; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes down to the disk; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def to_ipc(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=ZSTD)) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_ipc(data: bytes) -> pa.Table:
    """Return the table that `to_ipc` has written."""
    return pa.ipc.open_stream(data).read_all()
