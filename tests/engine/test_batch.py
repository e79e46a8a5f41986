"""Users' data to checked rows: every form gives the same rows, and every wrong value is named."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus.catalog.arrow import table_of
from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    INTEGER,
    INTERVAL,
    SMALLINT,
    TIMESTAMP,
    VARCHAR,
    Interval,
    decimal,
)
from cumulus.engine.rows_in import checked_rows, checker
from cumulus.errors import ArityError, NullError, ValueTypeError
from support.tiers import examples

TYPES = {
    BOOLEAN: st.booleans(),
    SMALLINT: st.integers(-(2**15), 2**15 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    HUGEINT: st.integers(-(10**38) + 1, 10**38 - 1),
    DOUBLE: st.floats(allow_nan=False),
    decimal(9, 2): st.decimals(-9999999, 9999999, places=2),
    VARCHAR: st.text(st.characters(codec="utf-8"), max_size=5),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(),
    INTERVAL: st.builds(Interval, st.integers(-99, 99), st.integers(-99, 99), st.integers(-(10**9), 10**9)),
}
EVERY = Relation("r", tuple(Column(f"c{place}", kind) for place, kind in enumerate(TYPES)))
ROWS = st.lists(st.tuples(*(st.none() | values for values in TYPES.values())), max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(ROWS)
def test_rows_go_through_arrow_and_back(rows) -> None:
    table = table_of(EVERY.columns, rows)
    assert checked_rows(EVERY, table) == rows
    assert checked_rows(EVERY, [dict(zip(EVERY.column_names, row, strict=True)) for row in rows]) == rows
    assert checked_rows(EVERY, rows) == rows
    if rows:
        assert [row for batch in table.to_batches() for row in checked_rows(EVERY, batch)] == rows


R = Relation("r", (Column("a", INTEGER, True), Column("d", decimal(9, 2)), Column("s", VARCHAR)), key=("a",))


def test_narrower_and_wider_arrow_types_are_taken_where_every_value_fits() -> None:
    table = pa.table(
        {
            "d": pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)),
            "a": pa.array([1, 2], pa.int64()),
            "s": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    expected = [(1, Decimal("1.50"), "x"), (2, None, "y")]
    assert checked_rows(R, table) == expected
    assert checked_rows(R, table.to_pandas()) == expected
    assert str(checked_rows(R, table)[0][1]) == "1.50"


@pytest.mark.parametrize(
    ("table", "error", "told"),
    [
        (pa.table({"a": [2**40]}), ValueTypeError, "r.a INTEGER"),
        (pa.table({"a": ["x"]}), ValueTypeError, "r.a INTEGER"),
        (pa.table({"a": [1], "d": [0.123]}), ValueTypeError, "more than 2 digits"),
        (pa.table({"a": pa.array([None], pa.int32())}), NullError, "r.a"),
        (pa.table({"d": [Decimal(1)]}), NullError, "r.a"),
        (pa.table({"a": [1], "x": [1]}), ArityError, "no column 'x'"),
        ([(1, None)], ArityError, "3 columns"),
        ([{"b": 1}], ArityError, "no column 'b'"),
        ((1, None, "x"), ArityError, "tuple, a list or a dict"),
        ({"a": 1}, ArityError, "list"),
        (7, ArityError, "int"),
        ([(True, None, "x")], ValueTypeError, "TRUE"),
        ([(1, float("inf"), "x")], ValueTypeError, "r.d"),
        ([(1, None, 5)], ValueTypeError, "r.s"),
    ],
)
def test_a_wrong_row_is_a_named_error(table, error, told) -> None:
    with pytest.raises(error, match=told) as caught:
        checked_rows(R, table)
    assert caught.value.relation == "r"


def test_pandas_writes_null_as_nan() -> None:
    frame = pd.DataFrame({"a": [1, 2], "d": [1.25, float("nan")], "s": ["x", None]})
    assert checked_rows(R, frame) == [(1, Decimal("1.25"), "x"), (2, None, None)]


@pytest.mark.parametrize(
    "row", [(1, Decimal("1.50"), "x"), (1, Decimal("1.5"), "x"), (1, 2, None), [1, None, "x"], (1.0, None, "x")]
)
def test_the_short_way_gives_what_the_long_way_gives(row) -> None:
    assert repr(checker(R)(row)) == repr(R.checked(row))


@pytest.mark.parametrize(
    "row", [(2**31, None, "x"), (1, Decimal(10) ** 8, "x"), (None, None, "x"), (1, dt.date.max, "")]
)
def test_the_short_way_refuses_what_the_long_way_refuses(row) -> None:
    with pytest.raises((ValueTypeError, NullError)) as short:
        checker(R)(row)
    with pytest.raises(type(short.value)) as long:
        R.checked(row)
    assert str(long.value) == str(short.value)
