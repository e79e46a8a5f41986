"""Random views with every aggregate, as parts that can be put together again with fewer grouping columns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

import cumulus
from cumulus.errors import EngineWarning
from cumulus.m3.program import Program
from cumulus.m3.view_reads import grouping_columns
from support.random_sql import From, conditions, froms, keys, numbers

OUTER = [
    From(
        "r q0 LEFT JOIN s q1 ON q0.a = q1.a",
        [("q0.a", "int"), ("q0.b", "int"), ("q0.c", "text"), ("q1.e", "date"), ("q1.f", "float"), ("q0.d", "decimal")],
    ),
    From(
        "r q0 FULL JOIN t q1 ON q0.b = q1.b",
        [("q0.a", "int"), ("q0.c", "text"), ("q1.h", "int"), ("q1.g", "decimal"), ("q0.d", "decimal")],
    ),
    From(
        "r q0",
        [("q0.a", "int"), ("q0.b", "int"), ("q0.c", "text"), ("q0.d", "decimal")],
        ["q0.a IN (SELECT a FROM s)"],
    ),
    From(
        "r q0",
        [("q0.a", "int"), ("q0.b", "int"), ("q0.c", "text"), ("q0.d", "decimal")],
        ["NOT EXISTS (SELECT 1 FROM t WHERE t.b = q0.b)"],
    ),
    From(
        "(SELECT a, b, d FROM r UNION ALL SELECT a, a + 1, 1.50 FROM s) q0",
        [("q0.a", "int"), ("q0.b", "int"), ("q0.d", "decimal")],
    ),
    From("r q0 JOIN (SELECT DISTINCT a FROM s) q1 USING (a)", [("a", "int"), ("b", "int"), ("q0.d", "decimal")]),
]
PLAIN = [
    From("r", [("a", "int"), ("b", "int"), ("c", "text"), ("d", "decimal")]),
    From("u", [("p", "int"), ("q", "int"), ("x", "int"), ("y", "float"), ("z", "bool"), ("w", "timestamp")]),
    From("s", [("a", "int"), ("e", "date"), ("f", "float")]),
]
KINDS = ("additive", "end", "distinct", "mixed")


@dataclass(frozen=True)
class FoldedView:
    """A view whose grouping columns are k0, k1, …, and the same question asked with fewer of them.

    `tables` is its only table, or "" if it has several.
    """

    keys: list[str]
    calls: list[tuple[str, str]]
    source: str
    wheres: list[str] = field(default_factory=list)
    table: str = ""

    @property
    def script(self) -> str:
        return f"CREATE VIEW v AS {self.select(range(len(self.keys)))}"

    def select(self, by: Any, where: str = "") -> str:
        """The view with some of its grouping columns, of the groups that meet a condition."""
        items = [f"{self.keys[place]} AS k{place}" for place in by]
        items += [f"{call} AS a{place}" for place, (_, call) in enumerate(self.calls)]
        wheres = [*self.wheres, *([where] if where else [])]
        text = f"SELECT {', '.join(items)} FROM {self.source}"
        text += f" WHERE {' AND '.join(f'({each})' for each in wheres)}" if wheres else ""
        return text + (f" GROUP BY {', '.join(self.keys[place] for place in by)}" if by else " HAVING COUNT(*) > 0")


@st.composite
def measures(draw: st.DrawFn, source: From) -> tuple[str, str]:
    """A kind of measure, and a call of that kind."""
    column = draw(st.sampled_from(source.columns))[0]
    number = draw(numbers(source))
    filtered = "" if draw(st.integers(0, 3)) else f" FILTER (WHERE {draw(conditions(source, 1))})"
    exact = draw(st.sampled_from(source.of("int", "decimal") or ["1.5"]))
    # The floats of u are finite: DuckDB refuses the deviation of others.
    spread = draw(st.sampled_from([exact, *(name for name in source.of("float") if name.endswith("y"))]))
    truth = f"CAST({draw(conditions(source, 1))} AS BOOLEAN)"
    kind = draw(st.sampled_from(KINDS))
    ends = [f"MIN({column}){filtered}", f"MAX({column}){filtered}", f"MAX({number}){filtered}"]
    additive = [
        f"COUNT(*){filtered}", f"COUNT({column}){filtered}", f"SUM({number}){filtered}", f"AVG({number}){filtered}",
        f"BOOL_AND({truth})", f"BOOL_OR({truth})", f"COUNT_IF({truth})", f"STDDEV({spread}){filtered}",
        f"VAR_POP({spread})", f"SUM({number}) / NULLIF(COUNT(*), 0)",
    ]  # fmt: skip
    distinct = [
        f"COUNT(DISTINCT {column}){filtered}", f"SUM(DISTINCT {number}){filtered}", f"AVG(DISTINCT {number})",
        f"COUNT(DISTINCT {number})",
    ]  # fmt: skip
    match kind:
        case "end":
            return kind, draw(st.sampled_from(ends))
        case "distinct":
            return kind, draw(st.sampled_from(distinct))
        case "mixed":
            return kind, draw(
                st.sampled_from(
                    [
                        f"COUNT(DISTINCT {column}) * 100 / NULLIF(COUNT(*), 0)",
                        f"CASE WHEN COUNT(*) > 2 THEN MIN({column}) END",
                        f"COALESCE(SUM({exact}), 0) + COUNT(DISTINCT {column})",
                    ]
                )
            )
        case _:
            return kind, draw(st.sampled_from(additive))


@st.composite
def folded_views(draw: st.DrawFn) -> FoldedView:
    """A view that groups by one to three columns or expressions."""
    which = draw(st.integers(0, 3))
    source = draw(froms()) if which == 0 else draw(st.sampled_from(OUTER if which == 1 else PLAIN))
    grouping = draw(st.lists(keys(source), min_size=1, max_size=3, unique=True))
    calls = draw(st.lists(measures(source), min_size=1, max_size=4))
    wheres = source.wheres + draw(st.lists(conditions(source), max_size=1))
    return FoldedView(grouping, calls, source.text, wheres, source.text if source in PLAIN else "")


def warehouse_of(program: Program, engine: str) -> cumulus.Warehouse:
    """A warehouse; what machine code cannot run is interpreted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EngineWarning)
        return cumulus.Warehouse(program, engine="auto" if engine == "native" else engine)


def groups_by_all(program: Program, count: int) -> bool:
    """Whether the view v groups by so many columns: a key that WHERE leaves but one value is no key of its map."""
    view = program.view("v")
    return len(grouping_columns(view, program.map(view.maps[0]))) == count
