"""Arithmetic and casts in the kernel, and calls of everything that is not here.

An integer or decimal is computed in as many bits as its operands can fill, 128 at most; beyond that it fails. What
fails sets the flag of the innermost `attempt`, and its value is nothing.

Floats are cut into numbers that add up exactly as `cumulus.scalars.float_parts` says.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any, Protocol, TypeAlias

from cumulus.catalog.types import BOOLEAN, DOUBLE, HUGEINT, Kind, SqlType
from cumulus.engine.frames.value_words import plain_word
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.lanes import NotNativeError, Scalar, any_null, bits_of, kernel_type
from cumulus.engine.native.kernel.language import (
    BOOL,
    F64,
    FALSE,
    I64,
    I128,
    TRUE,
    Expr,
    Function,
    Immediate,
    Local,
    select,
)
from cumulus.engine.native.kernel.language import Immediate as Literal
from cumulus.engine.native.scalars.patterns import Piece
from cumulus.engine.native.scalars.python_functions import Callee
from cumulus.engine.native.scalars.time_functions import TimeFunctions
from cumulus.scalars.arithmetic import MINUS_UNIT, NAN_UNIT, PLUS_UNIT
from cumulus.scalars.float_parts import LIMIT, PLACES
from cumulus.scalars.user import UserFunction

MOST_BITS = 126
"""A whole number of more bits is computed with a check."""


_OPERATORS: dict[str, Callable[[Expr, Expr], Expr]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}

Fixed: TypeAlias = Sequence[str | None]
"""For each argument of a call its value as text if it is a literal, else None."""


class CallWriter(Protocol):
    """What scalars need of the program that they stand in."""

    def user_function(self, name: str) -> UserFunction | None:
        """Return the user's function of a name, if there is one."""

    def literal(self, body: Body, value: Any, sql_type: SqlType) -> Expr:
        """Write the reading of a text or interval that stands in the program."""

    def bytes_of(self, body: Body, text: Scalar) -> tuple[Expr, Expr]:
        """Write where a text that is not NULL lies; return its address and its length."""

    def numbered(self, body: Body, scalar: Scalar) -> Scalar:
        """Write the finding of the number of a text or interval, if it has none yet."""

    def matcher(self, pieces: tuple[Piece, ...]) -> Function:
        """Return the function that matches a pattern."""

    def call(
        self,
        body: Body,
        callee: Callee,
        args: Sequence[Scalar],
        result: SqlType,
        fixed: Fixed | None = None,
        *,
        is_rare: bool = False,
    ) -> tuple[Scalar, Expr]:
        """Write a call of a Python function; return its value, and whether it failed; `fixed` says what is literal."""


