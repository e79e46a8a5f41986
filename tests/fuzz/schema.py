"""Random schemas with tiny domains of values, and random streams of transactions over them."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

Event: TypeAlias = tuple[int, str, tuple[Any, ...]]
Transaction: TypeAlias = tuple[Event, ...]

# Kind → types of its columns. One name has one kind in all tables, so that USING and NATURAL join often.
TYPES = {
    "int": ("INTEGER", "INTEGER", "BIGINT"),
    "decimal": ("DECIMAL(9,2)", "DECIMAL(12,4)", "DECIMAL(5,1)"),
    "float": ("DOUBLE",),
    "text": ("VARCHAR",),
    "date": ("DATE",),
    "timestamp": ("TIMESTAMP",),
    "bool": ("BOOLEAN",),
}
NAMES = {
    "a": "int", "b": "int", "i": "int", "d": "decimal", "g": "decimal", "f": "float", "c": "text", "s": "text",
    "e": "date", "w": "timestamp", "z": "bool",
}  # fmt: skip
WEIGHTS = {"a": 6, "b": 5, "i": 3, "d": 3, "g": 2, "f": 3, "c": 4, "s": 2, "e": 4, "w": 4, "z": 2}

# Sums of these floats and decimals are exact in binary, so that no comparison hangs on rounding.
POOLS: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, 1, 1, 1, 2, 2, 2, 3, -1),
    "decimal": tuple(map(Decimal, ("0.5", "1", "1", "1.5", "2", "-2.5", "0"))),
    "float": (0.5, 1.0, 1.0, 1.5, 2.0, -2.5, 0.0),
    "text": ("x", "x", "y", "xy", "Xy", "", "é%"),
    "date": tuple(map(dt.date.fromisoformat, ("2020-02-29", "2020-02-29", "2020-12-31", "2021-01-01", "2021-03-31"))),
    "timestamp": (
        dt.datetime(2020, 2, 29), dt.datetime(2020, 2, 29), dt.datetime(2020, 12, 31), dt.datetime(2021, 1, 1, 12, 30),
        dt.datetime(2021, 3, 31, 23, 59, 59),
    ),
    "bool": (True, True, False),
}  # fmt: skip
KEY_POOL = (-1, 0, 1, 2, 3, 4, 5)
NULL_SHARE = 0.12


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    kind: str
    not_null: bool = False


@dataclass(frozen=True)
class Reference:
    """Columns of a child that name the primary key of its parent."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]

    def sql(self) -> str:
        columns, others = ", ".join(self.columns), ", ".join(self.parent_columns)
        return f"FOREIGN KEY ({columns}) REFERENCES {self.parent} ({others})"


@dataclass(frozen=True)
class Table:
    """A table, with its primary key or none.

    Parameters
    ----------
    option
        Of its WITH clause.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    references: tuple[Reference, ...] = ()
    option: str = ""

    def sql(self) -> str:
        parts = [f"{c.name} {c.type}{' NOT NULL' if c.not_null else ''}" for c in self.columns]
        if self.key:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        parts += [reference.sql() for reference in self.references]
        return f"CREATE TABLE {self.name} ({', '.join(parts)}){f' WITH ({self.option})' if self.option else ''}"

    def key_of(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the primary key of a row; () without one."""
        return tuple(value for column, value in zip(self.columns, row, strict=True) if column.name in self.key)

    def values(self, names: tuple[str, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of some columns of a row."""
        by_name = {column.name: value for column, value in zip(self.columns, row, strict=True)}
        return tuple(by_name[name] for name in names)


def random_tables(draw: random.Random) -> tuple[Table, ...]:
    """Return two to five tables."""
    return tuple(_random_table(draw, f"t{index}") for index in range(draw.choice((2, 3, 3, 4, 4, 5))))


def _random_table(draw: random.Random, name: str) -> Table:
    names = list(WEIGHTS)
    chosen: list[str] = []
    size = draw.choice((2, 3, 3, 4))
    while len(chosen) < size:
        (found,) = draw.choices(names, [WEIGHTS[each] for each in names])
        if found not in chosen:
            chosen.append(found)
    if not any(NAMES[each] == "int" for each in chosen):
        chosen[0] = "a"
    # The same name may have another type elsewhere: equal columns of two types keep their own.
    columns = tuple(
        Column(each, draw.choice(TYPES[NAMES[each]]), NAMES[each], not_null=draw.random() < 0.25) for each in chosen
    )
    ints = [column.name for column in columns if column.kind == "int"]
    key: tuple[str, ...] = ()
    if draw.random() < 0.3:
        key = (ints[0],) if draw.random() < 0.6 else (ints[0], *(c.name for c in columns if c.name != ints[0]))[:2]
    return Table(name, columns, key)


def random_value(draw: random.Random, table: Table, column: Column) -> Any:
    """Return a value for a column of a table."""
    if column.name in table.key:
        return draw.choice(KEY_POOL if column.kind == "int" else POOLS[column.kind])
    if not column.not_null and draw.random() < NULL_SHARE:
        return None
    return draw.choice(POOLS[column.kind])


class Stream:
    """A model of the tables that makes random transactions: inserts, duplicates, updates, deletes of present rows."""

    def __init__(self, draw: random.Random, tables: tuple[Table, ...]) -> None:
        self.draw = draw
        self.tables = tables
        self.rows: dict[str, list[tuple[Any, ...]]] = {table.name: [] for table in tables}

    def transactions(self, count: int, *, single: bool) -> tuple[Transaction, ...]:
        """Return a stream of about `count` events, one per transaction if `single`."""
        made: list[Transaction] = []
        size = 0
        while size < count:
            events: list[Event] = []
            for _ in range(1 if single else self.draw.choice((1, 1, 2, 3, 5))):
                events += self._change(count - size)
            size += len(events)
            made += [(event,) for event in events] if single else [tuple(events)] * bool(events)
        return tuple(made)

    def _change(self, left: int) -> list[Event]:
        draw = self.draw
        table = draw.choice(self.tables)
        present = self.rows[table.name]
        choice = draw.random()
        if len(present) >= 3 and choice < (0.2 if left > 8 else 0.35):
            row = present.pop(draw.randrange(len(present)))
            return [(-1, table.name, row)]
        if len(present) >= 2 and choice < 0.4:
            old = present.pop(draw.randrange(len(present)))
            new = self._row(table)
            # An update changes one column more often than all of them.
            if draw.random() < 0.6:
                place = draw.randrange(len(old))
                new = (*old[:place], new[place], *old[place + 1 :])
            if self._is_free(table, new):
                present.append(new)
                return [(-1, table.name, old), (1, table.name, new)]
            return [(-1, table.name, old)]
        is_copy = present and choice < 0.48 and not table.key
        row = draw.choice(present) if is_copy else self._row(table)
        if not self._is_free(table, row):
            return []
        present.append(row)
        return [(1, table.name, row)]

    def _row(self, table: Table) -> tuple[Any, ...]:
        return tuple(random_value(self.draw, table, column) for column in table.columns)

    def _is_free(self, table: Table, row: tuple[Any, ...]) -> bool:
        key = table.key_of(row)
        return not key or all(table.key_of(each) != key for each in self.rows[table.name])
