"""Reading one file as a table with a column of each type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import Reading, read_file

TABLE = """
CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR, price DECIMAL(8,2), big HUGEINT, x DOUBLE, r REAL, ok BOOLEAN,
                day DATE, at TIMESTAMP);
CREATE VIEW v AS SELECT COUNT(*) AS n FROM t;
"""
RELATION = compile_sql(TABLE, rely=False).relation("t")


def read(folder: Path, data: bytes, name: str = "1.json", **options: Any) -> Reading:
    (folder / name).write_bytes(data)
    return read_file(FolderSource("t", str(folder), **options), RELATION, str(folder / name), f"t/{name}")


def reasons(reading: Reading) -> list[tuple[int, str]]:
    return [(each.position, each.reason) for each in reading.rejected]


def same(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]  # NaN, and the sign of zero
