"""Numbers of Python in any form that a column takes: code reads them, and they mean what the interpreter says."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulus import Warehouse
from cumulus.errors import CumulusError

TYPES = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "REAL", "DOUBLE", "DECIMAL(4, 2)", "DECIMAL(15, 2)"),
    *("DECIMAL(18, 0)", "DECIMAL(18, 18)", "DECIMAL(19, 1)", "DECIMAL(38, 10)", "BOOLEAN", "DATE", "TIMESTAMP"),
)


class Size(IntEnum):
    """An int that is more."""

    SMALL = 3


FORMS: list[Any] = [
    *map(Decimal, ("3", "3.5", "3.250", "3.25", "1E+1", "-0", "0E+9", "0E-30", "-99.99", "100", "1E+17", "1E-18")),
    *map(
        Decimal,
        ("0.1000000000000000055511151231257827021181583404541015625", "1E+999999", "1E-999999", "NaN", "Infinity"),
    ),
    *(0, 3, -3, 99, 100, -100, 127, 128, 2**31, 10**13, 10**16 - 1, 2**53 + 1, 2**63 - 1, -(2**63) + 1, 2**63, 2**127),
    *(10**400, 0.0, -0.0, 0.1, 0.25, 3.0, 1.5, 1e16, 2.0**63, -(2.0**62), -(2.0**64), 1e300, math.nan, math.inf),
    *(Size.SMALL, np.int8(3), np.int64(-3), np.uint64(2**63), np.float64(0.1), np.float32(0.5), np.bool_(True)),
    *(True, None, "3", "x", "2024-02-29", b"3", (3,), [3], dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3)),
    *(dt.datetime(2024, 2, 29), np.datetime64("2024-02-29"), pandas.Timestamp("2024-02-29 01:02:03"), object()),
]


def _sql(sql_type: str, null: str = "") -> str:
    sums = "" if sql_type in ("BOOLEAN", "DATE", "TIMESTAMP") else ", SUM(x) AS s"
    return f"""
    CREATE TABLE t (x {sql_type} {null}) WITH (keep = none);
    CREATE VIEW by_x AS SELECT x, COUNT(*) AS n FROM t GROUP BY x;
    CREATE VIEW ends AS SELECT COUNT(x) AS n{sums} FROM t;
    """


WAYS: dict[str, Callable[[Warehouse, Any], object]] = {
    "list": lambda wh, value: wh.insert("t", [(value,)]),
    "events": lambda wh, value: wh.apply([(1, "t", (value,))]),
    "trigger": lambda wh, value: wh.trigger("t")(1, value),
}


def _said(do: Callable[[], object]) -> str:
    try:
        do()
    except CumulusError as problem:
        return str(problem)
    return ""


def _plain(value: Any) -> Any:
    return 0 if value == 0 else value  # which zero it is does not matter


def _read(wh: Warehouse) -> list[list[str]]:
    return [sorted(repr([*map(_plain, row)]) for row in wh.view(view).rows()) for view in wh.views]


@pytest.mark.parametrize("null", ["", "NOT NULL"])
@pytest.mark.parametrize("sql_type", TYPES)
def test_every_form_is_taken_or_refused_as_the_interpreter_does(sql_type, null) -> None:
    native, plain = (Warehouse(_sql(sql_type, null), engine=engine) for engine in ("native", "interpreter"))
    for way in WAYS.values():
        for value in [*FORMS, *FORMS[::-1]]:  # what one form is remembered for must not be told of another
            assert _said(lambda: way(native, value)) == _said(lambda: way(plain, value)), value  # noqa: B023
    assert _read(native) == _read(plain)


NUMBERS = {
    "DECIMAL(12, 4)": [
        Decimal("99.5000"),
        Decimal("99.5"),
        Decimal("3"),
        Decimal("1E+1"),
        Decimal("3.2500000"),
        5,
        99.5,
    ],
    "DECIMAL(30, 4)": [
        Decimal("99.5000"),
        Decimal("99.5"),
        Decimal("3"),
        Decimal("1E+1"),
        Decimal("3.2500000"),
        5,
        99.5,
    ],
    "DOUBLE": [99.5, 5, Decimal("99.5"), 2**53 + 1, np.float64(0.5), np.int32(7)],
    "REAL": [99.5, 5, Decimal("99.5"), 2**24 + 1, np.float32(0.1)],
    "BIGINT": [5, 5.0, Decimal("5"), Decimal("5E+3"), Size.SMALL, np.int64(5), np.uint8(7)],
    "HUGEINT": [5, 5.0, Decimal("5"), 10**30, 1e20, np.int64(5)],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sql_type", NUMBERS)
def test_code_takes_every_form_of_a_number(sql_type, way) -> None:
    wh = Warehouse(_sql(sql_type), engine="native")
    for value in NUMBERS[sql_type]:
        WAYS[way](wh, value)
        assert wh.stats().stepped == 0, value
    assert wh.view("ends").get()[0] == len(NUMBERS[sql_type])


def test_a_form_that_code_leaves_is_stepped() -> None:
    wh = Warehouse(_sql("DECIMAL(12, 4)"), engine="native")
    for wrong in (
        "x",
        Decimal("0.00001"),
        10**8,
        -(10**8),
        2**64,
        Decimal("1E+8"),
        True,
        Decimal("Infinity"),
        Decimal("NaN"),
    ):
        for way in WAYS.values():
            with pytest.raises(CumulusError):
                way(wh, wrong)
    wh.insert("t", [(float("nan"),)])  # pandas' NULL
    assert wh.stats().stepped == 1
    assert wh.view("ends").get() == (0, None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6),
            st.integers(-(2**70), 2**70),
            st.floats(-1e100, 1e100),
            st.sampled_from([math.inf, -math.inf, math.nan]),
            st.decimals(-(10**100), 10**100),
        ),
        max_size=20,
    )
)
def test_lists_of_mixed_numbers(values: list[Any]) -> None:
    for sql_type, engines in ENGINES.items():
        said = [_said(lambda: wh.insert("t", [(value,) for value in values])) for wh in engines]  # noqa: B023
        assert said[0] == said[1], sql_type
        views = [_read(wh) for wh in engines]
        assert views[0] == views[1], sql_type


ENGINES = {
    sql_type: [Warehouse(_sql(sql_type), engine=engine) for engine in ("native", "interpreter")]
    for sql_type in ("DECIMAL(9, 3)", "DOUBLE", "BIGINT")
}


class Number:
    """As numpy's scalars are, but Ctrl-C comes while it is converted for the first time."""

    def __init__(self) -> None:
        self.is_stopped = False

    def item(self) -> int:
        self.is_stopped = not self.is_stopped
        if self.is_stopped:
            raise KeyboardInterrupt
        return 3


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_while_a_value_is_converted(way) -> None:
    wh = Warehouse(_sql("BIGINT"), engine="native")
    value = Number()
    with pytest.raises(KeyboardInterrupt):
        WAYS[way](wh, value)
    assert wh.view("ends").get() == (0, None)
    WAYS[way](wh, value)
    assert wh.view("ends").get() == (1, 3)
    assert wh.stats().stepped == 0
