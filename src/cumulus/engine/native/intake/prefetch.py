"""Asking for memory before it is needed: events of a bulk that are still to come say where they will look.

A look-up of cold memory costs as much as hundreds of instructions, and most of what an event costs is that. What an
event's own values name, entries that it reads or adds to and chains that it visits, can be asked for in two steps, as
the slot tells the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cumulus.algebra.terms import MapRead, Range, Term, Var, children
from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.intake.key_checks import KeyLookup
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import in_words_of
from cumulus.engine.native.kernel.language import Expr, Function, i64, select
from cumulus.engine.native.store.hash_tables import ROW, entrance, slot
from cumulus.engine.native.store.memory_layout import EventLane, MapLayout, event_parameters, words_of
from cumulus.engine.native.store.row_layout import PRIMARY, address, tag_of
from cumulus.m3.program import Statement, Trigger


def fetch_functions(
    writer: ProgramWriter,
    name: str,
    columns: Sequence[EventLane],
    triggers: Iterable[Trigger],
    others: Iterable[KeyLookup],
) -> tuple[Function, Function]:
    """Return two functions `(context, words of an event)`: ask for the slots, and then for the rows behind them.

    Parameters
    ----------
    triggers, others
        What the event fires, and where else it looks.
    """
    places = [*(place for trigger in triggers for place in _places(writer, trigger, columns)), *others]
    made = []
    for step, hint in ((_fetch_slot, "slots"), (_fetch_row, "rows")):
        with define(f"ask_for_{hint}_{name}", event_parameters(columns)) as body:
            for place in dict.fromkeys(places):
                step(writer, body, place, columns)
        made.append(body.function)
    return made[0], made[1]


def _places(writer: ProgramWriter, trigger: Trigger, columns: Sequence[EventLane]) -> Iterable[KeyLookup]:
    numbers = {name: number for number, name in enumerate(trigger.variables)}
    for statement in trigger.statements:
        for store, keys in _accesses(writer, statement):
            known = {
                place: numbers[key.name]
                for place, key in enumerate(keys)
                if isinstance(key, Var) and key.name in numbers
            }
            whole = len(known) == len(store.keys)
            same = (store.keys[place].type == columns[column].lane.type for place, column in known.items())
            if not known or not all(same):
                continue
            if whole and store.is_by_index:
                known = {place: known[place] for place in store.indexes[0]}
            elif not whole and (tuple(known) not in store.indexes or tuple(known) in store.sleeping):
                continue
            yield KeyLookup(store.name, tuple(known), tuple(known.values()))


def _accesses(writer: ProgramWriter, statement: Statement) -> Iterable[tuple[MapLayout, Sequence[Term | Range]]]:
    yield writer.store(statement.map), [Var(key) for key in statement.keys]
    yield from _reads(writer, statement.term)


def _reads(writer: ProgramWriter, term: Term | Range) -> Iterable[tuple[MapLayout, Sequence[Term | Range]]]:
    if isinstance(term, MapRead):
        yield writer.store(term.map), term.keys
    for child in children(term):
        yield from _reads(writer, child)


def _slot_of(
    writer: ProgramWriter, body: Body, place: KeyLookup, columns: Sequence[EventLane]
) -> tuple[MapLayout, Expr, Expr, Expr]:
    """Write where the probing for a place begins; return its map, the segment's address, the slot's number, the tag."""
    store = writer.store(place.map)
    ranges = words_of(columns)
    words = [
        word
        for key, column in zip(place.keys, place.columns, strict=True)
        for word in in_words_of(
            body, store.keys[key], [body.parameter(f"w{word}") for word in ranges[column]], columns[column].lane
        )
    ]
    whole = len(place.keys) == len(store.keys)
    table = PRIMARY if whole else store.shape.table(store.indexes.index(place.keys))
    tag = tag_of(body, words)
    base, at, _ = entrance(body, writer.record(store).at(table), tag)
    return store, base, at, tag


def _fetch_slot(writer: ProgramWriter, body: Body, place: KeyLookup, columns: Sequence[EventLane]) -> None:
    _, base, at, _ = _slot_of(writer, body, place, columns)
    body.prefetch(base.at(at << 3))


def _fetch_row(writer: ProgramWriter, body: Body, place: KeyLookup, columns: Sequence[EventLane]) -> None:
    store, base, at, tag = _slot_of(writer, body, place, columns)
    found = slot(body, base, at)
    # Most slots are taken, and the row of another key would be cold memory that nobody looks at.
    row = select((found >> 32).eq(tag), found & ROW, i64(0))
    body.prefetch(address(body, store.shape, writer.record(store), row))
