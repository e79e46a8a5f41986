"""The less common scalar functions against DuckDB, as `test_scalar_duckdb.py` does it for the others."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cumulus.catalog.text_values import PARTS
from support.scalar_types import my_type, template
from support.tiers import sampled

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
DECIMALS = ("DECIMAL(4,1)", "DECIMAL(9,4)", "DECIMAL(15,2)", "DECIMAL(38,10)")
NUMBERS = (*INTEGERS, *DECIMALS, "REAL", "DOUBLE")
POINTS = ("DATE", "TIMESTAMP")
TIMES = (*POINTS, "INTERVAL")


def quoted(text: str) -> str:
    """Return a literal inside a template."""
    return "'" + text.replace("{", "{{").replace("}", "}}") + "'"


# --- types ----------------------------------------------------------------------------------------------------------

OF_NUMBERS = (
    *("trunc", "cbrt", "log2", "sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh"),
    *("acosh", "atanh", "degrees", "radians", "even", "isnan", "isfinite", "isinf", "factorial", "bit_not"),
)
OF_TEXT = ("ascii", "unicode", "strlen", "md5", "sha1", "sha256", "regexp_escape")
OF_TIME = (
    *("dayname", "monthname", "julian", "epoch_us", "epoch_ns", "century", "decade", "millennium", "isoyear"),
    *("yearweek", "era", "millisecond", "microsecond"),
)
SPANS = (
    *("to_millennia", "to_centuries", "to_decades", "to_years", "to_quarters", "to_months", "to_weeks", "to_days"),
    *("to_hours", "to_minutes", "to_microseconds", "to_seconds", "to_milliseconds"),
)
OF_TWO = (
    *("log", "atan2", "gcd", "lcm", "bit_and", "bit_or", "xor", "trunc", "repeat", "ends_with", "concat_ws", "age"),
    *("levenshtein", "damerau_levenshtein", "hamming", "regexp_matches", "regexp_full_match", "regexp_extract"),
    "time_bucket",
)


@pytest.mark.parametrize(
    "name", sampled([*OF_NUMBERS, *OF_TEXT, *OF_TIME, *SPANS, "epoch_ms", "chr", "bit_length", "make_timestamp"], of=2)
)
def test_types_of_one_argument(oracle: Any, name: str) -> None:
    for given in oracle.all_types:
        assert my_type(name, (given,)) == oracle.type_of(template(name, 1), (given,)), given


@pytest.mark.parametrize("name", sampled(OF_TWO, of=2))
def test_types_of_two_arguments(oracle: Any, name: str) -> None:
    for types in itertools.product(oracle.all_types, repeat=2):
        if name != "trunc" or "DECIMAL" not in types[0]:  # DuckDB wants a constant there
            assert my_type(name, types) == oracle.type_of(template(name, 2), types), types


@pytest.mark.parametrize(
    ("name", "types"),
    [
        *((name, (given,)) for name in ("hex", "bin") for given in INTEGERS),
        ("hex", ("VARCHAR",)),
        ("split_part", ("VARCHAR", "VARCHAR", "BIGINT")),
        ("split_part", ("VARCHAR", "VARCHAR", "HUGEINT")),
        ("translate", ("VARCHAR", "VARCHAR", "VARCHAR")),
        ("overlay", ("VARCHAR", "VARCHAR", "INTEGER")),
        ("overlay", ("VARCHAR", "VARCHAR", "INTEGER", "BIGINT")),
        ("concat_ws", ("VARCHAR", "INTEGER", "DATE", "VARCHAR")),
        ("regexp_replace", ("VARCHAR", "VARCHAR", "VARCHAR")),
        ("date_sub", ("VARCHAR", "DATE", "TIMESTAMP")),
        ("date_sub", ("VARCHAR", "DATE", "INTERVAL")),
        ("make_timestamp", ("INTEGER", "BIGINT", "SMALLINT", "TINYINT", "INTEGER", "DECIMAL(4,1)")),
    ],
)
def test_types_of_other_arguments(oracle: Any, name: str, types: tuple[str, ...]) -> None:
    assert my_type(name, types) == oracle.type_of(template(name, len(types)), types)


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OF_NUMBERS if name not in ("factorial", "bit_not")])
def test_functions_of_a_number(oracle: Any, name: str) -> None:
    for given in (*NUMBERS, *(POINTS if name in ("isfinite", "isinf") else ())):
        oracle.check(name, template(name, 1), (given,))


def test_trunc_to_digits(oracle: Any) -> None:
    oracle.store("TINYINT#cut", "TINYINT", ("-20", "-3", "-1", "0", "1", "2", "5", "20"))
    for given in (*INTEGERS, "REAL", "DOUBLE"):
        oracle.check("trunc", "trunc({0}, {1})", (given, "TINYINT#cut"))
    for given, digits in itertools.product(DECIMALS, range(-3, 6)):
        # DuckDB cuts NULL to 0 where the digits before the point go.
        template = f"trunc({{0}}, {digits})"
        oracle.check("trunc", template, (given,), after=(digits,), unless=lambda value: value is None)


def test_logarithms_to_a_base_and_angles(oracle: Any) -> None:
    for name in ("log", "atan2"):
        for types in itertools.product(("TINYINT", "DOUBLE", "DECIMAL(4,1)"), repeat=2):
            oracle.check(name, template(name, 2), types)


def test_whole_numbers(oracle: Any) -> None:
    oracle.store("INTEGER#few", "INTEGER", ("-12", "0", "1", "12", "18", "35", "-1"))
    for name in ("gcd", "lcm"):
        oracle.check(name, template(name, 2), ("INTEGER#few", "INTEGER#few"))
        oracle.check(name, template(name, 2), ("SMALLINT", "BIGINT"))
    oracle.store("INTEGER#factorial", "INTEGER", ("-1", "0", "1", "5", "33", "34"))
    oracle.check("factorial", "factorial({0})", ("INTEGER#factorial",))


def test_bits(oracle: Any) -> None:
    for types in itertools.product(INTEGERS, repeat=2):
        for name in ("bit_and", "bit_or", "xor"):
            oracle.check(name, template(name, 2), types)
    for given in INTEGERS:
        oracle.check("bit_not", "~{0}", (given,))


# --- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled([*OF_TEXT, "hex", "bit_length"], of=2))
def test_functions_of_a_text(oracle: Any, name: str) -> None:
    oracle.check(name, template(name, 1), ("VARCHAR",))


@pytest.mark.parametrize("name", ["ends_with", "concat_ws", "levenshtein", "damerau_levenshtein"])
def test_functions_of_two_texts(oracle: Any, name: str) -> None:
    oracle.check(name, template(name, 2), ("VARCHAR", "VARCHAR"))


def test_hamming(oracle: Any) -> None:
    oracle.store("VARCHAR#pairs", "VARCHAR", ("", "abc", "abd", "xyz", "ab", "é", "e\u0301", "日本", "aéb"))
    oracle.check("hamming", "hamming({0}, {1})", ("VARCHAR#pairs", "VARCHAR#pairs"))


def test_codes(oracle: Any) -> None:
    oracle.store("INTEGER#code", "INTEGER", ("-1", "0", "65", "233", "8364", "55295", "55296", "128512", "1114112"))
    oracle.check("chr", "chr({0})", ("INTEGER#code",))
    for name, given in itertools.product(("hex", "bin"), ("TINYINT", "INTEGER", "BIGINT")):
        oracle.check(name, template(name, 1), (given,))


SEPARATORS = ("", ",", ",,", "a,")


def test_parts_of_text(oracle: Any) -> None:
    oracle.store("VARCHAR#split", "VARCHAR", ("", "a", "a,b,c", ",a,", "a,,b", "日,本"))
    oracle.store("VARCHAR#by", "VARCHAR", SEPARATORS)
    oracle.store("INTEGER#part", "INTEGER", ("-9", "-4", "-2", "-1", "0", "1", "2", "3", "4", "9"))
    oracle.check("split_part", template("split_part", 3), ("VARCHAR#split", "VARCHAR#by", "INTEGER#part"))
    oracle.check("repeat", "repeat({0}, {1})", ("VARCHAR", "INTEGER#part"))
    oracle.check("overlay", template("overlay", 3), ("VARCHAR#split", "VARCHAR#by", "INTEGER#part"))
    oracle.check("overlay", template("overlay", 4), ("VARCHAR#split", "VARCHAR#by", "INTEGER#part", "INTEGER#part"))
    oracle.store("VARCHAR#letters", "VARCHAR", ("", "a", "ab", "aab", "a,", "日x", "xyz"))
    oracle.check("translate", template("translate", 3), ("VARCHAR#split", "VARCHAR#letters", "VARCHAR#letters"))


def test_concat_ws_takes_every_type(oracle: Any) -> None:
    oracle.store("VARCHAR#by", "VARCHAR", SEPARATORS)
    for given in ("INTEGER", "DECIMAL(9,4)", "DATE", "BOOLEAN"):
        oracle.check("concat_ws", template("concat_ws", 3), ("VARCHAR#by", given, "BOOLEAN"))


PATTERNS = (
    *("", "a", "l+", "^h", "o$", "^$", "(a|b)c?", "h.*o", "h.*?l", ".", "\\w+", "\\d", "\\pL", "[^a-z]", "(?i)HELLO"),
    *("(", "[", "(?=a)", "a{2,1}", "(l)(l)", "\\b", "(x)|(y)", "(?P<name>l)", "\\n", "k", "ß", "(a*)*b", "x*"),
)


@pytest.mark.parametrize("options", ["", "i", "s", "n", "l", "ic", "sm", "g", "q"])
def test_regular_expressions(oracle: Any, options: str) -> None:
    for pattern in PATTERNS:
        for name in ("regexp_matches", "regexp_full_match"):
            if options:
                oracle.check(
                    name, f"{name}({{0}}, {quoted(pattern)}, '{options}')", ("VARCHAR",), after=(pattern, options)
                )
            else:
                oracle.check(name, f"{name}({{0}}, {quoted(pattern)})", ("VARCHAR",), after=(pattern,))


def test_regexp_extract(oracle: Any) -> None:
    for pattern, group in itertools.product(PATTERNS, (-1, 0, 1, 2, 9, 10)):
        template = f"regexp_extract({{0}}, {quoted(pattern)}, {group})"
        oracle.check("regexp_extract", template, ("VARCHAR",), after=(pattern, group))
    oracle.check("regexp_extract", "regexp_extract({0}, 'L+', 0, 'i')", ("VARCHAR",), after=("L+", 0, "i"))


@pytest.mark.parametrize("rewrite", ["", "-", "<\\0>", "<\\1>", "\\\\", "\\", "\\x", "\\2"])
def test_regexp_replace(oracle: Any, rewrite: str) -> None:
    for pattern, options in itertools.product(PATTERNS, ("", "g", "gi")):
        template = f"regexp_replace({{0}}, {quoted(pattern)}, '{rewrite}', '{options}')"
        oracle.check("regexp_replace", template, ("VARCHAR",), after=(pattern, rewrite, options))


# --- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_TIME)
def test_functions_of_a_time(oracle: Any, name: str) -> None:
    for given in POINTS if name in ("dayname", "monthname", "julian") else TIMES:
        if name != "epoch_ns":
            oracle.check(name, template(name, 1), (given,))


def test_nanoseconds(oracle: Any) -> None:
    # DuckDB's end in 1677 and 2262.
    oracle.store("DATE#ns", "DATE", ("1970-01-01", "2000-02-29", "1969-07-20"))
    oracle.store("TIMESTAMP#ns", "TIMESTAMP", ("2020-02-29 10:11:12.345678", "1969-12-31 23:59:59.999999"))
    for given in ("DATE#ns", "TIMESTAMP#ns", "INTERVAL"):
        oracle.check("epoch_ns", "epoch_ns({0})", (given,))


def test_milliseconds(oracle: Any) -> None:
    for given in (*TIMES, "INTEGER"):
        oracle.check("epoch_ms", "epoch_ms({0})", (given,))


@pytest.mark.parametrize("name", SPANS)
def test_spans_of_numbers(oracle: Any, name: str) -> None:
    for given in (
        "TINYINT",
        "INTEGER",
        *(["DOUBLE", "DECIMAL(9,4)"] if "seconds" in name and "micro" not in name else []),
    ):
        oracle.check(name, template(name, 1), (given,))


@pytest.mark.parametrize("part", [*dict.fromkeys(PARTS.values()), "fortnight"])
def test_date_sub(oracle: Any, part: str) -> None:
    for types in itertools.product(POINTS, repeat=2):
        oracle.check("date_sub", f"date_sub('{part}', {{0}}, {{1}})", types, before=(part,))


def test_age(oracle: Any) -> None:
    for types in itertools.product(POINTS, repeat=2):
        oracle.check("age", "age({0}, {1})", types)


def test_time_bucket(oracle: Any) -> None:
    widths = ("1 month", "5 months", "3 years", "7 days", "15 minutes", "36 hours", "0 days", "-1 day", "1 month 1 day")
    oracle.store("INTERVAL#width", "INTERVAL", widths)
    for given in POINTS:
        oracle.check("time_bucket", "time_bucket({0}, {1})", ("INTERVAL#width", given))


def test_make_timestamp(oracle: Any) -> None:
    oracle.store("INTEGER#y", "INTEGER", ("1", "2020", "2021"))
    oracle.store("INTEGER#d", "INTEGER", ("0", "2", "29", "31"))
    oracle.store("INTEGER#h", "INTEGER", ("-1", "0", "23", "24"))
    oracle.store("DOUBLE#s", "DOUBLE", ("-1", "0", "1.5", "59.9999994", "59.9999996", "60", "61"))
    labels = ("INTEGER#y", "INTEGER#d", "INTEGER#d", "INTEGER#h", "INTEGER#h", "DOUBLE#s")
    oracle.check("make_timestamp", template("make_timestamp", 6), labels)
    oracle.check("make_timestamp", "make_timestamp({0})", ("BIGINT",))
