"""TIMESTAMPTZ in every form of data, engine and reading; times with a zone for columns without one."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import cumulus
from cumulus import Warehouse
from cumulus.catalog.partition import bucket_of, buckets_of
from cumulus.errors import BindError, CumulusError, UnsupportedError, ValueTypeError

UTC, BERLIN = dt.UTC, ZoneInfo("Europe/Berlin")
MOMENT = dt.datetime(2024, 3, 31, 2, 30, tzinfo=UTC)
IN_BERLIN = dt.datetime(2024, 3, 31, 4, 30, tzinfo=BERLIN)
"""The same."""
PLAIN = dt.datetime(2024, 3, 31, 2, 30)

TABLES = """
CREATE TABLE r (id INTEGER NOT NULL PRIMARY KEY, z TIMESTAMPTZ, y TIMESTAMP WITH TIME ZONE, t TIMESTAMP, d DATE);
CREATE TABLE s (z TIMESTAMPTZ NOT NULL, name VARCHAR);
"""
VIEWS = """
CREATE VIEW hours AS
SELECT date_trunc('hour', z) AS h, COUNT(*) AS n, MIN(z) AS first, MAX(y) AS last FROM r GROUP BY date_trunc('hour', z);
CREATE VIEW joined AS SELECT s.name, COUNT(*) AS n FROM r JOIN s ON r.z = s.z GROUP BY s.name;
CREATE VIEW near AS
SELECT r.id, (SELECT COUNT(*) FROM s WHERE s.z > r.z - INTERVAL '1 hour' AND s.z <= r.z) AS n FROM r;
CREATE VIEW newest AS SELECT z, z + INTERVAL '1 month' AS later FROM r WHERE z > '2020-01-01T00:00:00Z'
ORDER BY z DESC LIMIT 3;
"""
EXPRESSIONS = (
    *("z", "z::VARCHAR", "z::DATE", "z::TIMESTAMP", "t::TIMESTAMPTZ", "d::TIMESTAMPTZ", "date_trunc('month', z)"),
    *(
        "hour(z)",
        "extract(month FROM z)",
        "epoch(z)",
        "epoch_us(z)",
        "z + INTERVAL '1 month'",
        "z < y",
        "z = t",
        "z > d",
    ),
    *("z - INTERVAL '90 minutes'", "time_bucket(INTERVAL '15 minutes', z)", "date_diff('day', y, z)", "last_day(z)"),
    *("z < '2020-06-01'", "z >= TIMESTAMPTZ '2020-01-01 00:00:00+02'", "strftime(z, '%Y-%m-%d %H')", "greatest(z, y)"),
    *("coalesce(z, t)", "CASE WHEN id > 2 THEN z ELSE y END", "z AT TIME ZONE 'UTC'", "timezone('Etc/UTC', t)"),
    *(
        "z BETWEEN t AND y",
        "CAST('2020-01-01 10:00:00+02:30' AS TIMESTAMPTZ)",
        "'2020-05-05'::TIMESTAMPTZ",
        "z IN (t, y)",
    ),
    *("epoch_us(z - y)", "epoch_us(z - t)", "dayname(z)", "TRY(CAST(z::VARCHAR AS TIMESTAMPTZ))", "z IS NULL"),
)
ROWS: list[tuple[Any, ...]] = [
    (1, MOMENT, IN_BERLIN, PLAIN, PLAIN.date()),
    (2, None, None, None, None),
    (3, dt.datetime(1965, 12, 31, 23, 59, 59, 999_999, UTC), dt.datetime(2024, 2, 29, tzinfo=UTC), PLAIN, dt.date.min),
    (4, dt.datetime(2024, 10, 27, 0, 30, tzinfo=UTC), MOMENT, dt.datetime(2024, 10, 27, 0, 30), dt.date(2024, 10, 27)),
]


@pytest.fixture(params=["native", "interpreter"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_expressions_are_duckdbs_in_utc(engine: str) -> None:
    told = ", ".join(f"{each} AS c{at}" for at, each in enumerate(EXPRESSIONS))
    wh = Warehouse(f"{TABLES} CREATE VIEW v AS SELECT id, {told} FROM r", engine=engine)
    wh.insert("r", ROWS)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(TABLES)
    con.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?)", ROWS)
    theirs = con.execute(f"SELECT id, {told} FROM r ORDER BY id").fetchall()
    for mine, other in zip(sorted(wh.view("v").rows()), theirs, strict=True):
        assert dict(zip(EXPRESSIONS, mine[1:], strict=True)) == dict(zip(EXPRESSIONS, other[1:], strict=True))
    types = dict(con.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT {told} FROM r)").fetchall())
    moments = {name for name, kind in types.items() if kind == "TIMESTAMP WITH TIME ZONE"}
    schema = wh.view("v").arrow().schema
    assert moments == {name for name in types if schema.field(name).type == pa.timestamp("us", tz="UTC")}


def filled(engine: str) -> Warehouse:
    wh = Warehouse(TABLES + VIEWS, engine=engine, keep="all")
    wh.insert("s", [(MOMENT, "a"), ("2024-03-31 04:30:00+02:00", "b"), ("2024-03-31T02:00:00Z", "c")])
    wh.insert("r", ROWS)
    wh.insert("r", [{"id": 5, "z": "2024-03-31T04:30:00+02:00"}, {"id": 6, "z": PLAIN}, {"id": 7, "z": PLAIN.date()}])
    wh.insert("r", [{"id": 8, "z": pd.Timestamp(IN_BERLIN), "t": IN_BERLIN, "y": "2024-03-31 02:30:00"}])
    york = pa.array([0, 3_600_000], pa.timestamp("ms", tz="America/New_York"))
    wh.insert("r", pa.table({"id": pa.array([10, 11], pa.int32()), "z": york, "t": york}))
    wh.insert("r", pa.table({"id": [12], "z": pa.array([3600], pa.timestamp("s"))}))
    zoned = pd.to_datetime(["2024-03-31 04:30", "2025-01-01 00:00"]).tz_localize("Europe/Berlin")
    wh.insert("r", pd.DataFrame({"id": [20, 21], "z": zoned, "t": zoned}))
    wh.insert("r", pl.DataFrame({"id": [30], "z": [MOMENT], "t": [IN_BERLIN]}))
    wh.upsert("r", [(1, dt.datetime(2024, 3, 31, 5, 30, tzinfo=BERLIN), None, None, None)])
    wh.delete("r", [(5, IN_BERLIN, None, None, None)])
    return wh


def shown(wh: Warehouse) -> dict[str, list[Any]]:
    return {view: sorted(wh.view(view).rows(), key=repr) for view in wh.views}


def test_every_form_of_data_and_every_way_out(engine: str) -> None:
    wh = filled(engine)
    assert shown(wh) == shown(filled("interpreter"))
    assert wh.recheck(maps=True)
    assert [wh.view("joined").get(name) for name in "ab"] == [("a", 4), ("b", 4)]  # 6, 8, 20 and 30
    group = wh.view("hours").get(dt.datetime(2024, 3, 31, 4, tzinfo=BERLIN))
    assert group == (MOMENT.replace(minute=0), 4, MOMENT, MOMENT)
    assert all(each.tzinfo is UTC for each in group if isinstance(each, dt.datetime))
    table = wh.view("hours").arrow()
    assert table.schema.field("last").type == pa.timestamp("us", tz="UTC")
    assert str(wh.view("hours").pandas()["h"].dtype) == "datetime64[us, UTC]"
    assert wh.view("hours").polars().schema["h"] == pl.Datetime("us", "UTC")
    hours = wh.query("SELECT hour(h) FROM hours WHERE h > '2024-12-01' OR h < '1966-01-01'").rows()
    assert sorted(hours) == [(23,), (23,)]
    assert sorted(wh.view("newest").rows())[-1][1] == dt.datetime(2025, 1, 31, 23, tzinfo=UTC)


def test_saved_and_loaded_by_either_engine(engine: str, tmp_path: Path) -> None:
    wh = filled(engine)
    for form in ("auto", "portable"):
        wh.save(tmp_path / form, format=form)
        for other in ("native", "interpreter"):
            loaded = Warehouse.load(tmp_path / form, engine=other)
            assert shown(loaded) == shown(wh)
            loaded.insert("r", [(99, IN_BERLIN, None, None, None)])
            assert loaded.recheck(maps=True)


def test_single_events_and_subscribers(engine: str) -> None:
    wh = filled(engine)
    changes: list[Any] = []
    wh.subscribe("hours", changes.extend)
    wh.trigger("r")(+1, 40, IN_BERLIN + dt.timedelta(minutes=15), None, None, None)
    ((old, new),) = changes
    assert (old[1], new[1], new[2]) == (4, 5, MOMENT)


def test_m3_keeps_literals_and_columns() -> None:
    program = cumulus.compile(TABLES + VIEWS)
    assert "TIMESTAMPTZ '2020-01-01 00:00:00+00:00'" in str(program)
    assert cumulus.m3.parse(str(program)) == program
    text = "RELATION r(z TIMESTAMPTZ); MAP m[z TIMESTAMPTZ](n BIGINT) = r(z) * {z > TIMESTAMPTZ '2024-01-01 00:00+02'};"
    assert "TIMESTAMPTZ '2023-12-31 22:00:00+00:00'" in str(cumulus.m3.parse(text))


def test_buckets_are_those_of_the_words() -> None:
    times = [MOMENT, dt.datetime(1960, 1, 1, tzinfo=UTC), None]
    array = pa.array(times, pa.timestamp("us", tz="UTC"))
    plain = [None if each is None else each.replace(tzinfo=None) for each in times]
    assert buckets_of(array, 64).to_pylist() == [bucket_of(each, 64) for each in times]
    assert [bucket_of(each, 64) for each in plain] == [bucket_of(each, 64) for each in times]


def test_a_column_without_a_zone_takes_moments_in_utc(engine: str) -> None:
    wh = Warehouse("CREATE TABLE t (t TIMESTAMP); CREATE VIEW v AS SELECT t FROM t", engine=engine)
    wh.insert("t", [(IN_BERLIN,), ("2024-03-31T02:30:00Z",), ("2024-03-31 04:30:00+02:00",), (PLAIN,)])
    wh.insert("t", pa.table({"t": pa.array([IN_BERLIN], pa.timestamp("us", tz="Asia/Tokyo"))}))
    wh.trigger("t")(+1, IN_BERLIN)
    assert wh.view("v").rows() == [(PLAIN,)] * 6


@pytest.mark.parametrize(
    "given", [[(MOMENT,)], pa.table({"d": pa.array([MOMENT], pa.timestamp("us", tz="UTC"))})], ids=["rows", "arrow"]
)
def test_a_moment_is_no_date(given: Any) -> None:
    wh = Warehouse("CREATE TABLE t (d DATE); CREATE VIEW v AS SELECT d FROM t")
    with pytest.raises(ValueTypeError, match=r"has a time zone, a DATE has none: .* value\.date\(\)"):
        wh.insert("t", given)


@pytest.mark.parametrize("value", ["x", 5, "2024-03-31T02:30:00+99:00", dt.datetime.min.replace(tzinfo=BERLIN)])
def test_what_is_no_moment_is_refused(value: Any, engine: str) -> None:
    wh = Warehouse(TABLES + VIEWS, engine=engine)
    with pytest.raises(ValueTypeError, match=r"r\.z"):
        wh.insert("r", [{"id": 1, "z": value}])
    assert wh.stats().events == 0


@pytest.mark.parametrize(
    ("select", "problem", "words"),
    [
        ("z AT TIME ZONE 'Europe/Berlin'", UnsupportedError, "no time zone 'Europe/Berlin'"),
        ("id AT TIME ZONE 'UTC'", BindError, "takes a TIMESTAMP, not INTEGER"),
        ("TIMESTAMPTZ '2024-13-01'", BindError, "is not a TIMESTAMPTZ"),
        ("SUM(z)", BindError, "TIMESTAMPTZ"),
        ("now()", CumulusError, "now"),
    ],
)
def test_what_is_refused_is_named(select: str, problem: type[CumulusError], words: str) -> None:
    with pytest.raises(problem, match=words):
        cumulus.compile(f"{TABLES} CREATE VIEW v AS SELECT {select} AS x FROM r")
