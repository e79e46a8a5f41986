"""A trigger as a builtin function of Python: a sign and the values of a row, without ctypes in between.

The function fires the trigger itself where everything is ordinary: the engine is at rest, and the values are plain and
of the columns' types. In every other case it hands its arguments to a Python function, the *slow way*, which knows the
rest: checks, errors, open transactions, subscriptions. So nothing but the ordinary case is written here.
"""

from __future__ import annotations

import ctypes
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from cumulus.catalog.types import INTEGER_BITS, Interval, Kind
from cumulus.engine.native.body import Body, define
from cumulus.engine.native.codec import Dictionary, encoder
from cumulus.engine.native.host import ProgramHost
from cumulus.engine.native.kernel import F64, I64, NOWHERE, PTR, Expr, Function, Local, Signature, i64, select
from cumulus.engine.native.lanes import NAN_BITS, Lane
from cumulus.engine.native.layout import JOURNAL_USED

# What the context knows of Python, as keys of `Context.word`.
READY = "ready"
"""1 where the builtin may fire the trigger itself."""
REPORTED = "reported"
"""How many failures have been reported; a firing that adds to them is not ordinary any more."""
FIRED = "fired"
"""How many events builtins have fired since the engine looked."""
OBJECTS: dict[str, Any] = {"none": None, "true": True, "false": False, "int": int, "float": float, "str": str}

_STRING = Signature("PyBytes_AsString", (PTR,), PTR)
_WHOLE = Signature("PyLong_AsLongLong", (PTR,), I64)
_OCCURRED = Signature("PyErr_Occurred", (), PTR)
_CLEAR = Signature("PyErr_Clear", ())
_FLOAT = Signature("PyFloat_AsDouble", (PTR,), F64)
_CALL = Signature("PyObject_Vectorcall", (PTR, PTR, I64, PTR), PTR)
_CONVERT = Signature("PyObject_CallOneArg", (PTR, PTR), PTR)
_KEEP = Signature("Py_IncRef", (PTR,))
_DROP = Signature("Py_DecRef", (PTR,))
_TYPE = 8
"""Where an object says what it is."""
_DONE, _SLOW = 1, 0


def builtin_functions(
    host: ProgramHost, number: int, relation: str, lanes: Sequence[Lane], triggers: Mapping[int, Function]
) -> tuple[Function, Function]:
    """Return the fast way into a relation, and the builtin that tries it first.

    Parameters
    ----------
    number
        Of the relation; it names the functions `fast_N` and `call_N`.
    triggers
        Sign → the trigger's function.
    """
    fast = _fast(host, number, relation, lanes, triggers)
    with define(f"call_{number}", [("self", PTR), ("args", PTR), ("count", I64)], PTR, inline=False) as body:
        self, args, count = body.function.parameters
        context = body.load(PTR, body.call(_STRING, self), 0, "context")
        with body.when(body.call(fast, context, args, count, hint="done").eq(_DONE), likely=True):
            nothing = body.load(PTR, context, host.context.word("none"), "nothing")
            body.run(_KEEP, nothing)
            body.leave(nothing)
        slow = body.load(PTR, context, host.context.word(("slow", relation)), "slow")
        body.leave(body.call(_CALL, slow, args, count, NOWHERE, hint="result"))
    return fast, body.function


def _fast(
    host: ProgramHost, number: int, relation: str, lanes: Sequence[Lane], triggers: Mapping[int, Function]
) -> Function:
    word = host.context.word
    with define(f"fast_{number}", [("context", PTR), ("args", PTR), ("count", I64)], I64, inline=False) as body:
        context, args, count = body.function.parameters
        ordinary = body.load(I64, context, word(READY)).ne(0) & count.eq(1 + len(lanes))
        with body.when(~ordinary, likely=False):
            body.leave(_SLOW)
        reader = _Reader(host, body, context, args)
        sign = reader.whole(0)
        with body.when(sign.ne(1) & sign.ne(-1), likely=False):
            body.leave(_SLOW)
        words = [each for place, lane in enumerate(lanes) for each in reader.words(1 + place, lane, relation)]
        reported = body.load(I64, context, word(REPORTED), "reported")
        status = body.local(I64, "status")
        body.set(status, 0)
        for each, trigger in triggers.items():
            with body.when(sign.eq(each)):
                body.set(status, body.call(trigger, context, *words))
        bad = status.ne(0) | body.load(I64, context, word(REPORTED)).ne(reported)
        with body.when(bad, likely=False):
            # The slow way takes it back by the journal, fires it again, and says what is wrong.
            body.leave(_SLOW)
        body.store(I64, context, JOURNAL_USED, 0)
        body.store(I64, context, word(FIRED), body.load(I64, context, word(FIRED)) + 1)
        rows = word(("rows", relation))
        body.store(I64, context, rows, body.load(I64, context, rows) + sign)
        body.leave(_DONE)
    return body.function


