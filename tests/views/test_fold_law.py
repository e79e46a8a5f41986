"""Folding a view says what its SELECT says with fewer grouping columns, whatever was added up on the way."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cumulus
from cumulus.views.folding import column_reading, reading
from support.oracle import Oracle, same_bag
from support.random_folds import FoldedView, folded_views
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


def check(view: FoldedView, events: list[Any], engine: str, data: st.DataObject, seen: Counter[str]) -> None:
    """Compare every fold with DuckDB; `seen` counts them, and their columns by kind of measure."""
    program = cumulus.compile(SCHEMA + view.script, keep="none")
    warehouse = cumulus.Warehouse(program, engine=engine)
    shares = [cumulus.Warehouse(program, engine=engine) for _ in range(2 if view.table else 0)]
    oracle = Oracle(SCHEMA)
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
    keys = [f"k{place}" for place in range(len(view.keys))]
    for by in subsets(len(view.keys)):
        names = [keys[place] for place in by]
        where, conditions, parameters = {}, [], []
        for place in range(len(view.keys)):
            values = [row[place] for row in reader.rows()] or [None]
            bound, condition, given_values = data.draw(selections(values))
            if condition:
                where[keys[place]] = bound
                conditions.append(f"({condition.format(f'({view.keys[place]})')})")
                parameters += given_values
        select = view.select(by, " AND ".join(conditions))
        wanted = oracle.database.execute(select, parameters).fetchall()
        whole = reader.fold(names, where)
        assert same_bag(rows_of(whole), wanted), (view.script, names, where, rows_of(whole), wanted)
        for share in shares[:1]:
            parts = share.view("v").fold(names, where) + shares[1].view("v").fold(names, where)
            assert same_bag(rows_of(parts), wanted), (view.script, names, where)
        if not where:
            cut = data.draw(st.sampled_from(keys))
            values = list({repr(row): row for row in ((r[keys.index(cut)],) for r in reader.rows())}.values())
            half = len(values) // 2
            parts = reader.fold(names, {cut: [value for (value,) in values[half:]]})
            parts += reader.fold(names, {cut: [value for (value,) in values[:half]]})
            assert same_bag(rows_of(parts), wanted), (view.script, names, cut)
            seen["split"] += 1
        seen["folds"] += 1
        for kinds in whole.kinds.values():
            seen["+".join(sorted(kinds)) or "constant"] += 1
    if shares:
        seen["shares"] += 1


@pytest.mark.parametrize(("engine", "count"), [("interpreter", 1600 if WHOLE else 14), ("native", 400 if WHOLE else 3)])
def test_a_fold_is_the_select_with_fewer_grouping_columns(
    engine: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[str] = Counter()
    monkeypatch.setattr(reading, "FEW_ENTRIES", 0)  # however few there are, they are read as columns
    monkeypatch.setattr(column_reading, "MANY_GROUPS", 0)

    @settings(max_examples=count, deadline=None)
    @given(folded_views(), streams(max_size=14), st.data())
    def law(view: FoldedView, events: list[Any], data: st.DataObject) -> None:
        check(view, events, engine, data, seen)

    law()
    if WHOLE:
        assert min(seen[kind] for kind in ("additive", "end", "distinct", "split", "shares")) >= 100, seen
