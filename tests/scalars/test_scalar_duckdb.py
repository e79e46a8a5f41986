"""Every scalar function against DuckDB: the same expression over the same values, types and values compared.

What `docs/functions.md` lists as a difference is left out here and tested in `test_scalar_differences.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from cumulus.catalog.text_values import PARTS
from cumulus.catalog.types import INTEGER, NULL, SqlType
from cumulus.errors import EvaluationError
from cumulus.scalars.function import common_type
from cumulus.scalars.registry import FUNCTIONS, argument_types, call, result_type
from support.scalar_types import ARITHMETIC, COMPARISONS, TEMPLATES, my_type, parsed, template
from support.tiers import sampled

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
DECIMALS = ("DECIMAL(4,1)", "DECIMAL(9,4)", "DECIMAL(15,2)", "DECIMAL(38,10)")
NUMBERS = (*INTEGERS, *DECIMALS, "REAL", "DOUBLE")
POINTS = ("DATE", "TIMESTAMP")
TIMES = (*POINTS, "INTERVAL")

# --- types ----------------------------------------------------------------------------------------------------------

TWO = (
    *("add", "sub", "mul", "div", "intdiv", "mod", "coalesce", "greatest", "least", "power", "concat"),
    *("like", "ilike", "starts_with", "contains", "strpos", "left", "right", "trim", "ltrim", "rtrim", "substring"),
)
ONE = (
    *("neg", "abs", "round", "floor", "ceil", "sign", "sqrt", "ln", "log10", "exp", "is_null", "lower", "upper"),
    *("length", "trim", "ltrim", "rtrim", "reverse", "year", "month", "day", "quarter", "dayofweek", "isodow"),
    *("dayofyear", "week", "hour", "minute", "second", "epoch", "last_day"),
)


@pytest.mark.parametrize("name", sampled(TWO, of=2))
def test_types_of_two_arguments(oracle: Any, name: str) -> None:
    for types in itertools.product(oracle.all_types, repeat=2):
        assert my_type(name, types) == oracle.type_of(template(name, 2), types), types


@pytest.mark.parametrize("name", sampled(ONE, of=2))
def test_types_of_one_argument(oracle: Any, name: str) -> None:
    for given in oracle.all_types:
        assert my_type(name, (given,)) == oracle.type_of(template(name, 1), (given,)), given


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("replace", ("VARCHAR", "VARCHAR", "VARCHAR")),
        ("substring", ("VARCHAR", "BIGINT", "INTEGER")),
        ("lpad", ("VARCHAR", "INTEGER", "VARCHAR")),
        ("rpad", ("VARCHAR", "BIGINT", "VARCHAR")),
        ("make_date", ("INTEGER", "BIGINT", "SMALLINT")),
        ("make_date", ("HUGEINT", "BIGINT", "SMALLINT")),
        ("case", ("BOOLEAN", "INTEGER", "DECIMAL(4,1)")),
        ("case", ("BOOLEAN", "DATE", "TIMESTAMP")),
        ("case", ("BOOLEAN", "DATE", "VARCHAR")),
        ("if", ("BOOLEAN", "REAL", "DECIMAL(38,10)")),
        ("in", ("INTEGER", "DOUBLE", "DECIMAL(4,1)")),
        ("nullif", ("DECIMAL(4,1)", "BIGINT")),
        ("date_diff", ("VARCHAR", "DATE", "TIMESTAMP")),
        ("date_diff", ("VARCHAR", "DATE", "INTERVAL")),
        ("date_trunc", ("VARCHAR", "DATE")),
        ("date_trunc", ("VARCHAR", "INTERVAL")),
    ],
)
def test_types_of_three_arguments(oracle: Any, name: str, types: tuple[str, ...]) -> None:
    assert my_type(name, types) == oracle.type_of(template(name, len(types)), types)


def test_the_common_type_is_that_of_case(oracle: Any) -> None:
    for types in itertools.product(oracle.all_types, repeat=2):
        mine = common_type(tuple(map(parsed, types)))
        theirs = oracle.type_of("CASE WHEN true THEN {0} ELSE {1} END", types)
        assert (mine and str(mine)) == theirs, types


def test_casting_arguments_first_does_not_change_the_result_type(oracle: Any) -> None:
    for name in FUNCTIONS:
        for count in (1, 2, 3):
            for types in itertools.product(map(parsed, oracle.all_types[::3]), repeat=count):
                try:
                    result = result_type(name, types)
                except TypeError:
                    continue
                assert result_type(name, argument_types(name, types)) == result, (name, types)


def test_an_untyped_null_fits_everywhere() -> None:
    for name in FUNCTIONS:
        fitting = [count for count in range(1, 5) if _fits(name, (NULL,) * count)]
        assert fitting, name


def _fits(name: str, types: tuple[SqlType, ...]) -> bool:
    try:
        result_type(name, types)
    except TypeError:
        return False
    return True


# --- numbers --------------------------------------------------------------------------------------------------------


def is_large(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and abs(value) > 99_999


def listed(name: str, types: tuple[str, ...]) -> Callable[[Any, Any], bool]:
    """Return which operands meet a listed difference: zero divisors, exactness, REAL, multiples of intervals."""

    def differs(left: Any, right: Any) -> bool:
        if name in ("div", "intdiv", "mod") and right == 0:
            return True
        if "INTERVAL" in types and name in ("mul", "div"):
            return is_large(left) or is_large(right)
        return "REAL" in types and "HUGEINT" in types and (is_large(left) or is_large(right))

    return differs


@pytest.mark.parametrize("name", sampled(ARITHMETIC, of=2))
def test_arithmetic(oracle: Any, name: str) -> None:
    for types in itertools.product(oracle.values, repeat=2):
        if my_type(name, types) is not None:
            oracle.check(name, template(name, 2), types, unless=listed(name, types))


@pytest.mark.parametrize("name", ["neg", "abs", "round", "floor", "ceil", "sign", "sqrt", "ln", "log10", "exp"])
def test_functions_of_a_number(oracle: Any, name: str) -> None:
    for given in (*NUMBERS, *(["INTERVAL"] if name == "neg" else [])):
        oracle.check(name, template(name, 1), (given,))


def test_round_to_digits(oracle: Any) -> None:
    oracle.store("TINYINT#digits", "TINYINT", ("-20", "-3", "-1", "0", "1", "2", "5", "20"))
    for given in (*INTEGERS, "REAL", "DOUBLE"):
        oracle.check("round", "round({0}, {1})", (given, "TINYINT#digits"))
    for given, digits in itertools.product(DECIMALS, range(-3, 6)):
        oracle.check("round", f"round({{0}}, {digits})", (given,), after=(digits,))
    oracle.store("INTEGER#far", "INTEGER", ("-400", "-309", "-308", "-128", "22", "23", "308", "309", "400"))
    oracle.store("DOUBLE#far", "DOUBLE", ("0", "-0.0", "0.5", "2.675", "-1e22", "1.7e308", "-5e-324", "nan", "-inf"))
    oracle.check("round", "round({0}, {1})", ("DOUBLE#far", "INTEGER#far"))


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.data())
def test_round_where_the_product_is_near_a_half(oracle: Any, data: st.DataObject) -> None:
    digits = st.integers(-3, 16)
    halves = st.builds(lambda whole, places: (whole + 0.5) / 10.0**places, st.integers(-(10**9), 10**9), digits)
    numbers = st.one_of(halves, st.floats(allow_nan=False), st.integers(-(10**6), 10**6).map(lambda units: units / 200))
    asked = data.draw(st.lists(st.tuples(numbers, digits), min_size=50, max_size=50))
    theirs = oracle.duck.execute(
        "SELECT list_transform(?::STRUCT(x DOUBLE, n INTEGER)[], lambda a: round(a.x, a.n))",
        [[{"x": number, "n": places} for number, places in asked]],
    ).fetchone()
    assert [repr(call("round", pair)) for pair in asked] == [repr(value) for value in theirs[0]]


def test_fmod(oracle: Any) -> None:
    for types in itertools.product(("TINYINT", "BIGINT", "DECIMAL(4,1)", "DOUBLE"), repeat=2):
        oracle.check("fmod", "fmod({0}, {1})", types, unless=lambda left, right: right == 0)
    assert my_type("fmod", ("REAL", "REAL")) == "REAL"
    with pytest.raises(EvaluationError, match="division by zero"):
        call("fmod", (1.5, 0.0))


def test_power(oracle: Any) -> None:
    for types in itertools.product(("TINYINT", "DOUBLE", "DECIMAL(4,1)"), repeat=2):
        oracle.check("power", "power({0}, {1})", types)


# --- decisions ------------------------------------------------------------------------------------------------------


def lossy(*values: Any) -> bool:
    """Whether DuckDB cannot cast an operand to the common decimal; here such values compare exactly."""
    return 170141183460469231731687303715884105727 in values


@pytest.mark.parametrize(
    "name", sampled([*COMPARISONS, "is_distinct", "greatest", "least", "coalesce", "nullif"], of=2)
)
def test_comparisons(oracle: Any, name: str) -> None:
    for types in itertools.product(oracle.values, repeat=2):
        if my_type(name, types) is None or (name == "nullif" and "REAL" in types):
            continue
        if name in ("greatest", "least") and "INTERVAL" in types:
            continue  # DuckDB compares months first there, unlike its own operators
        oracle.check(name, template(name, 2), types, unless=lossy)


@pytest.mark.parametrize(
    "types", [("INTEGER",) * 3, ("DOUBLE",) * 3, ("DECIMAL(4,1)", "INTEGER", "DOUBLE"), ("DATE",) * 3]
)
def test_in(oracle: Any, types: tuple[str, ...]) -> None:
    oracle.check("in", template("in", 3), types)


def test_logic_has_three_values(oracle: Any) -> None:
    oracle.check("and", template("and", 2), ("BOOLEAN", "BOOLEAN"))
    oracle.check("or", template("or", 2), ("BOOLEAN", "BOOLEAN"))
    oracle.check("and", template("and", 2), ("INTEGER", "BOOLEAN"))
    oracle.check("not", template("not", 1), ("BOOLEAN",))
    oracle.check("not", template("not", 1), ("DOUBLE",))
    for given in oracle.values:
        oracle.check("is_null", template("is_null", 1), (given,))


def test_conditionals(oracle: Any) -> None:
    for name in ("case", "if"):
        oracle.check(name, template(name, 3), ("BOOLEAN", "INTEGER", "DECIMAL(9,4)"))
        oracle.check(name, template(name, 3), ("INTEGER", "DATE", "TIMESTAMP"))
        oracle.check(name, template(name, 3), ("BOOLEAN", "TINYINT", "DOUBLE"))


# --- text -----------------------------------------------------------------------------------------------------------

PATTERNS = (
    *("", "%", "_", "a%", "%a", "%l%o%", "h_llo", "h__lo", "a\\%b", "a%b_c", "%é", "_\n%", "l%k", "Straße", "HELLO"),
    *("straSSe", "%%", "i%", "iσς", "_____", "[a-z]%", "h.*", "%b", "日__"),
)


@pytest.mark.parametrize("name", ["lower", "upper", "length", "trim", "ltrim", "rtrim"])
def test_functions_of_a_text(oracle: Any, name: str) -> None:
    oracle.check(name, template(name, 1), ("VARCHAR",))


@pytest.mark.parametrize("name", ["trim", "ltrim", "rtrim", "starts_with", "contains", "strpos"])
def test_functions_of_two_texts(oracle: Any, name: str) -> None:
    oracle.check(name, template(name, 2), ("VARCHAR", "VARCHAR"))


def test_case_of_every_letter(oracle: Any) -> None:
    letters = [chr(code) for code in range(1, 0x2C00)]
    # Unicode grows: what this Python does not know as a letter cannot agree.
    letters = [letter for letter in letters if letter.isprintable()]
    rows = oracle.duck.execute("SELECT c, lower(c), upper(c) FROM (SELECT unnest(?) AS c)", [letters]).fetchall()
    assert len(rows) == len(letters)
    for letter, lower, upper in rows:
        assert (call("lower", (letter,)), call("upper", (letter,))) == (lower, upper), letter


def test_like(oracle: Any) -> None:
    oracle.store("VARCHAR#pattern", "VARCHAR", PATTERNS)
    for name in ("like", "ilike"):
        oracle.check(name, template(name, 2), ("VARCHAR", "VARCHAR#pattern"))


@pytest.mark.parametrize("escape", ["", "#", "%", "a", "##", "_", "\\"])
def test_like_with_an_escape(oracle: Any, escape: str) -> None:
    for name, pattern in itertools.product(
        ("like", "ilike"), ("a#%b#_c", "##", "#", "a", "a%%", "aa%", "%", "A#%B#_C", "a%b_c", "a\\%b__", "aa", "%a")
    ):
        if escape == "%" and pattern.endswith("a%"):
            continue  # DuckDB's optimiser takes it for a prefix before it sees that nothing is escaped
        expression = f"{{0}} {name.upper()} '{pattern}' ESCAPE '{escape}'"
        oracle.check(name, expression, ("VARCHAR",), after=(pattern, escape))


def test_parts_of_text(oracle: Any) -> None:
    counts = ("-4294967295", "-10", "-3", "-2", "-1", "0", "1", "2", "3", "5", "20", "4294967295")
    oracle.store("BIGINT#count", "BIGINT", counts)
    for name in ("left", "right", "substring"):
        oracle.check(name, template(name, 2), ("VARCHAR", "BIGINT#count"))
    oracle.check("substring", template("substring", 3), ("VARCHAR", "BIGINT#count", "BIGINT#count"))


def test_replace_and_pad(oracle: Any) -> None:
    oracle.check("replace", template("replace", 3), ("VARCHAR",) * 3)
    oracle.store("INTEGER#width", "INTEGER", ("-1", "0", "1", "3", "5", "7", "20"))
    for name in ("lpad", "rpad"):
        oracle.check(name, template(name, 3), ("VARCHAR", "INTEGER#width", "VARCHAR"))


def test_concat_takes_every_type(oracle: Any) -> None:
    for given in oracle.values:
        if given != "REAL":
            oracle.check("concat", "{0} || {1}", ("VARCHAR", given))


# --- time -----------------------------------------------------------------------------------------------------------

PART_FUNCTIONS = ("year", "month", "day", "quarter", "week", "hour", "minute", "second", "epoch")


@pytest.mark.parametrize("name", sampled([*PART_FUNCTIONS, "dayofweek", "isodow", "dayofyear", "last_day"], of=2))
def test_parts_of_time(oracle: Any, name: str) -> None:
    for given in TIMES if name != "last_day" else POINTS:
        oracle.check(name, template(name, 1), (given,))


@pytest.mark.parametrize("spelling", [*PARTS, "YEAR", "Month", "fortnight"])
def test_date_part_and_date_trunc_know_every_spelling(oracle: Any, spelling: str) -> None:
    for given in TIMES:
        if PARTS.get(spelling) not in ("epoch", "julian"):
            oracle.check("date_part", f"date_part('{spelling}', {{0}})", (given,), before=(spelling,))
        if PARTS.get(spelling) != "era":
            oracle.check("date_trunc", f"date_trunc('{spelling}', {{0}})", (given,), before=(spelling,))


@pytest.mark.parametrize("part", [*dict.fromkeys(PARTS.values()), "fortnight"])
def test_date_diff(oracle: Any, part: str) -> None:
    for types in itertools.product(POINTS, repeat=2):
        oracle.check("date_diff", f"date_diff('{part}', {{0}}, {{1}})", types, before=(part,))


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "%a",
            "%A",
            "%w",
            "%u",
            "%d",
            "%-d",
            "%b",
            "%h",
            "%B",
            "%m",
            "%-m",
            "%y",
            "%-y",
            "%Y",
            "%H",
            "%-H",
            "%I",
            "%-I",
        ),
        *("%p", "%M", "%-M", "%S", "%-S", "%f", "%g", "%j", "%-j", "%U", "%W", "%V", "%G", "%x", "%X", "%c", "%%"),
        *("x%Y-%m-%dT%H", "no directive", "%Q", "%-%"),
    ],
)
def test_strftime(oracle: Any, pattern: str) -> None:
    for given in POINTS:
        oracle.check("strftime", f"strftime({{0}}, '{pattern}')", (given,), after=(pattern,))
        oracle.check("strftime", f"strftime('{pattern}', {{0}})", (given,), before=(pattern,))


def test_make_date(oracle: Any) -> None:
    oracle.store("INTEGER#year", "INTEGER", ("0", "1", "2020", "2021", "9999", "10000"))
    oracle.store("INTEGER#day", "INTEGER", ("-1", "0", "1", "2", "12", "13", "29", "31", "32"))
    oracle.check("make_date", template("make_date", 3), ("INTEGER#year", "INTEGER#day", "INTEGER#day"))


def test_dates_and_days(oracle: Any) -> None:
    oracle.store("INTEGER#days", "INTEGER", ("-3652058", "-366", "-1", "0", "1", "28", "365", "2932896"))
    for name in ("add", "sub"):
        oracle.check(name, template(name, 2), ("DATE", "INTEGER#days"))
    oracle.check("add", template("add", 2), ("INTEGER#days", "DATE"))


def test_every_function_is_compared_somewhere() -> None:
    pages = [Path(__file__).with_name(f"test_{name}_duckdb.py") for name in ("scalar", "more_scalars")]
    here = "".join(page.read_text(encoding="utf-8") for page in pages)
    internal = {"exactly", "finite", "special", "float_sum", "variance_of", "deviation_of", "only_row"}
    internal |= {"float_whole", "float_fraction", "float_rest", "float_fits", "float_total"}
    # No counterpart in DuckDB, a listed difference, or (`try`) compared in tests/sql/test_surface.py.
    elsewhere = internal | {"reverse", "try"}
    for name in FUNCTIONS:
        assert name in elsewhere or name in TEMPLATES or f'"{name}"' in here, name


def test_an_error_names_the_function_and_its_arguments() -> None:
    with pytest.raises(EvaluationError, match=r"make_date\(2021, 2, 29\): there is no such date"):
        call("make_date", (2021, 2, 29))
    with pytest.raises(TypeError, match=r"year\(INTEGER\): year takes \(DATE, TIMESTAMP or INTERVAL\)"):
        result_type("year", (INTEGER,))
