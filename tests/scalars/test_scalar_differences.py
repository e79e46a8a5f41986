"""Where the scalar functions depart from DuckDB on purpose: one test per row of `docs/functions.md`, "Differences"."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal, localcontext
from typing import Any

import duckdb
import pytest

from cumulus.catalog.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    EXACT,
    INTEGER,
    INTERVAL,
    NULL,
    REAL,
    TIMESTAMP,
    VARCHAR,
    Interval,
    decimal,
)
from cumulus.errors import EvaluationError
from cumulus.scalars.registry import call, can_cast, cast_value, result_type

NAN = math.nan


def fails(name: str, *arguments: Any) -> str:
    with pytest.raises(EvaluationError) as caught:
        call(name, arguments)
    assert caught.value.message.startswith(f"{name}(")
    return caught.value.message


def test_division_by_zero_is_an_error_for_every_type(oracle: Any) -> None:
    assert oracle.select("SELECT 1 / 0, -1e0 / 0e0, isnan(1e0 % 0e0)") == [(math.inf, -math.inf, True)]
    for zero in (0, 0.0, Decimal("0.00")):
        for name in ("div", "intdiv", "mod"):
            assert "division by zero" in fails(name, 7, zero)
            assert call(name, (None, zero)) is None
    assert "division by zero" in fails("div", Interval(1, 0, 0), 0)


def test_exact_arithmetic_does_not_overflow_but_casts_do(oracle: Any) -> None:
    largest = (1 << 63) - 1
    assert oracle.rows(f"CAST({{0}} AS BIGINT) + {largest}", ("BOOLEAN",))[0][1] is None
    assert call("add", (largest, 1)) == 1 << 63
    assert call("mul", (largest, largest)) == largest * largest
    assert call("neg", (-128,)) == call("abs", (-128,)) == 128
    assert call("mod", (-128, -1)) == 0
    assert call("round", (largest, -1)) == 9223372036854775810
    nines = "9" * 38
    assert call("sub", (Decimal("-" + nines), Decimal(nines))) == -2 * int(nines)
    with pytest.raises(EvaluationError, match="out of range"):
        cast_value(call("add", (largest, 1)), BIGINT)


def test_decimal_arithmetic_does_not_depend_on_the_context() -> None:
    left, right = Decimal("1234567890123456789012345678.90"), Decimal("0.0000000001")
    with localcontext() as context:
        context.prec = 3
        rough = [call(name, (left, right)) for name in ("add", "sub", "mul", "mod")]
    with localcontext(EXACT):
        assert rough == [left + right, left - right, left * right, left % right]


def test_exact_numbers_compare_exactly(oracle: Any) -> None:
    wide, fine = Decimal("12345678901234567890"), Decimal("0.00000000000000000001")
    theirs = "TRY(CAST('12345678901234567890' AS DECIMAL(30,0)) = CAST('0.1' AS DECIMAL(30,20)))"
    assert oracle.select(f"SELECT {theirs}") == [(None,)]
    assert call("gt", (wide, fine)) is True
    assert call("in", (wide, fine, wide)) is True


def test_an_untyped_null_counts_as_the_other_type(oracle: Any) -> None:
    assert oracle.type_of("{0} + NULL", ("DECIMAL(9,4)",)) == "NULL"
    assert str(result_type("add", (decimal(9, 4), NULL))) == "DECIMAL(10,4)"
    assert result_type("year", (NULL,)) == BIGINT
    assert result_type("concat", (VARCHAR, NULL)) == VARCHAR


def test_real_is_computed_in_double_precision(oracle: Any) -> None:
    tenth = cast_value(0.1, REAL)
    assert oracle.select("SELECT CAST(CAST(0.1 AS REAL) + CAST(0.2 AS REAL) AS DOUBLE)") == [(0.30000001192092896,)]
    exact = call("add", (tenth, cast_value(0.2, REAL)))
    assert exact == pytest.approx(0.3, rel=1e-7)
    assert cast_value(exact, REAL) == 0.30000001192092896
    assert cast_value(tenth, VARCHAR) == "0.10000000149011612"


def test_text_meets_other_types_only_through_a_cast() -> None:
    for name in ("eq", "lt", "coalesce", "in"):
        with pytest.raises(TypeError, match="common type"):
            result_type(name, (VARCHAR, INTEGER))
    with pytest.raises(TypeError, match="common type"):
        result_type("eq", (BOOLEAN, decimal(5, 2)))
    with pytest.raises(TypeError, match="common type"):
        result_type("nullif", (DATE, INTEGER))


def test_round_of_a_decimal_needs_its_digits_to_know_its_scale() -> None:
    assert str(result_type("round", (decimal(9, 4), INTEGER), (None, 2))) == "DECIMAL(9,2)"
    assert str(result_type("round", (decimal(9, 4), INTEGER))) == "DECIMAL(9,4)"


def test_dates_end_with_year_9999(oracle: Any) -> None:
    assert oracle.select("SELECT CAST(DATE '9999-12-31' + 1 AS VARCHAR)") == [("10000-01-01",)]
    assert "out of range" in fails("add", dt.date(9999, 12, 31), 1)
    assert "out of range" in fails("sub", dt.date(1, 1, 1), Interval(0, 0, 1))
    assert "no such date" in fails("make_date", 10000, 1, 1)
    assert "before year 1" in fails("date_trunc", "century", dt.date(50, 1, 1))
    for text in ("infinity", "-inf", "2020-01-01 (BC)", "10000-01-01"):
        with pytest.raises(EvaluationError):
            cast_value(text, DATE)


def test_a_named_time_zone_is_refused() -> None:
    with pytest.raises(EvaluationError, match="is not one"):
        cast_value("2020-01-01 10:10:10 America/New_York", TIMESTAMP)


def test_space_after_a_day_is_no_error() -> None:
    assert cast_value("2020-01-02 ", TIMESTAMP) == dt.datetime(2020, 1, 2)
    assert cast_value("5\v", INTERVAL) == Interval(0, 0, 5_000_000)


def test_a_text_out_of_the_range_of_real_is_an_error(oracle: Any) -> None:
    assert oracle.select("SELECT CAST('1e39' AS REAL)") == [(math.inf,)]
    with pytest.raises(EvaluationError, match="out of range"):
        cast_value("1e39", REAL)


def test_decimals_without_whole_digits_show_their_zero(oracle: Any) -> None:
    assert oracle.select("SELECT CAST(CAST(0.05 AS DECIMAL(2,2)) AS VARCHAR)") == [(".05",)]
    assert cast_value(Decimal("0.05"), VARCHAR) == "0.05"


def test_intervals_are_ordered_by_length_everywhere(oracle: Any) -> None:
    month, longer = Interval(1, 0, 0), Interval(0, 40, -90_000_000_000)
    assert (month, longer, True) in oracle.rows("{0} < {1}", ("INTERVAL", "INTERVAL"))
    assert (month, longer, longer) in oracle.rows("least({0}, {1})", ("INTERVAL", "INTERVAL"))
    assert call("lt", (month, longer)) is True
    assert call("least", (longer, month)) == month
    assert call("eq", (Interval(1, -1, 0), Interval(0, 29, 0))) is True


def test_fractions_of_intervals_may_differ_in_microseconds(oracle: Any) -> None:
    assert oracle.select("SELECT INTERVAL '-1 month 30 days 00:00:00.000001' * 123456.789e0") == [
        (Interval(-123456, 3703680, 123468),)
    ]
    assert call("mul", (Interval(-1, 30, 1), 123456.789)) == Interval(-123456, 3703680, 123451)
    assert call("mul", (Interval(0, 0, 0), 1 << 40)) == Interval(0, 0, 0)


def test_reverse_turns_code_points(oracle: Any) -> None:
    assert oracle.select("SELECT reverse('e\u0301a')") == [("ae\u0301",)]
    assert call("reverse", ("e\u0301a",)) == "a\u0301e"


def test_positions_in_text_have_no_limit(oracle: Any) -> None:
    assert oracle.rows("substring('abc', 1::BIGINT << 40)", ("BOOLEAN",))[0][1] is None
    assert call("substring", ("abc", 1 << 40)) == ""
    assert call("left", ("abc", 1 << 40)) == "abc"


def test_epoch_is_a_function_of_its_own() -> None:
    with pytest.raises(EvaluationError, match="Use epoch"):
        call("date_part", ("epoch", dt.date(1970, 1, 1)))
    with pytest.raises(EvaluationError, match="julian is not an integer"):
        call("date_part", ("julian", dt.date(1970, 1, 1)))


def test_regular_expressions_take_null_as_null(oracle: Any) -> None:
    assert call("regexp_matches", ("a", "a", None)) is None
    assert call("regexp_extract", ("a", "a", None)) is None
    with pytest.raises(duckdb.Error, match="must not be NULL"):
        oracle.duck.execute("SELECT regexp_matches('a', 'a', NULL)")
    assert oracle.duck.execute("SELECT regexp_extract('a', 'a', NULL)").fetchone() == ("",)


def test_nanoseconds_end_where_bigint_does(oracle: Any) -> None:
    assert call("epoch_ns", (dt.date(2262, 4, 11),)) == 9223286400 * 10**9
    with pytest.raises(EvaluationError, match="do not fit BIGINT"):
        call("epoch_ns", (dt.date(9999, 12, 31),))
    with pytest.raises(duckdb.Error):
        oracle.duck.execute("SELECT epoch_ns(DATE '9999-12-31')")


def test_null_cut_before_the_point_stays_null(oracle: Any) -> None:
    assert call("trunc", (None, -3)) is None
    zero = oracle.duck.execute("SELECT trunc(x, -3) FROM (SELECT CAST(NULL AS DECIMAL(4,1)) AS x)").fetchone()
    assert zero in ((Decimal(0),), (None,))  # a column gives 0, a constant NULL


def test_repeated_text_has_a_limit() -> None:
    assert len(call("repeat", ("ab", 1 << 23))) == 1 << 24
    with pytest.raises(EvaluationError, match="longer than"):
        call("repeat", ("ab", (1 << 23) + 1))


def test_an_interval_of_a_column_wants_whole_numbers() -> None:
    with pytest.raises(TypeError, match="to_days takes"):
        result_type("to_days", (decimal(3, 1),))


def test_strftime_refuses_zones_and_takes_any_pattern() -> None:
    for directive in ("%z", "%Z", "%n"):
        assert directive in fails("strftime", dt.date(2020, 1, 1), directive)
    assert call("strftime", (dt.date(2020, 1, 1), "")) == ""


def test_era_truncates_nothing() -> None:
    assert "era" in fails("date_trunc", "era", dt.date(2020, 1, 1))


def test_a_pattern_that_ends_with_its_escape_is_always_an_error(oracle: Any) -> None:
    assert oracle.rows("CAST({0} AS VARCHAR) LIKE 'aa%' ESCAPE '%'", ("BOOLEAN",))[0][1] is False
    with pytest.raises(EvaluationError, match="ends with its escape"):
        call("like", ("x", "aa%", "%"))


def test_nan_and_infinity_are_exact_beside_a_float_sum() -> None:
    values = [1.5, math.inf, NAN, -math.inf, 2.0]
    total = sum(call("finite", (value,)) for value in values)
    specials = sum(call("special", (value,)) for value in values)
    assert total == 3.5
    assert math.isnan(call("float_sum", (total, specials)))
    specials -= call("special", (NAN,)) + call("special", (-math.inf,))
    assert call("float_sum", (total, specials)) == math.inf
    specials -= call("special", (math.inf,))
    assert call("float_sum", (total, specials)) == 3.5


def test_unsupported_casts_are_known_beforehand() -> None:
    assert not can_cast(INTEGER, DATE)
    with pytest.raises(EvaluationError, match="cannot be one"):
        cast_value(1, DATE)
