"""Laws of the scalar functions on random values, against definitions that are slow and obvious, or against DuckDB."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus.catalog.types import DOUBLE, INTEGER, INTERVAL, TIMESTAMP, VARCHAR, Interval, SqlType, decimal
from cumulus.errors import EvaluationError
from cumulus.scalars.registry import call, cast_value
from support.tiers import examples

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**20), max_value=10**20)
FLOATS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0])
TEXTS = st.text("ab%_é\n", max_size=6)
DATES = st.dates()
SPANS = st.builds(
    Interval, st.integers(-400, 400), st.integers(-1000, 1000), st.integers(-(10**12), 10**12) | st.just(0)
)
PARTS = st.sampled_from(("year", "week", "month", "quarter", "hour", "isoyear"))
WITH_DUCKDB = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(DECIMALS, DECIMALS | st.integers(-(10**20), 10**20))
def test_decimal_arithmetic_is_exact(left: Decimal, right: Decimal | int) -> None:
    assert Fraction(call("add", (left, right))) == Fraction(left) + Fraction(right)
    assert Fraction(call("sub", (left, right))) == Fraction(left) - Fraction(right)
    assert Fraction(call("mul", (left, right))) == Fraction(left) * Fraction(right)
    if right:
        quotient = math.trunc(Fraction(left) / Fraction(right))
        assert Fraction(call("mod", (left, right))) == Fraction(left) - quotient * Fraction(right)


@given(DECIMALS, st.integers(-3, 6))
def test_round_goes_to_the_nearest_and_at_a_tie_away_from_zero(value: Decimal, digits: int) -> None:
    unit = Fraction(10) ** -digits
    size = abs(Fraction(value))
    expected = (size / unit + Fraction(1, 2)).__floor__() * unit
    assert abs(Fraction(call("round", (value, digits)))) == (expected if digits < 4 else size)
    if digits >= 0:
        assert abs(Fraction(cast_value(value, decimal(38, digits)))) == (expected if digits < 4 else size)


@given(st.integers(-(10**6), 10**6), st.integers(-(10**3), 10**3).filter(bool))
def test_whole_division_leaves_a_remainder_of_the_dividends_sign(left: int, right: int) -> None:
    quotient, rest = call("intdiv", (left, right)), call("mod", (left, right))
    assert quotient * right + rest == left
    assert abs(rest) < abs(right)
    assert rest == 0 or (rest < 0) == (left < 0)


@given(st.lists(FLOATS | st.integers(-5, 5) | st.decimals(-5, 5, places=1), min_size=2, max_size=5))
def test_numbers_have_one_total_order(values: list[Any]) -> None:
    for left in values:
        for right in values:
            held = [name for name in ("lt", "eq", "gt") if call(name, (left, right))]
            assert len(held) == 1
            assert call("le", (left, right)) is (held != ["gt"])
            assert call("ge", (left, right)) is (held != ["lt"])
            assert call("ne", (left, right)) is (held != ["eq"])
    least, greatest = call("least", values), call("greatest", values)
    assert all(call("le", (least, value)) and call("le", (value, greatest)) for value in values)


@given(st.lists(FLOATS, max_size=8), st.lists(FLOATS, max_size=8))
def test_a_float_sum_forgets_what_is_taken_back(kept: list[float], gone: list[float]) -> None:
    specials = sum(call("special", (value,)) for value in kept + gone)
    specials -= sum(call("special", (value,)) for value in gone)
    mine = call("float_sum", (0.0, specials))
    expected = sum((value for value in kept if not math.isfinite(value)), 0.0)
    assert mine == expected or (math.isnan(mine) and math.isnan(expected))


def matches(text: str, pattern: str) -> bool:
    """LIKE by its definition."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(matches(text[start:], pattern[1:]) for start in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and matches(text[1:], pattern[1:])


@given(TEXTS, TEXTS)
def test_like_is_its_definition(text: str, pattern: str) -> None:
    assert call("like", (text, pattern)) is matches(text, pattern)


@given(TEXTS)
def test_an_escaped_text_matches_only_itself(text: str) -> None:
    pattern = "".join("#" + character for character in text)
    assert call("like", (text, pattern, "#"))
    assert not call("like", (text + "a", pattern, "#"))


