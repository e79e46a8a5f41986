"""Random streams over tables that refer to each other: references hold after each transaction, and not inside."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from cumulus.catalog.events import UPSERT
from fuzz.rows import Row, Rows
from fuzz.schema import Event, Reference, Table, Transaction, random_value


class KeyedStream:
    """Makes transactions of a model of the tables.

    Parameters
    ----------
    upserts
        Whether rows may be replaced by their keys.
    """

    def __init__(self, draw: random.Random, tables: tuple[Table, ...], *, upserts: bool) -> None:
        self._draw, self._tables, self._upserts = draw, tables, upserts
        self._rows = Rows(tables)
        self._events: list[Event] = []

    def transactions(self, count: int, *, single: bool) -> tuple[Transaction, ...]:
        """Return a stream of about `count` events; if `single`, in the smallest transactions that there can be."""
        made: list[Transaction] = []
        size = 0
        for _ in range(20 * count):
            if size >= count:
                break
            before, self._events = self._rows.copy(), []
            for _ in range(1 if single else self._draw.choice((1, 1, 2, 2, 3))):
                self._try(count - size)
            size += len(self._events)
            if single:
                made += _split(before, self._events)
            elif self._events:
                made.append(self._shuffled(before, self._events))
        return tuple(made)

    def _try(self, left: int) -> None:
        """Make one change, if it leaves references that hold."""
        rows, count = self._rows.copy(), len(self._events)
        self._change(left)
        if not self._rows.holds():
            self._rows, self._events = rows, self._events[:count]

    def _change(self, left: int) -> None:
        draw, rows = self._draw, self._rows
        there = [(table, row) for table in self._tables for row in rows.present[table.name]]
        referred = [(table, row) for table, row in there if rows.is_referred(table, row)]
        choice = draw.random() * (1.0 if left > 8 else 0.7)
        if len(there) < 3 * len(self._tables) or choice > 0.65:
            # The last tables need parents, and so bring rows to all.
            self._insert(draw.choice((*self._tables, *self._tables[1:])))
            return
        table, row = draw.choice(referred if referred and draw.random() < 0.75 else there)
        if choice < 0.12:
            self._delete(table, row, set())
        elif choice < 0.2:
            self._change_key(table, row)
        else:
            self._update(table, row)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _do(self, sign: int, table: Table, row: Row) -> bool:
        done = self._rows.apply((sign, table.name, row))
        if done:
            self._events.append((sign, table.name, row))
        return done

    def _insert(self, table: Table, deep: int = 0) -> Row | None:
        """Insert a row, and parents that it needs."""
        present = self._rows.present[table.name]
        if not table.key and present and self._draw.random() < 0.2:
            row: Row | None = self._draw.choice(present)
        else:
            row = self._row(table, {}, deep)
        return row if row is not None and self._do(1, table, row) else None

    def _update(self, table: Table, row: Row) -> None:
        """Change a column or all of them, but for the key."""
        names = [column.name for column in table.columns if column.name not in table.key]
        if not names:
            return
        if self._draw.random() < 0.6:
            names = [self._draw.choice(names)]
            # All columns of a reference change together.
            names = next((list(each.columns) for each in table.references if names[0] in each.columns), names)
        kept = {
            column.name: value
            for column, value in zip(table.columns, row, strict=True)
            if column.name not in names or column.name in table.key
        }
        new = self._row(table, kept)
        if new is not None and new != row:
            self._replace(table, row, new)

    def _change_key(self, table: Table, row: Row) -> None:
        """Give a row another key, and let those follow that refer to it."""
        if not table.key:
            return
        kept = {c.name: value for c, value in zip(table.columns, row, strict=True) if c.name not in table.key}
        new = self._row(table, kept)
        if new is not None and table.key_of(new) != table.key_of(row):
            self._replace(table, row, new)

    def _replace(self, table: Table, old: Row, new: Row) -> None:
        if table.key_of(old) == table.key_of(new):
            if table.key and self._upserts and self._draw.random() < 0.3:
                self._do(UPSERT, table, new)
            else:
                self._do(-1, table, old)
                self._do(1, table, new)
            return
        following = list(self._rows.children(table, old))
        self._do(-1, table, old)
        if not self._do(1, table, new):
            return
        for child, reference, row in following:
            if row in self._rows.present[child.name]:
                self._refer(child, reference, row, table.values(reference.parent_columns, new))

    def _refer(self, child: Table, reference: Reference, row: Row, values: Row) -> None:
        """Let a row refer to another parent; where its own key is taken then, it goes."""
        changed = dict(zip(reference.columns, values, strict=True))
        new = tuple(changed.get(column.name, value) for column, value in zip(child.columns, row, strict=True))
        if child.key_of(new) != child.key_of(row) and self._rows.by_key(child, child.key_of(new)) is not None:
            self._delete(child, row, set())
        else:
            self._replace(child, row, new)

    def _delete(self, table: Table, row: Row, going: set[tuple[str, Row]]) -> None:
        """Delete a row; those that refer to it go too, or refer to another one."""
        going.add((table.name, row))
        for child, reference, each in list(self._rows.children(table, row)):
            if (child.name, each) in going or each not in self._rows.present[child.name]:
                continue
            others = self._parents(reference, {})
            others = [values for values in others if values != table.values(reference.parent_columns, row)]
            if self._may_be_null(child, reference):
                others.append((None,) * len(reference.columns))
            if others and self._draw.random() < 0.4:
                self._refer(child, reference, each, self._draw.choice(others))
            else:
                self._delete(child, each, going)
        # A table without a key may have the row twice.
        if row in self._rows.present[table.name]:
            self._do(-1, table, row)

    # --- rows -------------------------------------------------------------------------------------------------------

    def _row(self, table: Table, kept: Mapping[str, Any], deep: int = 0) -> Row | None:
        """Return a row whose key is free or kept, and whose parents are there; None if none was found."""
        is_kept = all(name in kept for name in table.key)
        for _ in range(6):
            values = dict(kept)
            if not self._fill(table, values, deep):
                return None
            row = tuple(values[column.name] for column in table.columns)
            if is_kept or self._rows.by_key(table, table.key_of(row)) is None:
                return row
        return None

    def _fill(self, table: Table, values: dict[str, Any], deep: int) -> bool:
        """Choose what is not given; False if a parent is missing."""
        # What is part of the key and refers comes before the rest of the key.
        order = sorted(table.references, key=lambda each: (each.parent == table.name, each.columns != table.key))
        for each in order:
            if all(name in values for name in each.columns):
                continue
            if each.parent == table.name:
                self._fill_plain(table, values, table.key)
            if not self._fill_reference(table, each, values, deep):
                return False
        self._fill_plain(table, values, [column.name for column in table.columns])
        return True

    def _fill_reference(self, table: Table, reference: Reference, values: dict[str, Any], deep: int) -> bool:
        free = [name for name in reference.columns if name not in values]
        parents = self._parents(reference, values)
        if reference.parent == table.name and all(name in values for name in table.key):
            parents.append(tuple(values[name] for name in reference.parent_columns))
        may_be_null = all(self._is_nullable(table, name) for name in free)
        if may_be_null and self._draw.random() < 0.15:
            values |= dict.fromkeys(free)
            return True
        if not parents or (deep < 3 and self._draw.random() < 0.1):
            parent = self._rows.tables[reference.parent]
            row = self._insert(parent, deep + 1) if deep < 4 and parent.name != table.name else None
            parents = self._parents(reference, values) if row is not None else parents
        if not parents:
            values |= dict.fromkeys(free) if may_be_null else {}
            return may_be_null
        values |= dict(zip(reference.columns, self._draw.choice(parents), strict=True))
        return True

    def _parents(self, reference: Reference, values: Mapping[str, Any]) -> list[Row]:
        """Return the keys of the rows to which a row may refer, as far as its values are chosen."""
        parent = self._rows.tables[reference.parent]
        keys = [parent.values(reference.parent_columns, row) for row in self._rows.present[parent.name]]
        return [
            key
            for key in keys
            if all(values.get(name, value) == value for name, value in zip(reference.columns, key, strict=True))
        ]

    def _fill_plain(self, table: Table, values: dict[str, Any], names: Any) -> None:
        for column in table.columns:
            if column.name in names and column.name not in values:
                values[column.name] = random_value(self._draw, table, column)

    def _may_be_null(self, table: Table, reference: Reference) -> bool:
        return all(self._is_nullable(table, name) for name in reference.columns)

    def _is_nullable(self, table: Table, name: str) -> bool:
        return name not in table.key and not next(each for each in table.columns if each.name == name).not_null

    # --- the order inside of a transaction --------------------------------------------------------------------------

    def _shuffled(self, before: Rows, events: list[Event]) -> Transaction:
        """Return events in another order, in which those of one key, or of one row without key, stay as they are."""
        places = {table.name: place for place, table in enumerate(self._tables)}
        choice = self._draw.random()
        if choice < 0.2:
            events = sorted(events, key=lambda event: places[event[1]])
        elif choice < 0.4:
            events = sorted(events, key=lambda event: -places[event[1]])
        elif choice < 0.7:
            events = self._merged(before, events)
        rows = before.copy()
        assert all(map(rows.apply, events)), "an order in which nothing stands twice"
        return tuple(events)

    def _merged(self, before: Rows, events: list[Event]) -> list[Event]:
        waiting: dict[tuple[str, Row], list[Event]] = {}
        for event in events:
            _, name, row = event
            waiting.setdefault((name, before.tables[name].key_of(row) or row), []).append(event)
        merged = []
        while waiting:
            chosen = self._draw.choice(list(waiting))
            merged.append(waiting[chosen].pop(0))
            if not waiting[chosen]:
                del waiting[chosen]
        return merged


def _split(before: Rows, events: list[Event]) -> list[Transaction]:
    """Return events in transactions that end as soon as references hold."""
    made: list[Transaction] = []
    open_one: list[Event] = []
    for event in events:
        assert before.apply(event), "an order in which nothing stands twice"
        open_one.append(event)
        if before.holds():
            made.append(tuple(open_one))
            open_one = []
    return made
