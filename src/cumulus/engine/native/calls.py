"""Events that are Python objects: a trigger as a builtin function, lists of rows, lists of events.

Code takes what is *ordinary*: values that are plain and of the columns' types, in relations that are open to it. It
stops at the first event that is not, or that fails, and leaves it as if it had never come. Python knows the rest:
checks, errors, subscriptions. So nothing but the ordinary case is written here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from cumulus.catalog.types import DOUBLE, INTEGER_BITS, Interval, Kind
from cumulus.engine.native.body import Body, define
from cumulus.engine.native.checks import Checks
from cumulus.engine.native.codec import encoder, plain_word
from cumulus.engine.native.dictionary import Dictionary
from cumulus.engine.native.host import CONTEXT, ProgramHost
from cumulus.engine.native.kernel import (
    F64,
    I64,
    NOWHERE,
    PTR,
    Expr,
    Function,
    Local,
    Operand,
    Signature,
    i64,
    select,
)
from cumulus.engine.native.lanes import NAN_BITS, NULL_WORD, Lane, joined
from cumulus.engine.native.layout import JOURNAL_USED, STATUS, TEXTS, EventLane, event_words
from cumulus.engine.native.texts import NUMBER_OF

# What the context knows of Python, as keys of `Context.word`.
READY = "ready"
"""1 where builtins may fire triggers: nobody else is at work, and nobody wants to be told."""
QUIET = "quiet"
"""1 while code fires events that it will leave to Python if anything is reported."""
REPORTED = "reported"
"""How many failures were reported while it was quiet."""
SIZE = "size"
"""How many bytes the text has that was read last."""
NUMBERS = "numbers"
"""The dictionary from names of relations to their numbers."""
OBJECTS: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    **{type_.__name__: type_ for type_ in (int, float, str, list, tuple)},
}
"""Objects that code compares with, by the names of their words."""
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


_WHOLE = Signature("PyLong_AsLongLong", (PTR,), I64)
_OCCURRED = Signature("PyErr_Occurred", (), PTR)
_CLEAR = Signature("PyErr_Clear", ())
_FLOAT = Signature("PyFloat_AsDouble", (PTR,), F64)
_CONVERT = Signature("PyObject_CallOneArg", (PTR, PTR), PTR)
_MEMO = Signature("PyDict_GetItemWithError", (PTR, PTR), PTR)
_UTF8 = Signature("PyUnicode_AsUTF8AndSize", (PTR, PTR), PTR)
_ITEM = Signature("PyList_GetItem", (PTR, I64), PTR)
_DROP = Signature("Py_DecRef", (PTR,))
_TYPE = 8
"""Where an object says what it is."""
_LENGTH = object.__basicsize__
"""Where a tuple says how long it is."""
_VALUES = tuple.__basicsize__
"""Where the first value of a tuple is."""


def take_function(
    host: ProgramHost,
    name: str,
    event: tuple[int, str],
    columns: Sequence[EventLane],
    trigger: Function | None,
    undo: Signature,
    checks: Checks,
) -> Function:
    """Return the function `(context, words of the event)` → DONE or LEFT.

    Parameters
    ----------
    event
        The sign and the relation.
    trigger
        None where there is none, and Python knows what that means.
    undo
        `cumulus.engine.native.journal.undo_function`.
    checks
        What is checked of its rows, if they are kept.
    """
    sign, relation = event
    is_checked = relation in checks.tables
    parameters = [("context", PTR), *((f"w{word}", I64) for word in range(event_words(columns)))]
    with define(name, parameters, I64) as body:
        word = host.context.word
        if trigger is None:
            body.leave(LEFT)
            return body.function
        with body.when(body.load(I64, CONTEXT, word(open_word(relation))).eq(0), likely=False):
            body.leave(LEFT)
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
    host: ProgramHost,
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
        `cumulus.engine.native.fetching.fetch_functions`: what an event needs is asked for at once.
    """
    parameters = [("context", PTR), ("sign", I64), ("values", PTR), ("count", I64)]
    with define(name, parameters, I64, inline=False) as body:
        _, sign, values, count = body.function.parameters
        with body.when(count.ne(len(columns)), likely=False):
            body.leave(LEFT)
        reader = Reader(host, body, values)
        words = [each for place, column in enumerate(columns) for each in reader.words(place, column, relation)]
        for fetch in fetches:
            body.run(fetch, CONTEXT, *words)
        for each, take in takes.items():
            with body.when(sign.eq(each)):
                body.leave(body.call(take, CONTEXT, *words))
        body.leave(LEFT)
    return body.function


