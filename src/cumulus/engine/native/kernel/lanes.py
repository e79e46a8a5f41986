"""How SQL values look in the kernel: as words in rows and events, and as scalars and numbers in code.

What the words of a value are is said in `cumulus.engine.frames.value_words`; texts and intervals are the number that
stands for them in a `cumulus.engine.native.values.dictionary.Dictionary`.

A text that code only looks at needs no number: a column of an event may come as two words, where it lies and how many
bytes it has (`Scalar.length`). Nor does an interval that code looks at, which then is its parts (`Scalar.span`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from cumulus.catalog.types import INTEGER_BITS, Interval, Kind, SqlType
from cumulus.engine.frames.value_words import (
    NAN_BITS,
    NULL_FLOAT,
    NULL_WORD,
    Words,
    has_sign_word,
    is_wide,
    last_null_word,
    null_words,
    word_count,
)
from cumulus.engine.native.kernel.body import Body
from cumulus.engine.native.kernel.language import BOOL, F64, I64, I128, TRUE, Expr, Immediate, Type, i64, select


class NotNativeError(Exception):
    """A part of a program that only the interpreter can run; the message says why, `maps` what it is about."""

    def __init__(self, why: str, maps: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.maps = maps


@contextmanager
def about(*maps: str) -> Iterator[None]:
    """Say which maps cannot be native if what is inside cannot."""
    try:
        yield
    except NotNativeError as problem:
        raise NotNativeError(problem.why, problem.maps or maps) from None


@dataclass(frozen=True, slots=True)
class Lane:
    """The layout of the values of a column.

    Parameters
    ----------
    type
        SQL's.
    nullable
        Whether NULL is possible.
    is_text
        Of an argument: whether a text is told by its address and its length, below 0 for NULL.
    """

    type: SqlType
    nullable: bool
    is_text: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether a value that is there takes two words."""
        return is_wide(self.type)

    @property
    def has_sign(self) -> bool:
        """Whether the last word repeats the sign of the value, or is NULL's."""
        return has_sign_word(self.type, nullable=self.nullable)

    @property
    def null_words(self) -> Words:
        """What stands for NULL."""
        return null_words(self.type)

    @property
    def last_null_word(self) -> int:
        """The last word of NULL, which no value has there."""
        return last_null_word(self.type)

    @property
    def words(self) -> int:
        """How many words a value takes."""
        return 2 if self.is_text else word_count(self.type, nullable=self.nullable)

    @property
    def is_ordered(self) -> bool:
        """Whether words are in the order of their values; those of texts and intervals are numbers of something."""
        return self.type.kind not in (Kind.VARCHAR, Kind.INTERVAL)


def lane_of(sql_type: SqlType | None, nullable: bool) -> Lane:
    """Return the lane for a column, argument or result; NotNativeError if its type is not known."""
    if sql_type is None:
        raise NotNativeError("a column without a declared type")
    if sql_type.kind is Kind.NULL:
        raise NotNativeError(f"a column of type {sql_type}")
    return Lane(sql_type, nullable)


def kernel_type(sql_type: SqlType) -> Type:
    """Return the type of the kernel variable for a value."""
    match sql_type.kind:
        case Kind.HUGEINT | Kind.DECIMAL:
            return I128 if is_wide(sql_type) else I64
        case Kind.REAL | Kind.DOUBLE:
            return F64
        case Kind.BOOLEAN:
            return BOOL
        case _:
            return I64


def bits_of(sql_type: SqlType) -> int:
    """Return b such that every exact number of a type, scaled, is between -2**b and 2**b."""
    if sql_type.kind is Kind.DECIMAL:
        return math.ceil(sql_type.precision * math.log2(10))
    if sql_type.is_integer:
        return INTEGER_BITS[sql_type.kind] - 1
    return 1 if sql_type.kind is Kind.BOOLEAN else 63