class Arithmetic:
    """Writes arithmetic, casts and calls of Python into one function."""

    def __init__(self, body: Body, writer: CallWriter) -> None:
        self.body = body
        self.writer = writer
        self.times = TimeFunctions(body)
        self.flags: list[Local | None] = [None]
        """For each open attempt the variable that says that it failed; coders may share them."""

    @contextmanager
    def attempt(self) -> Iterator[Callable[[], Local | None]]:
        """Catch failures of what is written inside; afterwards the function given says where, None if nowhere."""
        with self.body.branch(TRUE) as place:
            pass
        found: list[Local | None] = []
        self.flags.append(None)
        yield lambda: found[0]
        found.append(self.flags.pop())
        if found[0] is not None:
            with self.body.inside(place):
                self.body.set(found[0], FALSE)

    def fails(self, condition: Expr) -> None:
        """Write that the attempt fails where a condition holds."""
        flag = self.flags[-1]
        if flag is None:
            flag = self.flags[-1] = self.body.local(BOOL, "failed")
        self.body.set(flag, flag | condition)

    def literal(self, value: Any, sql_type: SqlType) -> Scalar:
        """Return a literal."""
        kernel = kernel_type(sql_type)
        if value is None:
            return Scalar(sql_type, Literal(kernel, 0), TRUE, 0)
        if sql_type.kind in (Kind.VARCHAR, Kind.INTERVAL):
            number = self.writer.literal(self.body, value, sql_type)
            return Scalar(sql_type, number, known=value)
        word = plain_word(value, sql_type)
        if kernel is F64:
            return Scalar(sql_type, Literal(F64, float(value)))
        bits = int(word).bit_length()
        return Scalar(sql_type, Literal(I128 if bits > 63 else kernel, word), None, bits)

    def call_python(
        self, callee: Callee, codes: Sequence[Scalar], result: SqlType, *, strict: bool, fixed: Fixed | None = None
    ) -> Scalar:
        """Write a call of Python code; a strict function is not called with NULL. For `fixed` see `CallWriter.call`."""
        if result.kind is Kind.NULL:
            raise NotNativeError(f"a value of type {result}")
        body = self.body
        if not strict or all(code.null is None for code in codes):
            found, failed = self.writer.call(body, callee, codes, result, fixed)
            self.fails(failed)
            return found
        value, null = body.local(kernel_type(result), "value"), body.local(BOOL, "null")
        body.set(value, 0)
        body.set(null, TRUE)
        with self.unless_null(codes):
            found = self.set_by_python(value, callee, codes, result, fixed)
            body.set(null, FALSE if found.null is None else found.null)
        return Scalar(result, value, null, bits_of(result))

    def set_by_python(
        self,
        target: Local,
        callee: Callee,
        codes: Sequence[Scalar],
        result: SqlType,
        fixed: Fixed | None = None,
        *,
        is_rare: bool = False,
    ) -> Scalar:
        """Write a call of Python code with values that are not NULL, which gives a variable its value; return that."""
        found, failed = self.writer.call(
            self.body, callee, [as_not_null(code) for code in codes], result, fixed, is_rare=is_rare
        )
        self.fails(failed)
        self.body.set(target, found.value)
        return found

    @contextmanager
    def unless_null(self, codes: Sequence[Scalar]) -> Iterator[None]:
        """Write what is inside so that it runs where none of some values is NULL."""
        null = any_null(codes)
        if null is None:
            yield
            return
        with self.body.when(~null):
            yield

    def exact_arithmetic(self, function: str, codes: list[Scalar], result: SqlType) -> Scalar:
        """Write add, sub, mul or neg of integers and decimals."""
        codes = [self.as_integer(code) if code.value.type is BOOL else code for code in codes]
        null = any_null(codes)
        if function == "neg":
            return (
                Scalar(result, -codes[0].value, null, codes[0].bits + 1)
                if codes[0].bits < MOST_BITS
                else (self.exact_arithmetic("sub", [Scalar(codes[0].type, Literal(I128, 0), None, 0), *codes], result))
            )
        if function == "mul":
            bits = codes[0].bits + codes[1].bits
            sides = codes[0].value, codes[1].value
            scale = codes[0].scale + codes[1].scale
        else:
            sides = self.aligned(*codes)
            scale = max(code.scale for code in codes)
            bits = max(code.bits + digit_bits(scale - code.scale) for code in codes) + 1
        found = self.whole(function, *sides, bits, null)
        target = result.scale if result.kind is Kind.DECIMAL else 0
        if scale != target:
            raise NotNativeError(f"{function} of a scale that its type {result} does not have")
        return Scalar(result, found, null, min(bits, 127))

    def whole(self, function: str, left: Expr, right: Expr, bits: int, null: Expr | None = None) -> Expr:
        """Write add, sub or mul of integers whose result has `bits`; it fails beyond 128, unless it is `null`."""
        if bits <= 63:
            if left.type is not right.type:  # a HUGEINT that is a small literal is held in 128 bits all the same
                left, right = left.to(I64), right.to(I64)
            return self.body.let(_OPERATORS[function](left, right), "whole")
        left, right = left.to(I128), right.to(I128)
        if bits <= MOST_BITS:
            return self.body.let(_OPERATORS[function](left, right), "whole")
        found, overflow = self.body.checked(function, left, right, "whole")
        self.fails(overflow if null is None else overflow & ~null)
        return found

    def float_arithmetic(self, function: str, codes: list[Scalar]) -> Scalar:
        """Write add, sub or mul of floats."""
        left, right = (self.as_float(code) for code in codes)
        return Scalar(DOUBLE, self.body.let(_OPERATORS[function](left.value, right.value), "float"), any_null(codes))

    def summed_float(self, function: str, codes: list[Scalar]) -> Scalar | None:
        """Write what a sum of floats adds up (`finite`), counts beside it (`special`), and makes of both (`float_sum`).

        None: another function.
        """
        if function == "float_sum":
            return self._float_sum(codes)
        if function in ("float_whole", "float_fraction", "float_fits"):
            return self._float_part(function, codes)
        if function not in ("finite", "special"):
            return None
        value, null = self.as_float(codes[0]).value, any_null(codes)
        is_finite = (value - value).eq(0.0)
        if function == "finite":
            return Scalar(DOUBLE, self.body.let(select(is_finite, value, Literal(F64, 0.0)), "finite"), null)
        nan, plus, minus, none = (Literal(I128, unit) for unit in (NAN_UNIT, PLUS_UNIT, MINUS_UNIT, 0))
        infinite = select(value.ne(value), nan, select(value > 0.0, plus, minus))
        found = self.body.let(select(is_finite, none, infinite), "special")
        return Scalar(HUGEINT, found, null, MINUS_UNIT.bit_length())

    def _float_part(self, function: str, codes: list[Scalar]) -> Scalar:
        parts, null = FloatParts(self.body, self.as_float(codes[0]).value), any_null(codes)
        if function == "float_fits":
            return Scalar(BOOLEAN, parts.fits(), null)
        found = parts.whole() if function == "float_whole" else parts.fraction()
        return Scalar(HUGEINT, found, null, PLACES)

    def _float_sum(self, codes: list[Scalar]) -> Scalar | None:
        total, odd = codes
        if total.type.is_float and is_exact(odd.type):
            found = self.body.let(total.value, "total")
            with self.body.when(odd.value.ne(0), likely=False), self.unless_null(codes):
                self.set_by_python(found, Callee("float_sum"), codes, DOUBLE)
            return Scalar(DOUBLE, found, any_null(codes))
        return None

    def aligned(self, left: Scalar, right: Scalar) -> tuple[Expr, Expr]:
        """Return two exact numbers as integers of one scale and type."""
        scale = max(left.scale, right.scale)
        sides = [self._scaled(side, scale) for side in (left, right)]
        if any(side.type is I128 for side in sides):
            sides = [side.to(I128) for side in sides]
        return sides[0], sides[1]

    def _scaled(self, scalar: Scalar, scale: int) -> Expr:
        if scalar.scale == scale:
            return scalar.value
        factor = 10 ** (scale - scalar.scale)
        bits = scalar.bits + digit_bits(scale - scalar.scale)
        kind = I128 if bits > 63 or factor.bit_length() > 63 else I64
        return self.whole("mul", scalar.value.to(kind), Literal(kind, factor), bits, scalar.null)

    def as_integer(self, scalar: Scalar) -> Scalar:
        """Return a truth value as 0 or 1, and anything else as it is."""
        return Scalar(HUGEINT, scalar.value.to(I64), scalar.null, 1) if scalar.value.type is BOOL else scalar

    def as_float(self, scalar: Scalar) -> Scalar:
        """Return a number as a float, rounded as Python rounds it."""
        if scalar.value.type is F64:
            return scalar
        value = scalar.value.to(I64)
        unit = float(10 ** min(scalar.scale, 22))
        found = self.body.let(value.to(F64) / unit if scalar.scale else value.to(F64), "float")
        exact: list[Expr] = []
        if scalar.value.type is I128:
            exact.append(value.to(I128).eq(scalar.value))
        if scalar.scale > 22:
            exact.append(FALSE)
        elif scalar.scale and scalar.bits > 53:
            # A quotient is rounded right if both sides are floats exactly.
            exact.append((value <= 1 << 53) & (value >= -(1 << 53)))
        if exact:
            inexact = reduce(operator.or_, [~test for test in exact])
            with self.body.when(inexact, likely=False), self.unless_null([scalar]):
                called, _ = self.writer.call(self.body, Callee("float"), [as_not_null(scalar)], DOUBLE, is_rare=True)
                self.body.set(found, called.value)
        return Scalar(DOUBLE, found, scalar.null)

    def cast(self, scalar: Scalar, target: SqlType) -> Scalar:
        """Write SQL's CAST."""
        if scalar.type == target and (not is_exact(target) or scalar.bits <= bits_of(target)):
            return scalar
        if scalar.type.kind is Kind.NULL:
            return self.literal(None, target)
        if is_exact(scalar.type) and is_exact(target):
            scale = target.scale if target.kind is Kind.DECIMAL else 0
            if scale >= scalar.scale:
                return self._rescaled(scalar, target, scale)
        if target.kind is Kind.DOUBLE and scalar.value.type is F64:
            return Scalar(target, scalar.value, scalar.null)
        if target.kind is Kind.DOUBLE and is_exact(scalar.type):
            return self.as_float(scalar)
        point = self.times.cast(scalar, target)
        if point is not None:
            return point
        if scalar.value.type in (I64, I128) and scalar.bits > bits_of(scalar.type):
            raise NotNativeError(f"a cast of what may be beyond {scalar.type}")
        return self.call_python(Callee("cast", target), [scalar], target, strict=True)

    def _rescaled(self, scalar: Scalar, target: SqlType, scale: int) -> Scalar:
        """Cast an exact number to a type with at least as many digits behind the point."""
        bits = scalar.bits + digit_bits(scale - scalar.scale)
        value = self._scaled(scalar, scale)
        limit = 10**target.precision if target.kind is Kind.DECIMAL else 1 << bits_of(target)
        if bits > bits_of(target) or (target.kind is Kind.DECIMAL and (1 << bits) > limit):
            kind = I128 if limit.bit_length() > 63 else value.type
            wide = value.to(I128) if kind is I128 else value
            least = -limit + 1 if target.kind is Kind.DECIMAL else -limit
            beyond = (wide > limit - 1) | (wide < least)
            self.fails(self.body.let(scalar.there_and(beyond), "beyond"))
        return Scalar(target, self.body.let(value.to(kernel_type(target)), "cast"), scalar.null, bits_of(target))


