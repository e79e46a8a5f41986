"""Folding a view says what its SELECT says with fewer grouping columns, whatever was added up on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import cumulus
from cumulus.views.folding import Folds, bounds_of, column_reading, reading
from cumulus.views.folding.reading import fold_by_plan
from support.oracle import Oracle, same_bag
from support.random_folds import FoldedView, folded_views, groups_by_all, warehouse_of
from support.random_tables import SCHEMA, streams
from support.tiers import WHOLE


def subsets(count: int) -> list[tuple[int, ...]]:
    return [subset for size in range(count + 1) for subset in combinations(range(count), size)]


@st.composite
def selections(draw: st.DrawFn, values: list[Any]) -> tuple[Any, str, list[Any]]:
    """A bound of a grouping column, and the same for DuckDB: a condition of {0}, and its parameters."""
    value = st.sampled_from(values)
    match draw(st.sampled_from(["none", "equal", "list", "between", "from"])):
        case "equal":
            one = draw(value)
            return one, "{0} IS NOT DISTINCT FROM ?", [one]
        case "list":
            some = draw(st.lists(value, max_size=3))
            return some, " OR ".join(["{0} IS NOT DISTINCT FROM ?"] * len(some)) or "FALSE", some
        case "between":
            low, high = draw(value), draw(value)
            if low is not None and high is not None:
                return cumulus.between(low, high), "{0} BETWEEN ? AND ?", [low, high]
        case "from":
            low = draw(value)
            if low is not None:
                return cumulus.between(low), "{0} >= ?", [low]
    return None, "", []


def rows_of(partial: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in partial.finish().to_pylist()]


@contextmanager
def emptied(oracle: Oracle) -> Iterator[Oracle]:
    """The tables of all views, without rows."""
    oracle.database.execute("BEGIN")
    try:
        yield oracle
    finally:
        oracle.database.execute("ROLLBACK")


def check(view: FoldedView, events: list[Any], engine: str, data: st.DataObject, oracle: Oracle, seen: Any) -> None:
    """Compare every fold with DuckDB; `seen` counts them, and their columns by kind of measure."""
    keys = [f"k{place}" for place in range(len(view.keys))]
    levels = data.draw(st.lists(st.sampled_from(subsets(len(keys))[:-1]), max_size=2, unique=True))
    kept = [f"({', '.join(keys[place] for place in level)})" for level in levels]
    cube = f"CREATE CUBE v KEEP {', '.join(kept)} AS {view.select(range(len(keys)))}" if kept else view.script
    assume(groups_by_all(cumulus.compile(SCHEMA + view.script, keep="none"), len(keys)))
    program = cumulus.compile(SCHEMA + cube, keep="none")
    warehouse = warehouse_of(program, engine)
    # Whole shares of a view's tables, where it reads one of them alone.
    shares = [warehouse_of(program, engine) for _ in range(2 if view.table and not kept else 0)]
    homes: dict[Any, list[int]] = {}
    for number, (sign, relation, row) in enumerate(events):
        (warehouse.insert if sign > 0 else warehouse.delete)(relation, [row])
        oracle.apply(sign, relation, row)
        if shares:
            # A row is deleted where it was inserted.
            home = homes.setdefault((relation, repr(row)), [])
            home.append(number % 2) if sign > 0 else None
            share = shares[home[-1] if sign > 0 else home.pop()]
            (share.insert if sign > 0 else share.delete)(relation, [row])
    reader = warehouse.view("v")
    shown = reader.rows()
    for by in subsets(len(keys)):
        names = [keys[place] for place in by]
        where, conditions, parameters = {}, [], []
        for place in range(len(keys)):
            bound, condition, given_values = data.draw(selections([row[place] for row in shown] or [None]))
            if condition:
                where[keys[place]] = bound
                conditions.append(f"({condition.format(f'({view.keys[place]})')})")
                parameters += given_values
        select = view.select(by, " AND ".join(conditions))
        wanted = oracle.database.execute(select, parameters).fetchall()
        if not wanted and not by and () in levels:  # the kept total says what stands over no rows
            wanted = oracle.database.execute(select.replace(" HAVING COUNT(*) > 0", ""), parameters).fetchall()
        whole = reader.fold(names, where)
        assert same_bag(rows_of(whole), wanted), (cube, names, where, rows_of(whole), wanted)
        for partial in by_candidates(warehouse, whole, names, where):
            assert same_bag(rows_of(partial), wanted), (cube, names, where, partial.map)
            seen["candidates"] += 1
        for share in shares[:1]:
            parts = share.view("v").fold(names, where) + shares[1].view("v").fold(names, where)
            assert same_bag(rows_of(parts), wanted), (view.script, names, where)
        if not where:
            cut = data.draw(st.sampled_from(keys))
            values = list({repr(row): row for row in ((r[keys.index(cut)],) for r in shown)}.values())
            half = len(values) // 2
            parts = reader.fold(names, {cut: [value for (value,) in values[half:]]})
            parts += reader.fold(names, {cut: [value for (value,) in values[:half]]})
            assert same_bag(rows_of(parts), wanted), (cube, names, cut)
            seen["split"] += 1
        seen["folds"] += 1
        for kinds in whole.kinds.values():
            seen["+".join(sorted(kinds)) or "constant"] += 1
    seen[warehouse._state.session.engine.name] += 1
    seen["shares" if shares else "cubes" if kept else "views"] += 1


def by_candidates(warehouse: cumulus.Warehouse, whole: Any, names: list[str], where: dict[str, Any]) -> Iterator[Any]:
    """The same fold from each map that can answer it, were it the smallest."""
    state, bounds = warehouse._state, bounds_of(where)
    for candidate in whole.choice.candidates:
        folds = Folds(state.session.program, state.finishers)
        plan, choice = folds.chosen("v", names, bounds, None, lambda map, wanted=candidate.map: map != wanted)
        if choice.view == candidate.view != whole.choice.view:
            yield fold_by_plan(plan, state.finishers[choice.view], state.session.engine, bounds, choice, None)


@pytest.mark.parametrize(("engine", "count"), [("interpreter", 1600 if WHOLE else 8), ("native", 500 if WHOLE else 3)])
def test_a_fold_is_the_select_with_fewer_grouping_columns(
    engine: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    monkeypatch.setattr(reading, "FEW_ENTRIES", 0)  # however few there are, they are read as columns
    monkeypatch.setattr(column_reading, "MANY_GROUPS", 0)
    tables = Oracle(SCHEMA)

    # A view and its events are told as they are: making them smaller takes longer than all others together.
    @settings(max_examples=count, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(folded_views(), streams(max_size=14), st.data())
    def law(view: FoldedView, events: list[Any], data: st.DataObject) -> None:
        with emptied(tables) as oracle:
            check(view, events, engine, data, oracle, seen)

    law()
    if WHOLE:
        assert min(seen[kind] for kind in ("additive", "end", "distinct", "split", "candidates", "shares")) >= 100, seen
        assert seen[engine] >= count // 2, seen


@pytest.mark.parametrize("type", ["HUGEINT", "BIGINT", "INTEGER", "DECIMAL(38,2)"])
@pytest.mark.parametrize("rows", [[], [(1, 2, 3), (-1, 2, 4), (0, None, 5)]], ids=["no rows", "rows"])
@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_null_is_found_in_no_key_that_is_never_null(
    engine: str, rows: list[tuple[int | None, ...]], type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In machine code a key that may be NULL has a word more: what never is must not be looked for by that."""
    monkeypatch.setattr(reading, "FEW_ENTRIES", 0)
    script = f"""CREATE TABLE r (h {type} NOT NULL, a INTEGER, x INTEGER);
        CREATE CUBE v AS SELECT h, a, SUM(x) AS q, COUNT(DISTINCT x) AS d FROM r GROUP BY h, a;"""
    with cumulus.Warehouse(script, engine=engine) as warehouse:
        warehouse.insert("r", rows)
        view = warehouse.view("v")
        assert view.fold(["a"], {"h": None}).finish().num_rows == 0
        assert view.fold(["a"], {"h": 1}).finish().num_rows == len(rows) // 3
        assert [view.get(None, a) for a in (2, 5, None)] == [None] * 3
