"""DuckDB's parse trees: text to tree and back, and what stands where in a query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import duckdb

from cumulus.catalog.names import folded
from cumulus.catalog.utf8 import half_character
from cumulus.errors import CumulusError

Tree: TypeAlias = dict[str, Any]
"""An expression, a part of FROM or a query, as `json_serialize_sql` has it; what is empty or NULL may be left out."""


def check_characters(sql: str, kind: type[CumulusError]) -> None:
    """Raise an error of a kind if a text has half a character, of which DuckDB would make another one."""
    half = half_character(sql)
    if half >= 0:
        raise kind(
            f"character {half + 1} of the SQL, {sql[half]!r}, is half a character: no UTF-8 says it",
            hint="Write the whole character, or save the file as UTF-8.",
        )


def parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> Tree | None:
    """Return one statement as a tree; None for what is no SELECT, for several, and for what DuckDB refuses."""
    found = _value(connection, _PARSE_BRIEFLY, sql)
    return None if found["error"] or len(found["statements"]) != 1 else found


def parsed_whole(connection: duckdb.DuckDBPyConnection, sql: str) -> Tree:
    """Return a statement as a tree with all that is empty or NULL, too; its `error` says whether it is one."""
    return _value(connection, _PARSE, sql)


def _value(connection: duckdb.DuckDBPyConnection, asked: str, sql: str) -> Tree:
    found: Tree = json.loads(connection.execute(asked, [sql]).fetchall()[0][0])
    return found


_PARSE = "SELECT json_serialize_sql(CAST(? AS VARCHAR))"
_PARSE_BRIEFLY = (
    "SELECT json_serialize_sql(CAST(? AS VARCHAR), skip_null := true, skip_empty := true, skip_default := true)"
)


def expressions(connection: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> list[Tree]:
    """Return expressions as trees."""
    tree = parsed(connection, f"SELECT {', '.join(texts)}")
    assert tree is not None, f"no expressions: {texts}"
    found: list[Tree] = tree["statements"][0]["node"]["select_list"]
    return found


def printed(connection: duckdb.DuckDBPyConnection, tree: Tree) -> str:
    """Return a statement as text."""
    text: str = connection.execute(_PRINT, [json.dumps(tree)]).fetchall()[0][0]
    return text


_PRINT = "SELECT json_deserialize_sql(CAST(? AS JSON))"


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
    return _nodes(tree, into_queries=False)


def everything(tree: Any) -> Iterator[Tree]:
    """Iterate over all trees in one."""
    return _nodes(tree, into_queries=True)


def _nodes(tree: Any, *, into_queries: bool) -> Iterator[Tree]:
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if not into_queries and is_query(each):
                continue
            yield each
            each = each.values()
        elif not isinstance(each, list):
            continue
        waiting.extend(child for child in each if isinstance(child, (dict, list)))


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
