"""Python values to words and back: the layout of `cumulus.engine.native.kernel.lanes`, seen from outside.

Numbers of any length are held by Python, and a word is the number of the box that one is in. Box 0 is the number 0, so
a word is 0 where the number is. A box never changes; what is not needed any more is found by looking through the maps,
now and then, when no transaction is open.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import EXACT, Kind, SqlType
from cumulus.engine.frames.value_words import NULL_WORD, Words, joined, word_decoder, word_encoder
from cumulus.engine.native.kernel.lanes import Lane

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary


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
        if not adds:
            return dictionary.words_known
        number = dictionary.__getitem__
        return lambda value: (NULL_WORD,) if value is None else (number(value),)
    if kind is Kind.BIGDECIMAL:
        return lambda value: (NULL_WORD,) if value is None else (dictionary.boxes.put(Decimal(value)),)
    return word_encoder(lane.type, nullable=lane.nullable, finds=not adds)


def _text_of(words: Sequence[int]) -> str | None:
    return None if words[1] < 0 else ctypes.string_at(words[0], words[1]).decode("utf-8", "surrogatepass")


class NumberedValues(Protocol):
    """What numbers stand for: a dictionary, or what was saved of one."""

    boxes: BigIntegers

    @property
    def values_of(self) -> DictionaryCodec:
        """Number → text or interval."""

    def array(self, numbers: npt.NDArray[np.int64]) -> pa.Array:
        """Return the texts with some numbers, NULL for its word, as Arrow's large_string."""


class DictionaryCodec(Protocol):
    """Dictionary encoding: codes of values, and values of codes."""

    def __getitem__(self, number: int, /) -> Any:
        """Return the value with a number."""


def decoder(lane: Lane, dictionary: NumberedValues) -> Callable[[Sequence[int]], Any]:
    """Return the function from the words of a lane to the value."""
    if lane.is_text:
        return _text_of
    decode, null = _number_decoder(lane.type, dictionary), lane.last_null_word
    is_wide, nullable = lane.is_wide, lane.nullable

    def value(words: Sequence[int]) -> Any:
        if nullable and words[-1] == null:
            return None
        return decode(joined(words[0], words[1]) if is_wide else words[0])

    return value


def column_decoder(lane: Lane, dictionary: NumberedValues) -> Callable[[npt.NDArray[np.int64]], list[Any]]:
    """Return the function from the words of many values of a lane, not of arguments, a row each, to the values."""
    decode, count = _number_decoder(lane.type, dictionary), 1 + lane.is_wide
    nullable, null = lane.nullable, lane.last_null_word

    def values(words: npt.NDArray[np.int64]) -> list[Any]:
        numbers = numbers_of(words[:, :count])
        if nullable:
            is_null = words[:, -1] == null
            if is_null.any():
                pairs = zip(numbers, is_null.tolist(), strict=True)
                return [None if missing else decode(number) for number, missing in pairs]
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
        case Kind.VARCHAR | Kind.INTERVAL:
            return lambda number: dictionary.values_of[number]
        case Kind.BIGDECIMAL:
            return lambda number: dictionary.boxes[number]
        case _:
            return word_decoder(sql_type)


_FEW = 10_000
_BYTES = 120
"""Of a box with a number of some digits."""


class BoxOp(IntEnum):
    """What code asks for, with two or three words."""

    ADD = 0
    """Of two boxes."""
    MULTIPLY = 1
    """Of two boxes."""
    PUT = 2
    """The low and the high word of a whole number, and the digits of it that stand behind the point."""


class BigIntegers:
    """Integers beyond 128 bits, kept by Python and referred to by number.

    Examples
    --------
    >>> boxes = BigIntegers()
    >>> one, other = boxes.put(Decimal("0.5")), boxes.put(Decimal(-3))
    >>> boxes[boxes.run(BoxOp.MULTIPLY, one, other, 0)], boxes.run(BoxOp.ADD, one, boxes.put(Decimal("-0.5")), 0)
    (Decimal('-1.5'), 0)
    """

    def __init__(self) -> None:
        self._values: list[Decimal | None] = [Decimal(0)]
        self._free: list[int] = []
        self._many = _FEW

    def __getitem__(self, number: int) -> Decimal:
        value = self._values[number]
        assert value is not None, f"box {number} was emptied"
        return value

    @property
    def bytes(self) -> int:
        """About how many bytes the numbers take."""
        return _BYTES * (len(self._values) - len(self._free))

    def dump(self) -> list[Decimal | None]:
        """Return the numbers by their boxes, None in a free one; `replace` takes them."""
        return list(self._values)

    def replace(self, values: Sequence[Decimal | None]) -> None:
        """Make these numbers the contents."""
        self._values = list(values)
        self._free = [number for number, value in enumerate(self._values) if value is None]
        self._many = max(_FEW, 2 * (len(self._values) - len(self._free)))

    @property
    def are_many(self) -> bool:
        """Whether it is time to sweep."""
        return len(self._values) - len(self._free) >= self._many

    def put(self, value: Decimal) -> int:
        """Return a box with a number in it."""
        if not value:
            return 0
        if self._free:
            number = self._free.pop()
            self._values[number] = value
            return number
        self._values.append(value)
        return len(self._values) - 1

    def run(self, op: int, left: int, right: int, more: int) -> int:
        """Do what code asks for; return the box of the result."""
        match op:
            case BoxOp.ADD:
                return self.put(EXACT.add(self[left], self[right]))
            case BoxOp.MULTIPLY:
                return self.put(EXACT.multiply(self[left], self[right]))
            case _:
                return self.put(Decimal(joined(left, right)).scaleb(-more, EXACT))

    def sweep(self, used: Callable[[], Iterable[int]]) -> None:
        """Empty what is not used any more, if there may be much of it."""
        if not self.are_many:
            return
        needed = {0, *used()}
        self._free = [number for number in range(len(self._values)) if number not in needed]
        for number in self._free:
            self._values[number] = None
        self._many = max(_FEW, 2 * len(needed))
