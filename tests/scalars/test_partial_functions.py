"""What is said of functions that have no value for some arguments, beside what they do for extreme ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal, localcontext
from itertools import product
from typing import Any

import pytest

from cumulus.algebra.terms import Apply, Var
from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    EXACT,
    HUGEINT,
    INTEGER,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    Interval,
    SqlType,
    decimal,
)
from cumulus.errors import EvaluationError
from cumulus.scalars.registry import FUNCTIONS, result_type
from cumulus.scalars.typing import Typed, can_fail, can_overflow
from support.tiers import sampled

EXTREMES: dict[SqlType, list[Any]] = {
    BOOLEAN: [True, False],
    INTEGER: [0, -1, 2**31 - 1, -(2**31)],
    BIGINT: [1, 2**63 - 1, -(2**63)],
    HUGEINT: [2**127 - 1, -(2**127) + 1],
    DOUBLE: [0.0, -1.0, 1.7e308, 5e-324, float("inf"), float("nan")],
    decimal(38, 2): [Decimal("0.5"), Decimal("9" * 36 + ".99"), -Decimal("9" * 36 + ".99")],
    VARCHAR: ["", "a", "é" * 5, "2024-01-01", "("],
    DATE: [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    TIMESTAMP: [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
    INTERVAL: [Interval(2**31 - 1, 0, 0), Interval(0, 2**31 - 1, 0), Interval(0, 0, 2**63 - 1), Interval(-12, 0, 0)],
}


def signatures(name: str) -> Iterator[tuple[SqlType, ...]]:
    """Yield the types of one to three arguments that a function takes; of three, two of them are the same."""
    for count in (1, 2, 3):
        for types in product(EXTREMES, repeat=count):
            if count < 3 or len(set(types)) < 3:
                try:
                    result_type(name, types)
                except TypeError:
                    continue
                yield types


@pytest.mark.parametrize("first", sampled(range(12), of=12))
def test_what_cannot_fail_or_overflow_has_a_value_for_extreme_arguments(first: int) -> None:
    missed, judged = [], 0
    with localcontext(EXACT):
        for name in list(FUNCTIONS)[first::12]:
            for types in signatures(name):
                variables = {f"x{place}": Typed(each, True) for place, each in enumerate(types)}
                call = Apply(name, tuple(map(Var, variables)))
                if can_fail(call, variables) or can_overflow(call, variables):
                    continue
                judged += 1
                try:
                    for values in product(*map(EXTREMES.__getitem__, types)):
                        FUNCTIONS[name].implement(*values)
                except EvaluationError as problem:
                    missed.append((name, *map(str, types), problem.message))
    assert missed == []
    assert judged > 10


@pytest.mark.parametrize(
    ("function", "types"),
    [
        ("add", (DATE, INTEGER)), ("sub", (TIMESTAMP, INTERVAL)), ("mul", (INTERVAL, INTEGER)),
        ("repeat", (VARCHAR, INTEGER)), ("week", (INTERVAL,)), ("to_years", (INTEGER,)),
    ],
)  # fmt: skip
def test_what_can_overflow_has_no_value_for_some(function: str, types: tuple[SqlType, ...]) -> None:
    variables = {f"x{place}": Typed(each, True) for place, each in enumerate(types)}
    call = Apply(function, tuple(map(Var, variables)))
    assert can_overflow(call, variables)
    assert not can_fail(call, variables)

    def fails(values: tuple[Any, ...]) -> bool:
        try:
            FUNCTIONS[function].implement(*values)
        except EvaluationError:
            return True
        return False

    assert any(map(fails, product(*map(EXTREMES.__getitem__, types))))


def test_what_tries_never_overflows() -> None:
    call = Apply("try", (Apply("add", (Var("day"), Var("days"))),))
    assert not can_overflow(call, {"day": Typed(DATE, True), "days": Typed(INTEGER, True)})
