"""What a transaction has changed in maps: of each key the oldest note in the journal, and what is there now."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from cumulus.engine.native.code.undo_log import NOTES, NUMBER
from cumulus.engine.native.image import Image
from cumulus.engine.native.store.memory_layout import JOURNAL, JOURNAL_USED
from cumulus.engine.native.values.map_access import I64, PTR, StoredMap
from cumulus.engine.protocol import Changes, Key, Values

FEW = 1 << 10
"""So many bytes of notes are looked at one by one; more as columns."""
Change = tuple[Values | None, Values | None]


class Notes:
    """The notes in the journal of an image."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._copy = image.named(NOTES, I64, [PTR, I64, PTR])

    def changes(self, stores: Iterable[StoredMap]) -> Changes:
        """Return what the open transaction has changed in some maps, in the order in which it came to each key."""
        used = self._image.words.cells[JOURNAL_USED >> 3]
        if not used:
            return {}
        return self._few(used, stores) if used <= FEW else self._many(used, stores)

    def _few(self, used: int, stores: Iterable[StoredMap]) -> Changes:
        numbered: dict[int, StoredMap] = {}
        for store in stores:
            numbered[store.store.number] = store
        words = (I64 * (used // 8)).from_address(self._image.words.cells[JOURNAL >> 3])[:]
        oldest: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        at = len(words)
        while at:
            last = words[at - 1]
            first = at - (last >> 32)
            noted = numbered.get(last & NUMBER)
            if noted is not None:
                behind = first + 1 + noted.key_words
                which = noted.store.number, tuple(words[first + 1 : behind])
                oldest.pop(which, None)  # so that what is told last is what changed first
                oldest[which] = words[behind : at - 1]
            at = first
        found: Changes = {}
        for (number, key), before in reversed(oldest.items()):
            store = numbered[number]
            after = store.value_words(key)
            changed = found.setdefault(store.store.name, {})
            if before == after:
                continue
            shown_of = store.codec.shown_of
            old, new = shown_of(before), None if after is None else shown_of(after)
            if old != new:
                changed[store.codec.key_of(key)] = old, new
        return found

    def _many(self, used: int, stores: Iterable[StoredMap]) -> Changes:
        words = np.empty(used // 8, dtype=np.int64)
        found: Changes = {}
        for store in stores:
            count = self._copy(self._image.at, store.store.number, ctypes.c_void_p(words.ctypes.data))
            notes = words[:count].reshape(-1, store.store.shape.keys + store.store.shape.values)[::-1]
            if count:
                found[store.store.name] = dict(_changed(store, notes))
        return found


def _changed(store: StoredMap, notes: npt.NDArray[np.int64]) -> Iterable[tuple[Key, Change]]:
    """Return what has changed in a map, by its notes, of which the oldest comes first."""
    width = store.store.shape.keys
    keys = map(tuple, notes[::-1, :width].tolist())
    oldest = dict(zip(keys, range(len(notes) - 1, -1, -1), strict=True))  # of equal keys the last one is in it
    first = notes[np.sort(np.fromiter(oldest.values(), np.int64, len(oldest)))]
    before, after = first[:, width : width + store.store.value_words], store.values_at(first[:, :width])
    differs = (before != after).any(axis=1)
    first, before, after = first[differs], before[differs], after[differs]
    olds, news = (map(store.codec.values_of, store.codec.all_stored(words)) for words in (before, after))
    changes = zip(store.codec.keys_of(first), zip(olds, news, strict=True), strict=True)
    return [(key, change) for key, change in changes if change[0] != change[1]]
