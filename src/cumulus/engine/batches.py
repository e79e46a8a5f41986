"""Many events in one piece: rows of one table, events of several, or Arrow columns.

A bulk knows its events one by one, checked, for who takes them so; an engine that can takes it as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.arrow import table_of, typed
from cumulus.catalog.events import UPSERT, Event, Row
from cumulus.catalog.names import find_name
from cumulus.catalog.schema import Relation
from cumulus.engine.frame_input import given_rows, with_names_of
from cumulus.engine.rows_in import Checker, arrow_rows, checked_rows, is_not_null
from cumulus.errors import UnknownNameError, UsageError

Checked: TypeAlias = tuple[int, str, Row]
"""An event `(sign, relation, row)` whose row is checked; sign UPSERT: in place of the row with its primary key."""
Counts: TypeAlias = "Counter[tuple[int, str]]"
"""(sign, relation) → how many events; in the order in which the kinds of events first come."""


@dataclass(slots=True, eq=False)
class Rows:
    """Rows of one table, all inserted or all deleted, in any form that `check` takes."""

    sign: int
    relation: Relation
    rows: list[Any]
    check: Checker

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Event]:
        return map(self.event, range(len(self)))

    def event(self, at: int) -> Event:
        """Return one event; DataError if its row is wrong."""
        return Event(self.sign, self.relation.name, self.check(self.rows[at]))

    def counts(self, start: int, end: int) -> Counts:
        """Return how many events of each kind there are from one number to before another."""
        return Counter({(self.sign, self.relation.name): end - start})

    def part(self, start: int, end: int) -> Rows:
        """Return the events from one number to before another."""
        return Rows(self.sign, self.relation, self.rows[start:end], self.check)

    @property
    def names(self) -> tuple[str, ...]:
        """The tables that have events."""
        return (self.relation.name,)


@dataclass(slots=True, eq=False)
class Changes:
    """Events `(sign, table, row)` of any tables, in their order; `check` returns one checked."""

    events: list[Any]
    check: Callable[[Any], Checked]
    names: ClassVar[tuple[str, ...]] = ()
    """Nobody has looked which tables have events."""

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Checked]:
        return map(self.check, self.events)

    def event(self, at: int) -> Checked:
        """Return one event; UsageError or DataError if it is wrong."""
        return self.check(self.events[at])

    def counts(self, start: int, end: int) -> Counts:
        """Return how many events of each kind there are from one number to before another."""
        return Counter((event[0], event[1]) for event in self.events[start:end])


class Columns:
    """Events whose rows are Arrow columns.

    Parameters
    ----------
    relations
        The tables that may have events.
    tables
        Their rows, each table in the order of its own events, with the columns and types of the relation.
    kinds
        For each event, twice the place of its relation and 1 more for an insertion.
    """

    def __init__(self, relations: Sequence[Relation], tables: Sequence[pa.Table], kinds: npt.NDArray[np.uint8]) -> None:
        self.tables = dict(zip((each.name for each in relations), tables, strict=True))
        self.names = tuple(name for name, table in self.tables.items() if table.num_rows)
        self.kinds = kinds
        self._relations = tuple(relations)

    def part(self, start: int, end: int) -> Columns:
        """Return the events from one number to before another; all are of one table."""
        (table,) = self.tables.values()
        return Columns(self._relations, [table.slice(start, end - start)], self.kinds[start:end])

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        """For each event the number of its row in its table."""
        found = np.zeros(len(self.kinds), dtype=np.int64)
        for number in range(len(self._relations)):
            mine = np.flatnonzero(self.kinds >> 1 == number)
            found[mine] = np.arange(len(mine))
        return found

    def event(self, at: int) -> Event:
        """Return one event."""
        kind = int(self.kinds[at])
        relation = self._relations[kind >> 1]
        (row,) = checked_rows(relation, self.tables[relation.name].slice(int(self._places[at]), 1))
        return Event(1 if kind & 1 else -1, relation.name, row)

    def __iter__(self) -> Iterator[Event]:
        rows = [iter(checked_rows(each, self.tables[each.name])) for each in self._relations]
        for kind in self.kinds.tolist():
            yield Event(1 if kind & 1 else -1, self._relations[kind >> 1].name, next(rows[kind >> 1]))

    def counts(self, start: int, end: int) -> Counts:
        """Return how many events of each kind there are from one number to before another."""
        if len(self._relations) == 1 and start < end:
            inserted, name = int(np.count_nonzero(self.kinds[start:end])), self._relations[0].name
            signs = (1, -1) if self.kinds[start] else (-1, 1)
            counts = {1: inserted, -1: end - start - inserted}
            return Counter({(sign, name): counts[sign] for sign in signs if counts[sign]})
        kinds = self.kinds[start:end].tobytes()
        firsts = sorted((kinds.find(kind), kind) for kind in range(2 * len(self._relations)))
        return Counter(
            {
                (1 if kind & 1 else -1, self._relations[kind >> 1].name): kinds.count(kind)
                for first, kind in firsts
                if first >= 0
            }
        )


class Upserts:
    """Rows of one table, given as insertions, each in place of the one with its primary key."""

    def __init__(self, rows: Rows | Columns) -> None:
        self.rows = rows
        self.names = rows.names

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Checked]:
        return ((UPSERT, event.relation, event.row) for event in self.rows)

    def event(self, at: int) -> Checked:
        """Return one event; DataError if its row is wrong."""
        return (UPSERT, *self.rows.event(at)[1:])


Events: TypeAlias = Rows | Changes | Columns
Bulk: TypeAlias = Events | Upserts


def rows_of(sign: int, relation: Relation, data: Any, check: Checker) -> Rows | Columns:
    """Return rows in any form (`cumulus.engine.frame_input.given_rows`) as events of one sign.

    Raises
    ------
    DataError
        Where the form is wrong, not a value.
    """
    given = given_rows(relation, data)
    if not isinstance(given, pa.Table):
        return Rows(sign, relation, given, check)
    columns = columns_of(relation, given)
    if columns is None:
        return Rows(sign, relation, arrow_rows(relation, given), check)
    return Columns([relation], [columns], np.full(given.num_rows, sign > 0, dtype=np.uint8))


def columns_of(relation: Relation, table: pa.Table) -> pa.Table | None:
    """Return a table with a relation's columns and types; None if its rows must be looked at one by one."""
    columns = []
    given = dict(zip(table.column_names, table.columns, strict=True))
    for column in relation.columns:
        found = given.get(column.name)
        if found is None:
            found = pa.nulls(table.num_rows)
        if column.type is None or (found.null_count and is_not_null(relation, column)):
            return None
        made = typed(found, column.type)
        if made is None:
            return None
        columns.append(made)
    return pa.table(columns, names=list(relation.column_names)) if columns else None