def single_function(host: ProgramHost, name: str, relation: str, row: Function) -> Function:
    """Return the function `(context, address of a sign and a row's values, how many)` → DONE or LEFT."""
    word = host.context.word
    with define(name, [("context", PTR), ("args", PTR), ("count", I64)], I64, inline=False) as body:
        _, args, count = body.function.parameters
        ordinary = body.load(I64, CONTEXT, word(READY)).ne(0) & (count > 0)
        with body.when(~ordinary, likely=False):
            body.leave(LEFT)
        sign = Reader(host, body, args).whole(0)
        body.store(I64, CONTEXT, word(QUIET), 1)
        done = body.call(row, CONTEXT, sign, args.at(8), count - 1, hint="done")
        body.store(I64, CONTEXT, word(QUIET), 0)
        with body.when(done.eq(DONE), likely=True):
            body.store(I64, CONTEXT, JOURNAL_USED, 0)
            for counter, step in ((fired_word(relation), i64(1)), (rows_word(relation), sign)):
                body.store(I64, CONTEXT, word(counter), body.load(I64, CONTEXT, word(counter)) + step)
        body.leave(done)
    return body.function


def rows_function(host: ProgramHost, name: str, row: Function) -> Function:
    """Return the function `(context, list of rows, from, to, sign, whether each is a transaction)`.

    It returns the number of the first row that it leaves, `to` if it leaves none.
    """
    parameters = [("context", PTR), ("list", PTR), ("start", I64), ("end", I64), ("sign", I64), ("each", I64)]
    with define(name, parameters, I64) as body:
        _, rows, start, end, sign, each = body.function.parameters
        with body.counting(start, end) as at:
            given = body.call(_ITEM, rows, at, hint="row")
            _take_row(host, body, given, row, sign, at)
            _end_event(body, each)
        body.leave(end)
    return body.function


def changes_function(host: ProgramHost, name: str, rows: Sequence[Function]) -> Function:
    """Return the function `(context, list of events, from, to, whether each is a transaction)`, as `rows_function`."""
    parameters = [("context", PTR), ("list", PTR), ("start", I64), ("end", I64), ("each", I64)]
    with define(name, parameters, I64) as body:
        _, events, start, end, each = body.function.parameters
        with body.counting(start, end) as at:
            event = body.call(_ITEM, events, at, hint="event")
            ordinary = is_a(host, body, event, "tuple")
            with body.when(~ordinary, likely=False):
                body.leave(at)
            with body.when(body.load(I64, event, _LENGTH).ne(3), likely=False):
                body.leave(at)
            sign = Reader(host, body, event.at(_VALUES), at).whole(0)
            table = body.load(PTR, event, _VALUES + 8, "table")
            given = body.load(PTR, event, _VALUES + 16, "row")
            known = body.call(
                _MEMO, body.load(PTR, CONTEXT, host.context.word(NUMBERS), "numbers"), table, hint="known"
            )
            with body.when(known.eq(NOWHERE), likely=False):
                body.run(_CLEAR)  # of an object that cannot be looked up
                body.leave(at)
            number = body.call(_WHOLE, known, hint="number")
            for mine, row in enumerate(rows):
                with body.when(number.eq(mine)):
                    _take_row(host, body, given, row, sign, at)
            _end_event(body, each)
        body.leave(end)
    return body.function


def _take_row(host: ProgramHost, body: Body, given: Expr, row: Function, sign: Expr, at: Expr) -> None:
    """Write the taking of a tuple; what is left leaves the function with `at`."""
    with body.when(~is_a(host, body, given, "tuple"), likely=False):
        body.leave(at)
    done = body.call(row, CONTEXT, sign, given.at(_VALUES), body.load(I64, given, _LENGTH), hint="done")
    with body.when(done.ne(DONE), likely=False):
        body.leave(at)


