"""Queries that take long: apart from the warehouse, over copies of the views that they read, all of one state.

A query that is quick reads of the views only what it wants, while nothing changes. One that is not would hold up who
writes: it is begun anew over copies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.catalog.names import find_name
from cumulus.errors import UsageError
from cumulus.server.answers import ReadRows
from cumulus.views.duckdb_functions import set_utc
from cumulus.views.duckdb_limits import NOTHING_ELSE, QueryLimits, lock
from cumulus.views.duckdb_selects import Parameters, select

_ABSENT = re.compile(r"Table with name (\S+) does not exist")
"""What DuckDB says of a view that was not copied, as its name is only found while the query runs."""


def query_copies(
    copies: Callable[[Iterable[str]], tuple[dict[str, pa.Table], int]],
    known: Collection[str],
    sql: str,
    parameters: Parameters,
    limits: QueryLimits,
) -> ReadRows:
    """Return the result of a SELECT over copies of views.

    Parameters
    ----------
    copies
        The function from names to views and tables, all after the transaction that it gives with them.
    known
        The names that there are for who asks.

    Raises
    ------
    UsageError
        If DuckDB refuses it.
    LimitError, QueryTimeoutError
        If it takes more than it may.
    """
    names = _names_in(sql, known)
    while True:
        tables, at = copies(names)
        try:
            return ReadRows(_asked(tables, sql, parameters, limits), at)
        except duckdb.CatalogException as problem:
            absent = _ABSENT.search(str(problem))
            found = None if absent is None else find_name(absent[1], known)
            if found is None or found in names:
                raise UsageError(str(problem), hint=f"Views: {', '.join(known) or 'none'}.") from None
            names.add(found)
        except duckdb.Error as problem:
            raise UsageError(str(problem), hint=f"Views: {', '.join(known) or 'none'}.") from None


def _names_in(sql: str, known: Collection[str]) -> set[str]:
    """Return the known names that a query has in it, and maybe more; names in texts are found later."""
    with duckdb.connect(config=dict(NOTHING_ELSE)) as connection:
        (told,) = connection.execute("SELECT json_serialize_sql($1)", [sql]).fetchone() or ("{}",)
    tree = json.loads(told)
    if tree.get("error"):  # a PIVOT, which it takes for several statements
        return set(known)
    return {name for each in _table_names(tree) if (name := find_name(each, known)) is not None}


def _table_names(tree: Any) -> Iterator[Any]:
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part.get("table_name")
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _asked(tables: dict[str, pa.Table], sql: str, parameters: Parameters, limits: QueryLimits) -> pa.Table:
    with duckdb.connect(config=dict(NOTHING_ELSE)) as connection:
        set_utc(connection)
        for name, table in tables.items():
            connection.register(name, table)
        lock(connection)
        with limits.stopping(connection):
            return select(connection, sql, parameters, limits.collect)
