"""SQL values as words of 64 bits: in rows and events of machine code, and in frames.

Every value of a type is one word, or two: integers and decimals of up to 18 digits as they are, scaled; dates as days
and timestamps, of both kinds, as microseconds from 1970; booleans as 0 and 1; floats as their bits, with one NaN and no
negative zero; texts, intervals and numbers of any length as a number that stands for them somewhere else. NULL is the
least word, which none of these values has but -2**63 of a BIGINT and -2**127 of a HUGEINT: these two are refused where
NULL is possible. So equal values are equal words, NULL included.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from cumulus.catalog.types import EXACT, Kind, SqlType
from cumulus.errors import EvaluationError
from cumulus.scalars.python_code import NAN

Words: TypeAlias = tuple[int, ...]
_SIGN, _ALL = 1 << 63, 1 << 64

NULL_WORD = -(1 << 63)
NULL_WIDE = -(1 << 127)
NULL_FLOAT = 0x7FF8_0000_DEAD_BEEF
"""The bits of a NaN that nobody computes."""
NAN_BITS = 0x7FF8_0000_0000_0000
TOO_WIDE = "Open the warehouse with engine='interpreter', whose numbers have no bound."

_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_MOMENT_ZERO = dt.datetime(1970, 1, 1)
_UTC_ZERO = _MOMENT_ZERO.replace(tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_FLOAT, _WORD = struct.Struct("<d"), struct.Struct("<q")


def is_wide(sql_type: SqlType) -> bool:
    """Return whether a value of a type takes two words."""
    return sql_type.kind is Kind.HUGEINT or (sql_type.kind is Kind.DECIMAL and sql_type.precision > 18)


def null_of(sql_type: SqlType) -> int:
    """Return what stands for NULL, as one integer."""
    return NULL_FLOAT if sql_type.is_float else NULL_WIDE if is_wide(sql_type) else NULL_WORD


def split(value: int) -> Words:
    """Return the low and the high word of a wide integer, both with their sign."""
    low = value % _ALL
    return (low - _ALL if low >= _SIGN else low), value >> 64


def joined(low: int, high: int) -> int:
    """Return the wide integer of two words."""
    return (high << 64) + low % _ALL


def plain_word(value: Any, sql_type: SqlType) -> int:
    """Return a value that is not NULL and that no number stands for as a whole number; floats as their bits.

    Examples
    --------
    >>> from cumulus.catalog.types import DATE, decimal
    >>> plain_word(Decimal("1.50"), decimal(5, 2)), plain_word(dt.date(1970, 1, 3), DATE)
    (150, 2)
    """
    match sql_type.kind:
        case Kind.DECIMAL:
            # A DECIMAL that was computed may be an int.
            return int(Decimal(value).scaleb(sql_type.scale, EXACT))
        case Kind.DATE:
            return int(value.toordinal()) - _DAY_ZERO
        case Kind.TIMESTAMP:
            return int((value - _MOMENT_ZERO) // _MICROSECOND)
        case Kind.TIMESTAMPTZ:
            return int((value - _UTC_ZERO) // _MICROSECOND)
        case Kind.REAL | Kind.DOUBLE:
            number = float(value) + 0.0
            return NAN_BITS if number != number else int(_WORD.unpack(_FLOAT.pack(number))[0])
        case _:
            return int(value)


def word_encoder(sql_type: SqlType, *, nullable: bool) -> Callable[[Any], Words]:
    """Return the function from values of a type that no number stands for to their words.

    It raises an EvaluationError where a value has none.
    """
    is_two, null = is_wide(sql_type), null_of(sql_type)
    null_words, limit = split(null) if is_two else (null,), 1 << (127 if is_two else 63)

    def encode(value: Any) -> Words:
        if value is None:
            return null_words
        word = plain_word(value, sql_type)
        if word == null and nullable:
            raise stands_for_null(value, sql_type)
        if not -limit <= word < limit:
            raise EvaluationError(f"{value} does not fit the words of {sql_type} columns", hint=TOO_WIDE)
        return split(word) if is_two else (word,)

    return encode


def stands_for_null(value: Any, sql_type: SqlType) -> EvaluationError:
    """Return the error that a value is the one that stands for NULL."""
    return EvaluationError(
        f"{value} stands for NULL in the words of a nullable {sql_type} column",
        hint="Declare the column NOT NULL, or open the warehouse with engine='interpreter'.",
    )


def word_decoder(sql_type: SqlType) -> Callable[[int], Any]:
    """Return the function from the whole number that is a value, but NULL, to the value."""
    match sql_type.kind:
        case Kind.DECIMAL:
            return lambda number: Decimal(number).scaleb(-sql_type.scale, EXACT)
        case Kind.DATE:
            return lambda number: dt.date.fromordinal(number + _DAY_ZERO)
        case Kind.TIMESTAMP:
            return lambda number: _MOMENT_ZERO + number * _MICROSECOND
        case Kind.TIMESTAMPTZ:
            return lambda number: _UTC_ZERO + number * _MICROSECOND
        case Kind.REAL | Kind.DOUBLE:
            return float_of
        case Kind.BOOLEAN:
            return bool
        case _:
            return int


def float_of(word: int) -> float:
    """Return the float with these bits; the NaN of keys for any NaN."""
    number: float = _FLOAT.unpack(_WORD.pack(word))[0]
    return number if number == number else NAN
