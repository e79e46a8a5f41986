"""A case: tables, views and a stream of transactions as text; what is compared, kept as a regression, and printed.

The text of a case is SQL, then a line `-- events`, then one event per line, `+` or `-` before a table and a row of SQL
literals, or `=` where the row is put in place of the one with its primary key, with `begin` and `commit` around the
events of a transaction::

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
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import duckdb

from cumulus.catalog.events import UPSERT
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
        "event" and "call" are `Warehouse.apply`, "interpreted" is "call" in the interpreter, "batch" is
        `Interpreter.on_batch`. Where tables refer to each other, a transaction is one in "event", too.
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

    @property
    def schema(self) -> str:
        """The tables as DuckDB takes them, which checks no references."""
        return "".join(f"{re.sub(_REFERENCE_OR_OPTION, '', table)};" for table in self.tables)

    @property
    def refers(self) -> bool:
        """Whether a table refers to another one."""
        return any("REFERENCES" in table for table in self.tables)

    @cached_property
    def plain(self) -> tuple[Transaction, ...]:
        """The transactions as insertions and deletions alone."""
        places = {table.split()[2]: key_places(table) for table in self.tables}
        rows: dict[tuple[str, tuple[Any, ...]], tuple[Any, ...]] = {}

        def of(event: Event) -> Iterator[Event]:
            sign, name, row = event
            key = name, tuple(row[place] for place in places[name])
            old = rows.pop(key, None) if places[name] else None
            if sign > 0 and places[name]:
                rows[key] = row
            if sign != UPSERT:
                yield event
            elif old != row:
                if old is not None:
                    yield -1, name, old
                yield 1, name, row

        return tuple(tuple(one for event in transaction for one in of(event)) for transaction in self.transactions)

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
            events = [f"{_SIGNS[sign]}{table} ({', '.join(map(literal, row))})" for sign, table, row in transaction]
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
_EVENT = re.compile(r"([+=-])(\w+) (\(.*\))")
_SIGNS = {1: "+", -1: "-", UPSERT: "="}
_REFERENCE_OR_OPTION = r",? ?FOREIGN KEY \([^)]*\) REFERENCES \w+ \([^)]*\)| WITH \([^)]*\)$"


def key_places(table: str) -> list[int]:
    """Return the places of the columns of the primary key that a CREATE TABLE declares at its end.

    Examples
    --------
    >>> key_places("CREATE TABLE t (a INTEGER, b DECIMAL(5,1), c VARCHAR, PRIMARY KEY (a, c))")
    [0, 2]
    """
    columns = [part.split()[0] for part in table[table.index("(") + 1 :].split(", ")]
    found = re.search(r"PRIMARY KEY \(([^)]*)\)", table)
    return [columns.index(name) for name in found[1].split(", ")] if found else []


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
            bare = re.sub(_REFERENCE_OR_OPTION, "", table.replace(" RELY", ""))
            database.execute(re.sub(r" NOT NULL|,? ?PRIMARY KEY( \([^)]*\))?", "", bare))
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
    return next(number for number, each in _SIGNS.items() if each == sign), table, row
