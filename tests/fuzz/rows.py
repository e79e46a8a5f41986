"""The rows of all tables while a stream goes on: what an event does to them, who refers to whom, what must not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from cumulus.catalog.events import UPSERT
from fuzz.schema import Event, Reference, Table, Transaction

Row = tuple[Any, ...]


class Rows:
    """The rows of tables.

    Parameters
    ----------
    tables
        Parents stand before their children.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables = {table.name: table for table in tables}
        self.present: dict[str, list[Row]] = {name: [] for name in self.tables}
        self._references = [(table, each) for table in self.tables.values() for each in table.references]

    def copy(self) -> Rows:
        """Return other rows that are alike."""
        other = Rows(self.tables.values())
        other.present = {name: list(rows) for name, rows in self.present.items()}
        return other

    def by_key(self, table: Table, key: Row) -> Row | None:
        """Return the row with a primary key, None if there is none."""
        return next((row for row in self.present[table.name] if table.key_of(row) == key), None) if key else None

    def resolved(self, event: Event) -> tuple[Event, ...]:
        """Return an event as insertions and deletions."""
        sign, name, row = event
        if sign != UPSERT:
            return (event,)
        old = self.by_key(self.tables[name], self.tables[name].key_of(row))
        if old == row:
            return ()
        return ((1, name, row),) if old is None else ((-1, name, old), (1, name, row))

    def is_possible(self, event: Event) -> bool:
        """Whether a deleted row is there, and no key of an inserted one."""
        sign, name, row = event
        if sign < 0:
            return row in self.present[name]
        table = self.tables[name]
        return sign == UPSERT or self.by_key(table, table.key_of(row)) is None

    def apply(self, event: Event) -> bool:
        """Apply an event; False if it is not possible, and nothing is done."""
        if not self.is_possible(event):
            return False
        for sign, name, row in self.resolved(event):
            if sign > 0:
                self.present[name].append(row)
            else:
                self.present[name].remove(row)
        return True

    def children(self, table: Table, row: Row) -> Iterator[tuple[Table, Reference, Row]]:
        """Yield the rows that refer to one."""
        for child, reference in self._references:
            if reference.parent == table.name:
                wanted = table.values(reference.parent_columns, row)
                for each in list(self.present[child.name]):
                    if child.values(reference.columns, each) == wanted:
                        yield child, reference, each

    def is_referred(self, table: Table, row: Row) -> bool:
        """Whether a row refers to one."""
        return next(self.children(table, row), None) is not None

    def holds(self) -> bool:
        """Whether every reference holds."""
        for child, reference in self._references:
            parent = self.tables[reference.parent]
            keys = {parent.values(reference.parent_columns, row) for row in self.present[parent.name]}
            for row in self.present[child.name]:
                values = child.values(reference.columns, row)
                if None not in values and values not in keys:
                    return False
        return True


def is_possible(tables: Iterable[Table], transactions: Iterable[Transaction]) -> bool:
    """Whether every event is possible, and references hold after each transaction."""
    rows = Rows(tables)
    return all(all(map(rows.apply, transaction)) and rows.holds() for transaction in transactions)


def updated_parents(tables: Iterable[Table], transactions: Iterable[Transaction]) -> frozenset[tuple[str, str]]:
    """Return the tables, child and parent, of which a parent has changed but for its key while a child referred to it.

    Examples
    --------
    >>> from fuzz.schema import Column
    >>> columns = Column("a", "INTEGER", "int"), Column("b", "INTEGER", "int")
    >>> parent = Table("p", columns, ("a",))
    >>> child = Table("c", columns[:1], ("a",), (Reference(("a",), "p", ("a",)),))
    >>> updated_parents((parent, child), [((1, "p", (1, 2)), (1, "c", (1,))), ((2, "p", (1, 3)),)])
    frozenset({('c', 'p')})
    """
    rows = Rows(tables)
    found: Counter[tuple[str, str]] = Counter()
    for transaction in transactions:
        before = rows.copy()
        for event in transaction:
            rows.apply(event)
        for name in {event[1] for event in transaction}:
            table = rows.tables[name]
            for row in before.present[name] if table.key else ():
                if rows.by_key(table, table.key_of(row)) not in (None, row):
                    found.update((child.name, name) for child, _, _ in before.children(table, row))
    return frozenset(found)
