"""Subscriptions: what a transaction changed in the rows of a view, told to whom it may concern."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from cumulus.catalog.events import Row
from cumulus.catalog.types import EXACT
from cumulus.engine.protocol import Changes, Engine
from cumulus.errors import UsageError
from cumulus.views import Finisher
from cumulus.views.entries import Before
from cumulus.views.finishing import Finished
from cumulus.warehouse.describing import Describing


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


class Telling(Describing):
    """The part of a `Warehouse` that tells who has subscribed."""

    _subscriptions: list[Subscription]
    _is_telling: bool

    def subscribe(self, view: str, callback: Callback) -> Subscription:
        """Call `callback` after each transaction that changed rows of a view, with the list of `Change(old, new)`.

        The transaction is committed when the callback runs. If it raises, the others are still called and the state is
        whole; then the exception goes on to who made the change.

        Returns
        -------
        Subscription
            Its `cancel()` ends it.
        """
        with self._use():
            self._finisher(view)
            subscription = Subscription(view, callback, self._subscriptions)
            self._subscriptions.append(subscription)
            self._watch(view)
            return subscription

    def _watch(self, view: str) -> None:
        for name in self._finishers[view].touched.maps:
            self._applier.engine.watch(name)

    def _tell(self, changes: Mapping[str, Any]) -> None:
        """Call back who subscribed to what changed."""
        if not changes:
            return
        first: Exception | None = None
        self._is_telling = True
        try:
            for subscription in tuple(self._subscriptions):
                try:
                    rows = changed_rows(self._finishers[subscription.view], self._applier.engine, dict(changes))
                    if rows:
                        subscription.callback(rows)
                except Exception as problem:  # noqa: BLE001  # a callback may raise anything
                    problem.add_note("raised for a subscription; the transaction was committed")
                    first = first or problem
        finally:
            self._is_telling = False
        if first is not None:
            raise first

    def _check_quiet(self) -> None:
        if self._is_telling:
            raise UsageError("a callback must not change the warehouse", hint="Note what to do, and do it afterwards.")


def changed_rows(finisher: Finisher, engine: Engine, changes: Changes) -> list[Change]:
    """Return how the rows of a view changed in a committed transaction; ORDER BY and LIMIT play no part.

    A row of a bag that stands n times more or less is told n times.
    """
    touched: dict[tuple[Any, ...], None] = {}
    for name in finisher.touched.maps:
        for key in changes.get(name, ()):
            keys = finisher.touched.keys(name, key)
            if keys is None:
                return list(_all_changes(finisher, engine, changes))
            touched.update(dict.fromkeys(keys))
    return list(_changes_at(finisher, engine, changes, touched))


def _all_changes(finisher: Finisher, engine: Engine, changes: Changes) -> Iterator[Change]:
    """Yield the changes of a view of which every row may have changed."""
    first = finisher.maps[0]
    if not first.keys:
        return _changes_at(finisher, engine, changes, [()])
    present = dict.fromkeys(key for key, _ in engine.items(first.name))
    return _changes_at(finisher, engine, changes, present | dict.fromkeys(changes.get(first.name, ())))


def _changes_at(
    finisher: Finisher, engine: Engine, changes: Changes, keys: Iterable[tuple[Any, ...]]
) -> Iterator[Change]:
    before = Before(engine, engine.find, lambda name: changes.get(name, {}).items())
    names = [each.name for each in finisher.maps]
    with decimal.localcontext(EXACT):
        for key in keys:
            old = finisher.entry(key, [before.read(name, key) for name in names], before)
            new = finisher.entry(key, [engine.read(name, key) for name in names], engine)
            yield from _difference(old, new)


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
