"""Python values to words and back: the layout of `cumulus.engine.native.kernel.lanes`, seen from outside."""

from __future__ import annotations

import ctypes
import datetime as dt
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import EXACT, Kind, SqlType
from cumulus.engine.native.kernel.lanes import NAN_BITS, NULL_WORD, Lane, Words, joined, split
from cumulus.engine.native.values.long_numbers import Boxes
from cumulus.errors import EvaluationError
from cumulus.scalars.python_code import NAN

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary

_TOO_WIDE = "Open the warehouse with engine='interpreter', whose numbers have no bound."

_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_MOMENT_ZERO = dt.datetime(1970, 1, 1)
_UTC_ZERO = _MOMENT_ZERO.replace(tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


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
        case Kind.TIMESTAMPTZ:
            return int((value - _UTC_ZERO) // _MICROSECOND)
        case Kind.REAL | Kind.DOUBLE:
            number = float(value) + 0.0
            return NAN_BITS if number != number else int(struct.unpack("<q", struct.pack("<d", number))[0])
        case _:
            return int(value)


def text_words(data: bytes | None) -> Words:
    """Return where the bytes of a text lie, which must be kept, and how many there are; -1 for NULL.

    Examples
    --------
    >>> text_words(None), text_words(b"abc")[1]
    ((0, -1), 3)
    """
    return (0, -1) if data is None else (ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0, len(data))


def encoder(lane: Lane, dictionary: Dictionary, *, adds: bool = True) -> Callable[[Any], Words]:
    """Return the function from values of a lane to their words; it refuses what they cannot tell.

    Parameters
    ----------
    adds
        Whether a text gets a number that has none; if not, KeyError.
    """
    kind = lane.type.kind
    if kind in (Kind.VARCHAR, Kind.INTERVAL):
        number = dictionary.__getitem__ if adds else dictionary.number_of
        return lambda value: (NULL_WORD,) if value is None else (number(value),)
    if kind is Kind.BIGDECIMAL:
        return lambda value: (NULL_WORD,) if value is None else (dictionary.boxes.put(Decimal(value)),)
    null, null_words, limit = lane.null, lane.null_words, 1 << (127 if lane.is_wide else 63)

    def encode(value: Any) -> Words:
        if value is None:
            return null_words
        word = plain_word(value, lane.type)
        if word == null and lane.nullable:
            raise stands_for_null(value, lane)
        if not -limit <= word < limit:
            raise EvaluationError(f"{value} does not fit the {lane.type} columns of the native engine", hint=_TOO_WIDE)
        return split(word) if lane.is_wide else (word,)

    return encode


def stands_for_null(value: Any, lane: Lane) -> EvaluationError:
    """Return the error that a value is the one that stands for NULL."""
    return EvaluationError(
        f"{value} stands for NULL in a nullable {lane.type} column of the native engine",
        hint="Declare the column NOT NULL, or open the warehouse with engine='interpreter'.",
    )


def _text_of(words: Sequence[int]) -> str | None:
    return None if words[1] < 0 else ctypes.string_at(words[0], words[1]).decode("utf-8", "surrogatepass")


class NumberedValues(Protocol):
    """What numbers stand for: a dictionary, or what was saved of one."""

    boxes: Boxes

    @property
    def values_of(self) -> ByNumber:
        """Number → text or interval."""

    def array(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return the texts with some numbers, NULL for its word, as Arrow's large_string."""


class ByNumber(Protocol):
    """Values by their numbers."""

    def __getitem__(self, number: int, /) -> Any:
        """Return the value with a number."""


def decoder(lane: Lane, dictionary: NumberedValues) -> Callable[[Sequence[int]], Any]:
    """Return the function from the words of a lane to the value."""
    if lane.is_text:
        return _text_of
    decode, null, is_wide, nullable = _number_decoder(lane.type, dictionary), lane.null, lane.is_wide, lane.nullable

    def value(words: Sequence[int]) -> Any:
        number = joined(words[0], words[1]) if is_wide else words[0]
        return None if nullable and number == null else decode(number)

    return value


def column_decoder(lane: Lane, dictionary: NumberedValues) -> Callable[[npt.NDArray[np.int64]], list[Any]]:
    """Return the function from the words of many values of a lane, not of arguments, a row each, to the values."""
    decode, null, nullable = _number_decoder(lane.type, dictionary), lane.null, lane.nullable

    def values(words: npt.NDArray[np.int64]) -> list[Any]:
        numbers = numbers_of(words)
        if nullable:
            return [None if number == null else decode(number) for number in numbers]
        return numbers if decode is int else list(map(decode, numbers))

    return values


def numbers_of(words: npt.NDArray[np.int64]) -> list[int]:
    """Return the whole numbers of one word or two each, a row each."""
    low = words[:, 0]
    if words.shape[1] == 1 or (low >> 63 == words[:, 1]).all():
        plain: list[int] = low.tolist()
        return plain
    return [joined(*pair) for pair in words.tolist()]


def _number_decoder(sql_type: SqlType, dictionary: NumberedValues) -> Callable[[int], Any]:
    """Return the function from the whole number that stands for a value, but NULL, to the value."""
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
        case Kind.VARCHAR | Kind.INTERVAL:
            return lambda number: dictionary.values_of[number]
        case Kind.BIGDECIMAL:
            return lambda number: dictionary.boxes[number]
        case _:
            return int


def float_of(word: int) -> float:
    """Return the float with these bits; the NaN of keys for any NaN."""
    number: float = struct.unpack("<d", struct.pack("<q", word))[0]
    return number if number == number else NAN
