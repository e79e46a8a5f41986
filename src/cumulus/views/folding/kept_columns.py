"""Maps as folding reads them: columns that were read stay as long as no event has come."""

from __future__ import annotations

from collections.abc import Callable

from cumulus.views.folding.access import StoredMaps
from cumulus.views.folding.columns import FoldColumns


class KeptColumns:
    """`StoredMaps` over an engine; after each reading it keeps no more memory than the maps take.

    Parameters
    ----------
    memory
        Returns how many bytes the maps take, roughly.
    """

    def __init__(self, engine: StoredMaps, memory: Callable[[], int]) -> None:
        self._engine, self._memory = engine, memory
        self._kept: dict[str, FoldColumns] = {}
        self._stamp: object = None
        self.items, self.stored, self.stored_at = engine.items, engine.stored, engine.stored_at
        self.stored_count, self.indexes, self.stored_slice = engine.stored_count, engine.indexes, engine.stored_slice
        self.along = engine.along

    def at(self, stamp: object) -> KeptColumns:
        """Forget columns that were read when the state had another stamp."""
        if stamp != self._stamp:
            self._kept.clear()
            self._stamp = stamp
        return self

    def trim(self) -> None:
        """Forget the columns that were not used for longest, until the others take no more than the maps."""
        if self._kept:
            held = sum(each.held_bytes for each in self._kept.values())
            while held > self._memory():
                held -= self._kept.pop(next(iter(self._kept))).held_bytes

    def fold_columns(self, map: str) -> FoldColumns | None:
        """Return everything that is stored as columns; None where entries are tuples."""
        found = self._kept.pop(map, None) or self._engine.fold_columns(map)
        if found is not None:
            self._kept[map] = found  # at the end: what was not used for longest is forgotten first
        return found