class _Reader:
    """Writes the reading of Python objects; what is not plain leaves the function for the slow way."""

    def __init__(self, host: ProgramHost, body: Body, context: Expr, args: Expr) -> None:
        self._host = host
        self._body = body
        self._context = context
        self._args = args

    def _known(self, key: Any) -> Local:
        return self._body.load(PTR, self._context, self._host.context.word(key), "known")

    def _object(self, place: int) -> Local:
        return self._body.load(PTR, self._args, 8 * place, "object")

    def _slow_unless(self, condition: Expr) -> None:
        with self._body.when(~condition, likely=False):
            self._body.leave(_SLOW)

    def _is(self, given: Expr, type_: str) -> Expr:
        return self._body.load(PTR, given, _TYPE, "type").eq(self._known(type_))

    def whole(self, place: int) -> Local:
        """Read an int of 64 bits."""
        given = self._object(place)
        self._slow_unless(self._is(given, "int"))
        return self._long(given)

    def _long(self, given: Expr) -> Local:
        body = self._body
        found = body.call(_WHOLE, given, hint="whole")
        with body.when(found.eq(-1), likely=False), body.when(body.call(_OCCURRED).ne(NOWHERE), likely=False):
            body.run(_CLEAR)
            body.leave(_SLOW)
        return found

    def words(self, place: int, lane: Lane, relation: str) -> list[Expr]:
        """Read a value of a column as its words."""
        if lane.is_wide:
            self._slow_unless(self._context.eq(NOWHERE))
            return [self._body.let(self._context.to(I64))] * 2
        body = self._body
        given = self._object(place)
        null = lane.null
        found = body.local(I64, "word")
        body.set(found, null)
        is_null = given.eq(self._known("none"))
        if not lane.nullable:
            self._slow_unless(~is_null)
        with body.when(~is_null):
            body.set(found, self._word(given, lane, relation, place - 1))
            if lane.nullable:
                self._slow_unless(found.ne(null))
        return [found]

    def _word(self, given: Local, lane: Lane, relation: str, column: int) -> Expr:
        body, kind = self._body, lane.type.kind
        if kind in INTEGER_BITS:
            self._slow_unless(self._is(given, "int"))
            found = self._long(given)
            limit = 1 << (INTEGER_BITS[kind] - 1)
            if limit < 1 << 63:
                self._slow_unless((found < limit) & (found >= -limit))
            return found
        if lane.type.kind is Kind.BOOLEAN:
            is_true = given.eq(self._known("true"))
            self._slow_unless(is_true | given.eq(self._known("false")))
            return is_true.to(I64)
        if lane.type.kind is Kind.DOUBLE:
            self._slow_unless(self._is(given, "float"))
            number = body.call(_FLOAT, given, hint="float")
            return select(number.ne(number), i64(NAN_BITS), (number + 0.0).bits())
        # Everything else is made a word by a Python function; where that refuses, so does the slow way.
        made = body.call(_CONVERT, self._known(("word", relation, column)), given, hint="made")
        with body.when(made.eq(NOWHERE), likely=False):
            body.run(_CLEAR)
            body.leave(_SLOW)
        found = self._long(made)
        body.run(_DROP, made)
        return found


_CLASSES: dict[Kind, type[Any]] = {
    Kind.DECIMAL: Decimal,
    Kind.REAL: float,
    Kind.VARCHAR: str,
    Kind.DATE: dt.date,
    Kind.TIMESTAMP: dt.datetime,
    Kind.INTERVAL: Interval,
}


def word_function(lane: Lane, dictionary: Dictionary) -> Callable[[Any], int]:
    """Return the function from plain values of a lane of one word to the word; it refuses all that are not plain."""
    encode, class_ = encoder(lane, dictionary), _CLASSES.get(lane.type.kind)
    scale, end = -lane.type.scale, 10**lane.type.precision

    def word(value: Any) -> int:
        if type(value) is not class_:
            raise TypeError
        (found,) = encode(value)
        if class_ is Decimal and not (value.as_tuple().exponent == scale and -end < found < end):
            raise ValueError
        return found

    return word


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_FASTCALL = 0x80


def builtin(address: int, name: str, context: int) -> Callable[..., None]:
    """Return machine code as a builtin function, whose `self` is the address of a context.

    The code and the context must live as long as the function does.
    """
    make = ctypes.pythonapi.PyCMethod_New
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    method = _Method(name.encode(), address, _FASTCALL, b"Fire a trigger: a sign, and the values of a row.")
    _ALIVE.append(method)
    found: Callable[..., None] = make(ctypes.addressof(method), context.to_bytes(8, "little"), None, None)
    return found


_ALIVE: list[_Method] = []
"""A builtin refers to its definition for ever."""
