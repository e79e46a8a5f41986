"""How much memory the maps of the interpreter take, looked at every so many events."""

from __future__ import annotations

from collections.abc import Mapping

from cumulus.engine.interpreter.store import DictMap
from cumulus.engine.limits import Budget, format_bytes

_LEAST_UNMEASURED, _MOST_UNMEASURED = 100, 10_000
"""So many events go by before the memory of the maps is looked at again."""


class MemoryMeter:
    """Refuses events that would make maps take more than a budget."""

    def __init__(self, stores: Mapping[str, DictMap]) -> None:
        self._stores = stores
        self._budget = Budget()
        self.left = 0
        """So many events may go by before somebody must `look`."""

    def limit(self, budget: Budget) -> None:
        """Refuse events that would make the maps take more; looked at every so many events, see `Engine.limit`."""
        self._budget = budget
        self.left = 0

    def used(self) -> int:
        """Return how many bytes the maps take, estimated from some entries of each."""
        return sum(store.memory() for store in self._stores.values())

    def check_growth(self, grows: bool) -> None:
        """Check the memory budget before an event that makes maps grow."""
        self.left = _MOST_UNMEASURED
        if self._budget.granted is None:
            return
        used, entries = self.used(), sum(len(store.entries) for store in self._stores.values())
        if used <= self._budget.granted or self._budget.widen(used):
            # A quarter of the events that might fill what is left: each adds an entry to each of some maps.
            room = (self._budget.granted - used) * (entries + 1) // (4 * used)
            self.left = min(max(room, _LEAST_UNMEASURED), _MOST_UNMEASURED)
            return
        self.left = 0
        if grows:
            name, store = max(self._stores.items(), key=lambda each: each[1].memory())
            what = f"map {name} ({len(store.entries):,} rows, {format_bytes(store.memory())})"
            raise self._budget.refusal(what, used, used)
