"""Subscriptions: what a transaction changed in the rows of a view, told to whom it may concern."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cumulus.engine.protocol import Changes, Engine
from cumulus.views import Finisher
from cumulus.views.differences import Differences, differences_of
from cumulus.views.folding.plan import FoldPlan, plan_fold
from cumulus.views.row_changes import Change
from cumulus.warehouse.change_streams import Log

Callback: TypeAlias = Callable[[list[Change]], Any]


class Subscription:
    """A callback on one view; `cancel` ends it."""

    def __init__(self, view: str, callback: Callback) -> None:
        self.view = view
        self.callback = callback
        self.is_over = False

    def cancel(self) -> None:
        """Call back no more; may be done in the callback itself, and more than once."""
        self.is_over = True

    def take(self, number: int, rows: Sequence[Change]) -> None:
        """Call back."""
        self.callback(list(rows))

    def fail(self, number: int, problem: BaseException) -> None:
        """Let who made the change know."""
        raise problem


TOUCHED = Change((), ())
"""What a log of parts has of a transaction: that there was something."""
Receiver: TypeAlias = Subscription | Log
"""Who is told how the rows of a view change, as long as it is not over."""


def part_maps(finisher: Finisher) -> frozenset[str]:
    """Return the maps that hold the parts of a view's groups; a fold reads no others."""
    found = set(finisher.view.reads)
    plan = plan_fold(finisher, list(finisher.grouping), None)
    if isinstance(plan, FoldPlan):
        found |= {number.distinct.counted.map for number in plan.numbers if number.distinct is not None}
    return frozenset(found)


class Subscriptions:
    """Who is told what of the views of a warehouse; used by who has the turn."""

    def __init__(self) -> None:
        self._receivers: dict[Receiver, Differences] = {}
        """Whom to tell, and what finds the changes; those of one view share it, unless it was behind when one came."""
        self._logs: dict[str, Log] = {}
        self._part_logs: dict[str, tuple[Log, frozenset[str]]] = {}
        """View → who hears that parts of its groups changed, and the maps that hold them."""
        self._finishers: Mapping[str, Finisher] = {}
        self._engine: Engine | None = None
        self.is_telling = False

    def open(self, engine: Engine, finishers: Mapping[str, Finisher]) -> None:
        """Go on with an engine that has the same rows of the views that are subscribed to."""
        self._engine, self._finishers = engine, finishers
        moved: dict[Differences, str] = {differences: each.view for each, differences in self._receivers.items()}
        for differences, view in moved.items():
            differences.move(finishers[view], engine)
        self._part_logs = {view: (log, part_maps(finishers[view])) for view, (log, _) in self._part_logs.items()}
        self._watch()

    def close(self) -> None:
        """End everything: nobody is told anything any more."""
        for log in (*self._logs.values(), *(log for log, _ in self._part_logs.values())):
            log.close()
        for receiver in self._receivers:
            if isinstance(receiver, Subscription):
                receiver.cancel()
        self._receivers, self._logs, self._part_logs = {}, {}, {}
        self._finishers, self._engine = {}, None

    def add(self, view: str, callback: Callback) -> Subscription:
        """Call back when rows of a view change."""
        subscription = Subscription(view, callback)
        self._add(subscription)
        return subscription

    def log(self, view: str, number: int) -> Log:
        """Return the log of a view, which begins after the transaction with a number if there is none.

        One that will hear what a reading that failed has left untold is for nobody who comes later.
        """
        self.prune()
        if view not in self._logs or self._receivers[self._logs[view]].is_behind:
            log = Log(view, self._finishers[view].view.columns, number)
            self._add(log)
            self._logs[view] = log
        return self._logs[view]

    def part_log(self, view: str, number: int) -> Log:
        """Return the log that has an entry for each transaction that changes parts of a view's groups."""
        self.prune()
        if view not in self._part_logs:
            self._part_logs[view] = Log(view, (), number), part_maps(self._finishers[view])
            self._watch()
        return self._part_logs[view][0]

    @property
    def views(self) -> set[str]:
        """The views that somebody is told about."""
        self.prune()
        return {*(each.view for each in self._receivers), *self._part_logs}

    @property
    def maps(self) -> set[str]:
        """The maps that these depend on."""
        self.prune()
        return set(self._wanted())

    def _wanted(self) -> dict[str, None]:
        """Return the maps whose changes must be known."""
        names = dict.fromkeys(name for each in self._receivers for name in self._finishers[each.view].affected.maps)
        return names | dict.fromkeys(name for _, maps in self._part_logs.values() for name in sorted(maps))

    def _add(self, receiver: Receiver) -> None:
        assert self._engine is not None, "a warehouse is opened before anybody subscribes"
        shared = (
            found for each, found in self._receivers.items() if each.view == receiver.view and not found.is_behind
        )
        found = next(shared, None) or differences_of(self._finishers[receiver.view], self._engine)
        receivers = [*self._receivers.items(), (receiver, found)]
        # Streams before callbacks: these may raise what ends everything at once.
        self._receivers = dict(sorted(receivers, key=lambda each: isinstance(each[0], Subscription)))
        self._watch()

    def _watch(self) -> None:
        assert self._engine is not None, "a warehouse is opened before anybody subscribes"
        wanted = self._wanted()
        for name in wanted:
            self._engine.watch(name)
        for definition in self._engine.program.maps:
            if definition.name not in wanted:
                self._engine.unwatch(definition.name)

    def prune(self) -> None:
        """Forget whom nobody needs to tell any more, so that events are as quick as without them."""
        is_over = False
        for receiver in self._receivers:
            is_over |= receiver.is_over
        for log, _ in self._part_logs.values():
            is_over |= log.is_over
        if is_over:
            self._part_logs = {view: each for view, each in self._part_logs.items() if not each[0].is_over}
            self._receivers = {each: found for each, found in self._receivers.items() if not each.is_over}
            self._logs = {view: log for view, log in self._logs.items() if not log.is_over}
            self._watch()

    def tell(self, changes: Changes, number: int) -> None:
        """Tell everybody what a transaction changed.

        Raises
        ------
        BaseException
            The first one that was raised for a subscription, after all have been told.
        """
        for receiver in self._receivers:
            if receiver.is_over:
                self.prune()
                break
        if not changes:
            return
        for log, maps in self._part_logs.values():
            if any(changes.get(name) for name in maps):
                log.take(number, [TOUCHED])
        if not self._receivers:
            return
        first: Exception | None = None
        rows: dict[Differences, list[Change] | Exception] = {}
        self.is_telling = True
        receivers = dict(self._receivers)
        try:
            for receiver, differences in receivers.items():
                if receiver.is_over:
                    continue
                outcome = rows.get(differences)
                if outcome is None:
                    try:
                        outcome = differences.of(changes)
                    except Exception as problem:  # noqa: BLE001  # a user's function may raise anything
                        outcome = problem
                    rows[differences] = outcome
                try:
                    if isinstance(outcome, Exception):
                        receiver.fail(number, outcome)
                    elif outcome:
                        receiver.take(number, outcome)
                except Exception as problem:  # noqa: BLE001  # a callback may raise anything
                    first = first or problem
        except BaseException as problem:  # a second Ctrl-C
            for receiver in receivers:
                if isinstance(receiver, Log) and receiver.number < number:
                    receiver.fail(number, problem)
            raise
        finally:
            self.is_telling = False
        if first is not None:
            first.add_note("raised for a subscription; the transaction was committed")
            raise first
