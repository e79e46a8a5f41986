"""Many groups as columns: what folding gives where entries lie as words, put together and finished without tuples.

They are mappings, too, from a group to its numbers or its end, as few groups are from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import DOUBLE, Kind, SqlType
from cumulus.views.batches import Places, match_rows
from cumulus.views.entries import Key
from cumulus.views.vector_values import arrow_values, check_digits, python_values
from cumulus.views.vectors import NULL_WORD, Array, Mask, NotColumnarError, Vector, with_one_form

Words = npt.NDArray[np.int64]
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class KeptTexts:
    """Some texts by the numbers that a dictionary has given them: a `cumulus.views.vectors.NumberedTexts`.

    Parameters
    ----------
    numbers
        In ascending order.
    texts
        As Arrow's large_string.
    """

    numbers: Words
    texts: Any

    @property
    def values_of(self) -> dict[int, Any]:
        """Number → text."""
        return dict(zip(self.numbers.tolist(), self.texts.to_pylist(), strict=True))

    def array(self, numbers: Words) -> Any:
        """Return the texts with some numbers, NULL for its word, as Arrow's large_string."""
        nulls = numbers == NULL_WORD
        places = np.searchsorted(self.numbers, numbers)
        return self.texts.take(pa.array(places, mask=nulls if nulls.any() else None))


def kept_key(vector: Vector) -> Vector:
    """Return key values that stay good when the dictionary of their texts changes.

    Raises
    ------
    NotColumnarError
        If they are intervals, or times beyond Python's.
    """
    if vector.type.kind is Kind.INTERVAL:
        raise NotColumnarError
    if vector.type.kind in _TIMES:
        arrow_values(vector, vector.type)
    if vector.type.kind is not Kind.VARCHAR:
        return vector
    numbers = np.unique(vector.data if vector.null is None else vector.data[~vector.null])
    return replace(vector, numbered=KeptTexts(numbers, vector.text_array(numbers)))


def words_of(vector: Vector) -> list[Words]:
    """Return words of key values: equal words, equal values, NULL included (`cumulus.views.vectors.with_one_form`)."""
    data = vector.data
    if vector.null is not None and vector.type.fills_words:
        values = [*data.T] if vector.is_wide else [data]
        words = [np.where(vector.null, 0, each) for each in values]
        return [*words, np.where(vector.null, NULL_WORD, words[-1] >> 63)]
    if vector.type.is_float:
        data = data.view(np.int64)  # NULL has bits of its own
    elif data.dtype != np.int64:
        data = data.astype(np.int64)
        data = data if vector.null is None else np.where(vector.null, -1, data)
    return [np.ascontiguousarray(word) for word in data.T] if vector.is_wide else [data]


