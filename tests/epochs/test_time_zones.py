"""Times with a time zone in files: UTC for TIMESTAMP, moments for TIMESTAMPTZ, and no DATE."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import InputError
from support.engines import engine_of

pytestmark = pytest.mark.usefixtures("each_engine")

SCRIPT = """
CREATE TABLE r (k INTEGER PRIMARY KEY, t TIMESTAMP, z TIMESTAMPTZ, d DATE);
CREATE VIEW v AS SELECT k, t, z FROM r;
CREATE VIEW hours AS
SELECT date_trunc('hour', z) AS h, COUNT(*) AS n, MAX(z) AS last FROM r GROUP BY date_trunc('hour', z);
"""
JSON = """
{"k": 1, "t": "2024-03-31T04:30:00+02:00", "z": "2024-03-31T04:30:00+02:00"}
{"k": 2, "t": "2024-03-31T02:30:00Z", "z": "2024-03-31 02:30:00"}
{"k": 3, "t": "2024-03-31 02:30:00", "z": "2024-03-31T02:30:00.000001Z"}
{"k": 4, "t": "2024-03-31T02:30:00+25:00", "z": null}
{"k": 5, "d": "2024-03-31T02:30:00Z"}
"""
CSV = """k,t,z,d
1,2024-03-31T04:30:00+02:00,2024-03-31T04:30:00+02:00,
2,2024-03-31T02:30:00Z,2024-03-31 02:30:00,
3,2024-03-31 02:30:00,2024-03-31T02:30:00.000001Z,
4,2024-03-31T02:30:00+25:00,,
5,,,2024-03-31T02:30:00Z
"""
PLAIN = dt.datetime(2024, 3, 31, 2, 30)
MOMENT = PLAIN.replace(tzinfo=dt.UTC)


def maintained(tmp_path: Path) -> Path:
    program = compile_sql(SCRIPT, rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of) as running:
        assert list(running.steps())
    return tmp_path / "out"


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in" / "r"
    made.mkdir(parents=True)
    return made


@pytest.mark.parametrize(("name", "text"), [("1.json", JSON), ("1.csv", CSV)])
def test_texts_are_moments(tmp_path: Path, name: str, text: str) -> None:
    (folder(tmp_path) / name).write_text(text.strip() + "\n", encoding="utf-8")
    out = maintained(tmp_path)
    found = query(out, "SELECT k, t, z FROM v ORDER BY k")
    assert found.schema.field("z").type == pa.timestamp("us", tz="UTC")
    assert found.to_pylist() == [
        {"k": 1, "t": PLAIN, "z": MOMENT},
        {"k": 2, "t": PLAIN, "z": MOMENT},
        {"k": 3, "t": PLAIN, "z": MOMENT.replace(microsecond=1)},
    ]
    assert query(out, "SELECT h, n, last FROM hours").to_pylist() == [
        {"h": MOMENT.replace(minute=0), "n": 3, "last": MOMENT.replace(microsecond=1)}
    ]
    reasons = query(out, "SELECT reason FROM quarantine ORDER BY position").column("reason").to_pylist()
    assert [reason.split(":")[0] for reason in reasons] == ["t", "d"]


def written(tmp_path: Path, **columns: pa.Array) -> None:
    """Write a Parquet file; columns that are not given are NULL."""
    count = len(next(iter(columns.values())))
    table = pa.table({"k": pa.array(range(count), pa.int32())})
    for name in "tzd":
        table = table.append_column(name, columns.get(name, pa.nulls(count)))
    pq.write_table(table, folder(tmp_path) / "1.parquet")


@pytest.mark.parametrize(("zone", "unit"), [("UTC", "us"), ("Europe/Berlin", "ns"), ("+05:30", "ms")])
def test_columns_of_any_zone_are_moments(tmp_path: Path, zone: str, unit: str) -> None:
    times = pa.array([MOMENT, None], pa.timestamp(unit, tz=zone))
    written(tmp_path, t=times, z=times)
    found = query(maintained(tmp_path), "SELECT t, z FROM v ORDER BY k").to_pylist()
    assert found == [{"t": PLAIN, "z": MOMENT}, {"t": None, "z": None}]


def test_what_has_no_zone_is_of_utc(tmp_path: Path) -> None:
    written(tmp_path, z=pa.array([PLAIN], pa.timestamp("us")))
    assert query(maintained(tmp_path), "SELECT z FROM v").to_pylist() == [{"z": MOMENT}]


def test_a_column_of_moments_is_no_column_of_dates(tmp_path: Path) -> None:
    written(tmp_path, d=pa.array([MOMENT.replace(hour=0, minute=0), None], pa.timestamp("us", tz="UTC")))
    with pytest.raises(InputError, match=r"r/1.parquet: column 'd' is timestamp.us, tz=UTC., table 'r' says DATE"):
        maintained(tmp_path)


def test_a_time_of_day_is_no_date(tmp_path: Path) -> None:
    written(tmp_path, d=pa.array([PLAIN, PLAIN.replace(hour=0, minute=0)], pa.timestamp("us")))
    out = maintained(tmp_path)
    assert query(out, "SELECT k FROM v").to_pylist() == [{"k": 1}]
    (reason,) = query(out, "SELECT reason FROM quarantine").column("reason").to_pylist()
    assert reason.endswith("is not a DATE")
