"""SQL values as words of 64 bits: in rows and events of machine code, and in frames.

Every value of a type is one word, or two: integers and decimals of up to 18 digits as they are, scaled; dates as days
and timestamps, of both kinds, as microseconds from 1970; booleans as 0 and 1; floats as their bits, with one NaN and no
negative zero; texts, intervals and numbers of any length as a number that stands for them somewhere else. NULL has the
least word as its last one, and 0 in the words before. No value of these types has that word there, but BIGINT and
HUGEINT, whose values fill their words: where they may be NULL, one more word repeats the sign. So equal values are
equal words, NULL included, and the words of a value that is there begin with those of the same type NOT NULL.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from cumulus.catalog.types import EXACT, Kind, SqlType
from cumulus.errors import EvaluationError
from cumulus.scalars.python_code import NAN

Words: TypeAlias = tuple[int, ...]
_SIGN, _ALL = 1 << 63, 1 << 64

NULL_WORD = -(1 << 63)
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


def has_sign_word(sql_type: SqlType, *, nullable: bool) -> bool:
    """Return whether the last word of a value repeats its sign, so that there is a word for NULL."""
    return nullable and sql_type.fills_words


def word_count(sql_type: SqlType, *, nullable: bool) -> int:
    """Return how many words a value of a type takes."""
    return 1 + is_wide(sql_type) + has_sign_word(sql_type, nullable=nullable)


def null_words(sql_type: SqlType) -> Words:
    """Return the words of NULL.

    Examples
    --------
    >>> from cumulus.catalog.types import BIGINT, INTEGER
    >>> null_words(INTEGER) == (NULL_WORD,), null_words(BIGINT) == (0, NULL_WORD)
    (True, True)
    """
    return (*(0,) * (word_count(sql_type, nullable=True) - 1), last_null_word(sql_type))


def last_null_word(sql_type: SqlType) -> int:
    """Return the last word of NULL, which no value has there."""
    return NULL_FLOAT if sql_type.is_float else NULL_WORD


def whole_of(words: Sequence[int], sql_type: SqlType) -> int:
    """Return the whole number that the words of a value are, which is not NULL."""
    return joined(words[0], words[1]) if is_wide(sql_type) else words[0]


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


def word_encoder(sql_type: SqlType, *, nullable: bool, finds: bool = False) -> Callable[[Any], Words]:
    """Return the function from values of a type that no number stands for to their words.

    It raises an EvaluationError where a value has none.

    Parameters
    ----------
    finds
        Whether they are looked for: then NULL has none where a column has no NULL.
    """
    is_two, has_sign = is_wide(sql_type), has_sign_word(sql_type, nullable=nullable)
    null, limit = null_words(sql_type), 1 << (127 if is_two else 63)
    least = -limit
    if nullable and not (sql_type.fills_words or sql_type.is_float):  # the last word may not be NULL's
        least = (NULL_WORD + 1) << (64 if is_two else 0)

    def encode(value: Any) -> Words:
        if value is None:
            if finds and not nullable:  # it would have a word more than what is there
                raise EvaluationError(f"a {sql_type} column has no NULL", hint="Look for a value.")
            return null
        word = plain_word(value, sql_type)
        if not least <= word < limit:
            raise EvaluationError(f"{value} does not fit the words of {sql_type} columns", hint=TOO_WIDE)
        words = split(word) if is_two else (word,)
        return (*words, -1 if word < 0 else 0) if has_sign else words

    return encode


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
