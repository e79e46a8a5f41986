"""Sums of DOUBLE over columns of both sides of a join: as DuckDB says after every event, though each side is summed."""

from __future__ import annotations

import decimal
import math
import random
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulus import Warehouse
from cumulus.catalog.types import EXACT as EXACT_NUMBERS
from cumulus.compiler import compile_sql
from cumulus.m3 import parse
from cumulus.scalars.registry import call
from support import bids_and_asks
from support.tiers import sampled

_BEST = "0.25 * (SELECT SUM(a.volume) FROM {0} a) > (SELECT SUM(d.volume) FROM {0} d WHERE d.price > {1}.price)"
_MISSED = (
    "SELECT b.broker, SUM([s.price * s.volume - b.price * b.volume]) AS v FROM bids b, asks s"
    " WHERE {} GROUP BY b.broker"
)
BEST_ASKS = _MISSED.format(_BEST.format("asks", "s"))
"""Missed trades with one of its two conditions: a quarter of the code, for the fast tier."""
MISSED = _MISSED.format(f"{_BEST.format('asks', 's')} AND {_BEST.format('bids', 'b')}")
_PAIRS = "FROM bids b JOIN asks s ON s.broker <> b.broker"
QUERIES = {
    "above": f"SELECT b.broker, COUNT(*) {_PAIRS} GROUP BY b.broker HAVING SUM(s.volume - b.volume) > 1",
    "joined": f"SELECT b.broker, SUM([s.volume - b.volume]), AVG([b.volume - s.volume]) {_PAIRS} GROUP BY b.broker",
    "added": f"SELECT 0, SUM([s.volume + b.volume]), SUM([b.volume - s.price]) FILTER (WHERE s.price > 2) {_PAIRS}",
    "left_joined": "SELECT b.price, SUM([COALESCE(s.volume, 1.5) - b.volume]), SUM([s.volume - b.volume]) "
    f"{_PAIRS.replace('JOIN', 'LEFT JOIN')} GROUP BY b.price",
}
"""The first column is a key; what stands in brackets is added up."""
ODD = (1.0, 0.5, 0.25, 2.5, math.inf, -math.inf, math.nan)
NUMBERS: dict[str, Callable[[random.Random], float]] = {
    "quarters": lambda rng: rng.randrange(-8, 12) / 4,
    "large quarters": lambda rng: 2.0**40 + rng.randrange(8) / 4,
    "tenths": lambda rng: rng.randrange(1, 99) / 10,
    "seconds since 1970": lambda rng: 1.7e9 + rng.randrange(4000) / 1000,
    "far from 0": lambda rng: rng.choice((1.0, 3.0)) * 2.0**200 + rng.randrange(4) * 2.0**150,
    "close to 0": lambda rng: 1e-30 + rng.randrange(40) * 1e-41,
    "of all sizes": lambda rng: 10.0 ** rng.randrange(-30, 30) * rng.choice((1, -1)),
    "not finite": lambda rng: rng.choice(ODD),
    "seldom infinite": lambda rng: math.inf if rng.random() < 0.05 else rng.randrange(12) / 4,
}

EXACT = ("quarters", "large quarters", "not finite", "seldom infinite")
"""Numbers of which no sum is rounded, so that DuckDB's say the same where they are compared with something."""

QUICK = ("large quarters", "seconds since 1970", "close to 0", "not finite")


def _check(found: list[Any], oracle: duckdb.DuckDBPyConnection, query: str, what: object) -> None:
    """Compare with DuckDB, within a part of what its summands are without their signs."""
    wanted = sorted(oracle.execute(query.replace("[", "").replace("]", "")).fetchall())
    sizes = sorted(oracle.execute(query.replace("[", "ABS(").replace("]", ")")).fetchall())
    assert len(found) == len(wanted), (what, found, wanted)
    for mine, theirs, size in zip(sorted(found), wanted, sizes, strict=True):
        for one, other, most in zip(mine, theirs, size, strict=True):
            if one is not None and other is not None and math.isfinite(one) and math.isfinite(other):
                assert abs(one - other) <= 1e-9 * most, (what, mine, theirs)
            else:
                assert one == other or (math.isnan(one) and math.isnan(other)), (what, mine, theirs)


