"""Groups of ordered rows that grow to trees and empty again: the interpreter, which visits every row, sees the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import cumulus
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.native.store.memory_layout import store_of
from cumulus.engine.native.store.row_layout import LEFT, MOST_CHAINED, MOST_SUMS, RIGHT
from cumulus.m3 import parse
from support.tiers import one_mode_each, sampled

ROWS = "CREATE TABLE rows (g INTEGER, x {x}, v {v} NOT NULL);"
ENDS = "CREATE VIEW ends AS SELECT g, MIN(x) AS low, MAX(x) AS high, MIN(v) AS least FROM rows GROUP BY g;"
RANGES = """
    CREATE VIEW ranges AS SELECT a.g, SUM(a.v - b.v) AS s, COUNT(*) AS n FROM rows a, rows b
    WHERE a.g = b.g AND a.x > b.x GROUP BY a.g;
"""
AVERAGES = """
    CREATE VIEW averages AS SELECT g, SUM(v) AS s FROM rows a
    WHERE x < 0.5 * (SELECT AVG(x) FROM rows b WHERE b.g = a.g) GROUP BY g;
"""
BETWEEN = """
    CREATE VIEW between_averages AS SELECT g, v, COUNT(*) AS n FROM rows a
    WHERE x > (SELECT AVG(x) FROM rows b WHERE b.g = a.g) GROUP BY g, v;
"""
SHARES = """
    CREATE VIEW shares AS SELECT a.g, SUM(a.x * a.v) AS s FROM rows a
    WHERE 0.25 * (SELECT SUM(c.v) FROM rows c WHERE c.g = a.g)
        > (SELECT SUM(b.v) FROM rows b WHERE b.g = a.g AND b.x > a.x) GROUP BY a.g;
"""
CASES = {
    "ends": (ENDS, "BIGINT", "BIGINT"),
    "ends of floats": (ENDS, "DOUBLE", "DECIMAL(12,2)"),
    "ranges": (RANGES, "BIGINT", "BIGINT"),
    "ranges of decimals": (RANGES, "DECIMAL(25,1)", "DECIMAL(12,2)"),
    "ranges of floats": (RANGES, "DOUBLE", "DOUBLE"),
    "averages": (AVERAGES, "INTEGER", "BIGINT"),
    "between averages": (BETWEEN, "BIGINT", "INTEGER"),
    "shares": (SHARES, "BIGINT", "BIGINT"),
    "all": (ENDS + RANGES + AVERAGES + SHARES, "BIGINT NOT NULL", "BIGINT"),
}
Event = tuple[int, tuple[Any, ...]]


def a_tide(seed: int, kinds: list[str], steps: int, *, negative: bool = False) -> Iterator[Event]:
    """Yield insertions and deletions that take three groups beyond a chain's length and back to nothing, and again."""
    choose = random.Random(seed)
    there: list[tuple[Any, ...]] = []
    rises = True
    for _ in range(steps):
        rises = not there or (rises and len(there) < 3 * MOST_CHAINED)
        if there and choose.random() < (0.2 if rises else 0.9):
            yield -1, there.pop(choose.randrange(len(there)))
            continue
        g = choose.choice([1, 1, 1, 2, 2, 3, None])
        x = None if "NOT NULL" not in kinds[0] and choose.random() < 0.05 else a_number(kinds[0], choose.randrange(90))
        row = (g, x, a_number(kinds[1], choose.randrange(-9 if negative else 0, 12)))
        if negative and choose.random() < 0.03:  # gone before it comes
            yield -1, row
            yield 1, row
            continue
        there.append(row)
        yield 1, row


def a_number(kind: str, number: int) -> Any:
    return Decimal(number) / 2 if "DEC" in kind else number / 4 if "DOUBLE" in kind else number


def contents(engine: Any, name: str) -> dict[Any, Any]:
    """Return what readers see: sums of floats in another order leave other rests behind."""
    return {
        key: tuple(round(each, 6) if isinstance(each, float) else each for each in values)
        for key, values in engine.items(name)
    }


def kinds_of(engine: NativeEngine) -> set[str]:
    """Return what the groups of all ordered maps are now."""
    found = set()
    for definition in engine.program.maps:
        stored = engine.code.store(definition.name)
        shape = stored.store.shape
        for number, order in enumerate(shape.orders):
            chain = shape.chain(number)
            keys = {tuple(key[word] for word in order.group) for key in stored.view.matrix().tolist()}
            for group in keys if chain is not None else ():
                is_tree = stored.view.root(number, stored._first[chain](stored._record, *group))
                found.add("tree" if is_tree else "chain")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("case", "negative"), one_mode_each(CASES, (False, True), of=8))
