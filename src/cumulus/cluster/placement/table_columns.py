"""Columns of tables as users name them in options: ``orders.oid``."""

from __future__ import annotations

from cumulus.catalog.names import find_name
from cumulus.errors import UsageError
from cumulus.m3.program import Program


def table_column(program: Program, option: str, text: str) -> tuple[str, str]:
    """Return the table and the column that a user means, by their names in the program.

    Parameters
    ----------
    option
        For which they are given, such as ``--home``.
    text
        ``TABLE.COLUMN``.

    Raises
    ------
    UsageError
        If there is no such column.
    """
    tables = {relation.name: relation for relation in program.relations}
    before, _, behind = text.rpartition(".")
    name = find_name(before, tables)
    if name is None:
        wrong = f"there is no table {before!r}" if before else "it names no column of a table"
        raise UsageError(
            f"{option} {text}: {wrong}",
            hint=f"Write {option} TABLE.COLUMN; tables: {', '.join(tables)}.",
        )
    column = find_name(behind, tables[name].column_names)
    if column is None:
        raise UsageError(
            f"{option} {text}: {name} has no column {behind!r}",
            hint=f"Its columns are {', '.join(tables[name].column_names)}.",
        )
    return name, column
