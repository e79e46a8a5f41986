"""Files of the output folder, written so that what a manifest lists is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


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
