"""Keys and references of kept tables, looked up in machine code.

What must hold is written in `cumulus.engine.integrity`. Code only tells events that are surely right from those that
Python must look at, which then have not happened; so all errors stand in one place. A key, and a row to delete, are
looked up before the trigger fires, references after it: in the state that the event leaves, its own row counts.

In a transaction a reference without RELY need only hold at its end. An event that leaves one unfulfilled makes it
doubtful whether the transaction may be committed. If no event does, none is unfulfilled at the end. Else the journal
tells which rows have come and gone, and these are looked at (`SETTLED`). Where one is not surely right, Python does the
transaction again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TypeAlias

from cumulus.catalog.schema import Relation
from cumulus.catalog.types import INTEGER_BITS, Kind
from cumulus.engine.integrity import Reference, references, wanted_indexes
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.code.undo_log import read_note
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import Lane, in_words_of
from cumulus.engine.native.kernel.language import FALSE, I64, PTR, Expr, Function, i64
from cumulus.engine.native.store import memory_layout
from cumulus.engine.native.store.memory_layout import ColumnStorage, EventLane, MapLayout, event_parameters, words_of
from cumulus.engine.native.store.row_layout import address

SETTLED = "settled"
WAITS = ("references", "wait")
"""The key of the word that is 1 where references without RELY need only hold at the end of the transaction."""
DOUBTFUL = ("references", "doubtful")
"""The key of the word that is 1 where code has fired an event that leaves such a reference unfulfilled."""
UNSEEN = ("references", "unseen")
"""The key of the word that is 1 where the transaction has events that code has not looked at: Python has fired them."""


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Entries that columns of an event name: a map, some of its keys (ascending) or all, the columns that are these."""

    map: str
    keys: tuple[int, ...]
    columns: tuple[int, ...]


_Write: TypeAlias = "Callable[[Body, Table, Reference, Sequence[Expr]], None]"
"""What writes that a reference must hold for the words of an event; elsewhere the function returns 0."""


@dataclass(slots=True)
class Table:
    """A kept table whose events code checks.

    Parameters
    ----------
    store
        Has its rows.
    key
        How to find the row with the primary key of an event; None if nobody checks that.
    children, parents
        The references in which its rows are the parents, and those in which they are the children.
    """

    relation: Relation
    store: MapLayout
    columns: tuple[EventLane, ...]
    key: KeyLookup | None
    children: list[Reference] = field(default_factory=list)
    parents: list[Reference] = field(default_factory=list)


