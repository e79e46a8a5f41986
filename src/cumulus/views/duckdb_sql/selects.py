"""One SELECT inside DuckDB, and nothing else: what `query` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from cumulus.catalog.utf8 import half_character
from cumulus.errors import UsageError
from cumulus.views.duckdb_sql.functions import stopped_by_interrupts
from cumulus.views.duckdb_sql.plain_sql import split_explain
from cumulus.views.duckdb_sql.trees import check_characters

Parameters: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
"""Values for ``?`` in order (or ``$1``), or for ``$name`` by name."""


Collect: TypeAlias = Callable[[duckdb.DuckDBPyRelation], pa.Table]
"""What takes a result from DuckDB."""
Answering: TypeAlias = Callable[[str], AbstractContextManager[str]]
"""From a query to the one that DuckDB answers instead, which is good within the block."""


def whole(relation: duckdb.DuckDBPyRelation) -> pa.Table:
    """Return a result at once."""
    return relation.to_arrow_table()


def select(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    parameters: Parameters = None,
    collect: Collect = whole,
    answering: Answering = nullcontext,
) -> pa.Table:
    """Return the result of a SELECT, or with EXPLAIN before it, its plan.

    Raises
    ------
    UsageError
        For anything but one SELECT: other statements change what the connection, or the machine, has.
    duckdb.Error
        If DuckDB refuses it.
    """
    if not isinstance(sql, str) or not sql.strip():
        raise UsageError(f"{sql!r} is no query", hint="query takes one SELECT over the views.")
    check_characters(sql, UsageError)
    explain, query = split_explain(sql)
    wanted = _parameters_of(connection, query)
    if isinstance(parameters, (str, bytes)) or not isinstance(parameters, Iterable | None):
        raise UsageError(
            f"{parameters!r} is no list of parameters", hint="Give them as [value, …], or by name: {name: value, …}."
        )
    if not isinstance(parameters, Mapping):
        parameters = None if parameters is None else list(parameters)
    _check_parameters(wanted, parameters)
    with answering(query) as answered:
        return fetch(connection, explain + answered, parameters, collect)


def _parameters_of(connection: duckdb.DuckDBPyConnection, sql: str) -> Set[str]:
    """Return the names of a query's parameters; UsageError for anything but one SELECT."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        told = "there is no statement" if not statements else f"these are {len(statements)} statements"
        raise UsageError(f"query takes one SELECT, and {told}", hint="Call query once for each SELECT.")
    kind = statements[0].type
    is_pivot = kind is duckdb.StatementType.MULTI and sql.split(None, 1)[0].upper() in _PIVOTS
    if kind is not duckdb.StatementType.SELECT and not is_pivot:
        word = sql.split(None, 1)[0].upper() if kind is duckdb.StatementType.MULTI else _statement_name(kind, sql)
        raise UsageError(f"query takes one SELECT, and this is {word}", hint=_HINTS.get(kind.name, _HINT))
    return statements[0].named_parameters


def fetch(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = None, collect: Collect = whole
) -> pa.Table:
    """Return the result of a query that DuckDB has to take.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C, of which DuckDB makes errors of its own.
    duckdb.Error
        If DuckDB refuses it.
    """
    with stopped_by_interrupts(connection):
        return collect(connection.sql(sql, params=parameters or None))


def _check_parameters(wanted: Set[str], parameters: list[Any] | Mapping[str, Any] | None) -> None:
    """Raise UsageError for parameters that are missing, or that no UTF-8 says."""
    named = parameters if isinstance(parameters, Mapping) else dict(enumerate(parameters or [], 1))
    given = {str(name).lower() for name in named}  # DuckDB finds them in any case
    missing = sorted(name for name in wanted if name.lower() not in given)
    if missing:
        told = ", ".join(f"${name}" for name in missing)
        raise UsageError(
            f"the query has no value for its parameter {told}",
            hint="Give values beside the query: a list for ? or $1, a dict for $name.",
        )
    for name, value in named.items():
        if isinstance(value, str) and half_character(value) >= 0:
            raise UsageError(
                f"parameter ${name}, {value!r}, has half a character: no UTF-8 says it",
                hint="Give the whole character.",
            )


_PIVOTS = ("PIVOT", "SELECT", "FROM", "WITH")
"""A PIVOT is several statements for DuckDB, which itself finds the columns first."""
_VIEWS = "Views are created and dropped by execute(), before the run in a folder."
_ROWS = "Rows go in by insert(), upsert(), update() and delete()."
_HINT = "It reads the views; nothing is changed by it."
_HINTS = {
    "CREATE": _VIEWS,
    "DROP": _VIEWS,
    "ALTER": _VIEWS,
    "INSERT": _ROWS,
    "UPDATE": _ROWS,
    "DELETE": _ROWS,
    "COPY": "Write what query gives yourself: pyarrow.parquet.write_table(result.arrow(), path).",
}


def _statement_name(kind: Any, sql: str) -> str:
    """Return what a statement is called: by its first word, unless that is a comment or a WITH."""
    words = sql.split(None, 1)
    first = words[0].upper().rstrip(";") if words else ""
    return first if first.isalpha() and first != "WITH" else str(kind.name)
