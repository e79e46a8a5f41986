"""Rings of processes for tests, and what DuckDB alone answers from the same files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.errors import NotRunningError
from cumulus.workloads import checks, tpch
from cumulus_ring.process import ring_supervisor
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.settings import RingOptions

QUERIES = tuple(f"q{number}" for number in range(1, 23))


@contextmanager
def running_ring(source: Path, home: Path, **options: Any) -> Iterator[RingClient]:
    """A ring in processes of its own, stopped at the end."""
    ring_supervisor.start(RingOptions(source=str(source), home=str(home), **options))
    try:
        yield RingClient(home)
    finally:
        with suppress(NotRunningError):
            ring_supervisor.stop(home)


@contextmanager
def duckdb_over(source: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB alone, with each file of a folder as a view."""
    with duckdb.connect(config={"threads": "1"}) as connection:
        for file in sorted(source.glob("*.parquet")):
            connection.execute(f"CREATE VIEW \"{file.stem}\" AS FROM '{file}'")
        yield connection


def select(query: str) -> str:
    """A query of TPC-H."""
    return checks.views(tpch.sql(query))[query]


def expect_equal(found: pa.Table, wanted: pa.Table) -> None:
    """Names, types and rows, in any order."""
    assert found.schema.names == wanted.schema.names
    assert list(map(str, found.schema.types)) == list(map(str, wanted.schema.types))
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
