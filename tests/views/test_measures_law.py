"""A query with MEASURE says what the same query over base rows says, with the view's aggregates written out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import cumulus
from support.oracle import Oracle, same_bag
from support.random_folds import FoldedView, folded_views, groups_by_all, warehouse_of
from support.random_measures import as_text
from support.random_tables import SCHEMA, streams
from support.tiers import WHOLE

SETS = {
    "plain": "{0}",
    "rollup": "ROLLUP ({0})",
    "cube": "CUBE ({0})",
    "sets": "GROUPING SETS (({0}), ({1}), ())",
}
EXPRESSIONS = ("{0}", "{0}", "({0} IS NULL)", as_text("{0}"))


@dataclass(frozen=True)
class Question:
    """A query of grouping columns `{0}`, `{1}`, … and measures `{m0}`, …; over a view, and over its base rows."""

    shape: str
    groups: list[str]
    items: list[str]
    conditions: list[str]
    having: str
    order: bool
    joined: bool

    def text(self, source: str, wheres: list[str], measures: list[str], keys: list[str]) -> str:
        """The query, with a view's columns, or with their definitions."""
        names = {f"m{place}": measure for place, measure in enumerate(measures)}
        say = lambda text: text.format(*keys, **names)  # noqa: E731
        groups = list(map(say, self.groups))
        shown = [f"{group} AS g{place}" for place, group in enumerate(groups)]
        if self.shape not in ("none", "plain"):
            shown += [f"GROUPING({group}) AS b{place}" for place, group in enumerate(groups)]
        shown += [f"{say(item)} AS x{place}" for place, item in enumerate(self.items)]
        conditions = [*wheres, *map(say, self.conditions)]
        if self.joined:
            source += ", (VALUES (0), (0), (1)) AS copies(copied)"
            conditions.append(say("copies.copied = CAST({0} IS NULL AS INTEGER)"))
        text = f"SELECT {', '.join(shown)} FROM {source}"
        text += f" WHERE {' AND '.join(f'({each})' for each in conditions)}" if conditions else ""
        if self.shape != "none":
            text += f" GROUP BY {SETS[self.shape].format(', '.join(groups), groups[0])}"
        text += f" HAVING {say(self.having)}" if self.having else ""
        return text + (" ORDER BY " + say("{m0}") if self.order else "")


@st.composite
def questions(draw: st.DrawFn, view: FoldedView, rows: list[Any]) -> tuple[Question, list[Any]]:
    """A question of a view, and its parameters."""
    places = draw(st.lists(st.integers(0, len(view.keys) - 1), max_size=3, unique=True))
    groups = list(dict.fromkeys(draw(st.sampled_from(EXPRESSIONS)).format(f"{{{place}}}") for place in places))
    shape = draw(st.sampled_from(list(SETS))) if groups else "none"
    measures = [f"{{m{place}}}" for place in range(len(view.calls))]
    items = draw(st.lists(st.sampled_from(measures), min_size=1, max_size=3, unique=True))
    items += draw(st.sampled_from([[], ["COALESCE(CAST({m0} AS VARCHAR), '-') IS NULL"], ["{m0} IS NULL"]]))
    conditions, parameters = [], []
    for place in range(len(view.keys)):
        if rows and not draw(st.integers(0, 3)):
            conditions.append(f"{{{place}}} IS NOT DISTINCT FROM ?")
            parameters.append(draw(st.sampled_from(rows))[place])
    having = draw(st.sampled_from(["", "", "{m0} IS NOT NULL"]))
    return Question(shape, groups, items, conditions, having, draw(st.booleans()), draw(st.booleans())), parameters


def check(view: FoldedView, events: list[Any], engine: str, data: st.DataObject, seen: Counter[str]) -> None:
    """Ask some questions of a view and of DuckDB; `seen` counts them."""
    program = cumulus.compile(SCHEMA + view.script, keep="none")
    assume(groups_by_all(program, len(view.keys)))
    warehouse, oracle = warehouse_of(program, engine), Oracle(SCHEMA)
    for sign, relation, row in events:
        (warehouse.insert if sign > 0 else warehouse.delete)(relation, [row])
        oracle.apply(sign, relation, row)
    names = [f"k{place}" for place in range(len(view.keys))]
    measures = [f"MEASURE(v.a{place})" for place in range(len(view.calls))]
    for _ in range(2):
        question, parameters = data.draw(questions(view, warehouse.view("v").rows()))
        calls, keys = [f"({call})" for _, call in view.calls], [f"({key})" for key in view.keys]
        there = " AND ".join(filter(None, [question.having, "COUNT(*) > 0"]))
        expected = Question(**{**question.__dict__, "having": there, "order": False})
        wanted = oracle.database.execute(expected.text(view.source, view.wheres, calls, keys), parameters).fetchall()
        asked = question.text("v", [], measures, names)
        wrapped = data.draw(st.sampled_from(["{}", "SELECT * FROM ({}) AS q", "WITH v AS ({}) SELECT * FROM v"]))
        found = warehouse.query(wrapped.format(asked), parameters).rows()
        seen[question.shape] += 1
        seen["joined"] += question.joined
        if wanted or question.shape == "plain":
            assert same_bag(found, wanted), (view.script, asked, parameters, found, wanted)
            seen["rows"] += len(wanted)
            for kinds in warehouse.view("v").fold([]).kinds.values():
                seen["+".join(sorted(kinds))] += 1


@pytest.mark.parametrize(("engine", "count"), [("interpreter", 1000 if WHOLE else 7), ("native", 300 if WHOLE else 3)])
def test_a_query_with_measures_is_the_query_over_base_rows(engine: str, count: int) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
    @given(folded_views(), streams(max_size=14), st.data())
    def law(view: FoldedView, events: list[Any], data: st.DataObject) -> None:
        check(view, events, engine, data, seen)

    law()
    if WHOLE:
        assert min(seen[each] for each in (*SETS, "none", "joined", "additive", "end", "distinct")) >= count / 20, seen
