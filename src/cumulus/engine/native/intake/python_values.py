"""Values of Python to words: read by machine code where that is quick, else converted by Python.

Machine code reads a value of the column's own type in its plain form, whole numbers for DECIMAL, DOUBLE and REAL,
floats without a fraction for integers, dates, and datetimes without a time zone or in UTC. Other numbers and intervals
are looked up among those that came before. Everything else that `cumulus.catalog.types.coerce` takes is converted by a
call of it: numpy's numbers, a text for a date. What it refuses is left to who knows the words of the error.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from cumulus.catalog.types import DOUBLE, EXACT, INTEGER_BITS, Interval, Kind, SqlType, coerce
from cumulus.engine.frames.value_words import NAN_BITS, NULL_WORD, Words, plain_word, split
from cumulus.engine.native.code.program_writer import CONTEXT, ProgramWriter
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import Lane, sign_of
from cumulus.engine.native.kernel.language import (
    F64,
    FALSE,
    I64,
    NOWHERE,
    PTR,
    TRUE,
    Expr,
    Local,
    Operand,
    Signature,
    i64,
    select,
)
from cumulus.engine.native.store.memory_layout import TEXTS, EventLane
from cumulus.engine.native.store.text_table import number_of_text
from cumulus.engine.native.values.codec import encoder
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.python_times import day_of, has_zone, is_readable, micros_of, zone_of

SIZE = "size"
"""How many bytes the text has that was read last."""
OBJECTS: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "utc": dt.UTC,
    **{type_.__name__: type_ for type_ in (int, float, str, list, tuple, dt.date, dt.datetime, Exception)},
}
"""Objects that code compares with, by the names of their words."""

WHOLE = Signature("PyLong_AsLongLong", (PTR,), I64)
CLEAR = Signature("PyErr_Clear", ())
LOOK_UP = Signature("PyDict_GetItemWithError", (PTR, PTR), PTR)
OCCURRED = Signature("PyErr_Occurred", (), PTR)
_MATCHES = Signature("PyErr_ExceptionMatches", (PTR,), I64)
_FLOAT = Signature("PyFloat_AsDouble", (PTR,), F64)
_ROUNDED = Signature("PyLong_AsDouble", (PTR,), F64)
_CONVERT = Signature("PyObject_CallOneArg", (PTR, PTR), PTR)
_UTF8 = Signature("PyUnicode_AsUTF8AndSize", (PTR, PTR), PTR)
_DROP = Signature("Py_DecRef", (PTR,))
_TYPE = 8
"""Where an object says what it is."""


def type_of(body: Body, given: Expr) -> Local:
    """Write the reading of an object's type."""
    return body.load(PTR, given, _TYPE, "type")


def is_a(writer: ProgramWriter, body: Body, given: Expr, type_: str) -> Expr:
    """Write whether an object is exactly of a type in `OBJECTS`."""
    known = body.load(PTR, CONTEXT, writer.context.word(type_), "known")
    return type_of(body, given).eq(known)


