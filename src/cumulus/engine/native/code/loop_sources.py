"""What a factor loops over or looks up in: a map, what a firing has changed in it, kept rows, or those of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from cumulus.algebra.terms import MapRead
from cumulus.engine.native.code.numbers import read_value
from cumulus.engine.native.code.program_writer import ProgramWriter
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Number
from cumulus.engine.native.kernel.language import I64, Expr, Local, i64
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.engine.native.store.row_layout import address
from cumulus.errors import ValidationError


@dataclass(frozen=True, slots=True)
class LoopSource:
    """A map that a factor loops over or looks up in.

    Parameters
    ----------
    store
        Where it is kept.
    value
        Writes the reading of the number of the row at a place.
    ahead
        The store of what the firing has changed, where the map is read as it will be.
    is_batch
        Whether its rows are those of the batch that the trigger is fired with.
    """

    store: MapLayout
    value: Callable[[Body, Expr], Number]
    ahead: MapLayout | None = None
    is_batch: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """A read of a map that stands for a whole row.

    Parameters
    ----------
    place
        The variable that is set to where the row is.
    columns
        The value columns that are read there.
    """

    place: Local
    columns: tuple[int, ...]


def column_source(
    store: MapLayout, column: int = 0, ahead: MapLayout | None = None, *, is_batch: bool = False
) -> LoopSource:
    """Return a source whose numbers are those of a value column."""
    return LoopSource(store, lambda body, place: read_value(body, store, column, place), ahead, is_batch)


def read_source(writer: ProgramWriter, read: MapRead) -> LoopSource:
    """Return what a read of a map loops over or looks up in."""
    store = writer.store(read.map)
    if read.state == "CHANGED":
        return LoopSource(writer.ahead(store), lambda body, place: _differs(writer, store, body, place))
    column = writer.column(read.map, read.column)
    return column_source(store, column, writer.ahead(store) if read.state == "NEW" else None)


def visit_source(writer: ProgramWriter, read: MapRead, visit: Visit) -> LoopSource:
    """Return the source of a read that stands for a row; its number is 0 where all that is read there is 0.

    Keys of such a row are not looked at: the row may have been removed, and then a word of them is anything.
    """
    store = writer.store(read.map)
    lanes = [store.values[column] for column in visit.columns]
    words = [word for lane in lanes for word in range(lane.word, lane.word + lane.held.words)]

    def note(body: Body, place: Expr) -> Number:
        body.set(visit.place, place)
        some = reduce(or_, [body.load(I64, place, store.shape.value(word)) for word in words])
        return Number(body.let(some, "some"), bits=63)

    return LoopSource(store, note, writer.ahead(store) if read.state == "NEW" else None)


def relation_source(writer: ProgramWriter, name: str, *, is_batch: bool) -> LoopSource:
    """Return what an atom of a relation, or of its net change, loops over or looks up in."""
    if name in writer.batch:
        return column_source(writer.batch_store(name), is_batch=True)
    if not is_batch and name in writer.kept:
        return column_source(writer.store(writer.kept[name]))
    raise ValidationError(
        f"a statement reads the relation {name}",
        hint="Statements read maps; only ON BATCH triggers see the net change of their own relation.",
    )


def _differs(writer: ProgramWriter, store: MapLayout, body: Body, place: Expr) -> Number:
    """Write whether an entry that the firing has written differs from what it was before."""
    shape, record = store.shape, writer.record(store)
    words = [body.load(I64, place, 8 * word) for word in range(shape.keys)]
    before = address(body, shape, record, body.call(shape.find, record, *words, hint="before"))
    differs = body.let(i64(0), "differs")
    # Where there was none, row 0 stands in, whose values are 0.
    for word in range(store.value_words):
        offset = shape.value(word)
        body.set(differs, differs | (body.load(I64, place, offset) ^ body.load(I64, before, offset)))
    return Number(body.let(differs.ne(0).to(I64), "changed"))
