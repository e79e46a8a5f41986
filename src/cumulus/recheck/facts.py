"""Facts: the rows of FROM and WHERE behind some groups of a view, from the tables whose rows are kept.

DuckDB takes the view's own SELECT apart, as JSON: its FROM and WHERE stay, its grouping columns become conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import duckdb

from cumulus.algebra.printing import quoted
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Interval
from cumulus.compiler.declarations import declarations
from cumulus.errors import UsageError
from cumulus.sql.syntax.parse import parse_script
from cumulus.sql.syntax.words import for_duckdb
from cumulus.views.duckdb_sql.trees import parsed_whole, printed
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Between, Bound

_STAR: Final = {
    "class": "STAR", "type": "STAR", "alias": "", "relation_name": "", "exclude_list": [], "replace_list": [],
    "columns": False, "expr": None, "qualified_exclude_list": [], "rename_list": [],
}  # fmt: skip


def facts_query(
    script: str | None, finisher: Finisher, where: Iterable[Sequence[Bound]], limit: int
) -> tuple[str, list[Any]]:
    """Return the SELECT that gives the rows behind a view's groups, and its parameters.

    Parameters
    ----------
    script
        The SQL that declares the view; None if it was made from M3.
    where
        Which groups: those that are within all bounds of one of these.
    limit
        How many rows, at most.

    Raises
    ------
    UsageError
        If the view's rows cannot be told from its SQL.
    """
    view = finisher.view
    statement, node = _statement(view.name, script)
    items = node["select_list"]
    if len(items) != len(view.columns):
        raise _refusal(view.name, "its SELECT list has a star")
    keys = finisher.grouping
    marks = {column.name: f"{column.name} of {view.name}" for column in view.columns if column.name in keys}
    marked = [
        {**item, "alias": marks[column.name]}
        for item, column in zip(items, view.columns, strict=True)
        if column.name in keys
    ]
    node |= {
        "select_list": [_STAR, *marked],
        "group_expressions": [],
        "group_sets": [],
        "aggregate_handling": "STANDARD_HANDLING",
        "having": None,
        "modifiers": [],
    }
    with duckdb.connect() as connection:
        inner = printed(connection, statement)
    columns = {column.name: column for column in view.columns}
    parameters: list[Any] = []
    alternatives = [
        " AND ".join(_condition(marks[bound.column], bound, columns[bound.column], parameters) for bound in bounds)
        or "TRUE"
        for bounds in where
    ]
    condition = " OR ".join(f"({each})" for each in alternatives) or "FALSE"
    shown = f"* EXCLUDE ({', '.join(map(quoted, marks.values()))})" if marks else "*"
    return f"SELECT {shown} FROM ({inner}) WHERE {condition} LIMIT {limit:d}", parameters


def _statement(view: str, script: str | None) -> tuple[Any, dict[str, Any]]:
    """Return the SELECT of a view as DuckDB's tree, and the node in it."""
    declared = {} if script is None else declarations(parse_script(script).check()).views
    if view not in declared:
        raise _refusal(view, "it was not made from SQL")
    with duckdb.connect() as connection:
        text = for_duckdb(declared[view].text)
        tree = parsed_whole(connection, text)
    node = None if tree["error"] else tree["statements"][0]["node"]
    if node is None or node["type"] != "SELECT_NODE":
        raise _refusal(view, "it is not one SELECT")
    return tree, node


def _condition(name: str, bound: Bound, column: Column, parameters: list[Any]) -> str:
    """Return a bound as a condition of SQL; its values are added to the parameters."""

    def value(given: Any) -> str:
        if isinstance(given, Interval):
            given = f"{given.months} months {given.days} days {given.micros} microseconds"
        parameters.append(given)
        return "?" if column.type is None else f"CAST(? AS {column.type})"

    if isinstance(bound.within, Between):
        low, high = bound.within.low, bound.within.high
        parts = [f"{quoted(name)} IS NOT NULL"]
        parts += [] if low is None else [f"{quoted(name)} >= {value(low)}"]
        parts += [] if high is None else [f"{quoted(name)} <= {value(high)}"]
        return " AND ".join(parts)
    equal = [f"{quoted(name)} IS NOT DISTINCT FROM {value(each)}" for each in bound.within]
    return f"({' OR '.join(equal)})" if equal else "FALSE"


def _refusal(view: str, why: str) -> UsageError:
    return UsageError(
        f"the rows behind {view} cannot be found: {why}",
        hint="Ask for them in SQL, over tables whose rows are kept: query().",
    )
