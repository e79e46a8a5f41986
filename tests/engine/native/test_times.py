"""Functions, casts and arithmetic of times are code: what they give is what Python's functions and DuckDB give."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from cumulus import Warehouse, compile

TABLE = "CREATE TABLE r (id INTEGER NOT NULL, t TIMESTAMP, u TIMESTAMP, d DATE, e DATE NOT NULL, n INTEGER, m BIGINT)"
PARTS = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"),
    *("dayofweek", "isodow", "dayofyear", "millennium", "century", "decade", "isoyear", "yearweek", "era"),
)
CUTS = (
    *("millennium", "century", "decade", "year", "quarter", "month", "week", "day", "hour", "minute", "second"),
    *("millisecond", "microsecond", "isoyear", "Hours", "mon"),
)
SPANS = (
    *("1 hour", "-90 minutes", "3 days", "1 month", "-1 month", "13 months", "7 years", "-400 years", "-9000 years"),
    *("1 month 30 days", "-2 months 5 days 00:00:00.000001", "5000 years -1826000 days", "100 microseconds"),
)
WIDTHS = ("1 hour", "15 minutes", "7 days", "1 day 01:00:00", "1 month", "5 months", "7 years", "0.25 seconds")
EXPRESSIONS = {
    "parts": [f"{part}({point})" for part in PARTS for point in "td"],
    "truncations": [f"date_trunc('{part}', {point})" for part in CUTS for point in "te"],
    "moves": [f"{point} {op} INTERVAL '{span}'" for span in SPANS for point, op in (("t", "+"), ("d", "-"))],
    "buckets": [f"time_bucket(INTERVAL '{width}', {point})" for width in WIDTHS for point in "td"],
    "differences": [
        f"{function}('{part}', {one}, {other})"
        for part in CUTS
        for function, one, other in (("date_diff", "t", "u"), ("date_diff", "e", "t"), ("date_sub", "u", "t"))
        if not (function == "date_sub" and part == "isoyear")
    ],
    "casts": [
        *(
            "t::DATE",
            "d::TIMESTAMP",
            "CAST(t AS DATE) - d",
            "e + n",
            "d - n",
            "t::DATE = d",
            "t < d",
            "e >= t",
            "d = e",
        ),
        *("epoch(t)", "epoch(d)", "epoch_ms(t)", "epoch_us(t)", "epoch_us(d)", "epoch_us(t) // 60000000", "julian(t)"),
        *(
            "last_day(t)",
            "last_day(d)",
            "make_timestamp(m)",
            "epoch_ms(m)",
        ),
    ],
    "intervals": [
        *("t - u", "t - d", "d - u", "epoch(t - u)", "t - u < INTERVAL '1 month'", "t - u >= u - t", "t - u = t - u"),
        *("epoch_us(t - u)", "epoch_ms(u - t)", "hour(t - u)", "minute(t - u)", "day(t - u)", "second(t - u)"),
        *("t + (u - t)", "t + to_days(n)", "t - to_hours(m)", "t + to_months(n)", "u - to_years(n)", "to_minutes(n)"),
        *("d + to_weeks(n)", "t - u > to_days(n)", "coalesce(t - u, INTERVAL '1 day')", "microsecond(t - u)"),
        *("CASE WHEN n > 0 THEN t - u WHEN n < 0 THEN INTERVAL '1 day' END", "(t - u) + INTERVAL '1 hour'"),
    ],
}
"""Made of NULLs, too; the value of what fails is NULL here."""
ONLY_OURS = {"casts": ["epoch_ns(t)", "year(t::DATE + n)"]}
"""DuckDB fails for all rows where one is beyond 64 bits, and has more years."""
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
EDGES = [
    *(FIRST, LAST, dt.datetime(1, 12, 31), dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    *(dt.datetime(2000, 2, 29, 12), dt.datetime(1900, 2, 28), dt.datetime(1900, 3, 1), dt.datetime(2024, 12, 30)),
    *(dt.datetime(2021, 1, 3), dt.datetime(400, 2, 29), dt.datetime(999, 12, 31), dt.datetime(1000, 1, 1), None),
]


def rows(seed: int, count: int) -> Iterator[tuple[Any, ...]]:
    rng = random.Random(seed)

    def moment() -> dt.datetime | None:
        if rng.random() < 0.5:
            return rng.choice(EDGES)
        far = rng.random() < 0.5
        return FIRST + rng.random() * (LAST - FIRST) if far else EDGES[3] + dt.timedelta(rng.gauss(0, 9000))

    def day() -> dt.date | None:
        found = moment()
        return None if found is None else found.date()

    for number in range(count):
        n = rng.choice([None, 0, 1, -1, 30, rng.randrange(-40_000, 40_000), 2**31 - 1, -(2**31)])
        m = rng.choice([None, 0, -1, 10**15, rng.randrange(-(10**14), 10**14), 2**63 - 1, -(2**63) + 1])
        yield (number, moment(), moment(), day(), day() or dt.date(2020, 2, 29), n, m)


def tried(expressions: list[str]) -> str:
    return ", ".join(f"TRY({each}) AS c{at}" for at, each in enumerate(expressions))


@pytest.mark.parametrize("group", EXPRESSIONS)
def test_code_is_what_pythons_functions_are(group: str) -> None:
    expressions = EXPRESSIONS[group] + ONLY_OURS.get(group, [])
    program = compile(f"{TABLE}; CREATE VIEW v AS SELECT id, {tried(expressions)} FROM r")
    found = []
    for engine in ("native", "interpreter"):
        wh = Warehouse(program, engine=engine)
        wh.insert("r", list(rows(1, 300)))
        found.append(sorted(wh.view("v").rows()))
    for one, other in zip(*found, strict=True):
        wrong = [at for at, pair in enumerate(zip(one[1:], other[1:], strict=True)) if pair[0] != pair[1]]
        assert not wrong, [(expressions[at], one[at + 1], other[at + 1], one[0]) for at in wrong]


BEYOND = re.compile(r".*\(BC\).*|\d{5,}-.*|.*0000-.*")
"""Times outside of the years 1 to 9999, which DuckDB knows."""


def beyond(text: str | None) -> bool:
    return text is not None and BEYOND.fullmatch(text) is not None


@pytest.mark.parametrize("group", EXPRESSIONS)
def test_code_is_what_duckdb_says(group: str) -> None:
    told = ", ".join(f"TRY({each})::VARCHAR AS c{at}" for at, each in enumerate(EXPRESSIONS[group]))
    wh = Warehouse(f"{TABLE}; CREATE VIEW v AS SELECT id, {told} FROM r")
    given = list(rows(2, 300))
    wh.insert("r", given)
    con = duckdb.connect()
    con.execute(TABLE)
    con.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?, ?)", given)
    mine, theirs = sorted(wh.view("v").rows()), con.execute(f"SELECT id, {told} FROM r ORDER BY id").fetchall()
    for at, expression in enumerate(EXPRESSIONS[group], 1):
        wrong = [
            (one[at], other[at], row)
            for one, other, row in zip(mine, theirs, given, strict=True)
            if one[at] != other[at] and not beyond(other[at])
        ]
        assert not wrong, (expression, wrong[:5])


class Day(dt.date):
    """A date that is not plain."""


def test_values_of_python_are_read_where_they_lie() -> None:
    script = """
    CREATE TABLE r (id INTEGER NOT NULL, t TIMESTAMP, z TIMESTAMPTZ, d DATE NOT NULL);
    CREATE VIEW v AS SELECT id, t, z, d FROM r;
    """
    zone, berlin = dt.timezone(dt.timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")
    times = [*(each for each in EDGES if each not in (FIRST, LAST)), *(row[1] for row in rows(3, 200)), FIRST, LAST]
    turned = dt.datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    given = [(-1 - fold, turned.replace(fold=fold), turned.replace(fold=fold), EDGES[3].date()) for fold in (0, 1)]
    for number, time in enumerate(times):
        plain = time or EDGES[3]
        day = Day(plain.year, plain.month, plain.day) if number % 7 == 0 else plain.date()
        given.append((4 * number, time, None if time is None else time.replace(tzinfo=dt.UTC), day))
        given.append((4 * number + 1, plain.replace(fold=1), plain, day))
        if FIRST.year < plain.year < LAST.year:
            given.append((4 * number + 2, plain.replace(tzinfo=zone), plain.replace(tzinfo=zone), day))
            given.append((4 * number + 3, plain.isoformat() + "Z", plain.isoformat(), day.isoformat()))
    found = []
    for engine in ("native", "interpreter"):
        wh = Warehouse(script, engine=engine, keep="none")
        wh.insert("r", given)
        wh.apply([(-1, "r", row) for row in given[::3]])
        on = wh.trigger("r")
        for row in given[::3]:
            on(+1, *row)
        assert engine == "interpreter" or wh.stats().stepped == 0
        found.append(sorted(wh.view("v").rows()))
    assert found[0] == found[1]
    assert found[0][1][1] - found[0][0][1] == -dt.timedelta(hours=1)  # of the clock that was turned back
    assert {type(value) for row in found[0] for value in row} == {int, dt.datetime, dt.date, type(None)}


FAILING = (
    *("t + INTERVAL '9000 years'", "d - 800000", "date_trunc('century', t)", "time_bucket(INTERVAL '9000 years', t)"),
    *("epoch_ns(t)", "make_timestamp(m)", "t + to_days(n)", "time_bucket(INTERVAL '0 days', t)"),
)


def test_what_fails_is_told_in_the_same_words() -> None:
    views = " ".join(f"CREATE VIEW v{at} AS SELECT {each} AS x FROM r;" for at, each in enumerate(FAILING))
    program = compile(f"{TABLE}; {views}")
    told = []
    for engine in ("native", "interpreter"):
        wh = Warehouse(program, engine=engine)
        late, early, old = dt.datetime(2999, 1, 1), dt.datetime(50, 1, 1), dt.date(50, 1, 1)
        wh.insert("r", [(1, late, None, old, old, 2_921_000, 2**62), (2, early, None, None, old, 1, 0)])
        told.append([(at, each.message) for at in range(len(FAILING)) for each in wh.view(f"v{at}").errors()])
    assert told[0] == told[1]
    assert {at for at, _ in told[0]} == set(range(len(FAILING)))
