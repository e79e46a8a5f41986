"""`:=` statements: a map computed anew, of which only what differs is touched.

The new contents are made beside the map, in the layout of its own rows; then entries that are not in them go, and those
that differ are set. All of it is noted in the journal, like any change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cumulus.engine.analysis.separation import separated
from cumulus.engine.native.code.adders import add_to_scratch, setter_of
from cumulus.engine.native.code.numbers import Env, read_value
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.code.terms import TermEmitter
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import Number, Scalar
from cumulus.engine.native.kernel.language import F64, I64, PTR, Expr, Function, i64
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, ValueLane
from cumulus.m3.program import Statement


def assign_function(writer: ProgramWriter, name: str, statements: Sequence[Statement]) -> Function:
    """Return the function `(context)` that runs the `:=` statements of one map."""
    target = writer.store(statements[0].map)
    writer.begin(name, {})
    with define(name, [("context", PTR)]) as body:
        with body.branch(CONTEXT.eq(CONTEXT)) as start:
            pass
        types = [value.type for value in target.values]
        assert None not in types
        beside = writer.scratch(
            ("assigned", target.name), target.key_names, target.keys, [each for each in types if each is not None], 1
        )
        body.call(beside.shape.clear, writer.record(beside))
        for statement in statements:
            _compute(writer, body, target, beside, replace(statement, term=separated(statement.term, frozenset())))
        _replace(writer, body, target, beside)
        with body.inside(start):
            writer.forget_shared(body)
    return body.function


def _site(writer: ProgramWriter, target: MapLayout, column: int) -> int:
    return writer.sites.of((target.name, writer.program.map(target.name).values[column].name))


def _compute(writer: ProgramWriter, body: Body, target: MapLayout, beside: MapLayout, statement: Statement) -> None:
    """Write the sums of one statement into its column beside the map."""
    column = writer.column(statement.map, statement.column)
    coder = TermEmitter(writer, body, writer.typing.variables(statement.term, {}), _site(writer, target, column))
    lane = beside.values[column]

    def add(bound: Env, numbers: list[Number]) -> None:
        with coder.evaluator.summand(numbers, lane) as number:
            keys: list[Scalar] = [bound[key] for key in statement.keys]
            add_to_scratch(coder.scanner, beside, keys, {column: number})

    coder.run([statement.term], {}, add)


def _replace(writer: ProgramWriter, body: Body, target: MapLayout, beside: MapLayout) -> None:
    """Write the making of what stands beside a map its contents."""
    scanner = TermEmitter(writer, body, {}, _site(writer, target, 0)).scanner
    setter, nothing = setter_of(writer, target), [i64(0)] * target.value_words
    for place, _ in scanner.rows_of(target):
        keys = _keys(body, target, place)
        found = body.call(beside.shape.find, writer.record(beside), *keys, hint="found")
        with body.when(found.eq(0)):
            body.run(setter, CONTEXT, *keys, *nothing)
    for place, _ in scanner.rows_of(beside):
        keys = _keys(body, target, place)
        words = [
            word for column in range(len(target.values)) for word in _words(writer, body, target, beside, column, place)
        ]
        body.run(setter, CONTEXT, *keys, *words)


def _keys(body: Body, store: MapLayout, place: Expr) -> list[Expr]:
    return [body.load(I64, place, 8 * word, "key") for word in range(store.shape.keys)]


def _words(
    writer: ProgramWriter, body: Body, target: MapLayout, beside: MapLayout, column: int, place: Expr
) -> list[Expr]:
    """Write a sum as the words of the map's value column."""
    mine: ValueLane = target.values[column]
    number = read_value(body, beside, column, place)
    if mine.held is ColumnStorage.CELL:
        value = number.value
        size = body.local(F64, "size")
        body.set(size, value)
        with body.when(value < 0.0):
            body.set(size, -value)
        return [value.bits(), i64(0), size.bits()]
    first = beside.shape.value(beside.values[column].word)
    return [body.load(I64, place, first + 8 * word, "word") for word in range(mine.held.words)]
