"""DuckDB's parse trees: text to tree and back, and what stands where in a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import duckdb

from cumulus.catalog.names import folded

Tree: TypeAlias = dict[str, Any]
"""An expression, a part of FROM or a query, as `json_serialize_sql` has it; what is empty or NULL may be left out."""


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Tree | None:
    """Return one statement as a tree; None for what is no SELECT, for several, and for what DuckDB refuses."""
    found = json.loads(connection.sql(_PARSE, params=[sql]).fetchall()[0][0])
    return None if found["error"] or len(found["statements"]) != 1 else found


_PARSE = "SELECT json_serialize_sql(CAST(? AS VARCHAR), skip_null := true, skip_empty := true, skip_default := true)"


def expressions(connection: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> list[Tree]:
    """Return expressions as trees."""
    tree = parsed(connection, f"SELECT {', '.join(texts)}")
    assert tree is not None, f"no expressions: {texts}"
    found: list[Tree] = tree["statements"][0]["node"]["select_list"]
    return found


def printed(connection: duckdb.DuckDBPyConnection, tree: Tree) -> str:
    """Return a statement as text."""
    text: str = connection.sql("SELECT json_deserialize_sql(CAST(? AS JSON))", params=[json.dumps(tree)]).fetchall()[0][
        0
    ]
    return text


def expression_text(connection: duckdb.DuckDBPyConnection, expression: Tree) -> str:
    """Return an expression as DuckDB would call its column."""
    node = {"type": "SELECT_NODE", "cte_map": {}, "select_list": [expression], "from_table": {"type": "EMPTY"}}
    node["aggregate_handling"] = "STANDARD_HANDLING"
    return printed(connection, {"error": False, "statements": [{"node": node}]}).removeprefix("SELECT ")


def is_query(tree: Tree) -> bool:
    """Whether a tree is a query, with a scope of its own: SELECT, UNION, a recursive WITH."""
    return str(tree.get("type", "")).endswith("_NODE")


def inner_queries(tree: Any) -> Iterator[Tree]:
    """Iterate over the queries directly inside of a tree, which is not one itself."""
    for child in _children(tree):
        if isinstance(child, dict) and is_query(child):
            yield child
        else:
            yield from inner_queries(child)


def own(tree: Any) -> Iterator[Tree]:
    """Iterate over a tree and what is in it, but for queries inside, which have scopes of their own."""
    if isinstance(tree, dict):
        if is_query(tree):
            return
        yield tree
    for child in _children(tree):
        yield from own(child)


def everything(tree: Any) -> Iterator[Tree]:
    """Iterate over all trees in one."""
    if isinstance(tree, dict):
        yield tree
    for child in _children(tree):
        yield from everything(child)


def _children(tree: Any) -> Iterable[Any]:
    if isinstance(tree, dict):
        return tree.values()
    return tree if isinstance(tree, list) else ()


def names_of(column: Tree) -> list[str]:
    """Return the path of a column: its name comes last, and before it what it is of."""
    return list(column["column_names"])


def is_column(tree: Tree) -> bool:
    """Whether a tree is a column."""
    return tree.get("class") == "COLUMN_REF"


def is_call(tree: Tree) -> bool:
    """Whether a tree is a call of a function, or an operator."""
    return tree.get("class") == "FUNCTION"


def function_name(tree: Tree) -> str:
    """Return what is called."""
    return folded(str(tree.get("function_name", "")))


def tables_in(source: Tree, *joins: Tree) -> Iterator[tuple[Tree, tuple[Tree, ...]]]:
    """Iterate over the tables that stand in FROM, each with the joins that it is in."""
    if source.get("type") == "BASE_TABLE":
        yield source, joins
    elif source.get("type") == "JOIN":
        yield from tables_in(source["left"], *joins, {**source, "side": "left"})
        yield from tables_in(source["right"], *joins, {**source, "side": "right"})


def both(first: Tree | None, second: Tree) -> Tree:
    """Return the condition that two conditions hold."""
    if not first:
        return second
    return {"class": "CONJUNCTION", "type": "CONJUNCTION_AND", "children": [first, second]}
