"""Many events at once: columns of words, and the order in which their rows come.

Memory is asked for before it is needed: events of a bulk that are still to come say where they will look. A look-up of
cold memory costs as much as hundreds of instructions, and most of what an event costs is that. What an event's own
values name, entries that it reads or adds to and chains that it visits, can be asked for in two steps, as the slot
tells the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cumulus.algebra.terms import MapRead, Range, Term, Var, children
from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.intake.key_checks import KeyLookup
from cumulus.engine.native.intake.python_rows import DONE
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import in_words_of
from cumulus.engine.native.kernel.language import I64, PTR, U8, Expr, Function, Local, i64, select
from cumulus.engine.native.store.hash_tables import ROW, entrance, slot
from cumulus.engine.native.store.memory_layout import (
    JOURNAL_USED,
    EventLane,
    MapLayout,
    event_parameters,
    event_words,
    words_of,
)
from cumulus.engine.native.store.row_layout import PRIMARY, address, tag_of
from cumulus.engine.native.values.columns import ROWS_AHEAD
from cumulus.m3.program import Statement, Trigger

STREAM = "stream"
MOST_RELATIONS = 128
"""How many a byte can tell, beside the sign."""
_FEW = 4
"""Relations that an event is compared with one after the other."""
FAR = (ROWS_AHEAD, 4)
"""How many rows of a relation ahead of the one that is fired slots and rows are asked for."""


def stream_function(
    relations: Sequence[tuple[str, Sequence[EventLane]]],
    takes: Mapping[tuple[int, str], Function],
    fetches: Mapping[str, tuple[Function, Function]],
) -> Function:
    """Return the function that fires the triggers of events, one after another, until one is left to Python.

    Its parameters are `(context, from, to, kinds, columns, cursors, each)`: for each event a byte, twice the number of
    its relation and 1 more for an insertion; for each word that triggers use of each relation, in order, the address of
    its values; for each relation, which of its values comes next; whether each event is a transaction of its own. It
    returns the number of the event that is left, whose value the cursor has not passed; `to` if there is none.

    Parameters
    ----------
    relations
        Names and columns, in the order of their numbers.
    takes
        (sign, relation) → what takes an event.
    fetches
        Relation → `cumulus.engine.native.intake.streams.fetch_functions`.
    """
    names = ("from", "to", "kinds", "columns", "cursors", "each")
    types = (I64, I64, PTR, PTR, PTR, I64)
    with define(STREAM, [("context", PTR), *zip(names, types, strict=True)], I64) as body:
        context, start, end, kinds, columns, cursors, each = body.function.parameters
        numbered: list[tuple[int, str, range]] = []
        for number, (relation, lanes) in enumerate(relations):
            first = numbered[-1][2].stop if numbered else 0
            numbered.append((number, relation, range(first, first + event_words(lanes))))
        with body.counting(start, end) as at:
            kind = body.load(U8, kinds.at(at), 0, "kind")

            def fire(number: int, relation: str, words: range) -> None:
                cursor = body.load(I64, cursors, 8 * number, "cursor")
                for far, fetch in zip(FAR, fetches[relation], strict=True):
                    body.run(fetch, context, *values_at(body, columns, words, cursor + far))
                values = values_at(body, columns, words, cursor)
                for sign in (1, -1):
                    with body.when((kind & 1).eq(1 if sign > 0 else 0)):
                        done = body.call(takes[sign, relation], context, *values, hint="done")
                        body.leave_if(done.ne(DONE), at, likely=False)
                body.store(I64, cursors, 8 * number, cursor + 1)

            def choose(among: Sequence[tuple[int, str, range]]) -> None:
                """Write the choice of what a kind is of, by halves as long as they are many."""
                if len(among) > _FEW:
                    half = len(among) // 2
                    with body.when(kind < among[half][0] << 1):
                        choose(among[:half])
                    with body.otherwise():
                        choose(among[half:])
                    return
                for number, relation, words in among:
                    with body.when((kind >> 1).eq(number)):
                        fire(number, relation, words)

            choose(numbered)
            with body.when(each.ne(0)):
                body.store(I64, context, JOURNAL_USED, 0)
        body.leave(end)
    return body.function


def values_at(body: Body, columns: Expr, words: range, row: Expr) -> list[Local]:
    """Write the reading of the words of a row."""
    return [body.load(I64, body.load(PTR, columns, 8 * word).at(row << 3), 0, "value") for word in words]


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
