"""Upserts: rows that take the places of those with their primary keys, which the kept rows tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from cumulus.engine.frames.value_words import NAN_BITS
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.intake.key_checks import KeyChecks
from cumulus.engine.native.intake.python_rows import DONE, LEFT
from cumulus.engine.native.intake.streams import FAR, values_at
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.language import FALSE, I64, PTR, Expr, Function, Operand, Signature
from cumulus.engine.native.store.memory_layout import JOURNAL_USED, EventLane, event_parameters, event_words, words_of
from cumulus.engine.native.store.row_layout import address

UPSERTS, UPSERT_ROWS = "upserts_", "upsert_rows_"
"""The names of functions, with the number of a relation behind them."""


def upserted_word(relation: str, sign: int) -> tuple[str, str, int]:
    """Return the key of the word that counts the rows of a relation that upserts have added, or taken away."""
    return ("upserted", relation, sign)


def upsert_function(
    writer: ProgramWriter, name: str, relation: str, takes: Mapping[int, Function], undo: Signature, checks: KeyChecks
) -> Function:
    """Return the function `(context, words of a row)` → DONE or LEFT.

    Parameters
    ----------
    takes
        Sign → what takes an event.
    undo
        `cumulus.engine.native.code.undo_log.undo_function`.
    checks
        Checks the relation, and its primary key.
    """
    table = checks.tables[relation]
    store = table.store
    with define(name, event_parameters(table.columns), I64) as body:
        words = body.function.parameters[1:]
        with body.when(_has_nan(table.columns, words), likely=False):
            body.leave(LEFT)  # a NaN is another one to Python
        row = checks.row_with_key(body, relation, words)
        with body.when(row.eq(0)):
            done = body.call(takes[1], CONTEXT, *words, hint="done")
            _count(writer, body, relation, 1, done)
            body.leave(done)
        place = body.let(address(body, store.shape, writer.record(store), row), "place")
        old = [body.load(I64, place, 8 * word, "old") for word in range(store.shape.keys)]
        differs = reduce(or_, map(Expr.ne, old, words), FALSE)
        body.leave_if(~differs, DONE)
        used = body.load(I64, CONTEXT, JOURNAL_USED, "used")
        body.leave_if(body.call(takes[-1], CONTEXT, *old, hint="gone").ne(DONE), LEFT, likely=False)
        with body.when(body.call(takes[1], CONTEXT, *words, hint="come").ne(DONE), likely=False):
            body.call(undo, CONTEXT, used)
            body.leave(LEFT)
        for sign in (1, -1):
            _count(writer, body, relation, sign, 1)
        body.leave(DONE)
    return body.function


def upserts_function(
    name: str, columns: Sequence[EventLane], take: Function, fetches: tuple[Function, Function]
) -> Function:
    """Return the function `(context, from, to, columns)` → the number of the first row that is left, `to` if none is.

    Parameters
    ----------
    take
        `upsert_function`.
    fetches
        `cumulus.engine.native.intake.streams.fetch_functions`.
    """
    parameters = [("context", PTR), ("from", I64), ("to", I64), ("columns", PTR)]
    with define(name, parameters, I64) as body:
        context, start, end, at_columns = body.function.parameters
        words = range(event_words(columns))
        with body.counting(start, end) as at:
            for far, fetch in zip(FAR, fetches, strict=True):
                body.run(fetch, context, *values_at(body, at_columns, words, at + far))
            done = body.call(take, context, *values_at(body, at_columns, words, at), hint="done")
            body.leave_if(done.ne(DONE), at, likely=False)
        body.leave(end)
    return body.function


def _has_nan(columns: Sequence[EventLane], words: Sequence[Expr]) -> Expr:
    pairs = zip(columns, words_of(columns), strict=True)
    tests = [words[mine.start].eq(NAN_BITS) for column, mine in pairs if column.lane.type.is_float]
    return reduce(or_, tests, FALSE)


def _count(writer: ProgramWriter, body: Body, relation: str, sign: int, more: Operand) -> None:
    word = writer.context.word(upserted_word(relation, sign))
    body.store(I64, CONTEXT, word, body.load(I64, CONTEXT, word) + more)
