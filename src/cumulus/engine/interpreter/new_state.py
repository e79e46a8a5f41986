"""A map as it will be when the trigger that runs has added to it: what statements read as NEW and CHANGED.

Statements read the state before the event, so a map stays as it is until all statements of the trigger are computed.
Where one of them reads it as NEW or CHANGED, what the others make of it stands beside it until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class PendingWrites:
    """Pending writes of a trigger over the packed entries of a map as they were before the event."""

    def __init__(self, entries: Mapping[Any, Any]) -> None:
        self._entries = entries
        self.changed: dict[Any, Any] = {}
        """Packed key → the entry after the event, None for none."""

    def get(self, key: Any) -> Any:
        """Return an entry, None if there is none."""
        return self.changed[key] if key in self.changed else self._entries.get(key)

    __getitem__ = get

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the entries with their keys."""
        changed = self.changed
        for key, entry in self._entries.items():
            if key not in changed:
                yield key, entry
        for key, entry in changed.items():
            if entry is not None:
                yield key, entry

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self.items():
            yield key

    def differing(self) -> dict[Any, int]:
        """Return the keys whose entries differ from those before the event, each with 1."""
        return {key: 1 for key, entry in self.changed.items() if self._entries.get(key) != entry}


class NewStateSlices:
    """The keys of a map as it will be, by a part of them.

    Parameters
    ----------
    index
        Part → keys, of the entries before the event.
    positions
        Where the part stands in the key.
    """

    def __init__(self, ahead: PendingWrites, index: Mapping[Any, Iterable[Any]], positions: tuple[int, ...]) -> None:
        self._index = index
        self._changed = ahead.changed
        self._mine: dict[Any, list[Any]] = {}
        place = positions[0]
        for key, entry in ahead.changed.items():
            if entry is not None:
                part = key[place] if len(positions) == 1 else tuple(key[at] for at in positions)
                self._mine.setdefault(part, []).append(key)

    def get(self, part: Any, default: Iterable[Any]) -> Iterable[Any]:
        """Return the keys with a part, `default` if there are none."""
        kept = [key for key in self._index.get(part, default) if key not in self._changed]
        return kept + self._mine.get(part, [])
