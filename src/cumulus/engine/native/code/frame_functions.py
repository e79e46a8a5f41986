"""Functions that move rows between maps and frames: whole maps out, rows added, rows removed by a key.

They are written for a shape of map and the storage of its value columns, not for a program, so all programs share them;
and in modules of their own, which are loaded when somebody first asks for a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import or_

from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.native.code.adders import stays
from cumulus.engine.native.code.undo_log import note
from cumulus.engine.native.kernel.body import Body, implement
from cumulus.engine.native.kernel.language import (
    F64,
    I64,
    I128,
    PTR,
    Expr,
    Function,
    Local,
    Signature,
    absolute,
    i64,
    select,
)
from cumulus.engine.native.store import memory_layout, row_layout
from cumulus.engine.native.store.compensated_sums import add_far, far_parts, is_finite
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import ColumnStorage, Status, ValueLane
from cumulus.engine.native.store.ordered_index import tell_before, tell_changed
from cumulus.engine.native.store.row_layout import CREATED, RowLayout, address
from cumulus.engine.native.values.codec import BoxOp

_BOX = Signature("box", (I64, I64, I64, I64), I64)
FAILED = -1
"""What is returned instead of a count where the status of the context says why."""


@dataclass(frozen=True, slots=True)
class RowMover:
    """The signatures of the functions for maps of a shape, whose value columns are stored so.

    Their first parameters are the context, the number of the map and its record.
    """

    shape: RowLayout
    values: tuple[ValueLane, ...]

    @property
    def take(self) -> Signature:
        """`(…, to, empties, is journalled)` → 1, or 0 for want of memory: write all rows to an address."""
        return self.shape.function("take", I64, PTR, PTR, I64, I64)

    @property
    def add(self) -> Signature:
        """`(…, rows, how many, sign)` → 1, or 0 if the context has a status: add rows, or take them away."""
        held = "_".join(each.held.name.lower() for each in self.values)
        return self.shape.function(f"add_{held}", I64, PTR, PTR, I64, I64)

    @property
    def cut(self) -> Signature:
        """`(…, key word, sign word, most, is journalled)` → how many rows were removed, or `FAILED`.

        The sign word is the key word itself where no row has NULL there.
        """
        return self.shape.function("cut", I64, PTR, I64, I64, I64, I64)

    def functions(self) -> tuple[Function, ...]:
        """Return the functions."""
        return _functions(self.shape, self.values)


@cache
def _functions(shape: RowLayout, values: tuple[ValueLane, ...]) -> tuple[Function, ...]:
    mover = RowMover(shape, values)
    head = ("context", "number", "map")
    return (
        implement(mover.take, (*head, "to", "empties", "journalled"), partial(_take, shape), inline=False),
        implement(mover.add, (*head, "rows", "count", "sign"), partial(_add, shape, values), inline=False),
        implement(mover.cut, (*head, "word", "sign", "most", "journalled"), partial(_cut, shape), inline=False),
    )


def _values_at(shape: RowLayout, body: Body, place: Expr) -> list[Local]:
    return [body.load(I64, place, shape.value(word), "value") for word in range(shape.values)]


def _take(
    shape: RowLayout,
    body: Body,
    context: Local,
    number: Local,
    map_: Local,
    to: Local,
    empties: Local,
    journalled: Local,
) -> None:
    used = body.load(I64, context, memory_layout.JOURNAL_USED, "used")
    at = body.let(to, "at")
    with body.counting(1, body.load(I64, map_, row_layout.LAST, "last") + 1, "row") as row:
        place = body.let(address(body, shape, map_, row), "place")
        values = _values_at(shape, body, place)
        with body.when(reduce(or_, values).ne(0), likely=True):
            with body.when(journalled.ne(0), likely=False):
                noted = body.call(note(shape), context, number, place, hint="noted")
                with body.when(noted.eq(0), likely=False):
                    body.store(I64, context, memory_layout.JOURNAL_USED, used)
                    body.leave(0)
            for word in range(shape.keys):
                body.store(I64, at, 8 * word, body.load(I64, place, 8 * word))
            for word, value in enumerate(values):
                body.store(I64, at, shape.value(word), value)
            body.set(at, at.at(8 * (shape.keys + shape.values)))
    body.leave_if(empties.eq(0), 1)
    body.leave(body.call(shape.clear, map_))


def _add(
    shape: RowLayout,
    lanes: Sequence[ValueLane],
    body: Body,
    context: Local,
    number: Local,
    map_: Local,
    rows: Local,
    count: Local,
    sign: Local,
) -> None:
    def give_up(status: Status) -> None:
        body.store(I64, context, memory_layout.STATUS, status.value)
        body.store(I64, context, memory_layout.CULPRIT, number)

    is_added = body.let(sign > 0, "is_added")
    given = body.let(rows, "given")
    with body.counting(0, count):
        keys = [body.load(I64, given, 8 * word, "key") for word in range(shape.keys)]
        row = body.call(shape.put, map_, *keys, hint="row")
        with body.when(row.eq(0), likely=False):
            give_up(Status.NO_MEMORY)
            body.leave(0)
        place = body.let(address(body, shape, map_, row & ROW), "place")
        noted = body.call(note(shape), context, number, place, hint="noted")
        with body.when(noted.eq(0), likely=False):
            with body.when(row >= CREATED):
                body.run(shape.remove, map_, row & ROW)
            body.leave(0)
        tell_before(body, shape, map_, row & ROW)
        with body.when(is_added & (row >= CREATED)):
            for word, value in enumerate(_values_at(shape, body, given)):
                body.store(I64, place, shape.value(word), value)
        with body.otherwise():
            for lane in lanes:
                overflow = _add_value(body, shape, lane, place, given, sign)
                if overflow is not None:
                    with body.when(overflow, likely=False):
                        give_up(Status.OVERFLOW)
        with body.when(~stays(body, shape, lanes, place)):
            body.run(shape.remove, map_, row & ROW)
        with body.otherwise():
            tell_changed(body, shape, map_, row & ROW)
        body.set(given, given.at(8 * (shape.keys + shape.values)))
    body.leave(body.load(I64, context, memory_layout.STATUS).eq(0).to(I64))


def _add_value(body: Body, shape: RowLayout, lane: ValueLane, place: Expr, given: Expr, sign: Expr) -> Expr | None:
    """Write the adding to a value column of a row; return whether it overflows, None if it cannot."""
    offset = shape.value(lane.word)
    match lane.held:
        case ColumnStorage.CELL:
            _add_cell(body, offset, place, given, sign.to(F64))
            return None
        case ColumnStorage.BOXED:  # boxes of numbers that have the sign already
            old, more = (body.load(I64, each, offset) for each in (place, given))
            box = body.load(PTR, body.parameter("context"), memory_layout.BOX)
            body.store(I64, place, offset, body.call_at(box, _BOX, BoxOp.ADD.value, old, more, 0))
            return None
    kernel = I128 if lane.held is ColumnStorage.WIDE else I64
    old, more = (body.load(kernel, each, offset) for each in (place, given))
    after, overflow = body.checked("add", old, more, "after")
    with body.when(sign < 0):
        less, is_less = body.checked("sub", old, more, "less")
        body.set(after, less)
        body.set(overflow, is_less)
    body.store(kernel, place, offset, after)
    return overflow


def _add_cell(body: Body, offset: int, place: Expr, given: Expr, sign: Expr) -> None:
    """Write what `cumulus.algebra.float_sums.add_cells` does."""
    total, compensation, size = (body.load(F64, place, offset + 8 * part, "sum") for part in range(3))
    more, rest, more_size = (body.load(F64, given, offset + 8 * part, "more") for part in range(3))
    delta = body.let(more * sign, "delta")
    moved = body.let(total + delta, "moved")
    larger = absolute(total) >= absolute(delta)
    lost = select(larger, (total - moved) + delta, (delta - moved) + total)
    body.store(F64, place, offset, moved)
    body.store(F64, place, offset + 8, (compensation + lost) + rest * sign)
    body.store(F64, place, offset + 16, size + more_size)
    with body.when(~is_finite(moved), likely=False):
        for part, before in enumerate((total, compensation, size)):
            body.store(F64, place, offset + 8 * part, before)
        high, low = far_parts(body, more, rest, more_size)
        body.run(add_far, place.at(offset), high * sign, low * sign)


def _cut(
    shape: RowLayout,
    body: Body,
    context: Local,
    number: Local,
    map_: Local,
    word: Local,
    sign: Local,
    most: Local,
    journalled: Local,
) -> None:
    count = body.let(i64(0), "count")
    with body.counting(1, body.load(I64, map_, row_layout.LAST, "last") + 1, "row") as row:
        place = body.let(address(body, shape, map_, row), "place")
        key = body.load(I64, place.at(word << 3), 0, "key")
        is_there = reduce(or_, _values_at(shape, body, place)).ne(0)
        goes = body.let(is_there & (key <= most), "goes")
        with body.when(goes & sign.ne(word)):
            body.set(goes, body.load(I64, place.at(sign << 3), 0, "sign").ne(NULL_WORD))
        with body.when(goes):
            with body.when(journalled.ne(0), likely=False):
                noted = body.call(note(shape), context, number, place, hint="noted")
                body.leave_if(noted.eq(0), FAILED, likely=False)
            tell_before(body, shape, map_, row)
            body.run(shape.remove, map_, row)
            body.set(count, count + 1)
    with body.when(body.load(I64, map_, row_layout.LIVE).eq(0)):  # who walks over the rows next need not see these
        for offset in (row_layout.LAST, row_layout.FREE):
            body.store(I64, map_, offset, 0)
    body.leave(count)
