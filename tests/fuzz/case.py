"""A case: tables, views and a stream of transactions as text; what is compared, kept as a regression, and printed.

The text of a case is SQL, then a line `-- events`, then one event per line, `+` or `-` before a table and a row of SQL
literals, with `begin` and `commit` around the events of a transaction::

    -- What it showed.
    CREATE TABLE t (a INTEGER, c VARCHAR);
    CREATE VIEW v AS SELECT a, MIN(c) AS m FROM t GROUP BY a;
    -- events
    +t (1, 'x')
    begin
    -t (1, 'x')
    +t (2, NULL)
    commit
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb

from fuzz.generator import Script
from fuzz.schema import Event, Transaction


@dataclass(frozen=True)
class Case:
    """What is compared.

    Parameters
    ----------
    tables
        CREATE TABLE statements.
    views
        Name and query of each view.
    mode
        "event" and "call" are `Warehouse.apply`, "batch" is `Interpreter.on_batch`.
    checks
        After which transactions the views are compared; after every one if None.
    ordered
        The views whose order of rows is compared too.
    """

    tables: tuple[str, ...]
    views: tuple[tuple[str, str], ...]
    transactions: tuple[Transaction, ...]
    mode: str = "event"
    checks: frozenset[int] | None = None
    ordered: frozenset[str] = frozenset()

    def sql(self, names: list[str]) -> str:
        """Return the script of some of the views, one statement per line."""
        views = [f"CREATE VIEW {name} AS {select}" for name, select in self.views if name in names]
        return "".join(f"{statement};\n" for statement in (*self.tables, *views))

    def text(self, note: str) -> str:
        """Return the case as a regression file has it."""
        lines = [f"-- {note}", *(f"{table};" for table in self.tables)]
        lines += [f"CREATE VIEW {name} AS {select};" for name, select in self.views]
        lines.append("-- events")
        for transaction in self.transactions:
            events = [
                f"{'+' if sign > 0 else '-'}{table} ({', '.join(map(literal, row))})"
                for sign, table, row in transaction
            ]
            lines += events if len(events) == 1 else ["begin", *events, "commit"]
        return "\n".join(lines) + "\n"


def case_of(script: Script) -> Case:
    """Return the case of a generated script."""
    return Case(
        tuple(table.sql() for table in script.tables),
        tuple((view.name, view.select()) for view in script.views),
        script.transactions,
        script.mode,
        script.checks,
        frozenset(view.name for view in script.views if view.is_total),
    )


def literal(value: Any) -> str:
    """Return a value as SQL.

    Examples
    --------
    >>> literal(None), literal("o'k"), literal(dt.date(2020, 2, 29)), literal(0.5)
    ('NULL', "'o''k'", "DATE '2020-02-29'", '0.5e0')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime():
            return f"TIMESTAMP '{value}'"
        case dt.date():
            return f"DATE '{value}'"
        case float():
            return f"'{value}'" if value != value or value in (float("inf"), -float("inf")) else f"{value!r}e0"
        case int() | Decimal():
            return str(value)
        case _:
            raise AssertionError(value)


_STATEMENT = re.compile(r"CREATE VIEW (\w+) AS (.*)", re.DOTALL)
_EVENT = re.compile(r"([+-])(\w+) (\(.*\))")


def parse_case(text: str, mode: str = "event") -> Case:
    """Return the case that a regression file holds, compared after every transaction."""
    script, _, stream = text.partition("-- events\n")
    statements = [each.strip() for each in re.sub(r"(?m)^--.*$", "", script).split(";\n") if each.strip()]
    tables = tuple(each for each in statements if each.startswith("CREATE TABLE"))
    views = tuple(found.groups() for each in statements if (found := _STATEMENT.fullmatch(each)))
    assert len(tables) + len(views) == len(statements), statements
    transactions: list[Transaction] = []
    open_one: list[Event] | None = None
    with duckdb.connect() as database:
        for table in tables:
            database.execute(re.sub(r" NOT NULL| RELY|,? ?PRIMARY KEY( \([^)]*\))?", "", table))
        for line in filter(None, stream.splitlines()):
            if line == "begin":
                open_one = []
            elif line == "commit":
                transactions.append(tuple(open_one or ()))
                open_one = None
            else:
                event = _event(database, line)
                if open_one is None:
                    transactions.append((event,))
                else:
                    open_one.append(event)
    return Case(tables, views, tuple(transactions), mode)


def _event(database: duckdb.DuckDBPyConnection, line: str) -> Event:
    """Return the event of a line, its values in the types of the table's columns."""
    found = _EVENT.fullmatch(line)
    assert found, line
    sign, table, values = found.groups()
    database.execute(f"DELETE FROM {table}")
    database.execute(f"INSERT INTO {table} VALUES {values}")
    (row,) = database.execute(f"FROM {table}").fetchall()
    return (1 if sign == "+" else -1), table, row
