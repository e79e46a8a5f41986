"""The context of machine code as Python sees it: the words that both read and write."""

from __future__ import annotations

import ctypes
from typing import Any

from cumulus.engine.native.intake.python_rows import QUIET, READY, fired_word, rows_word
from cumulus.engine.native.store.memory_layout import ContextLayout

_I64 = ctypes.c_int64


class ContextWords:
    """The words of a context, all 0 at first."""

    def __init__(self, layout: ContextLayout) -> None:
        self.buffer = ctypes.create_string_buffer(layout.size + 8)
        """The memory; whoever uses the address keeps it."""
        self.at = (ctypes.addressof(self.buffer) + 7) // 8 * 8
        self.cells = (_I64 * (layout.size // 8)).from_address(self.at)
        self._places = {key: layout.word(key) // 8 for key in layout.words}
        self.quiet = self._places.get(QUIET, -1)
        """The place of `QUIET` in `cells`."""
        self.ready = self._places.get(READY, -1)
        """That of `READY`."""

    def set(self, offset: int, value: int) -> None:
        """Set a word of the context."""
        self.cells[offset >> 3] = value

    def get(self, offset: int) -> int:
        """Return a word of the context."""
        return self.cells[offset >> 3]

    def set_word(self, key: Any, value: int) -> None:
        """Set a word that code asked for, if it did."""
        place = self._places.get(key)
        if place is not None:
            self.cells[place] = value

    def get_word(self, key: Any) -> int:
        """Return a word that code asked for; 0 if it did not."""
        place = self._places.get(key)
        return 0 if place is None else self.cells[place]

    def counted_places(self, relation: str) -> tuple[int, int]:
        """Return where `cells` count events that builtins fired, and the rows that these add; -1 for nowhere."""
        return self._places.get(fired_word(relation), -1), self._places.get(rows_word(relation), -1)