def as_not_null(scalar: Scalar) -> Scalar:
    return replace(scalar, null=None)


def is_exact(sql_type: SqlType) -> bool:
    return sql_type.is_integer or sql_type.kind is Kind.DECIMAL


def digit_bits(digits: int) -> int:
    return (10**digits).bit_length() if digits else 0


_HALF = PLACES // 2
_UNIT = 2.0**_HALF
"""A word takes half of the digits at a time. All of this is exact."""


class FloatParts:
    """Emits code for the exact whole part and the fraction of a float."""

    def __init__(self, body: Body, value: Expr) -> None:
        self._body = body
        self._is_within = body.let((value < LIMIT) & (value > -LIMIT), "within")
        self._value = body.let(select(self._is_within, value, Immediate(F64, 0.0)), "value")

    def whole(self) -> Local:
        """Write `float_whole`."""
        high, low, _ = self._halves(self._value)
        return self._joined(high, low)

    def fraction(self) -> Local:
        """Write `float_fraction`."""
        high, low, _ = self._halves(self._scaled())
        return self._joined(high, low)

    def fits(self) -> Local:
        """Write `float_fits`."""
        _, _, rest = self._halves(self._scaled())
        return self._body.let(self._is_within & rest.eq(0.0), "fits")

    def _scaled(self) -> Local:
        """Write how many times 2⁻⁸⁰ is in what the whole number leaves."""
        _, _, fraction = self._halves(self._value)
        return self._body.let(fraction * LIMIT, "scaled")

    def _halves(self, value: Expr) -> tuple[Local, Local, Local]:
        """Write the cutting of a float below 2⁸⁰ into the halves of a whole number, and what is behind the point."""
        body = self._body
        high = body.let((value * (1.0 / _UNIT)).to(I64), "high")
        lower = body.let(value - high.to(F64) * _UNIT, "lower")
        low = body.let(lower.to(I64), "low")
        return high, low, body.let(lower - low.to(F64), "left")

    def _joined(self, high: Expr, low: Expr) -> Local:
        return self._body.let((high.to(I128) << _HALF) + low.to(I128), "joined")