class _Keyed:
    """Rows of different groups: the keys, and what stands under each."""

    key_columns: tuple[Vector, ...]
    size: int

    def load(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read nothing: everything is there."""

    def key(self, place: int, at: Places) -> Vector:
        """Return a key column at some places."""
        return self.key_columns[place].take(at)

    def key_words(self, place: int, at: Places) -> list[Words]:
        """Return the words of a key column at some places."""
        return [word[at] for word in words_of(self.key_columns[place])]

    def _groups(self, count: int) -> list[Key]:
        """Return the first keys of all rows as tuples."""
        columns = [python_values(key, key.type) for key in self.key_columns[:count]]
        return list(zip(*columns, strict=True)) if columns else [()] * self.size


class GroupColumns(_Keyed, Mapping[Key, list[Any]]):
    """Groups and the numbers that are added: a `cumulus.views.batches.MapColumns`, too.

    Parameters
    ----------
    keys
        Of each group, once.
    numbers
        In two words each, or cells of three floats.
    types
        Of the numbers.
    count
        The place of the number by which groups exist.
    """

    def __init__(
        self, keys: Sequence[Vector], numbers: Sequence[Array], types: Sequence[SqlType], count: int, size: int
    ) -> None:
        self.key_columns, self.numbers, self.types, self.size = tuple(keys), tuple(numbers), tuple(types), size
        self._count = count

    def there(self, at: slice, *, positive: bool) -> Mask:
        """Return which groups exist."""
        low, high = self.numbers[self._count][at].T
        found: Mask = (low | high) != 0
        return found & (high >= 0) if positive else found

    def value(self, place: int, at: Places) -> Vector:
        """Return numbers as their column has them; NotColumnarError if one does not fit its type."""
        data, sql_type = self.numbers[place][at], self.types[place]
        if sql_type.is_float:
            with np.errstate(all="ignore"):
                total = data[:, 0] + data[:, 1]
            if not np.isfinite(total).all():
                raise NotColumnarError
            return Vector(DOUBLE, total)
        found = Vector(sql_type, data)
        if sql_type.kind is Kind.DECIMAL:
            check_digits(found, sql_type)
            return found
        return found if sql_type.kind is Kind.HUGEINT else Vector(sql_type, found.narrow())

    def plus(self, other: GroupColumns) -> GroupColumns | None:
        """Return the groups of both; None where numbers must be added one by one."""
        mine, theirs = _with_one_numbering(self.key_columns, other.key_columns)
        pairs = [with_one_form(words_of(a), words_of(b)) for a, b in zip(mine, theirs, strict=True)]
        words = [word for a, _ in pairs for word in a], [word for _, b in pairs for word in b]
        if not words[0]:
            words = [np.zeros(self.size, np.int64)], [np.zeros(other.size, np.int64)]
        places = match_rows(words[1], words[0], np.arange(self.size), other.size)
        new = places < 0
        there = places[~new]
        numbers = []
        for held, given in zip(self.numbers, other.numbers, strict=True):
            total = held.copy()
            added = _sums(held[there], given[~new])
            if added is None:
                return None
            total[there] = added
            numbers.append(np.concatenate([total, given[new]]))
        keys = [_joined(a, b.take(new)) for a, b in zip(mine, theirs, strict=True)]
        return GroupColumns(keys, numbers, self.types, self._count, self.size + int(np.count_nonzero(new)))

    # --- as a mapping -----------------------------------------------------------------------------------------------

    @cached_property
    def _by_group(self) -> dict[Key, list[Any]]:
        columns = [
            list(map(tuple, data.tolist())) if sql_type.is_float else Vector(sql_type, data).exact_numbers(slice(None))
            for data, sql_type in zip(self.numbers, self.types, strict=True)
        ]
        return dict(zip(self._groups(len(self.key_columns)), map(list, zip(*columns, strict=True)), strict=True))

    def __getitem__(self, group: Key) -> list[Any]:
        return self._by_group[group]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_group)

    def __len__(self) -> int:
        return self.size


class EndColumns(_Keyed, Mapping[Key, Any]):
    """Groups and an end of each, the last of the keys: a `cumulus.views.batches.MapColumns`, too."""

    def __init__(self, keys: Sequence[Vector], size: int) -> None:
        self.key_columns, self.size = tuple(keys), size

    def there(self, at: slice, *, positive: bool) -> Mask:
        """Return that all exist."""
        return np.ones(len(range(self.size)[at]), np.bool_)

    def value(self, place: int, at: Places) -> Vector:
        """Return that each is there once."""
        return Vector(SqlType(Kind.BIGINT), np.ones(self.size, np.int64)[at])

    @cached_property
    def _by_group(self) -> dict[Key, Any]:
        end = self.key_columns[-1]
        return dict(zip(self._groups(len(self.key_columns) - 1), python_values(end, end.type), strict=True))

    def __getitem__(self, group: Key) -> Any:
        return self._by_group[group]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._by_group)

    def __len__(self) -> int:
        return self.size


def _sums(left: Array, right: Array) -> Array | None:
    """Return sums of numbers in two words, or of cells; None if one does not fit."""
    if left.dtype == np.float64:
        with np.errstate(all="ignore"):
            moved = left[:, 0] + right[:, 0]
            if not np.isfinite(moved).all():
                return None  # it is beyond DOUBLE, or was
            is_greater = np.abs(left[:, 0]) >= np.abs(right[:, 0])
            big, small = (np.where(is_greater, left[:, 0], right[:, 0]), np.where(is_greater, right[:, 0], left[:, 0]))
            rest = left[:, 1] + ((big - moved) + small) + right[:, 1]
            return np.stack([moved, rest, left[:, 2] + right[:, 2]], axis=1)
    low = left[:, 0] + right[:, 0]
    carry = low.view(np.uint64) < left[:, 0].view(np.uint64)
    high = left[:, 1] + right[:, 1] + carry
    beyond = ((left[:, 1] ^ high) & (right[:, 1] ^ high)) < 0
    return None if beyond.any() else np.stack([low, high], axis=1)


def _with_one_numbering(mine: Sequence[Vector], theirs: Sequence[Vector]) -> tuple[list[Vector], list[Vector]]:
    """Return keys of two shares whose texts are numbered alike."""
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    found: tuple[list[Vector], list[Vector]] = ([], [])
    for pair in zip(mine, theirs, strict=True):
        if pair[0].type.kind is Kind.VARCHAR:
            arrays = [_texts(each) for each in pair]
            coded = pa.chunked_array(arrays).dictionary_encode().combine_chunks()
            codes = pc.fill_null(coded.indices.cast(pa.int64()), NULL_WORD).to_numpy(zero_copy_only=False)
            texts = KeptTexts(np.arange(len(coded.dictionary)), coded.dictionary)
            first, second = np.split(codes, [len(pair[0].data)])
            pair = replace(pair[0], data=first, numbered=texts), replace(pair[1], data=second, numbered=texts)
        for each, vectors in zip(pair, found, strict=True):
            vectors.append(each)
    return found


def _texts(vector: Vector) -> Any:
    """Return texts as Arrow's large_string."""
    return vector.text_array(vector.data if vector.null is None else np.where(vector.null, NULL_WORD, vector.data))


def _joined(first: Vector, second: Vector) -> Vector:
    """Return the values of one vector, then those of another one."""
    null = None
    if first.null is not None or second.null is not None:
        null = np.concatenate([_nulls(first), _nulls(second)])
    return replace(first, data=np.concatenate([first.data, second.data]), null=null)


def _nulls(vector: Vector) -> Mask:
    return np.zeros(len(vector.data), np.bool_) if vector.null is None else vector.null
