"""Values that are finer than the column's type: REAL rounds, as a table of DuckDB does, and times refuse."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
import warnings
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas
import pyarrow as pa
import pytest

import cumulus
from cumulus import errors
from cumulus.catalog.types import Interval

SQL = """
CREATE TABLE r (k INTEGER NOT NULL, x REAL) WITH (keep = all);
CREATE VIEW sums AS SELECT k, SUM(x) AS s, MIN(x) AS least FROM r GROUP BY k;
CREATE VIEW counts AS SELECT x, COUNT(*) AS n FROM r GROUP BY x;
"""
LARGEST = 3.4028234663852886e38
HALF = 2.0**-24
EDGES = [
    *(0.1, -0.1, 0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, LARGEST, -LARGEST, LARGEST * (1 + HALF / 4)),
    *(1 + HALF, 1 + 3 * HALF, -1 - HALF, 1 + HALF + 2.0**-52, 2 - HALF),  # between two, to the even one
    *(2.0**-126, 2.0**-126 * (1 - HALF), -(2.0**-149), 1e-46, 5e-324),  # where precision ends
]


def _floats() -> list[float]:
    rng = random.Random(4)
    return EDGES + [rng.uniform(-1, 1) * 10 ** rng.uniform(-46, 38.5) for _ in range(300)]


def _by_trigger(wh: cumulus.Warehouse, rows: list[Any]) -> None:
    on = wh.trigger("r")
    for row in rows:
        on(+1, *row)


WAYS: dict[str, Callable[[cumulus.Warehouse, list[Any]], object]] = {
    "tuples": lambda wh, rows: wh.insert("r", rows),
    "trigger": _by_trigger,
    "arrow": lambda wh, rows: wh.insert("r", _table(rows)),
    "events": lambda wh, rows: wh.apply([(1, "r", row) for row in rows]),
    "fill": lambda wh, rows: wh.fill({"r": _table(rows)}),
}


def _table(rows: list[Any]) -> pa.Table:
    return pa.table({"k": [k for k, _ in rows], "x": pa.array([x for _, x in rows], pa.float64())})


def _bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value + 0.0)


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("way", WAYS)
def test_reals_have_32_bits_however_they_come(engine, way) -> None:
    rows = list(enumerate(_floats()))
    wh = cumulus.Warehouse(SQL, engine=engine)
    WAYS[way](wh, rows)
    found = {k: (_bits(s), _bits(least)) for k, s, least in wh.view("sums").rows()}
    assert found == {k: (_bits(float(np.float32(x))),) * 2 for k, x in rows}
    assert wh.view("counts").get(0.1) == (float(np.float32(0.1)), 1)
    wh.execute("CREATE VIEW later AS SELECT k, SUM(x) AS s, MIN(x) AS least FROM r GROUP BY k")
    assert {k: (_bits(s), _bits(least)) for k, s, least in wh.view("later").rows()} == found
    wh.delete("r", rows)
    assert wh.view("sums").rows() == wh.view("counts").rows() == []


@pytest.mark.parametrize("engine", ["native", "interpreter"])
@pytest.mark.parametrize("value", [LARGEST * (1 + HALF), -1e300, 10**400])
def test_numbers_that_no_real_is_near_to_are_refused(engine, value) -> None:
    wh = cumulus.Warehouse(SQL, engine=engine)
    with pytest.raises(errors.ValueTypeError, match=r"r.x REAL: .* does not fit REAL"):
        wh.insert("r", [(1, 0.5), (2, value)])
    if isinstance(value, float):
        with pytest.raises(errors.ValueTypeError, match=r"r.x REAL: .* does not fit REAL"):
            wh.insert("r", _table([(1, 0.5), (2, value)]))
    with pytest.raises(errors.UsageError, match="does not fit REAL"):
        wh.view("counts").get(value)
    assert wh.view("sums").rows() == []


def test_duckdb_rounds_as_well() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE r (k INTEGER NOT NULL, x REAL)")
        connection.executemany("INSERT INTO r VALUES (?, ?)", [(1, 0.1), (1, 0.2), (2, 1 + HALF)])
        rows = connection.sql("SELECT k, SUM(x) FROM r GROUP BY k ORDER BY k").fetchall()
    wh = cumulus.Warehouse(SQL)
    wh.insert("r", [(1, 0.1), (1, 0.2), (2, 1 + HALF)])
    assert [(k, s) for k, s, _ in sorted(wh.view("sums").rows())] == rows


NANOSECOND = pandas.Timestamp("2020-01-01 00:00:00.000000001")
TOO_FINE = [
    ("TIMESTAMP", NANOSECOND),
    ("TIMESTAMP", NANOSECOND.to_datetime64()),
    ("DATE", NANOSECOND),
    ("INTERVAL", pandas.Timedelta(1, "ns")),
    ("INTERVAL", np.timedelta64(1, "ns")),
]
JUST_RIGHT = [
    ("TIMESTAMP", np.datetime64("2020-01-01T00:00:00.000001000"), dt.datetime(2020, 1, 1, 0, 0, 0, 1)),
    ("TIMESTAMP", pandas.Timestamp("2020-01-01 00:00:00.000001"), dt.datetime(2020, 1, 1, 0, 0, 0, 1)),
    ("DATE", np.datetime64("2020-01-01", "ns"), dt.date(2020, 1, 1)),
    ("INTERVAL", np.timedelta64(1000, "ns"), Interval(0, 0, 1)),
]
TIMES = "CREATE TABLE r (t {}); CREATE VIEW counts AS SELECT t, COUNT(*) AS n FROM r GROUP BY t"


@pytest.mark.parametrize(("kind", "value"), TOO_FINE, ids=repr)
def test_times_are_refused_rather_than_cut_off(kind, value) -> None:
    wh = cumulus.Warehouse(TIMES.format(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(errors.ValueTypeError, match=r"DATE|more precise than a microsecond"):
            wh.insert("r", [(value,)])
        if kind == "TIMESTAMP":
            with pytest.raises(errors.ValueTypeError, match="more precise than a microsecond"):
                wh.insert("r", pa.table({"t": pa.array([value], pa.timestamp("ns"))}))
    assert wh.view("counts").rows() == []


@pytest.mark.parametrize(("kind", "value", "meant"), JUST_RIGHT, ids=repr)
def test_times_of_numpy_and_pandas_are_times(kind, value, meant) -> None:
    wh = cumulus.Warehouse(TIMES.format(kind))
    wh.insert("r", [(value,)])
    assert wh.view("counts").rows() == [(meant, 1)]
