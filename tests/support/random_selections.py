"""Random selections of random cubes, each with the SQL over base rows that says the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

import cumulus
from cumulus.m3.program import CubeDef, DimensionDef, Program
from cumulus.olap import Selection
from support.random_folds import FoldedView

DIMENSIONS = {
    1: [[(0,)]],
    2: [[(0,), (1,)], [(0, 1)], [(1, 0)]],
    3: [[(0,), (1,), (2,)], [(0, 1), (2,)], [(0, 1, 2)], [(0,), (2, 1)], [(0, 1), (2, 1)]],
}
"""How the grouping columns of a view are dimensions; a column may be in two."""


def with_cube(program: Program, dimensions: list[tuple[int, ...]]) -> Program:
    """The program whose view v is a cube."""
    made = tuple(DimensionDef(f"d{n}", tuple(f"k{k}" for k in each)) for n, each in enumerate(dimensions))
    return replace(program, cubes=(CubeDef("v", made),))


@dataclass(frozen=True)
class Asked:
    """A selection, and what SQL says of it: keys of rows and columns, conditions with parameters, items of GROUP BY."""

    selection: Selection
    rows: tuple[int, ...]
    pivots: tuple[int, ...]
    conditions: tuple[tuple[str, list[Any]], ...]
    grouping: tuple[str, ...]

    def where(self) -> tuple[str, list[Any]]:
        return (
            " AND ".join(f"({text})" for text, _ in self.conditions),
            [value for _, values in self.conditions for value in values],
        )


@st.composite
def asked(draw: st.DrawFn, view: FoldedView, begin: Selection, values: list[list[Any]]) -> Asked:
    """Levels, totals, a pivot and conditions; `values` are those of each key."""
    dimensions = [[int(level[1:]) for level in each.levels] for each in begin.shape.dimensions]
    depths = [draw(st.integers(0, len(levels))) for levels in dimensions]
    names = [
        f"d{n}.k{levels[depth - 1]}" for n, (levels, depth) in enumerate(zip(dimensions, depths, strict=True)) if depth
    ]
    made = begin.rollup(*names)
    shown = [n for n, depth in enumerate(depths) if depth]
    totals = draw(st.lists(st.sampled_from(shown), unique=True)) if shown else []
    if totals:
        made = made.totals(*(f"d{n}" for n in totals))
    pivots = draw(st.lists(st.sampled_from(shown), unique=True, max_size=1)) if shown else []
    made = made.pivot(*(f"d{n}" for n in pivots))
    conditions = []
    for n, levels in enumerate(dimensions):
        way = draw(st.sampled_from(["none", "none", "value", "level", "paths"]))
        if way == "value":
            key = draw(st.sampled_from(levels))
            wanted, text, given = draw(bounds(values[key], made.shape.columns[key].type))
            if text:
                made = made.dice(**{f"k{key}": wanted})
                conditions.append((text.format(f"({view.keys[key]})"), given))
        elif way == "paths":
            depth = draw(st.integers(1, len(levels)))
            paths = draw(st.lists(st.tuples(*(st.sampled_from(values[key]) for key in levels[:depth])), max_size=3))
            made = made.dice(**{f"d{n}": paths})
            one = " AND ".join(f"({view.keys[key]}) IS NOT DISTINCT FROM ?" for key in levels[:depth])
            conditions.append((" OR ".join([one] * len(paths)) or "FALSE", [v for path in paths for v in path]))
    grouping, rows, across = [], dict[int, None](), dict[int, None]()
    for n in sorted(shown, key=lambda n: n in pivots):
        keys = [key for key in dimensions[n][: depths[n]] if n not in pivots or key not in rows]
        (across if n in pivots else rows).update(dict.fromkeys(keys))
        listed = ", ".join(view.keys[key] for key in keys)
        if listed:
            grouping.append(f"ROLLUP ({listed})" if n in totals else listed)
    return Asked(made, tuple(rows), tuple(across), tuple(conditions), tuple(grouping))


@st.composite
def bounds(draw: st.DrawFn, values: list[Any], type: Any) -> tuple[Any, str, list[Any]]:
    """A bound, and the same for DuckDB: a condition of {0}, and its parameters."""
    value = st.sampled_from(values)
    ways = ["equal", "list", "between", "from"] + (["like"] if str(type) == "VARCHAR" else [])
    match draw(st.sampled_from(ways)):
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
        case "like":
            pattern = draw(st.sampled_from(["%", "x%", "%y", "_", "%'%"]))
            return cumulus.like(pattern), "{0} LIKE ?", [pattern]
    return None, "", []
