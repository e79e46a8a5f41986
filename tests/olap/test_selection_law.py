"""A selection of a cube says what SQL says over the base rows: totals by ROLLUP, pivots, the rest of a top."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import cumulus
from cumulus import Cube
from support.oracle import Oracle, same_bag
from support.random_folds import FoldedView, folded_views, groups_by_all, warehouse_of
from support.random_selections import DIMENSIONS, Asked, asked, with_cube
from support.random_tables import SCHEMA, streams
from support.tiers import WHOLE


def sql_of(view: FoldedView, ask: Asked, having: str = "") -> tuple[str, list[Any]]:
    """Rows by ROLLUP: GROUPING of the rows' keys and of the pivoted ones, the keys, the measures."""
    where, parameters = ask.where()
    keys = [view.keys[key] for key in (*ask.rows, *ask.pivots)]
    groupings = [
        f"GROUPING({', '.join(view.keys[key] for key in part)})" if part else "0" for part in (ask.rows, ask.pivots)
    ]
    items = [*groupings, *keys, *(call for _, call in view.calls)]
    wheres = [*view.wheres, *([where] if where else [])]
    text = f"SELECT {', '.join(items)} FROM {view.source}"
    text += f" WHERE {' AND '.join(f'({each})' for each in wheres)}" if wheres else ""
    # Keys that two dimensions share make the same set twice.
    text += f" GROUP BY {', '.join(ask.grouping)}" if ask.grouping else ""
    return f"SELECT DISTINCT * FROM ({text} HAVING COUNT(*) > 0 {having})", parameters


def table_rows(selection: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in zip(*(c.to_pylist() for c in selection.arrow().columns), strict=True)]


def check_plain(view: FoldedView, ask: Asked, wanted: list[tuple[Any, ...]]) -> None:
    has_grouping = "grouping" in ask.selection.arrow().column_names
    rows = table_rows(ask.selection)
    moved = [(row[-1], 0, *row[:-1]) if has_grouping else (0, 0, *row) for row in rows]
    assert same_bag(moved, wanted), (view.script, ask.selection.to_json(), moved, wanted)


def check_pivot(view: FoldedView, ask: Asked, wanted: list[tuple[Any, ...]]) -> None:
    """Put the cells of the oracle where the names of the columns say."""
    table = ask.selection.arrow()
    row_count, pivot_count = len(ask.rows), len(ask.pivots)
    measures = [f"a{place}" for place in range(len(view.calls))]
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for grouping, pivoted, *rest in wanted:
        keys, members, numbers = rest[:row_count], rest[row_count : row_count + pivot_count], rest[-len(measures) :]
        bits = [pivoted >> (pivot_count - 1 - place) & 1 for place in range(pivot_count)]
        texts = ["total" if bit else _header(v) for bit, v in zip(bits, members, strict=True)]
        header = "total" if all(bits) else "_".join(texts)
        row = cells.setdefault((grouping, *map(repr, keys)), {"keys": (grouping, *keys)})
        row |= {f"{header}_{name}": number for name, number in zip(measures, numbers, strict=True)}
    headers = list(dict.fromkeys(name for row in cells.values() for name in row if name != "keys"))
    names = [name for name in table.column_names if name not in (*(f"k{key}" for key in ask.rows), "grouping")]
    assert sorted(headers) == sorted(names), (view.script, ask.selection.to_json())
    expected = [(*row["keys"], *(row.get(name) for name in headers)) for row in cells.values()]
    grouping_of = table.column("grouping").to_pylist() if "grouping" in table.column_names else [0] * table.num_rows
    shown = [*(f"k{key}" for key in ask.rows), *headers]
    found = [
        (grouping, *(row[name] for name in shown))
        for grouping, row in zip(grouping_of, table.select(shown).to_pylist(), strict=True)
    ]
    assert same_bag(found, expected), (view.script, ask.selection.to_json(), found, expected)


def _header(member: Any) -> str:
    """Return what the column of a member is called; SQL's -0.0 is 0.0."""
    return "NULL" if member is None else str(member + 0.0 if isinstance(member, float) else member)


