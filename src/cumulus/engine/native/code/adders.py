"""Functions that change one entry of a map: with a note in the journal, and removal of what is gone.

Entries of maps that are made for a moment are added to without a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from cumulus.engine.native.code.loops import Scanner
from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.code.undo_log import note
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import Number, Scalar
from cumulus.engine.native.kernel.language import F64, I64, PTR, Expr, Function, Immediate, Local, absolute, i64, select
from cumulus.engine.native.store.compensated_sums import NEAR, add_far, is_finite, two_sum
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, Reason, Status, ValueLane
from cumulus.engine.native.store.ordered_index import tell_before, tell_changed
from cumulus.engine.native.store.row_layout import CREATED, RowLayout, address
from cumulus.engine.native.values.codec import BoxOp

_NEGLIGIBLE = 1e-12
"""`cumulus.algebra.float_sums.NEGLIGIBLE`."""


def adder_of(writer: ProgramWriter, store: MapLayout, columns: tuple[int, ...], *, is_ahead: bool) -> Function:
    """Return the function that adds to some value columns of an entry, or of what stands beside the map."""
    make = _ahead_adder if is_ahead else _adder
    name = f"{'ahead' if is_ahead else 'add'}_{store.number}_{'_'.join(map(str, columns))}"
    return writer.function(name, lambda _: make(writer, store, columns, name))


def setter_of(writer: ProgramWriter, store: MapLayout) -> Function:
    """Return the function that gives an entry its values."""
    name = f"set_{store.number}"
    return writer.function(name, lambda _: _setter(writer, store, name))


def _adder(writer: ProgramWriter, store: MapLayout, columns: Sequence[int], name: str) -> Function:
    """Return the function `(context, key words…, number for each column…)` that adds to an entry."""
    body, keys, numbers = _begun(store, [store.values[column].held for column in columns], name)
    shape, record = store.shape, writer.record(store)
    row, place = _put(writer, body, store, shape, record, keys)
    if not store.is_scratch:
        _note(writer, body, store, row, place)
    tell_before(body, shape, record, row & ROW)
    for column, number in zip(columns, numbers, strict=True):
        _add(writer, body, store, column, place, number)
    with body.when(~stays(body, store.shape, store.values, place)):
        body.run(shape.remove, record, row & ROW)
    with body.otherwise():
        tell_changed(body, shape, record, row & ROW)
    return body.function


def _ahead_adder(writer: ProgramWriter, store: MapLayout, columns: Sequence[int], name: str) -> Function:
    """Return the function that adds to an entry as it will be, beside the map."""
    beside = writer.ahead(store)
    body, keys, numbers = _begun(store, [store.values[column].held for column in columns], name)
    record, shape = writer.record(beside), beside.shape
    row, place = _put(writer, body, store, shape, record, keys)
    with body.when(row >= CREATED):
        own = body.call(store.shape.find, writer.record(store), *keys, hint="own")
        before = body.let(address(body, store.shape, writer.record(store), own), "before")
        for word in range(store.value_words):
            body.store(I64, place, shape.value(word), body.load(I64, before, shape.value(word)))
        body.store(I64, place, shape.value(store.value_words), 1)
    for column, number in zip(columns, numbers, strict=True):
        _add(writer, body, store, column, place, number)
    if any(value.held is ColumnStorage.CELL for value in store.values):
        with body.when(~stays(body, store.shape, store.values, place)):
            for word in range(store.value_words):
                body.store(I64, place, shape.value(word), 0)
    return body.function


def _setter(writer: ProgramWriter, store: MapLayout, name: str) -> Function:
    """Return the function `(context, key words…, value words…)` that gives an entry its values; none if all are 0."""
    words = [f"v{word}" for word in range(store.value_words)]
    parameters = [
        ("context", PTR),
        *((f"k{word}", I64) for word in range(store.shape.keys)),
        *((v, I64) for v in words),
    ]
    with define(name, parameters, inline=False) as body:
        keys = body.function.parameters[1 : 1 + store.shape.keys]
        values = body.function.parameters[1 + store.shape.keys :]
        shape, record = store.shape, writer.record(store)
        some = _any_word(body, list(values))
        row = body.local(I64, "row")
        with body.when(some):
            body.set(row, body.call(shape.put, record, *keys, hint="put"))
            with body.when(row.eq(0), likely=False):
                writer.no_memory(body, store)
                body.leave()
        with body.otherwise():
            body.set(row, body.call(shape.find, record, *keys, hint="found"))
            body.leave_if(row.eq(0))
        place = body.let(address(body, shape, record, row & ROW), "place")
        differs = body.let(i64(0), "differs")
        for word, value in enumerate(values):
            body.set(differs, differs | (body.load(I64, place, shape.value(word)) ^ value))
        body.leave_if(differs.eq(0))
        _note(writer, body, store, row, place)
        tell_before(body, shape, record, row & ROW)
        for word, value in enumerate(values):
            body.store(I64, place, shape.value(word), value)
        with body.when(~some):
            body.run(shape.remove, record, row & ROW)
        with body.otherwise():
            tell_changed(body, shape, record, row & ROW)
    return body.function


def _begun(store: MapLayout, held: Sequence[ColumnStorage], name: str) -> tuple[Body, list[Local], list[Local]]:
    keys = [(f"k{word}", I64) for word in range(store.shape.keys)]
    numbers = [(f"delta{place}", each.kernel) for place, each in enumerate(held)]
    with define(name, [("context", PTR), *keys, *numbers], inline=False) as body:
        parameters = list(body.function.parameters)
        return body, parameters[1 : 1 + len(keys)], parameters[1 + len(keys) :]


def _put(
    writer: ProgramWriter, body: Body, store: MapLayout, shape: RowLayout, record: Expr, keys: Sequence[Expr]
) -> tuple[Local, Local]:
    """Write the finding or making of a row; return what `put` gave, and where the row stands."""
    row = body.call(shape.put, record, *keys, hint="row")
    with body.when(row.eq(0), likely=False):
        writer.no_memory(body, store)
        body.leave()
    return row, body.let(address(body, shape, record, row & ROW), "place")


def _note(writer: ProgramWriter, body: Body, store: MapLayout, row: Expr, place: Expr) -> None:
    """Write the note of a row in the journal; where that is refused, the row goes if it is new, and nothing changes."""
    noted = body.call(note(store.shape), body.parameter("context"), i64(store.number), place, hint="noted")
    with body.when(noted.eq(0), likely=False):
        with body.when(row >= CREATED):
            body.run(store.shape.remove, writer.record(store), row & ROW)
        body.leave()


def _add(writer: ProgramWriter, body: Body, store: MapLayout, column: int, place: Expr, number: Expr) -> None:
    """Write the adding to one value column of a row."""
    lane = store.values[column]
    offset = store.shape.value(lane.word)
    if lane.held is ColumnStorage.CELL:
        _add_to_cell(writer, body, store, column, place, number)
        return
    before = body.load(lane.held.kernel, place, offset, "before")
    if lane.held is ColumnStorage.BOXED:
        body.store(I64, place, offset, writer.box(body, BoxOp.ADD, before, number))
        return
    after, overflow = body.checked("add", before, number, "after")
    with body.when(overflow, likely=False):
        writer.emit_abort(body, Status.OVERFLOW, store)
    body.store(lane.held.kernel, place, offset, after)


def _add_to_cell(writer: ProgramWriter, body: Body, store: MapLayout, column: int, place: Expr, delta: Expr) -> None:
    """Write Neumaier's step, as in `cumulus.algebra.float_sums.add_to_cell`."""
    lane = store.values[column]
    offset = store.shape.value(lane.word)
    total, lost, size = (body.load(F64, place, offset + 8 * part, "sum") for part in range(3))
    moved = body.let(total + delta, "moved")
    larger = absolute(total) >= absolute(delta)
    rest = select(larger, (total - moved) + delta, (delta - moved) + total)
    body.store(F64, place, offset + 8, lost + rest)
    body.store(F64, place, offset + 16, size + absolute(delta))
    body.store(F64, place, offset, moved)
    with body.when(~is_finite(moved), likely=False):
        for part, before in enumerate((total, lost, size)):
            body.store(F64, place, offset + 8 * part, before)
        with body.when(is_finite(delta), likely=True):
            body.run(add_far, place.at(offset), delta * NEAR, Immediate(F64, 0.0))
        with body.otherwise():  # it is a sum that is far itself
            name = writer.program.map(store.name).values[column].name
            writer.report(body, writer.sites.of((store.name, name)), Reason.NOT_FINITE, i64(0))


