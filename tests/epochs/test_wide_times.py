"""Times of 96 bits in Parquet files, as Spark and Hive write them: the time that DuckDB reads, or a named refusal."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pytest

import cumulus
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.intake.reading import Reading, read_file
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import CumulusError
from cumulus.hosts import RowRequest
from support.engines import engine_of
from support.http_server import running
from support.wide_times import WideTime, wide, write_wide_times

SQL = "CREATE TABLE r (k INT PRIMARY KEY, t {}); CREATE VIEW v AS SELECT k, t FROM r"
LATE = 23 * 3600 * 10**9
GOOD = [
    wide(dt.date(9999, 12, 31)),
    None,
    wide(dt.date(9999, 12, 31), 86_399_999_999_000),
    wide(dt.date(1, 1, 1)),
    wide(dt.date(1582, 10, 4), LATE),
    wide(dt.date(1677, 9, 21), 1000),
    wide(dt.date(2262, 4, 12), LATE),
    wide(dt.date(1969, 12, 31), 999_999_000),
    wide(dt.date(2024, 2, 29), LATE),
]
DAY, FAR = dt.date(9999, 12, 31), 2**31 - 1 - 2_440_588
BAD: list[tuple[WideTime, str]] = [
    ((0, (DAY - dt.date(1970, 1, 1)).days + 1), "t: '10000-01-01 00:00:00.000000' is beyond the years 1 to 9999"),
    ((0, -719_163), "is beyond the years 1 to 9999"),
    ((0, FAR), "is beyond the years 1 to 9999"),
    ((0, 213_503_982), "is beyond the years 1 to 9999"),  # nanoseconds wrap to 1970
    (wide(dt.date(2020, 1, 1), 1), "is more precise than a microsecond"),
    (wide(dt.date(9999, 12, 31), 999), "is more precise than a microsecond"),
]


def read(path: Path, kind: str = "TIMESTAMP") -> Reading:
    relation = compile_sql(SQL.format(kind), rely=False).relation("r")
    return read_file(FolderSource("r", str(path.parent)), relation, str(path), "r/1")


def in_duckdb(path: Path, kind: str = "TIMESTAMP") -> list[dt.datetime | None]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT t::{kind} FROM '{path}' ORDER BY k").fetchall()
    return [value for (value,) in rows]


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ"])
def test_times_are_those_that_duckdb_reads(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "1.parquet"
    write_wide_times(path, GOOD)
    reading = read(path, kind)
    assert reading.rejected == ()
    found = reading.rows.column("t").to_pylist()
    assert [None if each is None else each.replace(tzinfo=None) for each in found] == in_duckdb(path)
    wh = cumulus.Warehouse(SQL.format(kind))
    wh.insert("r", path)
    assert [t for _, t in sorted(wh.view("v").rows())] == found


def test_a_server_reads_them_alike(tmp_path: Path) -> None:
    path = tmp_path / "times.parquet"
    write_wide_times(path, GOOD)
    with running(tmp_path, SQL.format("TIMESTAMP")) as server, server.http() as http:
        kind = {"Content-Type": "application/vnd.apache.parquet"}
        assert http.post("/v1/tables/r/rows", content=path.read_bytes(), headers=kind).status_code == 200
        rows = server.keeper.host.read(RowRequest("v")).table.to_pylist()
    assert [row["t"] for row in sorted(rows, key=lambda row: row["k"])] == in_duckdb(path)


def test_midnights_are_dates(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    write_wide_times(path, GOOD[:1])
    assert read(path, "DATE").rows.column("t").to_pylist() == [dt.date(9999, 12, 31)]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_what_a_timestamp_cannot_say_is_refused_by_its_row(tmp_path: Path, bad: WideTime, reason: str) -> None:
    path = tmp_path / "1.parquet"
    for others in (GOOD[-1:], GOOD):
        write_wide_times(path, [*others, bad, *others])
        reading = read(path)
        assert [each.position for each in reading.rejected] == [len(others) + 1]
        assert reason in reading.rejected[0].reason
        assert (
            reading.rows.column("t").to_pylist()[: len(others)] == reading.rows.column("t").to_pylist()[-len(others) :]
        )
        assert reading.rows.num_rows == 2 * len(others)
        wh = cumulus.Warehouse(SQL.format("TIMESTAMP"))
        with pytest.raises(CumulusError, match=reason.partition(" ")[2][-20:]):
            wh.insert("r", path)


def test_a_file_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    write_wide_times(path, GOOD)
    relation = compile_sql(SQL.format("TIMESTAMP"), rely=False).relation("r")
    source = FolderSource("r", str(tmp_path))
    parts = [read_file(source, relation, str(path), "r/1", part) for part in ((0, 2), (2, 3), (3, 5))]
    whole = read(path).rows
    assert [row for part in parts for row in part.rows.to_pylist()] == whole.to_pylist()


def test_a_run_shows_them(tmp_path: Path) -> None:
    (tmp_path / "in" / "r").mkdir(parents=True)
    write_wide_times(tmp_path / "in" / "r" / "1.parquet", GOOD)
    program = compile_sql(SQL.format("TIMESTAMP"), rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of) as running:
        assert list(running.steps())
    found = query(tmp_path / "out", "SELECT t FROM v ORDER BY k").column("t").to_pylist()
    assert found == in_duckdb(tmp_path / "in" / "r" / "1.parquet")
