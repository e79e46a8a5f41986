"""Sums in maps that are made for a moment: adding to an entry, without a note in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cumulus.engine.native.code.loops import Scanner
from cumulus.engine.native.kernel.lanes import Number, Scalar
from cumulus.engine.native.kernel.language import F64, I64, Expr
from cumulus.engine.native.store.compensated_sums import two_sum
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, Reason
from cumulus.engine.native.values.long_numbers import BoxOp


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
