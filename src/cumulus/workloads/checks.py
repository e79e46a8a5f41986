"""The oracle: DuckDB recomputes a view from whole tables, and two results are compared row by row.

`statements` and `declared` read a workload's SQL file without the SQL front end, so that what they say is
independent of it. Used by the demo, the benchmarks and the tests of every host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from cumulus.catalog.comparison import compare_rows
from cumulus.catalog.events import Row
from cumulus.errors import InputError, UnknownNameError


@dataclass(frozen=True, slots=True)
class Declared:
    """A table as its CREATE TABLE declares it: Arrow schema and primary key."""

    schema: pa.Schema
    key: tuple[str, ...]


_PIECE = re.compile(r"""--[^\n]*|'[^']*'?|"[^"]*"?|;|[^-'";]+|-""")


def statements(sql: str) -> list[str]:
    """Return the statements of `sql` in order, without comments and semicolons.

    Examples
    --------
    >>> statements("SELECT ';' -- one; two" + chr(10) + ";  SELECT 2;")
    ["SELECT ';'", 'SELECT 2']
    """
    found = [""]
    for piece in _PIECE.findall(sql):
        if piece == ";":
            found.append("")
        elif not piece.startswith("--"):
            found[-1] += piece
    return [statement.strip() for statement in found if statement.strip()]


_VIEW = re.compile(r"CREATE\s+VIEW\s+(\S+)(?:\s+WITH\s*\([^)]*\))?\s+AS\s+", re.IGNORECASE)


def views(sql: str) -> dict[str, str]:
    """Return name → SELECT of every ``CREATE VIEW name [WITH (…)] AS SELECT …`` in `sql`, in order.

    Examples
    --------
    >>> views("CREATE TABLE r (a INT); CREATE VIEW v AS SELECT SUM(a) FROM r;")
    {'v': 'SELECT SUM(a) FROM r'}
    """
    found = {}
    for statement in statements(sql):
        view = _VIEW.match(statement)
        if view:
            found[view[1]] = statement[view.end() :]
    return found


def declared(sql: str) -> dict[str, Declared]:
    """Return name → columns and key of every CREATE TABLE in `sql`, as DuckDB understands them.

    Raises
    ------
    InputError
        DuckDB does not take the declarations (it does not know RELY, for one).
    """
    creations = [text for text in statements(sql) if text.upper().startswith("CREATE TABLE")]
    with duckdb.connect() as connection:
        try:
            for creation in creations:
                connection.execute(creation)
        except duckdb.Error as problem:
            raise InputError(f"the tables cannot be declared: {problem}", hint="Write them as DuckDB does.") from None
        keys = {
            str(name): tuple(columns)
            for name, columns in connection.execute(
                "SELECT table_name, constraint_column_names FROM duckdb_constraints() "
                "WHERE constraint_type = 'PRIMARY KEY'"
            ).fetchall()
        }
        names = [str(name) for (name,) in connection.execute("SHOW TABLES").fetchall()]
        return {
            name: Declared(connection.sql(f'SELECT * FROM "{name}"').to_arrow_table().schema, keys.get(name, ()))
            for name in names
        }


def recompute(select: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the result of `select` over `tables`, computed by DuckDB from nothing.

    Raises
    ------
    InputError
        DuckDB refuses the query; its own words are in the message.
    """
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        try:
            return connection.sql(select).to_arrow_table()
        except duckdb.Error as problem:
            raise InputError(f"DuckDB cannot recompute the view: {problem}", hint=f"The query is: {select}") from None


def differences(
    expected: pa.Table,
    actual: pa.Table,
    *,
    magnitudes: Mapping[str, float] | None = None,
    limit: int = 20,
) -> list[str]:
    """Compare two results as bags; return what differs, one readable line each, or nothing.

    The order of rows does not count; column names, types and order do.

    Parameters
    ----------
    magnitudes
        Column → Σ|x| of the summed values, for float columns whose terms cancel; elsewhere the magnitude
        of a float is the larger of the two.
    limit
        Lines to return at most; a last line tells how many more there are.

    Examples
    --------
    >>> differences(pa.table({"a": [1, 2]}), pa.table({"a": [2, 3]}))
    ['missing: (a=1)', 'unexpected: (a=3)']
    >>> differences(pa.table({"a": [0.3]}), pa.table({"a": [0.1 + 0.2]}))
    []
    """
    if expected.schema.names != actual.schema.names:
        return [f"columns: expected {expected.schema.names}, got {actual.schema.names}"]
    found = [
        f"column {name}: expected {_plain(wanted)}, got {_plain(given)}"
        for name, wanted, given in zip(expected.schema.names, expected.schema.types, actual.schema.types, strict=True)
        if _plain(wanted) != _plain(given)
    ]
    found.extend(_row_differences(expected, actual, magnitudes or {}))
    if len(found) > limit:
        found = [*found[:limit], f"… and {len(found) - limit} more"]
    return found


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type without what is only layout: views, large offsets, dictionaries."""
    if pa.types.is_dictionary(arrow_type):
        return _plain(arrow_type.value_type)
    if pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return pa.string()
    return arrow_type


def _row_differences(expected: pa.Table, actual: pa.Table, magnitudes: Mapping[str, float]) -> Iterator[str]:
    names = expected.schema.names
    unknown = sorted(set(magnitudes) - set(names))
    if unknown:
        raise UnknownNameError(f"magnitudes names no column: {unknown[0]!r}", hint=f"Columns: {', '.join(names)}.")

    def text(row: Row) -> str:
        return "(" + ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True)) + ")"

    sizes = {names.index(name): size for name, size in magnitudes.items()}
    for found in compare_rows(rows(actual), rows(expected), key=_exact(expected, actual), magnitudes=sizes):
        if found.recomputed is None or found.stored is None:
            what, row = ("missing", found.recomputed) if found.stored is None else ("unexpected", found.stored)
            assert row is not None
            yield f"{what}: {text(row)}"
        else:
            yield f"differs: expected {text(found.recomputed)}, got {text(found.stored)}"


def _exact(expected: pa.Table, actual: pa.Table) -> list[int]:
    """Return the columns that are no floats on either side."""
    types = enumerate(zip(expected.schema.types, actual.schema.types, strict=True))
    return [place for place, pair in types if not any(map(pa.types.is_floating, pair))]


def rows(table: pa.Table) -> Iterator[Row]:
    """Yield the rows of a table as tuples of plain values."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