class KeyChecks:
    """What code checks of the events of a program.

    Parameters
    ----------
    indexes
        Map → key columns of the indexes that are wanted. If those of the checks are not, code checks nothing.
    """

    def __init__(
        self,
        writer: ProgramWriter,
        events: Mapping[str, Sequence[EventLane]],
        indexes: Mapping[str, Sequence[tuple[int, ...]]],
    ) -> None:
        self._writer = writer
        self._come: dict[tuple[str, bool], Function] = {}
        self._go: dict[tuple[str, bool], Function] = {}
        self._without_children: dict[str, Function] = {}
        self.tables: dict[str, Table] = {}
        if all(places in indexes.get(name, ()) for name, places in wanted_indexes(writer.program)):
            self.tables = {each.relation.name: each for each in _tables(writer, events)}

    def functions(self) -> Iterator[Function]:
        """Yield the functions `(context, words of the event)` → whether references hold, and what settles them."""
        for number, (name, table) in enumerate(self.tables.items()):
            for verb, made, mine, write in (
                ("come", self._come, table.parents, self._parent_there),
                ("go", self._go, table.children, self._child_gone),
            ):
                for at_once in (False, True):
                    some = [each for each in mine if _holds_at_once(each, verb) == at_once]
                    if some:
                        hint = f"{verb}_{number}{'_at_once' if at_once else ''}"
                        made[name, at_once] = self._holds(hint, table, some, write)
                        yield made[name, at_once]
            enforced = [each for each in table.children if each.key.enforced]
            if enforced:
                hint = f"without_children_{number}"
                self._without_children[name] = self._holds(hint, table, enforced, self._no_child_there)
                yield self._without_children[name]
        yield self._settled_function()

    def lookups(self, relation: str) -> Iterator[KeyLookup]:
        """Yield where the insertion of a row looks, beside the maps of its trigger."""
        table = self.tables.get(relation)
        if table is None:
            return
        if table.key is not None:
            yield table.key
        for each in table.parents:
            yield self._parent_of(each)

    # --- single events ----------------------------------------------------------------------------------------------

    def before(self, body: Body, sign: int, relation: str, words: Sequence[Expr], leave: Callable[[], None]) -> None:
        """Write what must hold before the trigger fires; elsewhere `leave` writes the way out."""
        table = self.tables[relation]
        store = table.store
        if sign < 0:
            row = body.call(store.shape.find, self._writer.record(store), *words, hint="row")
            with body.when(row.eq(0), likely=False):
                leave()
            self._leave_none(body, store, row, leave)
        elif table.key is not None:
            with body.when(self.row_with_key(body, relation, words).ne(0), likely=False):
                leave()

    def after(self, body: Body, sign: int, relation: str, words: Sequence[Expr], leave: Callable[[], None]) -> None:
        """Write what must hold when the trigger has fired; elsewhere `leave` takes it back and writes the way out."""
        found = self._come if sign > 0 else self._go
        if (relation, True) in found:
            with body.when(body.call(found[relation, True], CONTEXT, *words, hint="holds").eq(0), likely=False):
                leave()
        if (relation, False) in found:
            with body.when(body.call(found[relation, False], CONTEXT, *words, hint="holds").eq(0), likely=False):
                with body.when(body.load(I64, CONTEXT, self._writer.context.word(WAITS), "waits").eq(0)):
                    leave()
                body.store(I64, CONTEXT, self._writer.context.word(DOUBTFUL), 1)
        if sign > 0 and relation in self._without_children:
            # A row is there before its parent only where a reference is unfulfilled, or Python has fired events.
            holds = self._without_children[relation]
            word = self._writer.context.word
            some = body.load(I64, CONTEXT, word(DOUBTFUL)) | body.load(I64, CONTEXT, word(UNSEEN))
            with (
                body.when((body.load(I64, CONTEXT, word(WAITS), "waits") & some).ne(0), likely=False),
                body.when(body.call(holds, CONTEXT, *words, hint="holds").eq(0), likely=False),
            ):
                leave()

    def row_with_key(self, body: Body, relation: str, words: Sequence[Expr]) -> Expr:
        """Write the look-up of the row with an event's primary key; return it, 0 if there is none."""
        table = self.tables[relation]
        assert table.key is not None, "a table whose key is checked"
        return self._find(body, table.key, table.columns, words)

    def _holds(self, name: str, table: Table, mine: Sequence[Reference], write: _Write) -> Function:
        with define(name, event_parameters(table.columns), I64) as body:
            for each in mine:
                write(body, table, each, body.function.parameters[1:])
            body.leave(1)
        return body.function

    def _parent_there(self, body: Body, table: Table, reference: Reference, words: Sequence[Expr]) -> None:
        """Write that a row needs a parent, if nothing of what it names is NULL."""
        parent = self._writer.store(self._writer.kept[reference.parent.name])
        ranges = words_of(table.columns)
        nullable = [place for place in reference.child_places if table.columns[place].lane.nullable]
        nulls = [_is_null(table.columns[place].lane, [words[word] for word in ranges[place]]) for place in nullable]
        with body.when(~reduce(or_, nulls, FALSE), likely=True):
            row = self._find(body, self._parent_of(reference), table.columns, words)
            body.leave_if(row.eq(0), 0, likely=False)
            self._leave_none(body, parent, row, lambda: body.leave(0))

    def _child_gone(self, body: Body, table: Table, reference: Reference, words: Sequence[Expr]) -> None:
        """Write that a row must have no children, or that another one with the same key is there."""
        children = self._lookup(reference.child, reference.child_places, reference.parent_places)
        others = self._lookup(reference.parent, reference.parent_places, reference.parent_places)
        with body.when(self._find(body, children, table.columns, words).ne(0), likely=False):
            row = self._find(body, others, table.columns, words)
            body.leave_if(row.eq(0), 0, likely=False)
            self._leave_none(body, table.store, row, lambda: body.leave(0))

    def _no_child_there(self, body: Body, table: Table, reference: Reference, words: Sequence[Expr]) -> None:
        """Write that no row may refer to this one yet."""
        children = self._lookup(reference.child, reference.child_places, reference.parent_places)
        body.leave_if(self._find(body, children, table.columns, words).ne(0), 0, likely=False)

    # --- look-ups ---------------------------------------------------------------------------------------------------

    def _lookup(self, relation: Relation, places: tuple[int, ...], columns: tuple[int, ...]) -> KeyLookup:
        """Return how rows of a relation are found by columns of an event, `columns` beside `places`."""
        return _lookup(self._writer.kept[relation.name], places, columns)

    def _parent_of(self, reference: Reference) -> KeyLookup:
        """Return how the parent of a row is found; each row that comes asks for it, so its index never sleeps."""
        found = self._lookup(reference.parent, reference.parent_places, reference.child_places)
        store = self._writer.store(found.map)
        if len(found.keys) < len(store.keys):
            store.index(found.keys)
        return found

    def _find(self, body: Body, lookup: KeyLookup, columns: Sequence[EventLane], words: Sequence[Expr]) -> Expr:
        """Write the look-up; return a row, 0 if there is none.

        Where an index that sleeps cannot be made, the function returns 0.
        """
        store, ranges = self._writer.store(lookup.map), words_of(columns)
        record, shape = self._writer.record(store), store.shape
        given = [
            word
            for key, column in zip(lookup.keys, lookup.columns, strict=True)
            for word in in_words_of(
                body, store.keys[key], [words[word] for word in ranges[column]], columns[column].lane
            )
        ]
        if len(lookup.keys) == len(store.keys):
            return body.call(shape.find, record, *given, hint="found")
        index = store.indexes.index(lookup.keys)
        if index in shape.sleeping:
            body.leave_if(body.call(shape.wake(index), record, hint="awake").eq(0), 0, likely=False)
        return body.call(shape.first(index), record, *given, hint="found")

    def _leave_none(self, body: Body, store: MapLayout, row: Expr, leave: Callable[[], None]) -> None:
        """Write that a row must be there at least once."""
        place = address(body, store.shape, self._writer.record(store), row)
        with body.when(body.load(I64, place, store.shape.value(0), "count") < 1, likely=False):
            leave()

    # --- transactions -----------------------------------------------------------------------------------------------

    def _settled_function(self) -> Function:
        """Return the function `(context)` → 1, or 0 if Python must look at the references of the transaction."""
        with define(SETTLED, [("context", PTR)], I64, inline=False) as body:
            body.leave_if(body.load(I64, CONTEXT, self._writer.context.word(DOUBTFUL)).eq(0), 1, likely=True)
            journal = body.load(PTR, CONTEXT, memory_layout.JOURNAL, "journal")
            at = body.let(body.load(I64, CONTEXT, memory_layout.JOURNAL_USED), "at")
            with body.loop():
                body.leave_if(at.eq(0), 1)
                number, size = read_note(body, journal, at)
                body.set(at, at - size)
                for name, table in self.tables.items():
                    come, go = self._come.get((name, False)), self._go.get((name, False))
                    if come is not None or go is not None:
                        with body.when(number.eq(table.store.number)):
                            self._check_changed(body, table.store, journal.at(at), come, go)
        return body.function

    def _check_changed(
        self, body: Body, store: MapLayout, note: Expr, come: Function | None, go: Function | None
    ) -> None:
        """Write the looking at a row that was changed: whether it is there now, and what that asks for."""
        words = [body.load(I64, note, 8 * (1 + word), "key") for word in range(store.shape.keys)]
        row = body.call(store.shape.find, self._writer.record(store), *words, hint="row")
        for holds, condition in ((come, row.ne(0)), (go, row.eq(0))):
            if holds is not None:
                with (
                    body.when(condition),
                    body.when(body.call(holds, CONTEXT, *words, hint="holds").eq(0), likely=False),
                ):
                    body.leave(0)