def stays(body: Body, shape: RowLayout, values: Sequence[ValueLane], place: Expr) -> Expr:
    """Write whether anything is left of an entry: as `cumulus.engine.interpreter.store.DictMap.is_gone` says."""
    exact = [lane for lane in values if lane.held is not ColumnStorage.CELL]
    cells = [lane for lane in values if lane.held is ColumnStorage.CELL]
    words = [
        body.load(I64, place, shape.value(word))
        for lane in exact
        for word in range(lane.word, lane.word + lane.held.words)
    ]
    found = _any_word(body, words)
    for lane in cells:
        found = found | _is_sum(body, shape, lane, place)
    return body.let(found, "stays")


def _is_sum(body: Body, shape: RowLayout, lane: ValueLane, place: Expr) -> Expr:
    offset = shape.value(lane.word)
    value = body.let(body.load(F64, place, offset) + body.load(F64, place, offset + 8), "value")
    return absolute(value) > body.load(F64, place, offset + 16) * _NEGLIGIBLE


def _any_word(body: Body, words: Sequence[Expr]) -> Expr:
    return body.let(reduce(or_, words).ne(0), "some")


def add_to_scratch(scanner: Scanner, store: MapLayout, keys: Sequence[Scalar], numbers: Mapping[int, Number]) -> None:
    """Write the adding of numbers to value columns of an entry of a map made for the moment."""
    writer, body = scanner.writer, scanner.body
    with scanner.fitting(store, keys) as words:
        row = body.call(store.shape.put, writer.record(store), *words, hint="row")
        with body.when(row.eq(0), likely=False):
            writer.no_memory(body, store)
        with body.otherwise():
            place = body.let(scanner.place_of(store, row & ROW), "place")
            if store.marks:
                body.store(I64, place, store.shape.value(store.value_words), 1)
            for column, number in numbers.items():
                lane = store.values[column]
                _add_at(scanner, place, store.shape.value(lane.word), lane.held, number)


def _add_at(scanner: Scanner, place: Expr, offset: int, held: ColumnStorage, number: Number) -> None:
    body, kernel = scanner.body, held.kernel
    before = body.load(kernel, place, offset, "before")
    if kernel is F64:
        total, rest = two_sum(body, before, number.value)
        body.store(F64, place, offset, total)
        body.store(F64, place, offset + 8, body.load(F64, place, offset + 8) + rest)
        return
    if held is ColumnStorage.BOXED:
        body.store(I64, place, offset, scanner.writer.box(body, BoxOp.ADD, before, number.value))
        return
    after, overflow = body.checked("add", before, number.value, "after")
    with body.when(overflow, likely=False):
        scanner.evaluator.report(Reason.OVERFLOW)
    with body.otherwise():
        body.store(kernel, place, offset, after)
