"""Subscriptions: what a transaction changed in the rows of a view, told to whom it may concern."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from cumulus.catalog.events import Row
from cumulus.engine.protocol import Changes, Engine
from cumulus.views import Finisher
from cumulus.views.finishing import Finished


class Change(NamedTuple):
    """One row of a view that changed: None before it came, None after it went."""

    old: Row | None
    new: Row | None


Callback: TypeAlias = Callable[[list[Change]], Any]


class Subscription:
    """A callback on one view; `cancel` ends it."""

    def __init__(self, view: str, callback: Callback, owner: list[Subscription]) -> None:
        self.view = view
        self.callback = callback
        self._owner = owner

    def cancel(self) -> None:
        """Call back no more; may be done in the callback itself, and more than once."""
        if self in self._owner:
            self._owner.remove(self)


def changed_rows(finisher: Finisher, engine: Engine, changes: Changes) -> list[Change]:
    """Return how the rows of a view changed in a committed transaction; ORDER BY and LIMIT play no part.

    A row of a bag that stands n times more or less is told n times.
    """
    names = [each.name for each in finisher.maps]
    keys: dict[tuple[Any, ...], None] = {}
    for name in names:
        keys.update(dict.fromkeys(changes.get(name, ())))
    return [change for key in keys for change in _changes_at(finisher, engine, changes, names, key)]


def _changes_at(
    finisher: Finisher, engine: Engine, changes: Changes, names: list[str], key: tuple[Any, ...]
) -> Iterator[Change]:
    before, after = [], []
    for name in names:
        changed = changes.get(name, {}).get(key)
        old, new = changed if changed is not None else (engine.read(name, key),) * 2
        before.append(old)
        after.append(new)
    yield from _difference(finisher.entry(key, before), finisher.entry(key, after))


def _difference(old: Finished | None, new: Finished | None) -> Iterator[Change]:
    if old is not None and new is not None and old.row == new.row:
        for _ in range(new.copies - old.copies):
            yield Change(None, new.row)
        for _ in range(old.copies - new.copies):
            yield Change(old.row, None)
        return
    gone = [] if old is None else [old.row] * old.copies
    come = [] if new is None else [new.row] * new.copies
    for place in range(max(len(gone), len(come))):
        yield Change(gone[place] if place < len(gone) else None, come[place] if place < len(come) else None)
