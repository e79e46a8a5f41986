"""Python values to words and back: the layout of `cumulus.engine.native.lanes`, seen from outside."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from cumulus.algebra.scalar_code import NAN
from cumulus.catalog.types import EXACT, Kind, SqlType
from cumulus.engine.native.lanes import NAN_BITS, NULL_WORD, Lane
from cumulus.errors import EvaluationError

Words: TypeAlias = tuple[int, ...]

_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_MOMENT_ZERO = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_SIGN, _ALL = 1 << 63, 1 << 64


class Dictionary(dict[Any, int]):
    """Numbers for texts and intervals: the same for equal ones, from 0 on, for ever.

    Examples
    --------
    >>> numbers = Dictionary()
    >>> numbers["a"], numbers["b"], numbers["a"], numbers.values_of[1]
    (0, 1, 0, 'b')
    """

    def __init__(self) -> None:
        super().__init__()
        self.values_of: list[Any] = []

    def __missing__(self, value: Any) -> int:
        number = len(self.values_of)
        self.values_of.append(value)
        self[value] = number
        return number


def plain_word(value: Any, sql_type: SqlType) -> int:
    """Return a value that is not NULL and needs no dictionary as a whole number; floats as their bits.

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
        case Kind.REAL | Kind.DOUBLE:
            number = float(value) + 0.0
            return NAN_BITS if number != number else int(struct.unpack("<q", struct.pack("<d", number))[0])
        case _:
            return int(value)


def encoder(lane: Lane, dictionary: Dictionary) -> Callable[[Any], Words]:
    """Return the function from values of a lane to their words; it refuses the values that NULL's words stand for."""
    kind = lane.type.kind
    if kind in (Kind.VARCHAR, Kind.INTERVAL):
        return lambda value: (NULL_WORD,) if value is None else (dictionary[value],)
    null = lane.null

    def encode(value: Any) -> Words:
        if value is None:
            return split(null) if lane.is_wide else (null,)
        word = plain_word(value, lane.type)
        if word == null and lane.nullable:
            raise EvaluationError(
                f"{value} stands for NULL in a nullable {lane.type} column of the native engine",
                hint="Declare the column NOT NULL, or open the warehouse with engine='interpreter'.",
            )
        return split(word) if lane.is_wide else (word,)

    return encode


def decoder(lane: Lane, dictionary: Dictionary) -> Callable[[Sequence[int]], Any]:
    """Return the function from the words of a lane to the value."""
    kind, scale = lane.type.kind, lane.type.scale
    values = dictionary.values_of

    def whole(words: Sequence[int]) -> int:
        return joined(words[0], words[1]) if lane.is_wide else words[0]

    def decode(words: Sequence[int]) -> Any:
        word = whole(words)
        match kind:
            case Kind.DECIMAL:
                return Decimal(word).scaleb(-scale, EXACT)
            case Kind.DATE:
                return dt.date.fromordinal(word + _DAY_ZERO)
            case Kind.TIMESTAMP:
                return _MOMENT_ZERO + word * _MICROSECOND
            case Kind.REAL | Kind.DOUBLE:
                return float_of(word)
            case Kind.BOOLEAN:
                return bool(word)
            case Kind.VARCHAR | Kind.INTERVAL:
                return values[word]
            case _:
                return word

    if not lane.nullable:
        return decode
    null = lane.null
    return lambda words: None if whole(words) == null else decode(words)


def float_of(word: int) -> float:
    """Return the float with these bits; the NaN of keys for any NaN."""
    number: float = struct.unpack("<d", struct.pack("<q", word))[0]
    return number if number == number else NAN


def split(value: int) -> Words:
    """Return the low and the high word of a wide integer, both with their sign."""
    low = value % _ALL
    return (low - _ALL if low >= _SIGN else low), value >> 64


def joined(low: int, high: int) -> int:
    """Return the wide integer of two words."""
    return (high << 64) + low % _ALL
