"""Which of DuckDB's functions give the same value at every node, and which of them are aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import duckdb

from cumulus.catalog.names import folded
from cumulus.views.duckdb_sql.trees import Tree, everything, expressions, function_name, is_call

FunctionKind: TypeAlias = Literal["scalar", "aggregate", "unstable"]

STABLE_AGGREGATES = frozenset(
    (
        *("avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "corr", "count", "count_if", "count_star"),
        *("countif", "covar_pop", "covar_samp", "favg", "fsum", "kahan_sum", "kurtosis", "kurtosis_pop", "max"),
        *("mean", "median", "min", "product", "quantile_cont", "quantile_disc", "skewness", "stddev", "stddev_pop"),
        *("stddev_samp", "sum", "sumkahan", "var_pop", "var_samp", "variance"),
    )
)
"""Aggregates whose value does not depend on the order of their rows, but for the last digits of a DOUBLE."""


def instability(connection: duckdb.DuckDBPyConnection, query: Tree, top: Tree) -> str:
    """Return why a query may give two nodes different values for the same rows; empty if it cannot.

    Parameters
    ----------
    query
        A part of the parse tree.
    top
        The outermost SELECT. In its sub-queries, a choice among rows (LIMIT, DISTINCT ON, an aggregate in the order of
        its rows) is unstable; its own LIMIT is not.
    """
    own = {id(each) for each in _outside_of_queries(top)}
    parts = list(everything(query))
    sources = {id(each["function"]) for each in parts if each.get("type") == "TABLE_FUNCTION"}  # all are stable
    for each in parts:
        if each.get("class") == "WINDOW":
            return "a window function looks at other rows"
        if each.get("sample") is not None:
            return "a sample takes rows at random"
        if is_call(each) and id(each) not in sources:
            name = function_name(each)
            kind = _kind(connection, each)
            if name == "unnest":
                return "unnest() makes several rows of one"
            if kind == "unstable":
                return f"{name}() is not the same at all nodes"
            if kind == "aggregate" and id(each) not in own and name not in STABLE_AGGREGATES:
                return f"{name}() in a sub-query may choose other rows at each node"
        elif each is not top and any(_chooses(modifier) for modifier in each.get("modifiers", ())):
            return "a LIMIT or DISTINCT ON in a sub-query may choose other rows at each node"
        elif _is_moment(each):
            return f"{each['column_names'][0]} is not the same at all nodes"
    return ""


def is_aggregate(connection: duckdb.DuckDBPyConnection, tree: Tree) -> bool:
    """Whether a part of a parse tree is a call of an aggregate."""
    return is_call(tree) and _kinds(connection).get(function_name(tree)) == "aggregate"


def _outside_of_queries(top: Tree) -> Iterator[Tree]:
    """Iterate over the parts of a SELECT that are in none of its sub-queries."""
    waiting: list[Any] = list(top.values())
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict) and not str(each.get("type", "")).endswith("_NODE"):
            yield each
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)


def _chooses(modifier: Tree) -> bool:
    return modifier["type"].startswith("LIMIT") or bool(modifier.get("distinct_on_targets"))


_MOMENTS = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}


def _is_moment(tree: Tree) -> bool:
    """Whether a name may stand for the time: DuckDB takes it for a function if there is no such column."""
    return tree.get("class") == "COLUMN_REF" and folded(tree["column_names"][0]) in _MOMENTS


def _kind(connection: duckdb.DuckDBPyConnection, call: Tree, depth: int = 3) -> FunctionKind:
    """Return the kind of a function that is called; a macro that calls only stable scalar functions is one itself."""
    name = function_name(call)
    kind = _kinds(connection).get(name, "unstable")
    if kind == "aggregate":
        return "aggregate"
    if kind == "unstable" or (name == "age" and len(call["arguments"]) == 1):  # age(x) counts from today
        return "unstable"
    if kind == "scalar":
        return "scalar"
    if depth == 0 or "SELECT" in kind:
        return "unstable"
    calls = [each for each in everything(expressions(connection, [kind])) if is_call(each)]
    return "scalar" if all(_kind(connection, each, depth - 1) == "scalar" for each in calls) else "unstable"


def _kinds(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the kind of each function; of a macro, what it stands for."""
    return _read_kinds(_Catalog(connection))


class _Catalog:
    """A connection as a key: all connections of one process have the same functions."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Catalog)


@lru_cache(maxsize=1)
def _read_kinds(catalog: _Catalog) -> dict[str, str]:
    return dict(catalog.connection.execute(_KINDS).fetchall())


_KINDS = """
SELECT function_name, CASE
    WHEN bool_or(function_type = 'aggregate') THEN 'aggregate'
    WHEN bool_or(function_type = 'scalar' AND stability = 'CONSISTENT') THEN 'scalar'
    WHEN bool_and(function_type = 'macro') THEN min(macro_definition)
    ELSE 'unstable' END
FROM duckdb_functions() GROUP BY function_name
"""
