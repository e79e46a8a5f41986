"""Values in Parquet files that are finer or wider than the column: rounded or quarantined, and none stops a run."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.query import query
from cumulus.epochs.sources import sources_from
from cumulus.errors import UsageError
from support.engines import engine_of
from support.tiers import sampled

pytestmark = pytest.mark.usefixtures("each_engine")

BROKEN = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"], pa.binary()).buffers())
FINER = "more precise than a microsecond"
BAD = [
    ("DECIMAL(12,2)", pa.array([1.239, 1.24, 19.99 * 3]), ["1.24", "59.97"], "has more than 2 digits after the point"),
    ("DECIMAL(12,2)", pa.array([1.239]), [], "has more than 2 digits after the point"),
    ("DECIMAL(38,38)", pa.array([Decimal(7)], pa.decimal128(1, 0)), [], "does not fit DECIMAL(38,38)"),
    ("HUGEINT", pa.array([1.5]), [], "is not an integer"),
    ("HUGEINT", pa.array(["9" * 38, "9" * 39]), ["9" * 38], "does not fit 128 bits"),
    ("HUGEINT", pa.array(["1" * 39]), [], "has 39 digits; Arrow's columns hold 38"),
    ("INTERVAL", pa.array(["1 day", "2562047788:00:54"]), ["1 day"], "longer than Arrow's columns hold an INTERVAL"),
    ("REAL", pa.array([0.5, 1e300, -1e300]), ["0.5"], "does not fit REAL"),
    ("REAL", pa.array(["0.5", "1e300"]), ["0.5"], "does not fit REAL"),
    ("TIMESTAMP", pa.array([0, 1], pa.timestamp("ns")), ["1970-01-01 00:00:00"], FINER),
    (
        "TIMESTAMP",
        pa.array(["1970-01-01T00:00:00.0000000", "1970-01-01T00:00:00.0000001"]),
        ["1970-01-01 00:00:00"],
        FINER,
    ),
    (
        "TIMESTAMPTZ",
        pa.array(["1970-01-01T00:00:00Z", "1970-01-01 00:00:00.123456789Z"]),
        ["1970-01-01 00:00:00+00"],
        FINER,
    ),
    ("TIMESTAMP", pa.array([0, 2**62], pa.timestamp("us")), ["1970-01-01 00:00:00"], "beyond the years 1 to 9999"),
    ("TIMESTAMP", pa.array([0, -(2**60)], pa.timestamp("ms")), ["1970-01-01 00:00:00"], "beyond the years 1 to 9999"),
    ("DATE", pa.array([0, 2**31 - 1], pa.date32()), ["1970-01-01"], "beyond the years 1 to 9999"),
    ("INTERVAL", pa.array([1000, 1], pa.duration("ns")), ["00:00:00.000001"], FINER),
    ("INTERVAL", pa.array(["1 day", "00:00:00.0000001"]), ["1 day"], FINER),
    ("INTERVAL", pa.array(["1 day", "2 parsecs"]), ["1 day"], "there is no unit 'parsecs'"),
    ("VARCHAR", BROKEN, ["a"], "not UTF-8"),
    ("BIGINT", BROKEN.slice(1), [], "not UTF-8"),
    ("DATE", pa.array(["2024-01-31", "2024-02-30"]), ["2024-01-31"], "not a DATE: write it as 2024-01-31"),
]
FINE = [
    ("INTEGER", pa.array([7.0, math.nan, None]), ["7", None, None]),
    ("DECIMAL(4,2)", pa.array([0.1 + 0.2, math.nan, -0.0]), ["0.30", None, "0.00"]),
    ("DOUBLE", pa.array([Decimal("1.2E-17"), None], pa.decimal128(18, 18)), ["1.2e-17", None]),
    ("REAL", pa.array([0.1, None, float("inf")]), ["0.10000000149011612", None, "inf"]),
    ("REAL", pa.array([2**25 + 1, None]), ["33554432.0", None]),
    ("DOUBLE", pa.array([0.1, None]), ["0.1", None]),
    ("INTERVAL", pa.array([5, 1001, None], pa.duration("us")), ["00:00:00.000005", "00:00:00.001001", None]),
    ("INTERVAL", pa.array([86_400, None], pa.duration("s")), ["1 day", None]),
    ("INTERVAL", pa.array([" 1 month -2 days", "1:30", "90", None]), ["1 month -2 days", "01:30:00", "00:01:30", None]),
    ("HUGEINT", pa.array([2**63, None], pa.uint64()), ["9223372036854775808", None]),
]


def run(tmp_path: Path, kind: str, array: pa.Array, *, key: str = "PRIMARY KEY") -> tuple[list[Any], list[str]]:
    """Return what a view of the values gives, as texts, and why rows were quarantined."""
    folder = tmp_path / "in" / "r"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"k": pa.array(range(len(array)), pa.int32()), "x": array}), folder / "1.parquet")
    program = compile_sql(
        f"CREATE TABLE r (k INT {key}, x {kind}); CREATE VIEW v AS SELECT k, CAST(x AS VARCHAR) AS x FROM r", rely=False
    )
    sources = sources_from([str(tmp_path / "in")], program)
    with EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of) as running:
        assert list(running.steps())
    found = query(tmp_path / "out", "SELECT x FROM v ORDER BY k").column("x").to_pylist()
    reasons = query(tmp_path / "out", "SELECT reason FROM quarantine ORDER BY position").column("reason").to_pylist()
    return found, reasons


@pytest.mark.parametrize("key", sampled(["PRIMARY KEY", "NOT NULL"], of=2))
@pytest.mark.parametrize(("kind", "array", "left", "reason"), BAD, ids=lambda each: getattr(each, "type", None))
def test_what_no_value_is_near_to_is_quarantined(tmp_path, kind, array, left, reason, key) -> None:
    found, reasons = run(tmp_path, kind, array, key=key)
    assert found == left
    assert len(reasons) == len(array) - len(left)
    for each in reasons:
        assert each.startswith("x: ")
        assert each.endswith(reason)


@pytest.mark.parametrize("key", sampled(["PRIMARY KEY", "NOT NULL"], of=2, first=1))
@pytest.mark.parametrize(("kind", "array", "meant"), FINE, ids=lambda each: getattr(each, "type", None))
def test_values_come_as_what_they_mean(tmp_path, kind, array, meant, key) -> None:
    assert run(tmp_path, kind, array, key=key) == (meant, [])


def test_a_view_of_intervals_is_refused_before_anything_is_written(tmp_path) -> None:
    (tmp_path / "in" / "r").mkdir(parents=True)
    program = compile_sql("CREATE TABLE r (x INTERVAL); CREATE VIEW v AS SELECT MAX(x) AS most FROM r", rely=False)
    sources = sources_from([str(tmp_path / "in")], program)
    with pytest.raises(UsageError, match="view v: its column most is an INTERVAL"):
        EmbeddedRun(program, sources, tmp_path / "out", make_engine=engine_of)
    assert not (tmp_path / "out").exists()
