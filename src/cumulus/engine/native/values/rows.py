"""Keys and values of a map as words, and back: what a row means, without the memory that it lies in."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cumulus.algebra.float_sums import ZERO_CELL, Cell, add_to_cell, finite, is_rest, read_cell
from cumulus.catalog.types import EXACT, Kind
from cumulus.engine.frames.value_words import Words, split
from cumulus.engine.native.store.memory_layout import ColumnStorage, MapLayout, ValueLane
from cumulus.engine.native.values.codec import NumberedValues, column_decoder, decoder, encoder, numbers_of
from cumulus.engine.protocol import Key, Stored, Values
from cumulus.errors import EvaluationError, LargeNumberError

if TYPE_CHECKING:
    from cumulus.engine.native.values.dictionary import Dictionary

_AT_ONCE = 10_000
"""Rows whose words become values together, column by column."""


class RowReader:
    """The rows of a map."""

    def __init__(self, store: MapLayout, numbered: NumberedValues) -> None:
        self.store = store
        self._boxes = numbered.boxes
        self._decode = [decoder(lane, numbered) for lane in store.keys]
        self._kept = [self._value_decoder(lane) for lane in store.values]
        self.stored_of = self._reader()
        """What gives value words as they are kept: numbers, and cells of floats."""
        self._columns = [column_decoder(lane, numbered) for lane in store.keys]
        self._places = [store.words_of(place) for place in range(len(store.keys))]
        slices = [slice(places[0], places[-1] + 1) for places in self._places]
        self._key_readers = [*zip(self._decode, slices, strict=True)]

    def key_of(self, words: Sequence[int]) -> Key:
        """Return the key with these words."""
        values = []
        for decode, places in self._key_readers:
            values.append(decode(words[places]))
        return tuple(values)

    def key_at(self, words: Sequence[int], place: int) -> Any:
        """Return one value of the key with these words."""
        decode, places = self._key_readers[place]
        return decode(words[places])

    def stored_rows(self, rows: npt.NDArray[np.int64]) -> Iterator[tuple[Key, Stored]]:
        """Iterate over the keys of rows, each of key words and value words, and what is stored under each."""
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            yield from zip(self.keys_of(part), self.all_stored(part[:, self.store.shape.keys :]), strict=True)

    def keys_of(self, words: npt.NDArray[np.int64]) -> Iterable[Key]:
        """Return the keys with these words, a row each; more words behind them are no matter."""
        keys = [decode(words[:, places]) for decode, places in zip(self._columns, self._places, strict=True)]
        return zip(*keys, strict=True) if keys else repeat((), len(words))

    def all_stored(self, words: npt.NDArray[np.int64]) -> Iterable[Stored]:
        """Return value words, a row each, as they are kept."""
        values = [self._numbers(lane, kept, words) for lane, kept in zip(self.store.values, self._kept, strict=True)]
        return zip(*values, strict=True)

    def _numbers(self, lane: ValueLane, kept: Callable[[int], Any], words: npt.NDArray[np.int64]) -> list[Any]:
        """Return what `_number` does, for many rows."""
        mine = words[:, lane.word : lane.word + lane.held.words]
        if lane.held is ColumnStorage.CELL:
            return list(map(tuple, np.ascontiguousarray(mine).view(np.float64).tolist()))
        return list(map(kept, numbers_of(mine)))

    def _value_decoder(self, lane: ValueLane) -> Callable[[int], Any]:
        """Return the function from the whole number that a lane has, which is none of a float, to what is kept."""
        if lane.held is ColumnStorage.BOXED:
            return lambda number: self._boxes[number]
        if lane.held is ColumnStorage.WIDE and lane.type is not None and lane.type.kind is Kind.DECIMAL:
            return lambda number: Decimal(number).scaleb(-lane.scale, EXACT)
        return int

    def _reader(self) -> Callable[[Sequence[int]], Stored]:
        """Return the function from the value words of a row to what is kept, written in one piece."""
        names: dict[str, Any] = {"cell": _CELL.unpack, "pack": _WORDS.pack}
        parts = []
        for lane, kept in zip(self.store.values, self._kept, strict=True):
            first = lane.word
            if lane.held is ColumnStorage.CELL:
                parts.append(f"cell(pack(*w[{first}:{first + 3}]))")
                continue
            number = f"w[{first}]"
            if lane.held is ColumnStorage.WIDE:
                number = f"(w[{first + 1}] << 64 | w[{first}] & {(1 << 64) - 1})"
            names[f"kept{first}"] = kept
            parts.append(number if kept is int else f"kept{first}({number})")
        made: Callable[[Sequence[int]], Stored] = eval(f"lambda w: ({''.join(f'{part}, ' for part in parts)})", names)
        return made


_CELL, _WORDS = struct.Struct("<ddd"), struct.Struct("<qqq")


class RowCodec(RowReader):
    """The rows of a map in memory."""

    def __init__(self, store: MapLayout, dictionary: Dictionary) -> None:
        super().__init__(store, dictionary)
        self._has_cells = any(lane.held is ColumnStorage.CELL for lane in store.values)
        self._encode = [encoder(lane, dictionary) for lane in store.keys]
        self._look_up = [encoder(lane, dictionary, adds=False) for lane in store.keys]
        self.key_words = _all_words(self._look_up)
        """From a key to its words; None if no entry has it."""

    def new_key_words(self, key: Key) -> tuple[int, ...] | None:
        """Return the words of a key that will be put; None if no entry can have it."""
        return _key_words(self._encode, key)

    def part_words(self, places: Sequence[int], values: Key) -> tuple[int, ...] | None:
        """Return the words of some columns of a key; None if no entry has these values there."""
        return _key_words([self._look_up[place] for place in places], values)

    def words_of(self, stored: Stored) -> list[int]:
        """Return what is kept as value words."""
        found: list[int] = []
        for lane, number in zip(self.store.values, stored, strict=True):
            if lane.held is ColumnStorage.CELL:
                found += struct.unpack("<qqq", struct.pack("<ddd", *number))
            elif lane.held is ColumnStorage.COUNT:
                found.append(int(number))
            elif lane.held is ColumnStorage.BOXED:
                found.append(self._boxes.put(Decimal(number)))
            else:
                found += _wide(number, lane.scale)
        return found

    def values_of(self, stored: Stored) -> Values | None:
        """Return the values that readers see, None if the entry does not exist for them."""
        count = self.store.count
        if count is not None and not stored[count]:
            return None
        if count is None and not any(stored):
            return None
        if not self._has_cells:
            return stored
        return tuple(
            read_cell(number) if lane.held is ColumnStorage.CELL else number
            for lane, number in zip(self.store.values, stored, strict=True)
        )

    def shown_of(self, words: Sequence[int]) -> Values | None:
        """Return the values that readers see of value words, None if the entry does not exist for them."""
        stored, count = self.stored_of(words), self.store.count
        if self._has_cells:
            return self.values_of(stored)
        return stored if (any(stored) if count is None else stored[count]) else None

    def row_values(self, words: Sequence[int]) -> Values | None:
        """Return the values that readers see of a row, of its key words and value words; None as `values_of` does."""
        return self.values_of(self.stored_of(words[self.store.shape.keys :]))

    def stored_values(self, values: Values) -> Stored | None:
        """Return plain values as they are kept; None if nothing is."""
        stored: list[Any] = []
        gone = self.store.count is None or not values[self.store.count]
        for lane, number in zip(self.store.values, values, strict=True):
            stored.append(_cell(number) if lane.held is ColumnStorage.CELL else number)
            gone = gone and (is_rest(stored[-1]) if lane.held is ColumnStorage.CELL else not number)
        return None if gone else tuple(stored)


def _key_words(encoders: Sequence[Callable[[Any], Words]], values: Key) -> tuple[int, ...] | None:
    try:
        return tuple(word for encode, value in zip(encoders, values, strict=True) for word in encode(value))
    except _NO_KEY:
        return None


_NO_KEY = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, EvaluationError)
"""What an encoder raises for a value that no entry has."""


def _all_words(encoders: Sequence[Callable[[Any], Words]]) -> Callable[[Key], tuple[int, ...] | None]:
    """Return the function from a key to its words, as `_key_words` has them, written in one piece."""
    names: dict[str, Any] = {f"encode{place}": encode for place, encode in enumerate(encoders)} | {"no_key": _NO_KEY}
    values = "".join(f"v{place}, " for place in range(len(encoders)))
    words = "".join(f"*encode{place}(v{place}), " for place in range(len(encoders)))
    lines = ["def key_words(key):", "    try:", f"        {values or '()'}{'= key'}", f"        return ({words})"]
    exec("\n".join([*lines, "    except no_key:", "        return None"]), names)
    made: Callable[[Key], tuple[int, ...] | None] = names["key_words"]
    return made


def _cell(number: Any) -> Cell:
    return add_to_cell(ZERO_CELL, finite(number))


def _wide(number: Any, scale: int) -> tuple[int, ...]:
    """Return a sum as two words."""
    value = int(Decimal(number).scaleb(scale, EXACT))
    if not -(1 << 127) <= value < 1 << 127:
        raise LargeNumberError(
            f"{value} does not fit 128 bits", hint="Open the warehouse with engine='interpreter', which has no bound."
        )
    return split(value)
