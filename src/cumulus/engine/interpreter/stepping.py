"""What an engine answers that takes every event by itself, in Python: nothing is fired without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cumulus.engine.batches import Bulk


class Stepping:
    """The part of an `Engine` about events that code takes without Python, where there is no such code."""

    def runner(self, bulk: Bulk, each: bool) -> None:
        """Return None: every event comes by `on_event`."""

    def open(self, relation: str, value: bool) -> None:
        """Say whether events need no check: they come by `on_event` anyway."""

    def checks(self, relation: str) -> bool:
        """Return False: nothing is fired that nobody has checked."""
        return False

    def take_upserted(self, relation: str) -> dict[int, int]:
        """Return nothing: see `runner`."""
        return {}

    def is_settled(self) -> bool:
        """Return True: see `checks`."""
        return True

    def builtin(self, relation: str, slow: Callable[..., Any]) -> Callable[..., Any]:
        """Return `slow`: there is no other way."""
        return slow

    def rest(self, value: bool) -> None:
        """Say whether builtins may take events: there are none."""

    def visitor(self) -> int:
        """Return 0: there are no builtins."""
        return 0

    def take_fired(self) -> dict[str, tuple[int, int]]:
        """Return what builtins have taken: nothing."""
        return {}

    def fire(self, sign: int, relation: str, row: tuple[object, ...]) -> None:
        """Return None: see `runner`."""
