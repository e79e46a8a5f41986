"""What folding asks of a host that has the entries of a map as words: columns of them, grouped and added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from cumulus.views.batches import Places
from cumulus.views.vectors import Array, Mask, Vector

Words = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]
"""The number of each entry's group from 1 on, 0 for entries of none."""


class FoldColumns(Protocol):
    """Everything that is stored in a map, by number, as long as nobody changes it; not every number has an entry.

    Who gets words does not change them.
    """

    size: int
    """How many numbers there are."""

    @property
    def held_bytes(self) -> int:
        """How much memory the whole columns take that were read."""

    def hold(self, keys: Iterable[int], values: Iterable[int]) -> None:
        """Read whole columns that will be wanted at once; it changes nothing but the time."""

    def exists(self) -> Mask:
        """Return which numbers have an entry that exists for readers."""

    def key(self, place: int, at: Places) -> Vector:
        """Return a key column at some numbers."""

    def key_words(self, place: int, at: Places) -> list[Words]:
        """Return the words of a key column at some numbers: equal words, equal values, NULL included."""

    def words_of(self, place: int, value: Any) -> Sequence[int] | None:
        """Return the words of a value of a key column; None if no entry has it."""

    def stored_value(self, place: int, at: Places) -> Array:
        """Return a value column as it is kept: a word, or the two of a wide number, or the floats of a cell."""

    def group(self, words: Sequence[Words], wanted: Mask) -> tuple[Codes, Words]:
        """Return the groups of entries by their words, and of each group the number of its first entry."""

    def add_up(self, codes: Codes, groups: int, numbers: Array) -> Array | None:
        """Return the sums of numbers by groups, in two words each, or cells; None if one does not fit 128 bits.

        Whole numbers are of one word or two; cells have three floats.
        """

    def end_rows(self, codes: Codes, groups: int, numbers: Words, end: str) -> Words:
        """Return for each group the place of its least ("MIN") or greatest number, -1 for a group without any."""
