"""SQL over the views: DuckDB over Arrow, and only the views that the SQL mentions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.algebra.user import Given
from cumulus.errors import UsageError
from cumulus.views.duckdb_functions import create_functions


def ask(
    sql: str, views: Sequence[str], rows_of: Callable[[str], pa.Table], functions: Mapping[str, Given] | None = None
) -> pa.Table:
    """Return the result of a query over views.

    Parameters
    ----------
    sql
        Any SELECT in DuckDB's dialect.
    views
        The names that it may mention.
    rows_of
        Gives the rows of a view; called for those mentioned only.
    functions
        The user's, which it may call.

    Raises
    ------
    UsageError
        If DuckDB refuses the SQL.
    """
    with duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        try:
            create_functions(connection, functions or {})
            mentioned = _mentioned(connection, sql)
            for name in views:
                if name.lower() in mentioned:
                    connection.register(name, rows_of(name))
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as problem:
            raise UsageError(str(problem), hint=f"Views: {', '.join(views) or 'none'}.") from None


def _mentioned(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """Return the names of tables in a query, in lower case, by DuckDB's own parser."""
    ((text,),) = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchall()
    tree = json.loads(text)
    if tree["error"]:
        raise UsageError(f"{tree['error_message']}", hint="query takes one SELECT over the views.")
    names: set[str] = set()
    pending: list[Any] = tree["statements"]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                names.add(node["table_name"].lower())
            pending.extend(node.values())
    return names