def _holds_at_once(reference: Reference, verb: str) -> bool:
    """Whether a reference must hold at each event that comes or goes, and not only at the end of a transaction.

    Of an enforced one, a parent goes by code only when no child is left: `cumulus.engine.referring_rows`.
    """
    return reference.key.rely or (reference.key.enforced and verb == "go")


def _tables(writer: ProgramWriter, events: Mapping[str, Sequence[EventLane]]) -> list[Table]:
    """Return the kept tables whose rows and references code can look up by the words of an event."""
    kept = {each.name: each for each in writer.program.relations if each.name in writer.kept}
    found: dict[str, Table] = {}
    for name, relation in kept.items():
        store, columns = writer.store(writer.kept[name]), tuple(events[name])
        if not _is_plain(relation, store, columns):
            continue
        places = relation.key_positions
        checked = relation.key and not relation.key_rely
        found[name] = Table(relation, store, columns, _lookup(store.name, places, places) if checked else None)
    bad: set[str] = set()
    for each in references(kept):
        child, parent = found.get(each.child.name), found.get(each.parent.name)
        if child is None or parent is None or not _fits(each, child, parent):
            bad |= {each.child.name, each.parent.name}
            continue
        child.parents.append(each)
        parent.children.append(each)
    return [table for name, table in found.items() if name not in bad]


def _is_plain(relation: Relation, store: MapLayout, columns: Sequence[EventLane]) -> bool:
    """Whether the words of an event are the key words of its row, and the value is how often it is there."""
    return (
        [value.held for value in store.values] == [ColumnStorage.COUNT]
        and all(column.is_used and not column.is_text for column in columns)
        and [(lane.type, lane.words) for lane in store.keys]
        == [(column.lane.type, column.lane.words) for column in columns]
        and not any(columns[place].lane.nullable for place in relation.key_positions)
    )


def _fits(reference: Reference, child: Table, parent: Table) -> bool:
    """Whether equal values on both sides of a reference are equal words."""
    pairs = zip(reference.child_places, reference.parent_places, strict=True)
    return all(_alike(child.columns[mine].lane, parent.columns[its].lane) for mine, its in pairs)


def _alike(one: Lane, other: Lane) -> bool:
    kinds = {one.type.kind, other.type.kind}
    if one.is_wide != other.is_wide:
        return False
    if kinds == {Kind.DECIMAL}:
        return one.type.scale == other.type.scale
    return kinds <= INTEGER_BITS.keys() or one.type == other.type


def _lookup(map_: str, places: tuple[int, ...], columns: tuple[int, ...]) -> KeyLookup:
    pairs = sorted(zip(places, columns, strict=True))
    return KeyLookup(map_, tuple(place for place, _ in pairs), tuple(column for _, column in pairs))


def _is_null(lane: Lane, words: Sequence[Expr]) -> Expr:
    return words[-1].eq(i64(lane.last_null_word))