def _follow(views: dict[str, str], numbers: str, engine: str, count: int, *, null: bool) -> Warehouse:
    """Compare views with DuckDB after every event, until nothing is left."""
    script = bids_and_asks.tables("DOUBLE" if null else "DOUBLE NOT NULL")
    declared = "".join(f"CREATE VIEW {n} AS {q.replace('[', '').replace(']', '')};" for n, q in views.items())
    wh = Warehouse(script + declared, engine=engine, keep="all")
    events = bids_and_asks.events(
        random.Random(numbers), count, NUMBERS[numbers], brokers=2, prices=6, nulls=0.2 if null else 0.0
    )
    with duckdb.connect() as oracle:
        oracle.execute(script)
        for number, event in enumerate(events):
            wh.apply([event])
            bids_and_asks.apply(oracle, event)
            for name, query in views.items():
                _check(wh.view(name).rows(), oracle, query, (number, name))
            if number == count // 2:
                report = wh.recheck(maps=True)
                assert report, str(report)
    return wh


@pytest.mark.parametrize(
    ("numbers", "engine"),
    [
        *sampled(((each, "native") for each in QUICK), of=3),
        *(pytest.param(each, "native", marks=pytest.mark.slow) for each in NUMBERS if each not in QUICK),
        ("close to 0", "interpreter"),
        *(pytest.param(each, "interpreter", marks=pytest.mark.slow) for each in NUMBERS if each != "close to 0"),
    ],
)
def test_as_duckdb_after_every_event(numbers: str, engine: str) -> None:
    """The tolerance is a part of Σ|f - g|, the differences themselves, not of what the sides add up to."""
    views = {name: query for name, query in QUERIES.items() if numbers in EXACT or name != "above"}
    wh = _follow(views, numbers, engine, 30, null=numbers in ("not finite", "quarters"))
    for name in views:
        assert wh.view(name).rows() == ([(0, None, None)] if name == "added" else []), name


@pytest.mark.parametrize("numbers", sampled(["large quarters", "not finite"], of=2, first=1))
def test_trades_with_the_best_asks_are_as_duckdb_says(numbers: str) -> None:
    wh = _follow({"v": BEST_ASKS}, numbers, "native", 60, null=False)
    assert wh.view("v").rows() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numbers", "engine", "null"),
    [
        ("large quarters", "native", False),
        ("not finite", "native", False),
        *((each, engine, True) for each in EXACT for engine in ("native", "interpreter")),
    ],
)
def test_missed_trades_are_as_duckdb_says(numbers: str, engine: str, null: bool) -> None:
    wh = _follow({"v": MISSED}, numbers, engine, 60, null=null)
    assert wh.view("v").rows() == []


@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_floats_of_all_sorts_are_saved_and_go(engine: str, tmp_path: Path) -> None:
    tables = "CREATE TABLE a (k INT NOT NULL, x DOUBLE NOT NULL); CREATE TABLE b (y DOUBLE NOT NULL);"
    script = f"{tables} CREATE VIEW v AS SELECT k, SUM(x - y) AS s FROM a, b GROUP BY k"
    wh = Warehouse(script, engine=engine, keep="all")
    odd = [(2, math.inf), (5, math.nan), (6, -math.inf)]
    wh.insert("a", [(1, 0.1), (3, 1e300), (4, 1e-300), (7, 1.5e308), *odd])
    wh.insert("b", [(0.1,), (-5e-324,), (-1.5e308,)])
    wh.save(tmp_path / "saved")
    wh = Warehouse.load(tmp_path / "saved", engine=engine)
    assert str(sorted(wh.view("v").rows())) == (
        "[(1, 1.5e+308), (2, inf), (3, 1.50000003e+308), (4, 1.5e+308), (5, nan), (6, -inf), (7, inf)]"
    )
    wh.delete("a", odd)
    wh.delete("b", [(-1.5e308,)])
    wh.delete("b", [(0.1,)])
    assert sorted(wh.view("v").rows()) == [(1, 0.1), (3, 1e300), (4, 1e-300), (7, 1.5e308)]


