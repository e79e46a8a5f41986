"""Files of the output folder, written so that what a manifest lists is on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.engine.paths import refuse_remote
from cumulus.errors import StoreError, UsageError

ZSTD = pa.Codec("zstd", compression_level=1)
"""Half the bytes of lz4 on columns of events, and quicker to write; what moves and what is stored costs more."""


def check_output(path: str | Path, what: str) -> None:
    """Raise UsageError for a folder to write that cannot be one, before anything is made."""
    refuse_remote(path, what)
    for each in (Path(path), *Path(path).parents):
        if each.is_dir():
            return
        if os.path.lexists(each):
            found = f"a link to {os.readlink(each)}, which is not there" if each.is_symlink() else "a file"
            raise UsageError(
                f"{what} {path}: {each} is {found}", hint="Give a folder; it is made if nothing has its name yet."
            )


@contextlib.contextmanager
def open_durably(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file whose bytes are on the disk when the block ends; if they cannot be, it is taken away again.

    Raises
    ------
    StoreError
        If the disk does not take it.
    """
    try:
        with path.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        with contextlib.suppress(OSError):
            path.unlink()
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        raise StoreError(
            f"{path.parent}: cannot be written: {reason}",
            hint="Make room there, or give the right to write, and start the run again: it goes on after the last "
            "committed epoch.",
        ) from None


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table down to the disk; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_durably(path) as file:
        pq.write_table(table, file)


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes down to the disk; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_durably(path) as file:
        file.write(data)


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
