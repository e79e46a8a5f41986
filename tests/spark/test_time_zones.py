"""Moments through Spark: the rows, types and words of the embedded host."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.output.query import query
from cumulus.spark import maintain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCRIPT = """
CREATE TABLE r (k INTEGER PRIMARY KEY, t TIMESTAMP, z TIMESTAMPTZ);
CREATE VIEW hours AS
SELECT date_trunc('hour', z) AS h, COUNT(*) AS n, MAX(t) AS last FROM r GROUP BY date_trunc('hour', z);
"""


@pytest.mark.slow
def test_moments_are_moments(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "r"
    folder.mkdir(parents=True)
    lines = ['{"k": 1, "t": "2024-03-31T04:30:00+02:00", "z": "2024-03-31T04:30:00+02:00"}', '{"k": 2, "z": null}']
    (folder / "1.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    moment = dt.datetime(2024, 3, 31, 2, 45, tzinfo=dt.UTC)
    times = pa.array([moment, dt.datetime(1960, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", tz="Europe/Berlin"))
    pq.write_table(pa.table({"k": pa.array([3, 4], pa.int32()), "t": times, "z": times}), folder / "2.parquet")
    maintain(spark, compile_sql(SCRIPT, rely=False), tmp_path / "in", tmp_path / "out")
    found = query(tmp_path / "out", "SELECT * FROM hours ORDER BY h NULLS FIRST")
    assert found.schema.field("h").type == pa.timestamp("us", tz="UTC")
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (None, 1, None),
        (dt.datetime(1960, 1, 1, tzinfo=dt.UTC), 1, dt.datetime(1960, 1, 1)),
        (moment.replace(minute=0), 2, moment.replace(tzinfo=None)),
    ]
    assert query(tmp_path / "out", "SELECT COUNT(*) AS n FROM quarantine").to_pylist() == [{"n": 0}]
