"""Kernel code for extrema: MIN or MAX of the keys of a slice, or of the values at which a term is not 0."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from cumulus.algebra.scope import outputs
from cumulus.algebra.terms import ZERO, Extremum, MapExtremum, MapRead, Range, Term, Var
from cumulus.catalog.types import SqlType
from cumulus.engine.analysis.separation import axis_of, without_marks
from cumulus.engine.native.code.loop_sources import LoopSource, read_source
from cumulus.engine.native.code.loops import Scanner, SortedGroup
from cumulus.engine.native.code.numbers import Env
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Number, Scalar, bits_of, kernel_type
from cumulus.engine.native.kernel.language import BOOL, FALSE, I64, TRUE, Expr, Immediate
from cumulus.engine.native.store.memory_layout import MapLayout
from cumulus.engine.native.store.row_layout import LEFT, RIGHT
from cumulus.errors import ValidationError

_AXIS = "axis of an end"


def write_map_end(term: MapExtremum, env: Env, scanner: Scanner) -> Scalar:
    """Write the search for the least or greatest key of a slice."""
    store = scanner.writer.store(term.map)
    keys = tuple(Var(_AXIS) if key is None else key for key in term.keys)
    return _search(
        term.end, _AXIS, LoopSource(store, lambda body, place: _exists(body, store, place)), keys, env, scanner
    )


def _exists(body: Body, store: MapLayout, place: Expr) -> Number:
    """Write whether the entry in a row exists for readers."""
    shape = store.shape
    first, words = 0, store.value_words
    if store.count is not None:
        lane = store.values[store.count]
        first, words = lane.word, lane.held.words
    some: Expr = reduce(or_, [body.load(I64, place, shape.value(word)) for word in range(first, first + words)])
    return Number(body.let(some.ne(0).to(I64), "exists"))


def write_end(
    term: Extremum, env: Env, scanner: Scanner, group: Callable[[Term, tuple[str, ...], Env], LoopSource]
) -> Scalar:
    """Write the search for the least or greatest value at which a term is not 0.

    A single read of a map is searched where it lies. Of any other term the sums by the variable are made first,
    which `group` writes.
    """
    inside = {name: code for name, code in env.items() if name != term.variable}
    inner = without_marks(term.term, inside)
    if inner is ZERO:
        found = scanner.evaluator.types[term.variable].type
        return Scalar(found, _nothing(found), TRUE, 0)
    if term.variable not in outputs(inner):
        raise ValidationError(f"{term.variable} is not bound in {term}", hint="The term of an end binds its variable.")
    keys: tuple[Term, ...] = (Var(term.variable),)
    if isinstance(inner, MapRead) and axis_of(inner, term.variable, inside) is not None:
        return _search(term.end, term.variable, read_source(scanner.writer, inner), inner.keys, inside, scanner)
    source = group(inner, (term.variable,), inside)
    return _search(term.end, term.variable, source, keys, inside, scanner)


def _search(
    end: str, axis: str, source: LoopSource, keys: tuple[Term | Range, ...], env: Env, scanner: Scanner
) -> Scalar:
    """Write the search for the end of `axis` among the keys of a source that are not NULL."""
    body = scanner.body
    place = next(at for at, key in enumerate(keys) if key is Var(axis))
    sql_type = source.store.keys[place].type
    best, null = body.local(kernel_type(sql_type), "best"), body.local(BOOL, "none")
    body.set(best, _nothing(sql_type))
    body.set(null, TRUE)

    def take(here: Scalar) -> None:
        body.set(best, here.value)
        body.set(null, FALSE)

    def visit(bound: Env, numbers: list[Number]) -> None:
        del numbers
        here = bound[axis]
        with body.when(here.is_there):
            sure = Scalar(sql_type, here.value, None, here.bits)
            is_better = body.let(null, "better")
            with body.when(~null):
                found = Scalar(sql_type, best, None, bits_of(sql_type))
                body.set(is_better, scanner.evaluator.compare("<" if end == "MIN" else ">", sure, found))
            with body.when(is_better):
                take(here)

    others = tuple(at for at in range(len(keys)) if at != place)
    order = None if source.store.is_scratch else source.store.order(others, place)
    if order is None:
        scanner.scan(source, keys, env, visit)
    else:
        with scanner.bound(source.store, keys, env) as bound:
            group = scanner.group(source.store, order, bound)
            _walk(LEFT if end == "MIN" else RIGHT, group, order, place, source, take, scanner)
        if source.ahead is not None:
            scanner.scan(LoopSource(source.ahead, source.value), keys, env, visit)
    return Scalar(sql_type, best, null, bits_of(sql_type))


def _walk(
    side: int,
    group: SortedGroup,
    order: int,
    axis: int,
    source: LoopSource,
    take: Callable[[Scalar], None],
    scanner: Scanner,
) -> None:
    """Write the way from an end of a group to the first row that counts: it has a number, a key, and is not changed.

    Rows that do not count are rare at the ends: what has a count of 0 and is there is waiting for its insertion.
    """
    body, store = scanner.body, source.store
    shape, record = store.shape, scanner.writer.record(store)
    start = body.let(group.start, "start")
    row = body.let(start, "row")
    with body.when(row.ne(0)):
        body.set(row, body.call(shape.edge(order), record, start, side))
    with body.loop_while(row.ne(0)):
        place = body.let(scanner.place_of(store, row), "place")
        here = scanner.key_at(store, axis, place)
        there = body.let(source.value(body, place).differs_from_zero, "there")
        if here.null is not None:
            body.set(there, there & ~here.null)
        if source.ahead is not None:
            keys = [body.load(I64, place, 8 * word) for word in range(shape.keys)]
            changed = body.call(source.ahead.shape.find, scanner.writer.record(source.ahead), *keys, hint="changed")
            body.set(there, there & changed.eq(0))
        with body.when(there):
            take(here)
            body.stop()
        body.set(row, body.call(shape.neighbour(order), record, start, row, RIGHT - side))


def _nothing(sql_type: SqlType) -> Expr:
    return Immediate(kernel_type(sql_type), 0)
