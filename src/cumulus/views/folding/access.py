"""How the entries of a map are found that some bounds select: by look-ups, through an index, or by reading them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Protocol, TypeAlias

from cumulus.catalog.schema import Column
from cumulus.catalog.types import coerce
from cumulus.scalars.python_code import canonical
from cumulus.views.entries import Key, Values
from cumulus.views.folding.bounds import Between, Bound
from cumulus.views.folding.columns import FoldColumns

Stored: TypeAlias = tuple[Any, ...]
"""The values of an entry as they are kept, a DOUBLE as the tuple (sum, compensation, size)."""

Within: TypeAlias = Between | tuple[Any, ...]
WORTH = 4
"""A look-up, or an entry found through an index, costs about as much as so many entries that are read in a row."""


class StoredMaps(Protocol):
    """Maps whose entries are read as they are kept: sums of DOUBLE with their compensation."""

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored."""

    def stored_count(self, map: str) -> int:
        """Return how many entries are stored, without looking at them."""

    def stored_at(self, map: str, key: Key) -> Stored | None:
        """Return what is stored under a key."""

    def indexes(self, map: str) -> Sequence[tuple[int, ...]]:
        """Return the key positions by which slices are found without reading the whole map."""

    def stored_slice(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Stored]]:
        """Iterate over what is stored with some values at the positions of an index."""

    def fold_columns(self, map: str) -> FoldColumns | None:
        """Return everything that is stored as columns, good until the next event; None where entries are tuples."""

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> Iterator[Any] | None:
        """Return the values of which `end` takes the first; see `cumulus.views.entries.MapSource.along`."""


class WantedKeys:
    """Which groups are wanted, by the keys of a view's maps.

    Parameters
    ----------
    bounds
        Typed ones, with the column that each is about, the place of its key, and the key.
    """

    def __init__(self, bounds: Iterable[tuple[Bound, Column, int, Column]]) -> None:
        self.tests: list[tuple[int, Callable[[Any], bool]]] = []
        """Place of a key, and whether a value of it is wanted."""
        self.values: dict[int, tuple[Any, ...]] = {}
        """Place of a key → the only values of it that are wanted; keys without such a list are missing."""
        self.bounds: dict[int, list[tuple[Within | None, Callable[[Any], bool]]]] = {}
        """Place of a key → what it must be, None if only its test tells, and the tests."""
        self.has_values_alone = True
        """Whether each bound is a list of values: then an entry is wanted if its key has such values."""
        for bound, column, place, key in bounds:
            test, within = bound.test(), None if column.type != key.type else bound.within
            if isinstance(bound.within, tuple):
                has_them = column.type == key.type and None not in bound.within
                found = within = bound.within if has_them else _as_keys(bound.within, key)
                before = self.values.get(place)
                self.values[place] = found if before is None else tuple(each for each in found if each in before)
            else:
                self.has_values_alone = False
            self.tests.append((place, test))
            self.bounds.setdefault(place, []).append((within, test))

    def wants(self, key: Key, places: Sequence[int]) -> bool:
        """Whether an entry is wanted whose key has those of the view at some places."""
        return all(test(key[places[place]]) for place, test in self.tests)

    def looked_up(self, keys: int, count: int) -> list[Key] | None:
        """Return the only keys that are wanted of a map with so many keys and entries; None to read them instead."""
        if len(self.values) < keys or prod(map(len, self.values.values())) > max(1, count // WORTH):
            return None
        return list(product(*(self.values[place] for place in range(keys))))


def selected(
    source: StoredMaps, map: str, places: Sequence[int], selection: WantedKeys
) -> Iterator[tuple[Key, Stored]]:
    """Iterate over the stored entries of a map among which are all that a selection wants, as few as can be.

    Parameters
    ----------
    places
        For each key of the view's maps, its place among the keys of this one.
    """
    bound = {places[place]: values for place, values in selection.values.items()}
    most = max(1, source.stored_count(map) // WORTH)
    usable = [
        index
        for index in (source.indexes(map) if bound else ())
        if bound.keys() >= set(index) and prod(len(bound[place]) for place in index) <= most
    ]
    if not usable:
        yield from source.stored(map)
        return
    index = max(usable, key=len)
    for values in product(*(bound[place] for place in index)):
        yield from source.stored_slice(map, index, values)


def _as_keys(values: Sequence[Any], key: Column) -> tuple[Any, ...]:
    """Return values as a key has them; those that it cannot have are left out."""
    found = []
    for value in values:
        try:
            made = value if key.type is None else canonical(coerce(value, key.type))
        except (TypeError, ValueError):
            continue
        if (made == value or made is value) and not (made is None and key.not_null):
            found.append(made)
    return tuple(found)
