"""Events that are Python objects: a trigger as a builtin function, lists of rows, lists of events.

Code takes what is *ordinary*: values that are plain and of the columns' types, in relations that are open to it. It
stops at the first event that is not, or that fails, and leaves it as if it had never come. Python knows the rest:
checks, errors, subscriptions. So nothing but the ordinary case is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.intake.key_checks import KeyChecks
from cumulus.engine.native.intake.python_values import CLEAR, LOOK_UP, WHOLE, ValueReader, is_a
from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, Expr, Function, Signature, i64
from cumulus.engine.native.store.memory_layout import JOURNAL_USED, STATUS, EventLane, event_parameters

# What the context knows of Python, as keys of `Context.word`.
READY = "ready"
"""1 where builtins may fire triggers: nobody else is at work, and nobody wants to be told."""
QUIET = "quiet"
"""Not 0 while code fires events that it will leave to Python if anything is reported: 1, or the thread in a builtin."""
REPORTED = "reported"
"""How many failures were reported while it was quiet."""
NUMBERS = "numbers"
"""The dictionary from names of relations to their numbers."""
SINGLE, ROWS, CHANGES = "single_", "rows_", "changes"
"""The names of functions, with the number of a relation behind two of them."""
DONE, LEFT = 1, 0
"""What functions that take an event return: it is applied; it is left to Python."""


def open_word(relation: str) -> tuple[str, str]:
    """Return the key of the word that is 1 where code may take events of a relation."""
    return ("open", relation)


def fired_word(relation: str) -> tuple[str, str]:
    """Return the key of the word that counts the events of a relation that builtins have fired."""
    return ("fired", relation)


def rows_word(relation: str) -> tuple[str, str]:
    """Return the key of the word that counts the rows that builtins have added to a relation."""
    return ("rows", relation)


_THREAD = Signature("PyThread_get_thread_ident", (), I64)
_ITEM = Signature("PyList_GetItem", (PTR, I64), PTR)
_LENGTH = object.__basicsize__
"""Where a tuple says how long it is."""
_VALUES = tuple.__basicsize__
"""Where the first value of a tuple is."""


def take_function(
    writer: ProgramWriter,
    name: str,
    event: tuple[int, str],
    columns: Sequence[EventLane],
    trigger: Function | None,
    undo: Signature,
    checks: KeyChecks,
) -> Function:
    """Return the function `(context, words of the event)` → DONE or LEFT.

    Parameters
    ----------
    event
        The sign and the relation.
    trigger
        None where there is none, and Python knows what that means.
    undo
        `cumulus.engine.native.code.undo_log.undo_function`.
    checks
        What is checked of its rows, if they are kept.
    """
    sign, relation = event
    is_checked = relation in checks.tables
    with define(name, event_parameters(columns), I64) as body:
        word = writer.context.word
        if trigger is None:
            body.leave(LEFT)
            return body.function
        body.leave_if(body.load(I64, CONTEXT, word(open_word(relation))).eq(0), LEFT, likely=False)
        words = body.function.parameters[1:]

        def take_back() -> None:
            body.call(undo, CONTEXT, used)
            body.leave(LEFT)

        if is_checked:
            checks.before(body, sign, relation, words, lambda: body.leave(LEFT))
        used = body.load(I64, CONTEXT, JOURNAL_USED, "used")
        status = body.call(trigger, CONTEXT, *words, hint="status")
        bad = status | body.load(I64, CONTEXT, word(REPORTED))
        with body.when(bad.ne(0), likely=False):
            body.store(I64, CONTEXT, STATUS, 0)
            body.store(I64, CONTEXT, word(REPORTED), 0)
            take_back()
        if is_checked:
            checks.after(body, sign, relation, words, take_back)
        body.leave(DONE)
    return body.function


def nothing_function(name: str) -> Function:
    """Return a `take_function` for a relation without any trigger: no map depends on it, and no column is used."""
    with define(name, [("context", PTR)], I64) as body:
        body.leave(DONE)
    return body.function


def row_function(
    writer: ProgramWriter,
    name: str,
    relation: str,
    columns: Sequence[EventLane],
    takes: Mapping[int, Function],
    fetches: Sequence[Function],
) -> Function:
    """Return the function `(context, sign, address of a row's values, how many)` → DONE or LEFT.

    Parameters
    ----------
    takes
        Sign → what takes an event.
    fetches
        `cumulus.engine.native.intake.streams.fetch_functions`: what an event needs is asked for at once.
    """
    parameters = [("context", PTR), ("sign", I64), ("values", PTR), ("count", I64)]
    with define(name, parameters, I64, inline=False) as body:
        _, sign, values, count = body.function.parameters
        body.leave_if(count.ne(len(columns)), LEFT, likely=False)
        reader = ValueReader(writer, body, values, LEFT)
        words = [each for place, column in enumerate(columns) for each in reader.words(place, column, relation)]
        for fetch in fetches:
            body.run(fetch, CONTEXT, *words)
        for each, take in takes.items():
            with body.when(sign.eq(each)):
                body.leave(body.call(take, CONTEXT, *words))
        body.leave(LEFT)
    return body.function


def single_function(writer: ProgramWriter, name: str, relation: str, row: Function) -> Function:
    """Return the function `(context, address of a sign and a row's values, how many)` → DONE or LEFT."""
    word = writer.context.word
    with define(name, [("context", PTR), ("args", PTR), ("count", I64)], I64, inline=False) as body:
        _, args, count = body.function.parameters
        # Another thread may be in here, too, and have called into Python.
        is_free = body.load(I64, CONTEXT, word(READY)).ne(0) & body.load(I64, CONTEXT, word(QUIET)).eq(0)
        ordinary = is_free & (count > 0)
        body.leave_if(~ordinary, LEFT, likely=False)
        sign = ValueReader(writer, body, args, LEFT).whole(0)
        body.store(I64, CONTEXT, word(QUIET), body.call(_THREAD, hint="thread"))
        done = body.call(row, CONTEXT, sign, args.at(8), count - 1, hint="done")
        body.store(I64, CONTEXT, word(QUIET), 0)
        with body.when(done.eq(DONE), likely=True):
            body.store(I64, CONTEXT, JOURNAL_USED, 0)
            for counter, step in ((fired_word(relation), i64(1)), (rows_word(relation), sign)):
                body.store(I64, CONTEXT, word(counter), body.load(I64, CONTEXT, word(counter)) + step)
        body.leave(done)
    return body.function


def rows_function(writer: ProgramWriter, name: str, row: Function) -> Function:
    """Return the function `(context, list of rows, from, to, sign, whether each is a transaction)`.

    It returns the number of the first row that it leaves, `to` if it leaves none.
    """
    parameters = [("context", PTR), ("list", PTR), ("start", I64), ("end", I64), ("sign", I64), ("each", I64)]
    with define(name, parameters, I64) as body:
        _, rows, start, end, sign, each = body.function.parameters
        with body.counting(start, end) as at:
            given = body.call(_ITEM, rows, at, hint="row")
            _take_row(writer, body, given, row, sign, at)
            _end_event(body, each)
        body.leave(end)
    return body.function


def changes_function(writer: ProgramWriter, name: str, rows: Sequence[Function]) -> Function:
    """Return the function `(context, list of events, from, to, whether each is a transaction)`, as `rows_function`."""
    parameters = [("context", PTR), ("list", PTR), ("start", I64), ("end", I64), ("each", I64)]
    with define(name, parameters, I64) as body:
        _, events, start, end, each = body.function.parameters
        with body.counting(start, end) as at:
            event = body.call(_ITEM, events, at, hint="event")
            ordinary = is_a(writer, body, event, "tuple")
            body.leave_if(~ordinary, at, likely=False)
            body.leave_if(body.load(I64, event, _LENGTH).ne(3), at, likely=False)
            sign = ValueReader(writer, body, event.at(_VALUES), at).whole(0)
            table = body.load(PTR, event, _VALUES + 8, "table")
            given = body.load(PTR, event, _VALUES + 16, "row")
            known = body.call(
                LOOK_UP, body.load(PTR, CONTEXT, writer.context.word(NUMBERS), "numbers"), table, hint="known"
            )
            with body.when(known.eq(NOWHERE), likely=False):
                body.run(CLEAR)  # of an object that cannot be looked up
                body.leave(at)
            number = body.call(WHOLE, known, hint="number")
            for mine, row in enumerate(rows):
                with body.when(number.eq(mine)):
                    _take_row(writer, body, given, row, sign, at)
            _end_event(body, each)
        body.leave(end)
    return body.function


def _take_row(writer: ProgramWriter, body: Body, given: Expr, row: Function, sign: Expr, at: Expr) -> None:
    """Write the taking of a tuple; what is left leaves the function with `at`."""
    body.leave_if(~is_a(writer, body, given, "tuple"), at, likely=False)
    done = body.call(row, CONTEXT, sign, given.at(_VALUES), body.load(I64, given, _LENGTH), hint="done")
    body.leave_if(done.ne(DONE), at, likely=False)


def _end_event(body: Body, each: Expr) -> None:
    """Write the end of an event: what is a transaction of its own needs no journal any more."""
    with body.when(each.ne(0)):
        body.store(I64, CONTEXT, JOURNAL_USED, 0)