def _end_event(body: Body, each: Expr) -> None:
    """Write the end of an event: what is a transaction of its own needs no journal any more."""
    with body.when(each.ne(0)):
        body.store(I64, CONTEXT, JOURNAL_USED, 0)


def is_a(host: ProgramHost, body: Body, given: Expr, type_: str) -> Expr:
    """Write whether an object is exactly of a type in `OBJECTS`."""
    known = body.load(PTR, CONTEXT, host.context.word(type_), "known")
    return body.load(PTR, given, _TYPE, "type").eq(known)


class Reader:
    """Writes the reading of Python objects; what is not plain leaves the function.

    Parameters
    ----------
    values
        The address of the first of them.
    left
        What the function returns then.
    """

    def __init__(self, host: ProgramHost, body: Body, values: Expr, left: Operand = LEFT) -> None:
        self._host = host
        self._body = body
        self._values = values
        self._left = left

    def _known(self, key: Any) -> Local:
        return self._body.load(PTR, CONTEXT, self._host.context.word(key), "known")

    def _object(self, place: int) -> Local:
        return self._body.load(PTR, self._values, 8 * place, "object")

    def _leave_unless(self, condition: Expr) -> None:
        with self._body.when(~condition, likely=False):
            self._body.leave(self._left)

    def _is(self, given: Expr, type_: str) -> Expr:
        return is_a(self._host, self._body, given, type_)

    def whole(self, place: int) -> Local:
        """Read an int of 64 bits."""
        given = self._object(place)
        self._leave_unless(self._is(given, "int"))
        return self._long(given)

    def _long(self, given: Expr) -> Local:
        body = self._body
        found = body.call(_WHOLE, given, hint="whole")
        with body.when(found.eq(-1), likely=False), body.when(body.call(_OCCURRED).ne(NOWHERE), likely=False):
            body.run(_CLEAR)
            body.leave(self._left)
        return found

    def words(self, place: int, column: EventLane, relation: str) -> list[Expr]:
        """Read a value of a column; return its words, none if triggers do not use it."""
        lane, body = column.lane, self._body
        given = self._object(place)
        if lane.type.kind is Kind.VARCHAR:
            return self._text_words(given, column)
        found = [body.local(I64, "word") for _ in lane.null_words]
        for word, null in zip(found, lane.null_words, strict=True):
            body.set(word, null)
        is_null = given.eq(self._known("none"))
        if not lane.nullable:
            self._leave_unless(~is_null)
        with body.when(~is_null):
            if lane.is_wide:
                for part, word in enumerate(found):
                    body.set(word, self._converted(given, relation, place, part))
            else:
                body.set(found[0], self._word(given, column, relation, place))
                if lane.nullable and column.is_used:
                    self._leave_unless(found[0].ne(lane.null))
        return [*found] if column.is_used else []

    def _word(self, given: Local, event: EventLane, relation: str, column: int) -> Expr:
        body, kind = self._body, event.lane.type.kind
        if kind in INTEGER_BITS:
            self._leave_unless(self._is(given, "int"))
            found = self._long(given)
            limit = 1 << (INTEGER_BITS[kind] - 1)
            if limit < 1 << 63:
                self._leave_unless((found < limit) & (found >= -limit))
            return found
        if kind is Kind.BOOLEAN:
            is_true = given.eq(self._known("true"))
            self._leave_unless(is_true | given.eq(self._known("false")))
            return is_true.to(I64)
        if kind in (Kind.DOUBLE, Kind.REAL):
            self._leave_unless(self._is(given, "float"))
            number = body.call(_FLOAT, given, hint="float")
            bits = (number + 0.0).bits()
            if kind is Kind.REAL:
                bits = self._rounded(body.let(bits, "bits"))
            return select(number.ne(number), i64(NAN_BITS), bits)
        return self._converted(given, relation, column, 0)

    def _rounded(self, bits: Local) -> Expr:
        """Round the bits of a DOUBLE to those of the nearest REAL, of two the even one; what has no normal one is left.

        Adding a little less than half of the last bit that stays makes the bits behind it run over where they are more.
        """
        cut = 52 - 23
        odd = (bits >> cut) & 1
        made = self._body.let((bits + odd + ((1 << cut - 1) - 1)) & -(1 << cut), "real")
        size = made & ((1 << 63) - 1)
        self._leave_unless(made.eq(0) | ((size >= _FIRST_REAL) & (size < _BEHIND_REALS)))
        return made

    def _text_words(self, given: Local, column: EventLane) -> list[Expr]:
        """Read a str, or None; a str that has no UTF-8 is left."""
        body = self._body
        if column.is_text:
            found = [body.let(i64(0), "text"), body.let(i64(-1), "length")]
        else:
            found = [body.let(i64(NULL_WORD), "number")]
        is_null = given.eq(self._known("none"))
        if not column.lane.nullable:
            self._leave_unless(~is_null)
        with body.when(~is_null):
            self._leave_unless(self._is(given, "str"))
            if column.is_used:
                size = self._host.context.word(SIZE)
                text = body.call(_UTF8, given, CONTEXT.at(size), hint="utf8")
                with body.when(text.eq(NOWHERE), likely=False):
                    body.run(_CLEAR)
                    body.leave(self._left)
                length = body.load(I64, CONTEXT, size, "size")
                if column.is_text:
                    body.set(found[0], text.to(I64))
                    body.set(found[1], length)
                else:
                    texts = body.load(PTR, CONTEXT, TEXTS)
                    body.set(found[0], body.call(NUMBER_OF, texts, text, length))
                    self._leave_unless(found[0] >= 0)
        return [*found] if column.is_used else []

    def _converted(self, given: Local, relation: str, column: int, part: int) -> Expr:
        """Write the conversion to a word by Python, which remembers; where it refuses, the event is left."""
        body = self._body
        type_ = body.load(PTR, given, _TYPE, "type")
        self._leave_unless(type_.eq(self._known(("type", relation, column))))
        found = body.local(I64, "word")
        memo = body.call(_MEMO, self._known(("memo", relation, column, part)), given, hint="memo")
        with body.when(memo.ne(NOWHERE), likely=True):
            body.set(found, self._long(memo))
        with body.otherwise():
            body.run(_CLEAR)
            made = body.call(_CONVERT, self._known(("word", relation, column, part)), given, hint="made")
            with body.when(made.eq(NOWHERE), likely=False):
                body.run(_CLEAR)
                body.leave(self._left)
            body.set(found, self._long(made))
            body.run(_DROP, made)
        return found