class ValueReader:
    """Writes the reading of Python objects; what cannot be read leaves the function.

    Parameters
    ----------
    values
        The address of the first of them.
    left
        What the function returns then.
    """

    def __init__(self, writer: ProgramWriter, body: Body, values: Expr, left: Operand) -> None:
        self._writer = writer
        self._body = body
        self._values = values
        self._left = left

    def _known(self, key: Any) -> Local:
        return self._body.load(PTR, CONTEXT, self._writer.context.word(key), "known")

    def _object(self, place: int) -> Local:
        return self._body.load(PTR, self._values, 8 * place, "object")

    def _leave_unless(self, condition: Expr) -> None:
        self._body.leave_if(~condition, self._left, likely=False)

    def _is(self, given: Expr, type_: str) -> Expr:
        return is_a(self._writer, self._body, given, type_)

    def whole(self, place: int) -> Local:
        """Read an int of 64 bits."""
        given = self._object(place)
        self._leave_unless(self._is(given, "int"))
        return self._long(given)

    def _long(self, given: Expr) -> Local:
        return self._converted(WHOLE, given, -1, "whole")

    def _converted(self, function: Signature, given: Expr, error: Operand, hint: str) -> Local:
        """Write a conversion by Python, which gives `error` where it raises something: that leaves."""
        body = self._body
        found = body.call(function, given, hint=hint)
        with body.when(found.eq(error), likely=False), body.when(body.call(OCCURRED).ne(NOWHERE), likely=False):
            body.run(CLEAR)
            body.leave(self._left)
        return found

    def words(self, place: int, column: EventLane, relation: str) -> list[Expr]:
        """Read a value of a column; return its words, none if triggers do not use it."""
        lane, body = column.lane, self._body
        given = self._object(place)
        if lane.type.kind is Kind.VARCHAR:
            return self._text_words(given, column)
        found = [body.local(I64, "word") for _ in range(lane.words)]
        for word, null in zip(found, lane.null_words[-lane.words :], strict=True):
            body.set(word, null)
        is_null = given.eq(self._known("none"))
        if not lane.nullable:
            self._leave_unless(~is_null)
        with body.when(~is_null):
            if lane.is_wide:
                for part, word in enumerate(found[:2]):
                    self._convert(word, given, column, (relation, place, part))
            else:
                self._read(found[0], given, column, (relation, place, 0))
            if lane.has_sign:
                body.set(found[-1], sign_of(found[-2]))
        return [*found] if column.is_used else []

    # --- numbers ----------------------------------------------------------------------------------------------------

    def _read(self, target: Local, given: Local, event: EventLane, place: tuple[str, int, int]) -> None:
        """Read the word of a value that has one: in a form that code knows, or by converting it."""
        body, sql_type = self._body, event.lane.type
        forms: dict[str, Callable[[Expr], Expr]] = {}
        if sql_type.kind in INTEGER_BITS:
            limit = 1 << (INTEGER_BITS[sql_type.kind] - 1)
            forms = {
                "int": lambda number: self._within(self._long(number), limit),
                "float": lambda number: self._within(self._long_of_float(number), limit),
            }
        elif sql_type.is_float:
            forms = {
                "float": lambda number: self._float_word(body.call(_FLOAT, number, hint="float"), sql_type),
                "int": lambda number: self._float_word(self._float_of_long(number), sql_type),
            }
        elif sql_type.kind is Kind.DECIMAL:
            forms = {"int": lambda number: self._units(number, sql_type)}
        elif sql_type.kind is Kind.BOOLEAN:
            is_true = given.eq(self._known("true"))
            with body.when(is_true | given.eq(self._known("false")), likely=True):
                body.set(target, is_true.to(I64))
            with body.otherwise():
                self._convert(target, given, event, place)
            return
        elif sql_type.is_temporal and is_readable():
            self._read_time(target, given, event, place)
            return
        self._by_type(target, given, list(forms.items()), lambda: self._convert(target, given, event, place))

    def _read_time(self, target: Local, given: Local, event: EventLane, place: tuple[str, int, int]) -> None:
        """Read a date, or a datetime that needs no conversion to UTC."""
        body, kind = self._body, event.lane.type.kind
        is_plain = body.let(FALSE, "plain")
        with body.when(self._is(given, "date" if kind is Kind.DATE else "datetime"), likely=True):
            body.set(is_plain, TRUE)
            if kind is not Kind.DATE:
                with body.when(has_zone(body, given)):
                    body.set(is_plain, FALSE if kind is Kind.TIMESTAMP else zone_of(body, given).eq(self._known("utc")))
        with body.when(is_plain, likely=True):
            body.set(target, (day_of if kind is Kind.DATE else micros_of)(body, given))
        with body.otherwise():
            self._convert(target, given, event, place)

    def _by_type(
        self, target: Local, given: Local, forms: list[tuple[str, Callable[[Expr], Expr]]], other: Callable[[], None]
    ) -> None:
        """Write the reading of an object by its type, the first form being the likely one."""
        if not forms:
            other()
            return
        (name, read), *more = forms
        with self._body.when(self._is(given, name)):
            self._body.set(target, read(given))
        with self._body.otherwise():
            self._by_type(target, given, more, other)

    def _within(self, number: Local, limit: int) -> Expr:
        """Leave unless an integer is below a limit and not below its negative."""
        if limit < 1 << 63:
            self._leave_unless((number < limit) & (number >= -limit))
        return number

    def _long_of_float(self, given: Expr) -> Local:
        """Read a float that is an integer; another one leaves."""
        body = self._body
        number = body.call(_FLOAT, given, hint="float")
        self._leave_unless((number < 2.0**63) & (number >= -(2.0**63)))
        found = body.let(number.to(I64), "whole")
        self._leave_unless(found.to(F64).eq(number))
        return found

    def _float_of_long(self, given: Expr) -> Local:
        """Read an int as the nearest float; one that is too large leaves."""
        return self._converted(_ROUNDED, given, -1.0, "float")

    def _units(self, given: Expr, sql_type: SqlType) -> Expr:
        """Read an int as units of a DECIMAL's last digit; one with too many digits leaves."""
        limit: int = 10 ** (sql_type.precision - sql_type.scale)
        number = self._long(given)
        self._leave_unless((number < limit) & (number > -limit))
        return number * i64(10**sql_type.scale)

    def _float_word(self, number: Local, sql_type: SqlType) -> Expr:
        bits = (number + 0.0).bits()
        if sql_type.kind is Kind.REAL:
            bits = self._rounded(self._body.let(bits, "bits"))
        return select(number.ne(number), i64(NAN_BITS), bits)

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

    def _convert(self, target: Local, given: Local, event: EventLane, place: tuple[str, int, int]) -> None:
        """Write the conversion to a word by Python, which remembers some; where it refuses, the event is left."""
        body = self._body
        memo = body.let(NOWHERE, "memo")
        for number in range(len(memo_types(event.lane.type))):
            with body.when(type_of(body, given).eq(self._known(("type", *place, number)))):
                body.set(memo, self._known(("memo", *place, number)))
        known = body.let(NOWHERE, "remembered")
        with body.when(memo.ne(NOWHERE)):
            body.set(known, body.call(LOOK_UP, memo, given, hint="found"))
        with body.when(known.ne(NOWHERE), likely=True):
            body.set(target, self._long(known))
        with body.otherwise():
            body.run(CLEAR)  # of an object that cannot be looked up
            made = body.call(_CONVERT, self._known(("word", *place)), given, hint="made")
            with body.when(made.eq(NOWHERE), likely=False):
                # Ctrl-C is not the value's: it goes on to who has called. What is returned has 32 bits.
                with body.when((body.call(_MATCHES, self._known("Exception")) & 1).ne(0)):
                    body.run(CLEAR)
                body.leave(self._left)
            body.set(target, self._long(made))
            body.run(_DROP, made)

    # --- texts ------------------------------------------------------------------------------------------------------

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
                size = self._writer.context.word(SIZE)
                text = body.call(_UTF8, given, CONTEXT.at(size), hint="utf8")
                with body.when(text.eq(NOWHERE), likely=False):
                    body.run(CLEAR)
                    body.leave(self._left)
                length = body.load(I64, CONTEXT, size, "size")
                if column.is_text:
                    body.set(found[0], text.to(I64))
                    body.set(found[1], length)
                else:
                    texts = body.load(PTR, CONTEXT, TEXTS)
                    body.set(found[0], body.call(number_of_text, texts, text, length))
                    self._leave_unless(found[0] >= 0)
        return [*found] if column.is_used else []