@pytest.mark.slow
def test_missed_trades_cost_a_few_times_what_whole_numbers_cost() -> None:
    """It was fifty times as much with 50 rows a side, and grew with their square."""
    runs = []
    for sql_type, number in (("DOUBLE", float), ("BIGINT", int)):
        query = MISSED.replace("[", "").replace("]", "")
        script = f"{bids_and_asks.tables(f'{sql_type} NOT NULL')} CREATE VIEW v AS {query}"
        wh = Warehouse(script, engine="native", keep="all")
        given = {
            table: [(each % 10, number(each * 7919 % 97 + 1), each * step % 1009) for each in range(800)]
            for table, step in (("bids", 31), ("asks", 37))
        }
        for table, rows in given.items():
            wh.insert(table, rows)
        events = [(sign, table, rows[at]) for at in range(20) for table, rows in given.items() for sign in (-1, 1)]
        runs.append((wh, events))
    least = [math.inf, math.inf]
    for _ in range(5):
        for place, (wh, events) in enumerate(runs):
            start = time.process_time()
            wh.apply(events)
            least[place] = min(least[place], time.process_time() - start)
    assert least[0] <= 3 * least[1], least
    assert runs[0][0].view("v").rows() == [(broker, float(v)) for broker, v in runs[1][0].view("v").rows()]


def test_tables_that_a_column_joins_stay_together() -> None:
    """An event meets few rows there, and a sum costs less than three."""
    tables = bids_and_asks.tables("DOUBLE NOT NULL")
    for join, is_apart in (("b.broker = s.broker", False), ("b.broker < s.broker", True)):
        query = f"SELECT SUM(b.volume - s.volume) AS v FROM bids b JOIN asks s ON {join}"
        assert ("float_whole" in str(compile_sql(f"{tables} CREATE VIEW v AS {query}"))) is is_apart


FLOATS = st.floats() | st.floats(-1e6, 1e6) | st.sampled_from([0.1, 2.0**80, 5e-324, 2.0**-81, -1e23, 1.5, 3e-9])


@given(FLOATS)
def test_a_float_is_its_parts(value: float) -> None:
    whole, fraction, rest = (call(name, (value,)) for name in ("float_whole", "float_fraction", "float_rest"))
    assert call("float_fits", (value,)) is (rest == 0)
    if math.isfinite(value):
        assert Fraction(whole) + Fraction(fraction, 1 << 80) + Fraction(rest) == Fraction(value)
        assert max(abs(whole), abs(fraction)) < 1 << 80
    else:
        assert (whole, fraction) == (0, 0)


@given(st.lists(st.tuples(FLOATS, st.booleans()), max_size=8))
def test_parts_make_the_sum_however_much_cancels(signed: list[tuple[float, bool]]) -> None:
    """As if every number were exact; what is not finite makes what it makes of floats."""
    values = [-value if minus else value for value, minus in signed]
    with decimal.localcontext(EXACT_NUMBERS):
        sums = [sum(call(name, (each,)) for each in values) for name in ("float_whole", "float_fraction", "float_rest")]
        found = call("float_total", sums)
    odd = [value for value in values if not math.isfinite(value)]
    try:
        wanted = sum(odd) if odd else float(sum(map(Fraction, values)))
    except OverflowError:
        wanted = math.inf if sum(map(Fraction, values)) > 0 else -math.inf
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_machine_code_cuts_floats_as_python_does() -> None:
    values = [
        sign * x * 2.0**power for sign in (1, -1) for x in (1.0, 1.1, 1.9999999999999998) for power in range(-90, 90)
    ]
    values += [0.0, -0.0, 5e-324, 1.7e308, math.inf, -math.inf, math.nan]
    rows = list(enumerate(values))
    program = parse("""RELATION r(k BIGINT NOT NULL, x DOUBLE NOT NULL);
        MAP m[k BIGINT](n BIGINT, w HUGEINT, f HUGEINT, r BIGDECIMAL, h BIGINT) COUNT n;
        VIEW v(k BIGINT, w HUGEINT, f HUGEINT, t DOUBLE, h BIGINT) FROM m SELECT k, w, f, float_total(0, 0, r), h;
        ON +r(k, x) {
          m[k].n += 1; m[k].w += float_whole(x); m[k].f += float_fraction(x);
          m[k].r += float_rest(x); m[k].h += {float_fits(x) = TRUE};
        }""")
    wh = Warehouse(program, engine="native")
    wh.insert("r", rows)
    wanted = [
        (
            k,
            call("float_whole", (x,)),
            call("float_fraction", (x,)),
            float(x) if not math.isfinite(x) else float(call("float_rest", (x,))),
            int(call("float_fits", (x,))),
        )
        for k, x in rows
    ]
    assert str(sorted(wh.view("v").rows())) == str(wanted).replace("-0.0", "0.0")
