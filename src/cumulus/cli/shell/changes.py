"""INSERT, DELETE and UPDATE on a warehouse: DuckDB runs the statement on a copy, and the difference is applied."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from cumulus import Warehouse
from cumulus.algebra.printing import quoted
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.cli.shell.statements import first_word
from cumulus.errors import UsageError
from cumulus.views.duckdb_sql.functions import set_utc

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$", re.DOTALL)
"""Texts, quoted names and comments."""


def run_change(warehouse: Warehouse, statement: str, table: str, parameters: Mapping[str, Any]) -> pa.Table | str:
    """Run an INSERT, DELETE or UPDATE as one transaction; return what RETURNING gives, or how many rows went and came.

    The copy has the table, and every other table and view that the statement mentions, so that `INSERT … SELECT` and
    sub-queries work.

    Raises
    ------
    UsageError
        If DuckDB refuses the statement, or it needs rows that are not kept.
    DataError
        As `Warehouse.insert` and `Warehouse.delete`; nothing is applied.
    """
    relation = warehouse.program.relation(known_name(table, warehouse.tables, "table"))
    is_insertion = first_word(statement) == "INSERT"
    kept = dict(warehouse.program.kept)
    is_kept = relation.name in kept
    if not is_insertion and not is_kept:
        raise UsageError(
            f"the rows of {relation.name} are not kept: there is nothing to look them up in",
            hint="Start with --keep all, or declare the table WITH (keep = all).",
        )
    # The transaction is open all the time: no other thread changes what the statement has read.
    with warehouse.transaction(), duckdb.connect(config={"python_enable_replacements": "false"}) as connection:
        set_utc(connection)
        try:
            for name in (*kept, *warehouse.views):
                if name != relation.name and _mentions(statement, name):
                    connection.register(name, warehouse.query(f"FROM {quoted(name)}").arrow())
            return _run(warehouse, connection, statement, relation, parameters, is_kept)
        except duckdb.Error as problem:
            known = ", ".join((*warehouse.tables, *warehouse.views))
            raise UsageError(str(problem), hint=f"Tables and views: {known}.") from None


def _run(
    warehouse: Warehouse,
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    relation: Relation,
    parameters: Mapping[str, Any],
    is_kept: bool,
) -> pa.Table | str:
    connection.execute(f"CREATE TABLE {quoted(relation.name)} ({', '.join(_declared(relation))})")
    before = warehouse.query(f"FROM {quoted(relation.name)}").arrow() if is_kept else None
    if before is not None:
        connection.register("before it", before)
        connection.execute(f'INSERT INTO {quoted(relation.name)} FROM "before it"')
    returned = None
    if _mentions(_QUOTED.sub(" ", statement), "RETURNING"):  # a reserved word
        returned = connection.sql(statement, params=dict(parameters) or None).to_arrow_table()
    else:
        connection.execute(statement, dict(parameters) or None)
    gone, come = _difference(connection, relation, before)
    warehouse.delete(relation.name, gone)
    warehouse.insert(relation.name, come)
    return f"{len(gone):,} rows out, {len(come):,} rows in" if returned is None else returned


def _mentions(statement: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", statement, re.IGNORECASE) is not None


def _declared(relation: Relation) -> list[str]:
    """Return the columns as DuckDB declares them, and the key, for ON CONFLICT."""
    columns = [f"{quoted(column.name)} {column.type}" for column in relation.columns]
    key = ", ".join(map(quoted, relation.key))
    return [*columns, f"PRIMARY KEY ({key})"] if key else columns


def _difference(
    connection: duckdb.DuckDBPyConnection, relation: Relation, before: pa.Table | None
) -> tuple[pa.Table, pa.Table]:
    name = quoted(relation.name)
    if before is None:
        now = connection.sql(f"FROM {name}").to_arrow_table()
        return now.slice(0, 0), now
    gone = connection.sql(f'FROM "before it" EXCEPT ALL FROM {name}').to_arrow_table()
    come = connection.sql(f'FROM {name} EXCEPT ALL FROM "before it"').to_arrow_table()
    return gone, come