def interleaved(relations: Mapping[str, Relation], data: Any) -> Columns | None:
    """Return a table of events as columns; None if it is not one.

    Parameters
    ----------
    relations
        By name.
    data
        Anything with `__arrow_c_stream__`, with a column `sign` of integers, +1 or -1, and a column `row`: a dense
        union that has for each table, under its name, a struct of its columns.

    Raises
    ------
    UsageError, DataError
        If the columns are others, or their values are not those of the tables.
    """
    if not hasattr(data, "__arrow_c_stream__"):
        return None
    table = data if isinstance(data, pa.Table) else pa.table(data)
    if set(table.column_names) != {"sign", "row"} or not _is_dense_union(table.column("row").type):
        raise UsageError("a table of events has the columns sign and row", hint=_EVENTS_HINT)
    signs = table.column("sign").to_numpy()
    if not np.isin(signs, (1, -1)).all():
        raise UsageError("the sign of an event is +1 or -1", hint=_EVENTS_HINT)
    union = table.column("row").type
    members: list[Relation] = []
    for field in union:
        name = find_name(field.name, relations)
        if name is None:
            raise UnknownNameError(f"there is no table {field.name}", hint=f"Tables: {', '.join(relations)}.")
        members.append(relations[name])
    chunks = table.column("row").chunks
    codes = np.concatenate([np.zeros(0, np.int8), *(np.asarray(chunk.type_codes) for chunk in chunks)])
    places = np.full(128, -1, dtype=np.int64)
    places[union.type_codes] = np.arange(len(members))
    tables = [_union_rows(relation, union, place, chunks) for place, relation in enumerate(members)]
    return Columns(members, tables, (places[codes] << 1 | (signs > 0)).astype(np.uint8))


def _union_rows(relation: Relation, union: Any, place: int, chunks: Sequence[Any]) -> pa.Table:
    """Return the rows of one table in a column of a dense union, in the order of their events."""
    parts = []
    for chunk in chunks:
        mine = np.asarray(chunk.offsets)[np.asarray(chunk.type_codes) == union.type_codes[place]]
        parts.append(chunk.field(place).take(pa.array(mine)))
    structs = pa.chunked_array(parts, union.field(place).type)
    if not pa.types.is_struct(structs.type) or structs.null_count:
        raise UsageError(f"the rows of {relation.name} are no structs", hint=_EVENTS_HINT)
    flat = pa.table(structs.flatten(), names=[field.name for field in structs.type])
    table = with_names_of(relation, flat)
    columns = columns_of(relation, table)
    return table_of(relation.columns, arrow_rows(relation, table)) if columns is None else columns


def _is_dense_union(type_: pa.DataType) -> bool:
    return bool(pa.types.is_union(type_)) and type_.mode == "dense"


_EVENTS_HINT = "Give sign, +1 or -1, and row, a dense union of a struct for each table; see docs/engine.md."


def events_of(
    relations: Mapping[str, Relation], events: Any, per: str, check: Callable[[Any], Checked]
) -> Events | None:
    """Return events in one piece; None if they come one by one, who knows from where.

    Parameters
    ----------
    per
        Whether an "event" or the "call" is a transaction.
    """
    columns = interleaved(relations, events)
    if columns is not None:
        return columns
    if not isinstance(events, Iterable) or isinstance(events, (str, bytes, Mapping)):
        raise UsageError(f"events are no {type(events).__name__}", hint="Give (sign, table, row), one after the other.")
    if type(events) is not list and per == "event":
        return None
    return Changes(events if type(events) is list else list(events), check)
