"""An open transaction: what it has done so far, and what must hold when it ends."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from cumulus.catalog.events import Row
from cumulus.catalog.types import EXACT
from cumulus.engine.batches import Bulk, Counts, Rows, Upserts
from cumulus.engine.event_checks import EventChecks
from cumulus.engine.failures import ErrorLog
from cumulus.engine.integrity import DeferredCheck
from cumulus.engine.keyed_events import Operation, RowChange
from cumulus.engine.protocol import Changes, Engine, Run
from cumulus.engine.referring_rows import MovedRows, ReferringRows
from cumulus.interrupts import deliver

EXACT_CONTEXT = EXACT.copy()
_FEW = 8
"""Rows that are moved one by one: a run of code costs more to begin."""


class UnsettledError(Exception):
    """Events that were not looked at one by one leave a reference that may not hold."""


class Applying:
    """Says in a `with` that events are being applied, and makes decimal arithmetic exact; one does not nest.

    It is cheaper than `decimal.localcontext`, which copies.
    """

    __slots__ = ("_before", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        """What anybody would see now is half of a transaction."""

    def __enter__(self) -> None:
        self._before = decimal.getcontext()
        decimal.setcontext(EXACT_CONTEXT)
        self.is_on = True

    def __exit__(self, *_: object) -> None:
        self.is_on = False
        decimal.setcontext(self._before)


class Transaction:
    """Applies events in the open transaction of an engine, which somebody else opens and closes."""

    def __init__(
        self,
        engine: Engine,
        checks: EventChecks,
        changes_of: Callable[[Iterable[Operation]], Iterator[RowChange]],
        referring: ReferringRows,
        started_by: str,
    ) -> None:
        self._engine, self._fast = engine, engine.fast
        self._checks, self._changes_of, self._referring = checks, changes_of, referring
        self.started_by = started_by
        """The first table that is not static and had an event."""
        self.counts: Counts = Counter()
        self.stepped = 0
        """Events that came one by one."""
        self.deferred: list[DeferredCheck] = []
        """References that must hold at the end."""
        self.is_by_code = False
        """Whether code has taken events that nobody has looked at one by one."""
        self.is_abandoned = False
        self.changes: Changes = {}
        """Once it is committed: what it changed in the watched maps."""
        self.errors = ErrorLog()
        """Once it is committed: its events that views could not take in whole."""

    # --- one by one -------------------------------------------------------------------------------------------------

    def apply_all(self, operations: Iterable[Operation]) -> None:
        """Apply operations one by one, after all checks.

        Raises
        ------
        DataError
            If one must not be applied; the transaction must be rolled back then.
        """
        for relation, old, new in self._changes_of(operations):
            moved = self._referring.rows_to_move(relation, old, new) if relation in self._referring.tables else None
            if moved:
                self._move(-1, moved)
                self._apply(relation, old, new)
                self._move(1, moved)
            else:
                self._apply(relation, old, new)

    def _apply(self, relation: str, old: Row | None, new: Row | None) -> None:
        """Apply the events of a change."""
        for sign, row in ((-1, old), (1, new)):
            if row is None:
                continue
            deliver()
            if relation in self._checks.concerned:
                self.started_by = self._checks.check(sign, relation, row, self.deferred, self.started_by)
            self._engine.on_event(sign, relation, row)
            self.counts[sign, relation] += 1
            self.stepped += 1

    def _move(self, sign: int, moved: MovedRows) -> None:
        """Take rows that refer to another away, or put them back; that is no event to anybody else."""
        for name, rows in moved.items() if sign > 0 else reversed(moved.items()):
            listed = [row for row, count in rows.items() for _ in range(count)]
            bulk = Rows(sign, self._referring.relations[name], listed, tuple)
            run = self._runner(bulk) if len(listed) > _FEW else None
            at = 0
            while at < len(listed):
                at = at if run is None else run(at)
                if at < len(listed):
                    self._engine.on_event(sign, name, listed[at])
                at += 1

    def apply_batch(self, relation: str, changes: Mapping[Row, int]) -> None:
        """Fire a batch of net multiplicities, which nobody checks."""
        self._engine.on_batch(relation, changes)

    # --- by code ----------------------------------------------------------------------------------------------------

    def take(self, bulk: Bulk) -> None:
        """Apply a bulk, by code if there is some.

        Raises
        ------
        DataError
            As `apply`.
        UnsettledError
            If only who takes the events one by one can tell whether its references hold.
        """
        if not self.take_by_code(bulk):
            self.apply_all(bulk)

    def take_by_code(self, bulk: Bulk) -> bool:
        """Apply a bulk by code, what it leaves one by one, each in its turn; False if there is no code for it."""
        run = self._runner(bulk)
        if run is None:
            return False
        self.is_by_code = True
        at, end = 0, len(bulk)
        while True:
            reached = run(at)
            deliver()
            self.add(self._taken(bulk, at, reached))
            if reached >= end:
                break
            self.apply_all([bulk.event(reached)])
            at = reached + 1
        if not self._checks.is_trusting and not self.is_settled():
            raise UnsettledError
        return True

    def take_whole(self, bulk: Bulk) -> bool:
        """Apply a bulk by code; False if an event was left, and the transaction must be done otherwise: `restart`."""
        run = self._runner(bulk)
        return run is not None and run(0) == len(bulk)

    def is_settled(self) -> bool:
        """Whether the references of all events that code has taken surely hold now."""
        return self._fast is None or self._fast.is_settled()

    def add(self, counts: Counts) -> None:
        """Count events that were not applied one by one: none of a static table that comes too late."""
        for kind, count in counts.items():
            if count:
                self.counts[kind] += count
        static = self._checks.static
        self.started_by = self.started_by or next(
            (name for (_, name), count in counts.items() if count and name not in static), ""
        )

    def _runner(self, bulk: Bulk) -> Run | None:
        if self._fast is None or self._checks.close_bulk(bulk):
            return None
        return self._fast.runner(bulk, each=False)

    def _taken(self, bulk: Bulk, start: int, end: int) -> Counts:
        """Count the events that a run has taken since the last call, from one number to before another."""
        if not isinstance(bulk, Upserts):
            return bulk.counts(start, end)
        assert self._fast is not None
        return Counter({(sign, name): n for name in bulk.names for sign, n in self._fast.take_upserted(name).items()})

    # --- its end ----------------------------------------------------------------------------------------------------

    def touched(self) -> set[str]:
        """Return the maps that it has written to."""
        return self._engine.touched()

    def restart(self) -> None:
        """Undo everything that it has done, and go on."""
        self._engine.rollback()
        self._engine.begin()

    def abandon(self) -> None:
        """Undo everything at the end, instead of committing it."""
        self.is_abandoned = True
