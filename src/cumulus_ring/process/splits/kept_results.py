"""Partial results that are kept for queries that come again, under a bound.

A result belongs to a fragment, to row groups of the split table, and to the files of the other tables. All of these are
immutable, so a result never goes out of date; at another epoch it serves for the files that are still there.

References
----------
Arlitt et al., "Evaluating content management techniques for Web proxy caches" (1999): least frequently used, with
dynamic aging. A result's priority is how often it was used plus the priority of the last one that was given up.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass

import pyarrow as pa

from cumulus_ring.process.query_scans import RowGroupId


@dataclass(slots=True)
class _Entry:
    groups: frozenset[RowGroupId]
    rows: pa.Table
    priority: int
    uses: int = 1


_SHARE = 4
"""No result may have more than this part of the bound."""


class KeptResults:
    """The partial results of one node; any thread may ask.

    Parameters
    ----------
    most
        Bytes that all of them may have together; 0 for none at all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Hashable, list[_Entry]] = {}
        self._bytes = 0
        self._age = 0
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What is kept."""
        with self._lock:
            return self._bytes

    def find(
        self, fragment: Hashable, groups: frozenset[RowGroupId], *, is_use: bool = True
    ) -> tuple[list[pa.Table], frozenset[RowGroupId]]:
        """Return results for disjoint parts of some row groups, and the row groups that are left.

        Parameters
        ----------
        is_use
            Whether the results are used, and so are kept longer.
        """
        found: list[pa.Table] = []
        left = groups
        with self._lock:
            for entry in sorted(self._entries.get(fragment, ()), key=lambda each: -len(each.groups)):
                if entry.groups <= left:
                    left -= entry.groups
                    found.append(entry.rows)
                    entry.uses += is_use
                    entry.priority = self._age + entry.uses if is_use else entry.priority
        return found, left

    def keep(self, fragment: Hashable, groups: frozenset[RowGroupId], rows: pa.Table) -> None:
        """Keep a result, if it is not too large."""
        if not groups or rows.nbytes * _SHARE > self._most:
            return
        with self._lock:
            entries = self._entries.setdefault(fragment, [])
            if any(each.groups == groups for each in entries):
                return
            entries.append(_Entry(groups, rows, self._age + 1))
            self._bytes += rows.nbytes + _ENTRY_BYTES
            while self._bytes > self._most:
                self._give_up()

    def _give_up(self) -> None:
        """Give up the result of the lowest priority, the oldest of these first."""
        key, entry = min(
            ((key, entry) for key, entries in self._entries.items() for entry in entries),
            key=lambda each: each[1].priority,
        )
        self._entries[key].remove(entry)
        if not self._entries[key]:
            del self._entries[key]
        self._bytes -= entry.rows.nbytes + _ENTRY_BYTES
        self._age = entry.priority


_ENTRY_BYTES = 1000
"""About what a result takes beside its rows."""
