"""What all steps of splitting a query share: the error that ends it, and DuckDB's binder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

from cumulus.views.duckdb_sql.trees import Tree, parsed_whole, printed


class NotSplitError(Exception):
    """The query is answered as a whole.

    Parameters
    ----------
    reason
        As the rest of a sentence after "because".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class QueryBinder:
    """Asks DuckDB for the columns of queries, which it binds and does not run.

    Parameters
    ----------
    cursor
        It knows the tables.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def columns(self, sql: str) -> tuple[list[str], list[DuckDBPyType]]:
        """Return the names and types of a query's columns; duckdb.Error if it cannot be bound."""
        relation = self._cursor.sql(sql)
        assert relation is not None, "a SELECT has columns"
        return list(relation.columns), list(relation.types)

    def binds(self, node: Tree) -> bool:
        """Whether a query has a meaning by itself."""
        try:
            self.columns(printed(self._cursor, statement(node)))
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return False
        return True


def statement(node: Tree) -> Tree:
    """Return a query as a statement."""
    return {"error": False, "statements": [{"node": node, "named_param_map": []}]}


def parsed_expressions(connection: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> list[Tree]:
    """Return expressions as trees with all that is empty, so that they can be compared with what is printed of them."""
    if not texts:
        return []
    found: list[Tree] = parsed_whole(connection, f"SELECT {', '.join(texts)}")["statements"][0]["node"]["select_list"]
    return found


def column(name: str) -> Tree:
    """Return a column as an expression."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]}


def number(value: int) -> Tree:
    """Return a number as an expression."""
    literal = {"kind": "INTEGER", "text": str(value)}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "literal": literal}


def position(expression: Tree) -> int | None:
    """Return the number that an expression of ORDER BY or GROUP BY is, counted from 1; None if it is none."""
    literal: dict[str, Any] = expression.get("literal") or {}
    if expression.get("class") != "CONSTANT" or literal.get("kind") != "INTEGER":
        return None
    return int(literal["text"])


def path(expression: Tree) -> list[str]:
    """Return the path of a column, in lower case; nothing of any other expression."""
    return [name.lower() for name in expression["column_names"]] if expression.get("class") == "COLUMN_REF" else []