_FIRST_REAL, _BEHIND_REALS = (plain_word(2.0**power, DOUBLE) for power in (-126, 128))
"""The bits of the least REAL above 0 that is normal, and of the first number that is none."""

_CLASSES: dict[Kind, type[Any]] = {
    Kind.HUGEINT: int,
    Kind.DECIMAL: Decimal,
    Kind.DATE: dt.date,
    Kind.TIMESTAMP: dt.datetime,
    Kind.INTERVAL: Interval,
}
_REMEMBERED = 1 << 16


class Converter:
    """Values of a lane to one of its words, with a memory that code looks into.

    Parameters
    ----------
    lane, dictionary
        As for `encoder`.
    part
        Which word.
    """

    def __init__(self, lane: Lane, dictionary: Dictionary, part: int) -> None:
        self._part = part
        self.class_ = _CLASSES[lane.type.kind]
        self.memo: dict[Any, int] = {}
        self._encode = encoder(lane, dictionary)
        self._scale, self._end = -lane.type.scale, 10**lane.type.precision

    def __call__(self, value: Any) -> int:
        """Return the word of a value of the class; whatever it raises, the value is not plain."""
        words = self._encode(value)
        if self.class_ is Decimal:
            whole = joined(*words) if len(words) > 1 else words[0]
            if not (value.as_tuple().exponent == self._scale and -self._end < whole < self._end):
                raise ValueError
        found = words[self._part]
        if len(self.memo) >= _REMEMBERED:
            self.memo.clear()
        self.memo[value] = found
        return found


def is_converted(lane: Lane) -> bool:
    """Whether code has Python convert the values of a lane."""
    return lane.type.kind in _CLASSES