class Span(NamedTuple):
    """An interval in parts, of which no months and less than 2**63 microseconds in all if it is `between` two times."""

    months: Expr
    days: Expr
    micros: Expr
    between: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    """A SQL value in code.

    Parameters
    ----------
    type
        SQL's.
    value
        BOOL, F64, or an integer, wide or not; anything where the value is NULL.
    null
        Whether it is NULL; None if it never is.
    bits
        Of an exact number: as in `bits_of`. A computed integer may be larger than its SQL type allows.
    length
        Of a text without a number: how many bytes there are at the address that `value` is.
    known
        Of a text or an interval that stands in the program: itself.
    span
        Of an interval without a number: its parts; `value` is anything.
    """

    type: SqlType
    value: Expr
    null: Expr | None = None
    bits: int = 63
    length: Expr | None = None
    known: str | Interval | None = None
    span: Span | None = None

    @property
    def scale(self) -> int:
        """Digits behind the point."""
        return self.type.scale if self.type.kind is Kind.DECIMAL else 0

    @property
    def is_there(self) -> Expr:
        """Whether it is not NULL."""
        return TRUE if self.null is None else ~self.null

    def there_and(self, condition: Expr) -> Expr:
        """Return whether a condition holds, and it is not NULL."""
        return condition if self.null is None else condition & ~self.null


def any_null(codes: Iterable[Scalar]) -> Expr | None:
    """Return where any of some values is NULL; None if none ever is."""
    nulls = [code.null for code in codes if code.null is not None]
    return reduce(or_, nulls) if nulls else None


@dataclass(frozen=True, slots=True)
class Number:
    """A number of value context: an F64, a whole number of 10**-scale between -2**bits and 2**bits, or a box's."""

    value: Expr
    scale: int = 0
    bits: int = 1
    is_boxed: bool = False
    is_sum: bool = False
    """Of a float: whether it was added up, so that it may have grown beyond its range; who reads the entry is told."""

    @property
    def is_float(self) -> bool:
        """Whether it is a float."""
        return self.value.type is F64

    @property
    def differs_from_zero(self) -> Expr:
        """Whether it is not 0."""
        return self.value.ne(0.0 if self.is_float else 0)

    @property
    def is_unit(self) -> bool:
        """Whether it is -1, 0 or 1, for all that is known."""
        return not (self.is_float or self.is_boxed or self.scale) and self.bits <= 1


def from_words(body: Body, lane: Lane, words: Sequence[Expr]) -> Scalar:
    """Write the reading of a value from its words."""
    kernel = kernel_type(lane.type)
    if kernel is I128:
        value = body.let((words[1].to(I128) << 64) | (words[0].to(I128) & ((1 << 64) - 1)), "wide")
    elif kernel is F64:
        value = body.let(words[0].bits(), "float")
    else:
        value = body.let(words[0].ne(0), "flag") if kernel is BOOL else body.let(words[0], "word")
    null = body.let(words[-1].eq(lane.last_null_word), "null") if lane.nullable else None
    return Scalar(lane.type, value, null, bits_of(lane.type))


def to_words(body: Body, lane: Lane, scalar: Scalar) -> list[Expr]:
    """Write the words of a value whose kernel type is the lane's already; it may be NULL only if the lane's may.

    A text must have its number: see `cumulus.engine.native.code.program_writer.ProgramWriter.numbered`.
    """
    value = scalar.value
    if lane.has_sign or value.type is I128:
        if scalar.null is not None:
            value = select(scalar.null, Immediate(value.type, 0), value)
        value = body.let(value, "whole")
        words: list[Expr] = [value]
        if lane.is_wide:
            words = [body.let(value.to(I64), "low"), body.let((value >> 64).to(I64), "high")]
        if lane.has_sign:
            words.append(sign_of(words[-1]))
        if scalar.null is not None:
            words[-1] = select(scalar.null, i64(NULL_WORD), words[-1])
        return [*words[:-1], body.let(words[-1], "last")]
    null = NULL_WORD
    if value.type is F64:
        # Adding 0.0 makes the negative zero positive; a NaN differs from itself.
        value, null = select(value.ne(value), i64(NAN_BITS), (value + 0.0).bits()), NULL_FLOAT
    elif value.type is BOOL:
        value = value.to(I64)
    return [body.let(value if scalar.null is None else select(scalar.null, i64(null), value), "word")]


def sign_of(word: Expr) -> Expr:
    """Return -1 for a word below 0, else 0; `>>` shifts zeros in."""
    return i64(0) - (word >> 63)


def in_words_of(body: Body, lane: Lane, words: Sequence[Expr], own: Lane) -> list[Expr]:
    """Write the words of a value that is there, of the lane `own`, as those of another one of the same width."""
    count = 1 + lane.is_wide
    value = [*words[:count]]
    if lane.has_sign:
        value.append(words[count] if own.has_sign else body.let(sign_of(value[-1]), "sign"))
    return value
