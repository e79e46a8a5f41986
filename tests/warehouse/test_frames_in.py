"""Data get in as Python people have them: frames after any operation, categories, NULLs of all makes, columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import cumulus
from cumulus import errors
from cumulus.catalog.types import Interval

KX = "CREATE TABLE t (k VARCHAR, x INTEGER); CREATE VIEW v AS SELECT k, x FROM t ORDER BY k, x;"
WIDE = """
CREATE TABLE t (k VARCHAR, x INTEGER, d DECIMAL(9, 2), f DOUBLE, day DATE, ts TIMESTAMP, b BOOLEAN, i INTERVAL,
                h HUGEINT, r REAL);
CREATE VIEW v AS SELECT k, x, d, f, day, ts, b, i, h, r FROM t;
"""
COLUMNS = ["k", "x", "d", "f", "day", "ts", "b", "i", "h", "r"]
ENGINES = ("native", "interpreter")
FRAME = pd.DataFrame({"k": ["a", "b", "c", "c"], "x": [1, 2, 3, 3]})


def taken(data, sql: str = KX, engine: str = "native") -> list:
    """Rows of the view after an insertion, which a `fill` makes, too."""
    wh = cumulus.Warehouse(sql, engine=engine)
    wh.insert("t", data() if callable(data) else data)
    filled = cumulus.Warehouse(sql, engine=engine)
    filled.fill({"t": data() if callable(data) else data})
    assert repr(filled.view("v").rows()) == repr(wh.view("v").rows())
    return wh.view("v").rows()


OPERATIONS = {
    "filter": FRAME[FRAME.x > 1],
    "sort_values": FRAME.sort_values("x", ascending=False),
    "sample": FRAME.sample(3, random_state=1),
    "concat": pd.concat([FRAME, FRAME]),
    "drop_duplicates": FRAME.drop_duplicates(),
    "query": FRAME.query("x != 2"),
    "groupby and reset_index": FRAME.groupby("k").sum().reset_index(),
    "merge": FRAME.merge(FRAME, on=["k", "x"]),
    "set_index and reset_index": FRAME.set_index("k").reset_index(),
    "iloc": FRAME.iloc[1::2],
    "assign": FRAME[FRAME.x > 1].assign(x=7),
    "an index with a name of its own": FRAME.rename_axis("number")[::2],
    "an index that is a column of the table": FRAME.set_index("k"),
    "the groups as index": FRAME.groupby("k").sum(),
    "an index of two levels": FRAME.rename(columns=str.upper).set_index(["K", "X"]),
    "an index that is a column, too": FRAME.set_index("k", drop=False),
    "categories": FRAME.astype({"k": "category", "x": "category"}),
    "nullable types": FRAME.convert_dtypes(),
    "types of Arrow": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "no rows": FRAME[FRAME.x > 9],
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_pandas_frames_after_the_commonest_operations(name) -> None:
    frame = OPERATIONS[name]
    plain = frame if {"k", "x"} <= set(frame.columns) else frame.reset_index()
    plain.columns = plain.columns.str.lower()
    assert taken(frame) == sorted(zip(plain["k"].tolist(), plain["x"].tolist(), strict=True))


@pytest.mark.parametrize(
    "frame",
    [
        pd.concat([FRAME, FRAME], axis=1),
        FRAME.rename(columns={"x": "K"}),
        pl.DataFrame({"k": ["a"], "K": ["b"]}),
        {"k": ["a"], "K": ["b"]},
        [{"k": "a", "K": "b"}],
    ],
)
def test_two_columns_of_one_name_are_refused_by_name(frame) -> None:
    with pytest.raises(errors.ArityError, match=r"two columns .*'k'"):
        taken(frame)


POLARS = pl.DataFrame({"k": ["a", "b", "b"], "x": [1, 2, None]})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "frame",
    [
        POLARS,
        POLARS.lazy(),
        POLARS.with_columns(pl.col("k").cast(pl.Categorical)),
        POLARS.with_columns(pl.col("k").cast(pl.Enum(["b", "a", "z"]))),
        POLARS.with_columns(pl.col("x").cast(pl.Int128)),
        POLARS.with_columns(pl.col("x").cast(pl.Decimal(30, 4))),
        POLARS.with_columns(pl.col("x").cast(pl.String)),
        *(
            pa.table({"k": pa.array(["a", "b", "b"], kind).dictionary_encode(), "x": [1, 2, None]})
            for kind in (pa.string(), pa.large_string(), pa.string_view())
        ),
    ],
)
def test_frames_of_polars_and_dictionaries_of_any_texts(frame, engine) -> None:
    assert sorted(taken(frame, engine=engine), key=repr) == [("a", 1), ("b", 2), ("b", None)]


DAY, MOMENT = dt.date(2024, 1, 31), dt.datetime(2024, 1, 31, 10, 30)
PLAIN = ("a", 1, Decimal("1.50"), 1.5, DAY, MOMENT, True, Interval(0, 1, 0), 2**70, 0.5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "row",
    [
        (
            *(np.str_("a"), np.int8(1), np.float64(1.5), np.float32(1.5), np.datetime64("2024-01-31")),
            *(np.datetime64("2024-01-31T10:30"), np.bool_(True), np.timedelta64(1, "D"), 2**70, np.float16(0.5)),
        ),
        ("a", "1", "1.5", " 1.5 ", "2024-01-31", "2024-01-31 10:30:00", "T", " 1 day", str(2**70), "5e-1"),
    ],
)
def test_scalars_of_numpy_and_values_written_as_text(row, engine) -> None:
    named = dict(zip(COLUMNS, row, strict=True))
    for data in ([row], [named], {name: [value] for name, value in named.items()}):
        assert taken(data, WIDE, engine) == [PLAIN]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("null", [None, pd.NA, pd.NaT, np.datetime64("NaT")])
def test_every_null_of_pandas_is_null_in_tuples_and_dicts(null, engine) -> None:
    row = (null,) * len(COLUMNS)
    assert taken([row, dict(zip(COLUMNS, row, strict=True))], WIDE, engine) == [(None,) * len(COLUMNS)] * 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("nan", [float("nan"), np.float32("nan")])
def test_a_float_nan_is_null_but_in_columns_of_floats(nan, engine) -> None:
    nulls, floats = (nan, nan, nan), (nan, nan)
    row = dict(zip(("k", "d", "day", "f", "r"), (*nulls, *floats), strict=True))
    (found,) = taken([row], WIDE, engine)
    assert repr(found) == "(None, None, None, nan, None, None, None, None, None, nan)"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"d": Decimal("NaN")}, r"t.d DECIMAL\(9,2\): NaN is not"),
        ({"x": Decimal("sNaN")}, r"t.x INTEGER: .*NaN"),
        ({"f": Decimal("sNaN")}, r"t.f DOUBLE: .*NaN"),
        ({"x": "3.5"}, "t.x INTEGER: .*3.5.* is not an integer"),
        ({"x": ""}, "t.x INTEGER: '' is not an integer"),
        ({"x": "٣"}, "t.x INTEGER: '٣' is not an integer"),
        ({"d": "1.005"}, "more than 2 digits after the point"),
        ({"d": "x"}, r"t.d DECIMAL\(9,2\): 'x' is not"),
        ({"b": "maybe"}, "t.b BOOLEAN: 'maybe' is not"),
        ({"day": "2024-13-01"}, "t.day DATE: "),
        ({"x": np.array([1, 2])}, "t.x INTEGER: "),
        ({"k": "ok\ud83d"}, r"t.k VARCHAR: '\\ud83d' at character 3 is half a character"),
    ],
)
def test_values_that_are_none_are_named(row, told, engine) -> None:
    wh = cumulus.Warehouse(WIDE, engine=engine)
    values = tuple(row.get(name) for name in COLUMNS)
    for call in (
        lambda: wh.insert("t", [row]),
        lambda: wh.insert("t", [values]),
        lambda: wh.apply([(1, "t", values)]),
        lambda: wh.trigger("t")(1, *values),
    ):
        with pytest.raises(errors.ValueTypeError, match=told):
            call()
    assert wh.view("v").rows() == []


BATCHES = [pa.record_batch({"x": [1]}), pa.record_batch({"X": [2], "k": ["b"]})]
BOTH = pa.concat_tables([pa.table({"k": pa.nulls(1, pa.string()), "x": [1]}), pa.table({"k": ["b"], "x": [2]})])


@pytest.mark.parametrize(
    "data",
    [
        {"x": [1, 2], "k": [None, "b"]},
        {"x": np.array([1, 2]), "k": [None, "b"]},
        {"X": pd.Series([1, 2]), "k": pl.Series([None, "b"])},
        {"x": pa.array(["1", "2"]), "K": pa.chunked_array([[None], ["b"]], pa.string())},
        lambda: BATCHES,
        lambda: iter(BATCHES),
        lambda: [pd.DataFrame({"x": [1]}), pl.DataFrame({"x": [2], "k": ["b"]})],
        lambda: ds.dataset(BOTH),
        lambda: ds.dataset(BOTH).scanner(filter=ds.field("x") > 0),
        lambda: BOTH.to_reader(),
        lambda: duckdb.sql("SELECT * FROM (VALUES (NULL, 1), ('b'::ENUM ('a', 'b'), 2)) r(K, X)"),
    ],
)
def test_columns_batches_datasets_and_relations(data) -> None:
    assert sorted(taken(data), key=repr) == [("b", 2), (None, 1)]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"k": ["a"], "x": [1, 2]}, "different lengths: k 1, x 2"),
        ({"k": "a", "x": 1}, "not dict\nPut a single row into a list"),
        ({}, "not dict"),
        (None, "not NoneType"),
        (np.array(1), "not ndarray"),
        (FRAME.x, "not a Series of pandas"),
        (pd.DataFrame([("a", 1)]), "t has no column '0'"),
        ([{1: 2, "z": 3}], "t has no column 1"),
        (pl.Series([1]), "no Arrow table"),
    ],
)
def test_what_is_no_rows_says_so(data, told) -> None:
    with pytest.raises(errors.DataError, match=told):
        taken(data)