def check_top(view: FoldedView, ask: Asked, oracle: Oracle, data: st.DataObject) -> None:
    """The greatest by count, and the rest folded from its base rows."""
    per = tuple(data.draw(st.lists(st.sampled_from(ask.rows), unique=True, max_size=1)))
    count = data.draw(st.integers(1, 2))
    last = f"a{len(view.calls) - 1}"
    selection = replace(ask.selection, levels=replace(ask.selection.levels, totals=())).top(
        count, last, per=[f"k{k}" for k in per], others=True
    )
    where, parameters = ask.where()
    groups = view.select(ask.rows, where)
    order = ", ".join([f"{last} DESC", *(f"k{key} NULLS LAST" for key in ask.rows if key not in per)])
    partition = f"PARTITION BY {', '.join(f'k{key}' for key in per)}" if per else ""
    ranked = f"SELECT *, row_number() OVER ({partition} ORDER BY {order}) AS place FROM ({groups})"
    best = oracle.database.execute(f"SELECT * EXCLUDE place, FALSE FROM ({ranked}) WHERE place <= {count}", parameters)
    expected = best.fetchall()
    rest = oracle.database.execute(f"SELECT * FROM ({ranked}) WHERE place > {count}", parameters).fetchall()
    keys = [row[: len(ask.rows)] for row in rest]
    if keys:
        one = " AND ".join(f"({view.keys[key]}) IS NOT DISTINCT FROM ?" for key in ask.rows)
        given_keys = [value for key in keys for value in key]
        text = view.select(
            per, " AND ".join([*([f"({where})"] if where else []), f"({' OR '.join([one] * len(keys))})"])
        )
        for row in oracle.database.execute(text, [*parameters, *given_keys]).fetchall():
            of = dict(zip(per, row, strict=False))
            expected.append((*(of.get(key) for key in ask.rows), *row[len(per) :], True))
    found = table_rows(selection)
    assert same_bag(found, expected), (view.script, selection.to_json(), found, expected)


def check(view: FoldedView, events: list[Any], engine: str, data: st.DataObject, seen: Counter[str]) -> None:
    view = replace(view, calls=[*view.calls, ("additive", "COUNT(*)")])
    program = cumulus.compile(SCHEMA + view.script, keep="none")
    dimensions = data.draw(st.sampled_from(DIMENSIONS[len(view.keys)]))
    assume(groups_by_all(program, len(view.keys)))
    warehouse, oracle = warehouse_of(with_cube(program, dimensions), engine), Oracle(SCHEMA)
    for sign, relation, row in events:
        (warehouse.insert if sign > 0 else warehouse.delete)(relation, [row])
        oracle.apply(sign, relation, row)
    rows = warehouse.view("v").rows()
    values = [list(dict.fromkeys(row[place] for row in rows)) or [None] for place in range(len(view.keys))]
    begin = Cube(warehouse, "v").rollup()
    for _ in range(3):
        ask = data.draw(asked(view, begin, values))
        assert Cube.from_json(warehouse, ask.selection.to_json()) == ask.selection
        least = data.draw(st.sampled_from([None, None, 0, 1, 2]))
        if least is not None:
            ask = replace(ask, selection=ask.selection.having(f"a{len(view.calls) - 1}", ">", least))
        sql, parameters = sql_of(view, ask, "" if least is None else f"AND COUNT(*) > {least}")
        wanted = oracle.database.execute(sql, parameters).fetchall()
        (check_pivot if ask.pivots else check_plain)(view, ask, wanted)
        if ask.rows and not ask.pivots and least is None:
            check_top(view, ask, oracle, data)
            seen["top"] += 1
        seen["selections"] += 1
        seen["pivot"] += bool(ask.pivots)
        seen["totals"] += bool(ask.selection.levels.totals)
        seen["conditions"] += bool(ask.conditions)


@pytest.mark.parametrize(("engine", "count"), [("interpreter", 500 if WHOLE else 8), ("native", 200 if WHOLE else 2)])
def test_a_selection_is_what_sql_says_over_the_base_rows(engine: str, count: int) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, phases=[Phase.explicit, Phase.generate])  # shrinking takes minutes
    @given(folded_views(), streams(max_size=14), st.data())
    def law(view: FoldedView, events: list[Any], data: st.DataObject) -> None:
        check(view, events, engine, data, seen)

    law()
    if WHOLE:
        assert min(seen[kind] for kind in ("top", "pivot", "totals", "conditions")) >= count / 5, seen