def test_chains_and_trees_give_what_visiting_gives(case: str, negative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_DEBUG", "1")
    views, *kinds = CASES[case]
    program = compile_sql(ROWS.format(x=kinds[0], v=kinds[1]) + views)
    oracle, native = Interpreter(program), NativeEngine(program)
    seen: set[str] = set()
    for number, (sign, row) in enumerate(a_tide(len(case), kinds, 700, negative=negative)):
        for engine in (oracle, native):
            engine.begin()
            engine.on_event(sign, "rows", row)
            if number % 11 == 3:
                engine.rollback()
                engine.begin()
                engine.on_event(sign, "rows", row)
            engine.commit()
        for definition in program.maps:
            assert contents(native, definition.name) == contents(oracle, definition.name), (number, definition.name)
        if number % 20 == 0:
            seen |= kinds_of(native)
    assert [*native.take_errors()] == [*oracle.take_errors()]
    assert seen == {"chain", "tree"}


@pytest.mark.parametrize("case", sampled(CASES, of=4, first=1))
def test_what_made_trees_is_taken_back(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that make trees of chains, and ones that empty trees, end as if they had never been."""
    monkeypatch.setenv("CUMULUS_DEBUG", "1")
    views, *kinds = CASES[case]
    program = compile_sql(ROWS.format(x=kinds[0], v=kinds[1]) + views)
    oracle, native = Interpreter(program), NativeEngine(program)
    there: list[tuple[Any, ...]] = []
    rows = [row for sign, row in a_tide(7, kinds, 400) if sign > 0]
    for number in range(40):
        more = [(1, row) for row in rows[5 * number : 5 * number + 70]]
        for engine in (oracle, native):
            for events in ([*more], [(-1, row) for row in there]):
                engine.begin()
                for sign, row in events:
                    engine.on_event(sign, "rows", row)
                engine.rollback()
            engine.begin()
            for sign, row in more[:3]:
                engine.on_event(sign, "rows", row)
            engine.commit()
        there += [row for _, row in more[:3]]
        for definition in program.maps:
            assert native.code.store(definition.name).view.problems() == []
            assert contents(native, definition.name) == contents(oracle, definition.name), (number, definition.name)


@pytest.mark.slow
def test_a_snapshot_of_chains_and_trees_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUMULUS_DEBUG", "1")
    views, *kinds = CASES["all"]
    script = ROWS.format(x=kinds[0], v=kinds[1]) + views
    oracle, native = (cumulus.Warehouse(script, engine=name) for name in ("interpreter", "native"))
    seen: set[str] = set()
    for number, (sign, row) in enumerate(a_tide(5, kinds, 600)):
        for wh in (oracle, native):
            wh.apply([(sign, "rows", row)])
        if number % 60 == 59:
            seen |= kinds_of(native._state.session.engine)
            native.save(tmp_path / str(number))
            native = cumulus.Warehouse.load(tmp_path / str(number), engine="native")
        for view in oracle.views:
            found, wanted = ({*wh.view(view).rows()} for wh in (native, oracle))
            assert found == wanted, (number, view)
    assert seen == {"chain", "tree"}


def test_walks_from_both_ends_are_the_same_in_chains_and_trees() -> None:
    program = compile_sql(ROWS.format(x="BIGINT NOT NULL", v="BIGINT") + RANGES)
    native = NativeEngine(program)
    (name,) = (each.name for each in program.maps if native.code.store(each.name).store.orders)
    stored = native.code.store(name)
    for count in (0, 1, MOST_CHAINED, 3 * MOST_CHAINED):
        xs = random.Random(count).sample(range(-500, 500), count)
        native.begin()
        for x in xs:
            native.on_event(1, "rows", (count, x, 1))
        native.commit()
        ((_, axis),) = stored.store.orders
        up, down = ([row[axis] for row in stored.in_order(0, [count], side)] for side in (LEFT, RIGHT))
        assert up == sorted(xs)
        assert down == up[::-1]


def test_an_order_adds_up_as_many_columns_as_have_a_flag() -> None:
    columns = ", ".join(f"c{number} BIGINT" for number in range(MOST_SUMS + 3))
    (definition,) = parse(f"MAP m[g BIGINT, x BIGINT]({columns})").maps
    store = store_of(definition, 0)
    order = store.order((0,), 1)
    assert order is not None
    found = [store.order_sum(order, column) for column in range(MOST_SUMS + 3)]
    assert found == [*range(MOST_SUMS), None, None, None]
    assert store.order_sum(order, 3) == 3