_FIRST_REAL, _BEHIND_REALS = (plain_word(2.0**power, DOUBLE) for power in (-126, 128))
"""The bits of the least REAL above 0 that is normal, and of the first number that is none."""

_CLASSES: dict[Kind, type[Any]] = {
    Kind.HUGEINT: int,
    Kind.DECIMAL: Decimal,
    Kind.DATE: dt.date,
    Kind.TIMESTAMP: dt.datetime,
    Kind.TIMESTAMPTZ: dt.datetime,
    Kind.INTERVAL: Interval,
}
_REMEMBERED = 1 << 16


def memo_types(sql_type: SqlType) -> tuple[type[Any], ...]:
    """Return the exact types of values that are remembered with their words; each has a memo of its own.

    A float may be equal to a decimal that is another DECIMAL, or none: 0.1 is taken for what its digits say. Times that
    need Python are not remembered: in one zone 2:30 is equal to 2:30 an hour later, where a clock is turned back.
    """
    if sql_type.is_temporal:
        return ()
    own = _CLASSES.get(sql_type.kind)
    types = (own, *((Decimal, int, float) if sql_type.is_numeric else ()))
    return tuple(dict.fromkeys(each for each in types if each is not None))


class Converter:
    """Values of a lane to one of its words, the `part`-th, with memos that code looks into."""

    def __init__(self, lane: Lane, dictionary: Dictionary, part: int) -> None:
        self.memos: dict[type[Any], dict[Any, int]] = {type_: {} for type_ in memo_types(lane.type)}
        self._type, self._part = lane.type, part
        self._encode = encoder(lane, dictionary)
        self._plain = _CLASSES.get(lane.type.kind)
        self._end = 10**lane.type.precision

    def __call__(self, value: Any) -> int:
        """Return the word of a value; whatever it raises, the value is left."""
        found = self._words(value)[self._part]
        memo = self.memos.get(type(value))
        if memo is not None:
            if len(memo) >= _REMEMBERED:
                memo.clear()
            memo[value] = found
        return found

    def _words(self, value: Any) -> Words:
        if type(value) is Decimal and self._plain is Decimal:
            return self._decimal_words(value)
        if type(value) is not self._plain or self._type.is_temporal:  # which may have a zone, or need one
            value = coerce(value, self._type)
            if value is None:
                raise TypeError
        return self._encode(value)

    def _decimal_words(self, value: Decimal) -> Words:
        """Return the words of a decimal in any form, which costs a third of `coerce`."""
        if value and value.adjusted() > self._type.precision:  # it may have a million digits
            raise ValueError
        units = value.scaleb(self._type.scale, EXACT)
        whole = int(units)
        if whole != units or not -self._end < whole < self._end:
            raise ValueError
        return split(whole) if self._type.precision > 18 else (whole,)

    def forget(self) -> None:
        """Forget all words: they may stand for something else now."""
        for memo in self.memos.values():
            memo.clear()


def is_converted(lane: Lane) -> bool:
    """Whether code has Python convert values of a lane."""
    return lane.type.kind is not Kind.VARCHAR
