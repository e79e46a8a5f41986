"""The rows of each level of a cube are those of GROUP BY over base rows, kept or found in another view's map."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import cumulus
from cumulus.errors import BindError, EvaluationError
from support.oracle import Oracle, same_bag
from support.random_folds import FoldedView, folded_views, groups_by_all, warehouse_of
from support.random_tables import SCHEMA, streams
from support.tiers import WHOLE


def script_of(view: FoldedView, data: st.DataObject) -> str:
    """A cube that keeps some of its levels, and perhaps a view before or behind it that has the sums of a level."""
    keys = [f"k{place}" for place in range(len(view.keys))]
    levels = [subset for size in range(len(keys) + 1) for subset in combinations(keys, size)]
    kept = data.draw(st.lists(st.sampled_from(levels), max_size=3))
    keep = ", ".join(f"({', '.join(level)})" for level in kept)
    texts = [f"CREATE CUBE v{f' KEEP {keep}' if keep else ''} AS {view.select(range(len(keys)))}"]
    if data.draw(st.booleans()):
        by = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=len(keys) - 1, unique=True))
        other = f"CREATE VIEW other AS {view.select(by).removesuffix(' HAVING COUNT(*) > 0')}"
        texts.insert(data.draw(st.integers(0, 1)), other)
    return "; ".join(texts)


def check(view: FoldedView, events: list[Any], engine: str, data: st.DataObject, seen: Counter[str]) -> None:
    """Compare the rows of every level, and every fold, with DuckDB."""
    script = script_of(view, data)
    try:
        program = cumulus.compile(SCHEMA + script, keep="none")
    except BindError as problem:
        if "grouping columns" not in problem.message and "does not show" not in problem.message:
            raise
        seen["refused"] += 1
        return
    assume(groups_by_all(program, len(view.keys)))
    warehouse = warehouse_of(program, engine)
    oracle = Oracle(SCHEMA)
    for sign, relation, row in events:
        (warehouse.insert if sign > 0 else warehouse.delete)(relation, [row])
        oracle.apply(sign, relation, row)
    for level in program.cubes[0].levels:
        by = [int(name[1:]) for name in level.columns]
        select = view.select(by).removesuffix(" HAVING COUNT(*) > 0")
        rows = warehouse.view(level.view).rows()
        wanted = oracle.database.execute(select).fetchall()
        assert same_bag(rows, wanted), (script, level, rows, wanted)
        seen["kept" if level.kept else "equal"] += 1
    keys = [f"k{place}" for place in range(len(view.keys))]
    for by in (subset for size in range(1, len(keys) + 1) for subset in combinations(range(len(keys)), size)):
        select = view.select(by)
        try:
            folded = warehouse.view("v").fold([keys[place] for place in by]).finish()
        except EvaluationError as problem:  # such as a sum of squares, which DuckDB keeps as a DOUBLE
            if "does not fit 128 bits" not in problem.message:
                raise
            seen["too large"] += 1
            continue
        wanted = oracle.database.execute(select).fetchall()
        assert same_bag([tuple(row.values()) for row in folded.to_pylist()], wanted), (script, by)
        seen["folded"] += 1


@pytest.mark.parametrize(("engine", "count"), [("interpreter", 400 if WHOLE else 5), ("native", 100 if WHOLE else 2)])
def test_a_level_is_the_select_with_fewer_grouping_columns(engine: str, count: int) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None)
    @given(folded_views(), streams(max_size=14), st.data())
    def law(view: FoldedView, events: list[Any], data: st.DataObject) -> None:
        check(view, events, engine, data, seen)

    law()
    if WHOLE:
        assert min(seen[kind] for kind in ("kept", "equal", "folded")) >= count / 20, seen
        assert seen["refused"] + seen["too large"] < count / 10, seen