@given(TEXTS, st.integers(-8, 8), st.integers(-8, 8))
def test_substring_is_the_characters_at_its_positions(text: str, start: int, length: int) -> None:
    first = start if start >= 0 else len(text) + 1 + start
    positions = range(min(first, first + length), max(first, first + length))
    expected = "".join(character for place, character in enumerate(text, 1) if place in positions)
    assert call("substring", (text, start, length)) == expected


@given(TEXTS, st.integers(-8, 8))
def test_left_and_right_make_the_whole(text: str, count: int) -> None:
    rest = len(text) - count if count > 0 else -count
    if 0 < rest <= len(text) and count:
        assert call("left", (text, count)) + call("right", (text, rest)) == text
    assert call("right", (text, count)) == call("left", (text[::-1], count))[::-1]


@given(DATES, DATES, st.integers(-1000, 1000))
def test_days_are_counted_and_added_alike(start: dt.date, end: dt.date, days: int) -> None:
    assert call("add", (start, call("sub", (end, start)))) == end
    assert call("date_diff", ("day", start, end)) == call("sub", (end, start)) == (end - start).days
    if start.year in range(10, 9990):
        assert call("sub", (call("add", (start, days)), days)) == start


@given(st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)), SPANS)
@WITH_DUCKDB
def test_moving_by_an_interval_is_duckdbs(oracle: Any, point: dt.datetime, span: Interval) -> None:
    text = f"{span.months} months {span.days} days {span.micros} us"
    for name, sign in (("add", "+"), ("sub", "-")):
        theirs = oracle.duck.execute(
            f"SELECT CAST(CAST(? AS TIMESTAMP) {sign} CAST(? AS INTERVAL) AS VARCHAR)", [str(point), text]
        ).fetchone()[0]
        try:
            assert cast_value(call(name, (point, span)), VARCHAR) == theirs
        except EvaluationError:
            assert "(BC)" in theirs or theirs[4] != "-"


@given(st.datetimes(), st.datetimes(), PARTS)
@WITH_DUCKDB
def test_date_diff_is_duckdbs(oracle: Any, start: dt.datetime, end: dt.datetime, part: str) -> None:
    query = "SELECT date_diff(?, CAST(? AS TIMESTAMP), CAST(? AS TIMESTAMP))"
    theirs = oracle.duck.execute(query, [part, str(start), str(end)]).fetchone()[0]
    assert call("date_diff", (part, start, end)) == theirs


@given(st.datetimes(), DATES, SPANS, DECIMALS, st.floats(), st.integers(-(2**31), 2**31 - 1))
def test_text_of_a_value_casts_back(
    moment: dt.datetime, day: dt.date, span: Interval, number: Decimal, real: float, whole: int
) -> None:
    same: list[tuple[Any, SqlType]] = [
        (moment, TIMESTAMP),
        (span, INTERVAL),
        (number, decimal(38, 4)),
        (whole, INTEGER),
    ]
    for value, sql_type in same:
        assert cast_value(cast_value(value, VARCHAR), sql_type) == value
    assert call("eq", (cast_value(cast_value(real, VARCHAR), DOUBLE), real))
    assert cast_value(cast_value(cast_value(day, TIMESTAMP), VARCHAR), TIMESTAMP).date() == day


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15), st.integers(0, 6))
@WITH_DUCKDB
def test_rounding_floats_is_duckdbs(oracle: Any, value: float, digits: int) -> None:
    query = f"SELECT round(CAST(? AS DOUBLE), {digits}), TRY(CAST(CAST(? AS DOUBLE) AS DECIMAL(18,{digits})))"
    rounded, cast = oracle.duck.execute(query, [value, value]).fetchone()
    assert call("round", (value, digits)) == rounded
    try:
        assert cast_value(value, decimal(18, digits)) == cast
    except EvaluationError:
        assert cast is None


@given(st.lists(st.floats() | st.none(), min_size=2, max_size=6))
@WITH_DUCKDB
def test_floats_sort_as_in_duckdb(oracle: Any, values: list[float | None]) -> None:
    rows = oracle.duck.execute("SELECT x FROM (SELECT unnest(?::DOUBLE[]) AS x) ORDER BY x NULLS LAST", [values])
    ordered = [value for (value,) in rows.fetchall() if value is not None]
    assert all(call("le", (first, second)) for first, second in pairwise(ordered))
