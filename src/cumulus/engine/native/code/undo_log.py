"""Undo log: the old contents of every row that the open transaction changed; a rollback reads it backwards.

A note is the map's number, the row's key words and value words, and for who reads backwards the number once more, with
how many words the note has above its lower 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.kernel.body import Body, define, implement, kernel_function
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, U8, Expr, Function, Local, Signature, i64, select
from cumulus.engine.native.kernel.memory import BUDGET, MEMCPY, grow_block
from cumulus.engine.native.store import memory_layout as layout
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import MapLayout, Status
from cumulus.engine.native.store.ordered_index import tell_before, tell_changed
from cumulus.engine.native.store.row_layout import RowLayout, address

UNDO, TOUCHED, NOTES = "undo", "touched", "notes"
_START = 1 << 12
_RESERVED = 4
"""The journal may have so many halvings of the budget beyond it: full maps can still be changed, and emptied."""
NUMBER = (1 << 32) - 1
"""What of the last word of a note is the number of its map."""


def note(shape: RowLayout) -> Signature:
    """Return the function `(context, number of the map, address of a row)` that writes a row into the journal.

    It gives 1; or 0 where there is no memory: then the firing is useless, and the row must stay as it is.
    """
    return Signature(f"cu_{shape.name}_note", (PTR, I64, PTR), I64)


def note_words(shape: RowLayout) -> int:
    """Return how many words a note takes."""
    return 2 + shape.keys + shape.values


def _restore(shape: RowLayout) -> Signature:
    """Return the function `(map, address of a note)` → 1, or 0 if there is no memory, that puts a row back."""
    return Signature(f"cu_{shape.name}_restore", (PTR, PTR), I64)


def journal_functions(shape: RowLayout) -> tuple[Function, Function]:
    """Return the functions of a shape: `note`, and what takes a note back."""
    return (
        implement(note(shape), ("context", "number", "place"), partial(_write_note, shape), inline=False),
        implement(_restore(shape), ("map", "note"), partial(_write_restore, shape), inline=False),
    )


def _write_note(shape: RowLayout, body: Body, context: Local, number: Local, place: Local) -> None:
    used = body.load(I64, context, layout.JOURNAL_USED, "used")
    size = body.load(I64, context, layout.JOURNAL_SIZE, "size")
    needed = 8 * note_words(shape)
    after = body.let(used + needed, "after")
    with body.when(after > size, likely=False):
        beyond = 0 if needed <= _START else needed  # twice as much need not be enough for a long row
        larger = body.let(select(size.eq(0), i64(_START), size * 2) + beyond, "larger")
        budget = body.load(I64, context, layout.MEMORY + BUDGET, "budget")
        body.store(I64, context, layout.MEMORY + BUDGET, budget + (budget >> _RESERVED))
        moved = body.call(
            grow_block, context.at(layout.MEMORY), body.load(PTR, context, layout.JOURNAL), size, larger, hint="moved"
        )
        body.store(I64, context, layout.MEMORY + BUDGET, budget)
        with body.when(moved.eq(NOWHERE), likely=False):
            body.store(I64, context, layout.STATUS, Status.NO_MEMORY.value)
            body.store(I64, context, layout.CULPRIT, layout.THE_JOURNAL)
            body.leave(0)
        body.store(PTR, context, layout.JOURNAL, moved)
        body.store(I64, context, layout.JOURNAL_SIZE, larger)
    to = body.let(body.load(PTR, context, layout.JOURNAL).at(used), "to")
    body.store(I64, to, 0, number)
    for word in range(shape.keys + shape.values):
        body.store(I64, to, 8 * (1 + word), body.load(I64, place, 8 * word))
    body.store(I64, to, 8 * (note_words(shape) - 1), number | _trailer(shape))
    body.store(I64, context, layout.JOURNAL_USED, after)
    body.leave(1)


def _write_restore(shape: RowLayout, body: Body, map_: Local, place: Local) -> None:
    keys = [body.load(I64, place, 8 * (1 + word), "key") for word in range(shape.keys)]
    values = [body.load(I64, place, 8 * (1 + shape.keys + word), "value") for word in range(shape.values)]
    row = body.call(shape.put, map_, *keys, hint="row")
    body.leave_if(row.eq(0), 0, likely=False)
    at = body.let(address(body, shape, map_, row & ROW), "at")
    some = values[0]
    tell_before(body, shape, map_, row & ROW)
    for word, value in enumerate(values):
        body.store(I64, at, shape.value(word), value)
        some = body.let(some | value, "some") if word else some
    with body.when(some.eq(0)):
        body.run(shape.remove, map_, row & ROW)
    with body.otherwise():
        tell_changed(body, shape, map_, row & ROW)
    body.leave(1)


def undo_function(writer: ProgramWriter, stores: Sequence[MapLayout]) -> Function:
    """Return the function `(context, to)` → 1, or 0 if there is no memory: take back all notes behind `to` bytes."""
    with define(UNDO, [("context", PTR), ("to", I64)], I64, inline=False) as body:
        context, to = body.function.parameters
        used = body.let(body.load(I64, context, layout.JOURNAL_USED), "used")
        with body.loop():
            body.stop_if(used <= to)
            journal = body.load(PTR, context, layout.JOURNAL, "journal")
            number = body.let(body.load(I64, journal.at(used), -8) & NUMBER, "number")
            for store in stores:
                with body.when(number.eq(store.number)):
                    _take_back(writer, body, store, journal, used)
            body.set(used, body.load(I64, context, layout.JOURNAL_USED))
        body.leave(1)
    return body.function


def read_note(body: Body, journal: Expr, end: Expr) -> tuple[Expr, Expr]:
    """Write the reading of the note before an offset: return the number of its map, and its bytes."""
    trailer = body.load(I64, journal.at(end), -8, "trailer")
    return trailer & NUMBER, (trailer >> 32) << 3


@kernel_function(TOUCHED, [("context", PTR), ("marks", PTR)])
def touched_function(body: Body, context: Local, marks: Local) -> None:
    """Return the function `(context, marks)` that sets the byte of each map that the journal has a note of to 1."""
    journal = body.load(PTR, context, layout.JOURNAL, "journal")
    at = body.let(body.load(I64, context, layout.JOURNAL_USED), "at")
    with body.loop():
        body.leave_if(at.eq(0))
        number, size = read_note(body, journal, at)
        body.store(U8, marks.at(number), 0, 1)
        body.set(at, at - size)


@kernel_function(NOTES, [("context", PTR), ("number", I64), ("to", PTR)], I64, inline=False)
def notes_function(body: Body, context: Local, wanted: Local, to: Local) -> None:
    """Return the function `(context, number of a map, to)` that writes what the journal has of a map to an address.

    These are the key words and value words of its notes, the newest first. It returns how many words.
    """
    journal = body.load(PTR, context, layout.JOURNAL, "journal")
    at = body.let(body.load(I64, context, layout.JOURNAL_USED), "at")
    count = body.let(i64(0), "count")
    with body.loop():
        body.leave_if(at.eq(0), count)
        number, size = read_note(body, journal, at)
        body.set(at, at - size)
        with body.when(number.eq(wanted)):
            body.call(MEMCPY, to.at(count << 3), journal.at(at + 8), size - 16)
            body.set(count, count + (size >> 3) - 2)


def _trailer(shape: RowLayout) -> int:
    return note_words(shape) << 32


def _take_back(writer: ProgramWriter, body: Body, store: MapLayout, journal: Expr, used: Expr) -> None:
    before = body.let(used - 8 * note_words(store.shape), "before")
    done = body.call(_restore(store.shape), writer.record(store), journal.at(before), hint="done")
    body.leave_if(done.eq(0), 0, likely=False)
    body.store(I64, body.parameter("context"), layout.JOURNAL_USED, before)
