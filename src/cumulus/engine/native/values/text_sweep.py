"""Garbage collection of the dictionary: texts and intervals that no row names any more go, and the others move up.

A row of words can name one text in each of its columns of texts. So where there are many more texts than that, most are
dead, and nothing needs to be counted while rows come and go. The rows that name texts are then written anew, fewer than
half as many as there have been new texts since the last time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from cumulus.catalog.types import Kind
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.map_access import StoredMap
from cumulus.interrupts import Deferring

_FEW = 10_000
"""So many dead texts do not matter."""
Matrix = npt.NDArray[np.int64]


def named_words(store: StoredMap) -> list[int]:
    """Return which words of a map's rows are numbers of texts or intervals."""
    lanes = enumerate(store.store.keys)
    return [store.store.words_of(place)[0] for place, lane in lanes if lane.type.kind in (Kind.VARCHAR, Kind.INTERVAL)]


def sweep(
    maps: Mapping[str, StoredMap],
    dictionary: Dictionary,
    lift_limits: Callable[[], None],
    forget_numbers: Callable[[], None],
) -> bool:
    """Remove the texts that no row names, if most are such; return whether it was done. No transaction is open.

    Nothing happens while somebody holds numbers of texts: `Dictionary.readers`.

    Parameters
    ----------
    lift_limits, forget_numbers
        Let maps take what memory there is; make machine code forget the numbers that it has remembered.
    """
    naming = {store: words for store in maps.values() if (words := named_words(store))}
    most = 2 * sum(store.live * len(words) for store, words in naming.items()) + _FEW
    if len(dictionary.values_of) < most or dictionary.readers:
        dictionary.sweep_at = max(most, len(dictionary.values_of) + _FEW // 2)
        return False
    rows = {store: store.view.matrix() for store in naming}
    flags = _named(((rows[store], words) for store, words in naming.items()), len(dictionary.values_of))
    kept = np.flatnonzero(flags)
    numbers = np.cumsum(flags) - 1
    for store, words in naming.items():
        for word in words:
            column = rows[store][:, word]
            there = column >= 0
            column[there] = numbers[column[there]]
    values = [dictionary.values_of[number] for number in kept.tolist()]
    with Deferring():  # half of it would be of no use
        lift_limits()
        dictionary.grant(None)
        for store in naming:
            store.clear()
        dictionary.replace(values)
        forget_numbers()
        for store, matrix in rows.items():
            if not store.adopt_words(np.ascontiguousarray(matrix)):
                raise MemoryError
    dictionary.sweep_at = max(most, len(dictionary.values_of) + _FEW)
    return True


def living(maps: Iterable[StoredMap], count: int) -> npt.NDArray[np.bool_]:
    """Return which of the first numbers of texts some row names; number 0, the empty text, always is."""
    return _named(((store.view.matrix(), words) for store in maps if (words := named_words(store))), count)


def _named(rows: Iterable[tuple[Matrix, list[int]]], count: int) -> npt.NDArray[np.bool_]:
    flags = np.zeros(count, np.bool_)
    flags[0] = True
    for matrix, words in rows:
        for word in words:
            column = matrix[:, word]
            flags[column[column >= 0]] = True
    return flags
