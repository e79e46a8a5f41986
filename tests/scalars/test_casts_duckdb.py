"""CAST between all types against DuckDB, and over texts that are nearly values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cumulus.catalog.types import type_named
from cumulus.scalars.registry import can_cast

NUMBER_TEXTS = (
    *(
        "12",
        " 12 ",
        "+12",
        "-12",
        "12.5",
        "12.4",
        "-12.5",
        "1e3",
        "1.5e1",
        "1e-1",
        "12.",
        ".5",
        ".",
        "",
        "1_000",
        "1,000",
    ),
    *("0x10", "-0x10", "0X1F", "0xg", "0b11", "0b12", "12a", "2147483648", "2147483647.5", "2147483647.4", "1e400"),
    *("00012", "1__0", "１２", "- 1", "12.345", "-12.345", "1e2", "1.5e-1", "999.995", "1000", "5.", "1_0.5", "1_.5"),
    *("0.12345678901234567890123456789", "0.004999999999999999999999", "1e-400", "1e", "1E+2", "--1", "1 2", "\t5\n"),
    *("1e2_0", "123456789012345678901234567890", "99999999999999999999999999999999999999", "abc", "1d", "0x1p3"),
    *("170141183460469231731687303715884105727", "170141183460469231731687303715884105728", "3.4e38", "-0.5", "-0.4"),
    *("nan", "NaN", "-nan", "inf", "Infinity", "-inf", "+inf", "infin"),
)
BOOLEAN_TEXTS = ("t", "TRUE", "yes", "y", "on", "1", "0", "f", " true ", "2", "NO", "n", "off", "False")
TIME_TEXTS = (
    *("2020-01-02", "2020-1-2", "2020/01/02", "2020\\01\\02", "2020 01 02", "2020-01/02", "20200102", "2020-13-02"),
    *("2021-02-29", "2020-01", "99-01-02", "0099-01-02", "epoch", "2020-01-02x", "0000-01-01", "2020-001-01", "1-1-1"),
    *("2020-01-02 10:11:12", "2020-01-02T10:11:12", "2020-01-02 10:11", "2020-01-02 10", "2020-01-02 10:11:12.5"),
    *("2020-01-02 10:11:12.1234567", "2020-01-02 24:00:00", "2020-01-02 23:59:60", "2020-01-02 25:00:00"),
    *("2020-01-02 10:11:12Z", "2020-01-02 10:11:12+02", "2020-01-02 10:11:12+02:30", "2020-01-02 10:11:12-0530"),
    *("2020-01-02 10:11:12 UTC", " 2020-01-02 10:11:12 ", "2020-01-02  10:11:12", "2020-01-02 1:2:3", "2020-01-02T"),
    *("2020-01-02 10:11:12.", "2020-01-02 24:00:01", "9999-12-31 24:00:00", "2020-01-01 10:10:10,5", "now", "today"),
)
SPAN_TEXTS = (
    *("1 day", "-1 day", "1 day ago", "1.5 days", "1.5 months", "1.5 years", "1.3 years", "-1.3 years", "90 minutes"),
    *("3 hours 2 secs", "10:00", "1:2:3", "-1:2:3", "100:00:00", "1 week", "2.5 weeks", "1 quarter", "1.5 quarters"),
    *(
        "1 decade",
        "0.5 decades",
        "1.29 decades",
        "1 century",
        "1d",
        "1 D",
        "1 mon",
        "1 y",
        "1 m",
        "1 s",
        "1 ms",
        "1 us",
    ),
    *("5", "-3", "1.5", "", "@ 1 day", "1 day, 2 hours", "1 day 2", "1 fortnight", "days", "1 day 1 day", "ago"),
    *("1.2345678 seconds", "0.0000005 seconds", "1.5 hours", "1.5 us", "1.55 ms", "+1 day", ".5 days", "5. days"),
    *(
        "1 day -1 hour",
        "1 day 05:00",
        "1 day -05:00",
        "05:00 1 day",
        "2147483647 days",
        "2147483648 days",
        "1day 2hours",
    ),
    *("10:00:00.5", "10:00:00.1234567", "10:60:00", "10:00:60", "+10:00", "1 DAY", "1 microsecond", "1 epoch", "1 dow"),
    *("--1 day", "- 1 day", "1.5.5 days", "1 day1 hour", "1 day ago ago", "1 year 2 months 3 days 04:05:06.789"),
)
ODD = {
    "VARCHAR#number": NUMBER_TEXTS,
    "VARCHAR#boolean": BOOLEAN_TEXTS,
    "VARCHAR#time": TIME_TEXTS,
    "VARCHAR#span": SPAN_TEXTS,
    "DOUBLE#odd": (
        *("999.995", "999.994", "1.005", "2.345", "0.3333333333333333", "1e15", "1e16", "123456789012345678", "1e-4"),
        *("1e-5", "127.5", "-128.5", "-128.51", "9.2233720368547758e18", "9.223372036854775e18", "3.4e38", "3.5e38"),
        *("1e-50", "1e37", "9.99e37", "1e38", "-0.4", "99.95", "1e22"),
    ),
    "DECIMAL(25,5)": (
        *("0.00005", "-0.00005", "2.5", "3.5", "-2.5", "999.995", "99.95", "12345.67891"),
        "99999999999999999999.99999",
    ),
    "DECIMAL(18,17)": ("0.00005", "-0.5", "2.5"),
}


@pytest.fixture(scope="module")
def odd(oracle: Any) -> Any:
    for label, texts in ODD.items():
        oracle.store(label, label.split("#")[0], texts)
    return oracle


def test_all_types_to_all_types(oracle: Any) -> None:
    for source, target in itertools.product(tuple(oracle.values), oracle.all_types):
        if (source, target) != ("REAL", "VARCHAR"):
            oracle.check_cast(source, target)


@pytest.mark.parametrize(
    "label", ["VARCHAR#number", "VARCHAR#boolean", "DOUBLE#odd", "DECIMAL(25,5)", "DECIMAL(18,17)"]
)
def test_numbers(odd: Any, label: str) -> None:
    for target in odd.all_types[:16]:
        odd.check_cast(label, target)


def test_times_in_text(odd: Any) -> None:
    for target in ("DATE", "TIMESTAMP"):
        odd.check_cast("VARCHAR#time", target)


def test_spans_in_text(odd: Any) -> None:
    odd.check_cast("VARCHAR#span", "INTERVAL")


def test_exactly_the_casts_that_duckdb_has_exist(oracle: Any) -> None:
    """A cast that DuckDB does not have fails for every value; one that it has works for some."""
    for source, target in itertools.product(tuple(oracle.values), oracle.all_types):
        types = [type_named(name.split("(")[0], (38, 10) if "(" in name else ()) for name in (source, target)]
        assert types[0] is not None
        assert types[1] is not None
        if "VARCHAR" in (source, target):
            assert can_cast(types[0], types[1])
            continue
        rows = oracle.rows(f"CAST({{0}} AS {target})", (source,))
        assert can_cast(types[0], types[1]) == any(value is not None for *_, value in rows), (source, target)
