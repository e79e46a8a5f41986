"""Rows of the interpreter's maps as frames, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cumulus.engine.frames.entries import entries_of, frame_of
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import check_can_be_cut, check_fits, layout_of
from cumulus.engine.interpreter.store import DictMap, MemoryMeter


class DictMapFrames:
    """The `cumulus.engine.protocol.FrameExchange` of the interpreter.

    Parameters
    ----------
    store
        Map → its store.
    settle
        Called with each map that was changed, before anybody else looks.
    """

    def __init__(self, store: Callable[[str], DictMap], meter: MemoryMeter, settle: Callable[[str], None]) -> None:
        self._store, self._meter, self._settle = store, meter, settle

    def copy(self, map: str) -> MapFrame:
        """Return all that is stored; see `Engine.copy`."""
        store = self._store(map)
        entries = ((store.unpack_key(key), (entry,) if store.flat else entry) for key, entry in store.entries.items())
        return frame_of(layout_of(store.definition), entries)

    def take(self, map: str) -> MapFrame:
        """Return all that is stored and leave the map empty; see `Engine.take`."""
        frame = self.copy(map)
        if frame.rows:
            self._store(map).remove_all()
            self._settle(map)
        return frame

    def take_all(self, maps: Iterable[str]) -> dict[str, MapFrame]:
        """Return what `take` does of the maps that have something; see `Engine.take_all`."""
        found = {map: self.copy(map) for map in maps if self._store(map).entries}
        for map in found:  # all of them or, where a number does not fit, none
            self._store(map).remove_all()
            self._settle(map)
        return found

    def add(self, map: str, frame: MapFrame, sign: int = 1) -> None:
        """Add rows to those with the same keys; see `Engine.add`."""
        store = self._store(map)
        check_fits(frame.layout, store.definition)
        self._meter.left -= frame.rows
        if self._meter.left < 0:
            self._meter.check_growth(grows=True)
        for key, stored in list(entries_of(frame)):
            store.add(store.pack_key(key), stored[0] if store.flat else stored, sign)
        self._settle(map)

    def cut(self, map: str, position: int, most: int) -> int:
        """Remove rows by a BIGINT key; see `Engine.cut`."""
        store = self._store(map)
        check_can_be_cut(store.definition, position)
        count = store.cut(position, most)
        self._settle(map)
        return count
