"""Plain values of Python in other forms than their columns, single rows, sums of DOUBLE: each beside its quick twin."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from itertools import cycle
from typing import TYPE_CHECKING, Any

from cumulus_lab.bench.edges.turns import measure_by_turns, microseconds

if TYPE_CHECKING:
    from cumulus.warehouse import Warehouse

FORMS: dict[str, tuple[str, Any]] = {
    "99.5000 for DECIMAL(12,4)": ("DECIMAL(12,4)", Decimal("99.5000")),
    "99.5 for DECIMAL(12,4)": ("DECIMAL(12,4)", Decimal("99.5")),
    "an int for DECIMAL(12,4)": ("DECIMAL(12,4)", 99),
    "a float for DOUBLE": ("DOUBLE", 99.5),
    "an int for DOUBLE": ("DOUBLE", 99),
    "a Decimal for DOUBLE": ("DOUBLE", Decimal("99.5")),
}
"""Values, with the types of the columns that they are for."""
_TABLES = (
    "CREATE TABLE bids (broker BIGINT NOT NULL, volume {0} NOT NULL, price BIGINT NOT NULL);"
    "CREATE TABLE asks (broker BIGINT NOT NULL, volume {0} NOT NULL, price BIGINT NOT NULL);"
)
_BEST = "0.25 * (SELECT SUM(a.volume) FROM {0} a) > (SELECT SUM(d.volume) FROM {0} d WHERE d.price > {1}.price)"
QUERIES = {
    "VWAP": ("SELECT SUM(b.price * b.volume) AS v FROM bids b WHERE " + _BEST.format("bids", "b"), 800),
    "missed trades": (
        "SELECT b.broker, SUM(s.price * s.volume - b.price * b.volume) AS v FROM bids b, asks s WHERE "
        f"{_BEST.format('asks', 's')} AND {_BEST.format('bids', 'b')} GROUP BY b.broker",
        800,
    ),
}
"""Thresholds of running sums, and how many rows a side they are measured with."""
_EVENTS, _REPETITIONS, _LATE = 20_000, 5, 20


def rows(scale: float) -> list[tuple[str, float]]:
    """Return how many microseconds of CPU an event costs, by name.

    With scale 1, a repetition has 20,000 events, and thresholds 800 rows a side.
    """
    runs: dict[str, Callable[[], float]] = {}
    count = max(int(_EVENTS * scale), 20)
    for name, (sql_type, value) in FORMS.items():
        wh = _open(f"CREATE TABLE t (x {sql_type}); CREATE VIEW v AS SELECT SUM(x) AS s FROM t")
        runs[f"{name}, in a list"] = _listed(wh, [(value,)] * count)
        runs[f"{name}, by trigger"] = _triggered(wh, value, count)
    groups = (
        "CREATE TABLE t (k BIGINT NOT NULL, x BIGINT NOT NULL); CREATE VIEW v AS SELECT k, SUM(x) FROM t GROUP BY k"
    )
    for size in (1, 10):
        runs[f"insert of {size} row{'s' * (size > 1)}, each"] = _inserted(_open(groups), size, max(count // 10, 1))
    for name, (query, most) in QUERIES.items():
        for sql_type, number in (("BIGINT", int), ("DOUBLE", float)):
            side = max(int(most * scale), 5)
            wh = _open(f"{_TABLES.format(sql_type)} CREATE VIEW v AS {query}")
            runs[f"{name} over {sql_type}, {side} rows a side"] = _thresholds(wh, side, number)
    return measure_by_turns(runs, _REPETITIONS)


def _open(script: str) -> Warehouse:
    from cumulus.warehouse import Warehouse

    return Warehouse(script, keep="none")


def _listed(wh: Warehouse, given: list[Any]) -> Callable[[], float]:
    return lambda: microseconds(lambda: wh.insert("t", given), len(given))


def _triggered(wh: Warehouse, value: Any, count: int) -> Callable[[], float]:
    on = wh.trigger("t")

    def fire() -> None:
        for _ in range(count):
            on(+1, value)

    return lambda: microseconds(fire, count)


def _inserted(wh: Warehouse, size: int, count: int) -> Callable[[], float]:
    def insert() -> None:
        for number in range(count):
            wh.insert("t", [(number % 100 + place, 3) for place in range(size)])

    return lambda: microseconds(insert, count)


def _thresholds(wh: Warehouse, side: int, number: Callable[[int], float]) -> Callable[[], float]:
    """Return what deletes and inserts some of the rows of two tables again."""
    given = {
        table: [(each % 10, number(each * 7919 % 97 + 1), each * step % 1009) for each in range(side)]
        for table, step in (("bids", 31), ("asks", 37))
    }
    for table, some in given.items():
        wh.insert(table, some)
    places = cycle(range(side))

    def change() -> None:
        for _ in range(_LATE):
            at = next(places)
            wh.apply([(sign, table, some[at]) for table, some in given.items() for sign in (-1, 1)])

    return lambda: microseconds(change, 4 * _LATE)
