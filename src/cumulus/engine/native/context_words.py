"""The context of machine code as Python sees it: the words that both read and write."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from cumulus.engine.native.intake.python_rows import fired_word, rows_word
from cumulus.engine.native.store.memory_layout import ContextLayout

_I64 = ctypes.c_int64


class ContextWords:
    """The words of a context, all 0 at first.

    Parameters
    ----------
    layout
        Where they are.
    """

    def __init__(self, layout: ContextLayout) -> None:
        self.buffer = ctypes.create_string_buffer(layout.size + 8)
        """The memory; whoever uses the address keeps it."""
        self.at = (ctypes.addressof(self.buffer) + 7) // 8 * 8
        self._cells = (_I64 * (layout.size // 8)).from_address(self.at)
        self._places = {key: layout.word(key) // 8 for key in layout.words}

    def set(self, offset: int, value: int) -> None:
        """Set a word of the context."""
        self._cells[offset >> 3] = value

    def get(self, offset: int) -> int:
        """Return a word of the context."""
        return self._cells[offset >> 3]

    def set_word(self, key: Any, value: int) -> None:
        """Set a word that code asked for, if it did."""
        place = self._places.get(key)
        if place is not None:
            self._cells[place] = value

    def get_word(self, key: Any) -> int:
        """Return a word that code asked for; 0 if it did not."""
        place = self._places.get(key)
        return 0 if place is None else self._cells[place]

    def take_fired(self, relations: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return how many events of relations builtins have fired since the last call, and how many rows that adds."""
        found = {}
        for relation in relations:
            words = (fired_word(relation), rows_word(relation))
            fired, rows = map(self.get_word, words)
            if fired:
                found[relation] = (fired, rows)
                for word in words:
                    self.set_word(word, 0)
        return found
