"""A bucket: one session and everything that decides which changes reach it.

A bucket is a function of its state and the packed payloads of an epoch, nothing else: replaying a log of payloads
gives the same maps, the same quarantine, the same errors and the same waiting rows. Both hosts rely on that.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from cumulus.catalog.events import DELETE, Row
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine import snapshot
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.frames.unbounded import Patience, bounded_frames
from cumulus.engine.integrity import Integrity, references, wanted_indexes
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.protocol import Engine
from cumulus.engine.session import Session
from cumulus.engine.transaction import Transaction
from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.bucket.fast_path import NOTHING_CHOSEN, ColumnarChoice, ColumnarPath
from cumulus.epochs.bucket.net_change_finder import NetChangeFinder
from cumulus.epochs.bucket.net_changes import NetChange, changes_of
from cumulus.epochs.bucket.outcome import EpochAccount, Outcome
from cumulus.epochs.bucket.positions import TablePositions
from cumulus.epochs.bucket.references import WaitingRows, is_checked, row_of, violations
from cumulus.epochs.bucket.table_changes import TableChanges
from cumulus.epochs.bucket.view_errors import failed_rows, totals_with
from cumulus.epochs.bucket.votes import Poll, Voter
from cumulus.epochs.intake.packing import Payload, notice_in, unpack
from cumulus.epochs.plan import BucketPlan, Ownership, layout_of
from cumulus.errors import EvaluationError
from cumulus.garbage_collection import gc_paused
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions

LATE_EPOCHS = 10
UNDECIDED = "parent with children: there are rows that refer to it"


class _Found(NamedTuple):
    """What a transaction is about: its net changes, the rows that are fired as columns, and those that are moved."""

    going: list[NetChange]
    chosen: ColumnarChoice = NOTHING_CHOSEN
    moved: Sequence[Payload] = ()


class Bucket:
    """The state of one bucket, in memory.

    Parameters
    ----------
    program
        Compiled without RELY: nothing promises the order of tables inside an epoch.
    make_engine
        Gives an empty engine for a program, the functions that it calls, and `indexes`
        (`cumulus.engine.protocol.Indexes`).
    refused
        (table, source, position) of rows that are left out, since a view refused them where they came first.
    ownership
        Which rows count here; None: as the plan says.
    published
        Tables of which each outcome says what has changed.
    """

    def __init__(
        self,
        program: Program,
        plan: BucketPlan,
        index: int,
        make_engine: Callable[..., Engine],
        late_epochs: int = LATE_EPOCHS,
        functions: Functions | None = None,
        refused: Collection[tuple[str, str, int]] = frozenset(),
        ownership: Ownership | None = None,
        published: Collection[str] = (),
    ) -> None:
        self.program, self.functions, self.plan, self.index, self._refused = program, functions, plan, index, refused
        self.applied: list[NetChange] = []
        """The net changes of the last epoch that were not fired as columns."""
        mine = layout_of(program, plan).bucket_program(index, plan.buckets)
        kept = {each.name: each for each in program.relations if each.name in dict(program.kept)}
        indexes = dict.fromkeys([*wanted_indexes(mine), *_key_indexes(program, kept.values())])
        self._tables = TableChanges(each for each in program.relations if each.name in published)
        self._make_engine = partial(make_engine, mine, functions, indexes=indexes)
        self._make_unbounded = partial(Interpreter, mine, functions, indexes=indexes)
        self._patience = Patience()
        engine = self._make_engine()
        self._ownership = ownership or Ownership(program, plan, index)
        self._positions = TablePositions(program, is_native=engine.fast is not None)
        self._waiting = WaitingRows(late_epochs)
        self._references = [
            each for each in references(kept) if is_checked(plan.partitioned, each.child.name, each.key, each.parent)
        ]
        self._open(engine)
        self._ordered = parents_first(program)
        self._assigned = sources(program)
        self._watched: dict[str, set[str]] = {}
        for view in program.views:
            for name in view.reads:
                self._watched.setdefault(name, set()).add(view.name)

    def _open(self, engine: Engine, *, is_unbounded: bool = False) -> None:
        """Begin a session over what an engine has.

        Parameters
        ----------
        is_unbounded
            Whether it stands in for one whose numbers have bounds.
        """
        self.engine, self._is_unbounded = engine, is_unbounded
        engine.raise_large_numbers()
        self._session = Session(engine.program, self.functions, engine, is_trusting=True)
        self._net_change_finder = NetChangeFinder(self._session, self._ownership, self._positions)
        self._voter = Voter(self._references, self.plan.partitioned, self._session.integrity.count)
        self._columnar = ColumnarPath(
            self._session, self.plan, self._positions, self._waiting, self._references, self._voter.tables
        )

    @property
    def integrity(self) -> Integrity:
        """What counts and finds kept rows."""
        return self._session.integrity

    def apply(self, epoch: int, packed: Sequence[bytes]) -> Outcome:
        """Apply the payloads of an epoch; all of them or, on an exception, nothing of use (throw the bucket away).

        Where buckets vote, a notice in the payloads says what all have said in the epoch before: `Poll.plain`.
        """
        account = EpochAccount(self.program, self._ownership)
        self.applied = []
        with decimal.localcontext(EXACT), gc_paused():
            notice = notice_in(packed) if self._voter.tables else None
            if notice is not None:
                self._apply_granted(epoch, Poll.of_plain(notice), account)
            self._apply(epoch, packed, account)
            account.outcome.poll = self._voter.vote(self._waiting)
            account.outcome.tables = self._tables.end()
            if self._is_unbounded and self._patience.is_over():
                self._bind()
        return account.outcome

    def _apply_granted(self, epoch: int, poll: Poll, account: EpochAccount) -> None:
        """Apply the deletions that have waited and to which no bucket has objected, as an epoch of their own."""
        granted = self._voter.granted(self._waiting, poll)
        if not granted:
            return
        going = set(map(id, granted))
        self._waiting.replace([change for change in self._waiting if id(change) not in going])
        # Nothing refers to these rows: each bucket has looked at them as they are now.
        self._commit(lambda _: _Found(self._net_change_finder.find(epoch, granted, (), {}, account)), account.outcome)

    def _apply(self, epoch: int, packed: Iterable[bytes], account: EpochAccount) -> None:
        payloads, outcome = unpack(packed), account.outcome
        for payload in payloads:
            outcome.take_in(payload)
        fresh, chosen = ({}, ColumnarChoice()) if self._refused else self._columnar.choose(epoch, payloads, account)
        net_changes: list[NetChange] = []
        late: dict[int, str] = {}

        def find(opened: Transaction) -> _Found:
            nonlocal chosen
            while not self._columnar.fire(opened, chosen):
                # Some row is unusual or fails: it goes the long way, which knows what to say, if need be with all.
                opened.restart()
                chosen = self._columnar.without_updates_of_parents(fresh, chosen)
            for name, tables in chosen.rounds.items():
                account.apply(name, None, sum(table.num_rows for table in tables))
            others = [payload for payload in payloads if payload.relation not in fresh]
            for name, mine in fresh.items():
                others += chosen.aside.get(name, ()) if name in chosen.rounds else mine
            moved = [payload for payload in others if payload.is_moved]
            others = [payload for payload in others if not payload.is_moved]
            net_changes.extend(self._net_change_finder.find(epoch, self._waiting, others, fresh, account))
            asked = {id(net_change): UNDECIDED for net_change in net_changes if self._voter.needs_vote(net_change)}
            decided = [net_change for net_change in net_changes if id(net_change) not in asked]
            going, waiting = violations(self._references, decided, self._session.integrity.count)
            late.update(waiting | asked)
            going = (
                [net_change for net_change in going if _origin(net_change) not in self._refused]
                if self._refused
                else going
            )
            return _Found(going, chosen, moved)

        self._commit(find, outcome)
        self._waiting.replace([])
        self._postpone(epoch, net_changes, late, account)
        for change in self._waiting:
            account.wait(change.relation, change.row)

    def _commit(self, find: Callable[[Transaction], _Found], outcome: Outcome) -> None:
        """Apply the net changes that `find` returns, in the transaction in which it has fired what it takes as columns.

        If a number is too large for the words of maps, all that was found is applied to maps without bounds instead.
        """
        found: _Found | None = None
        try:
            with self._session.transaction() as opened:
                found = find(opened)
                touched = self._complete(found, opened)
        except EvaluationError:
            if found is None or self.engine.fast is None:
                raise
            self._unbind()
            with self._session.transaction() as opened:
                self._columnar.fire(opened, found.chosen)
                touched = self._complete(found, opened)
        self.applied += found.going
        self._tables.add(found.chosen.rounds, found.going)
        if not opened.is_abandoned:
            self._tell(touched, found.going, opened, outcome)

    def _complete(self, found: _Found, opened: Transaction) -> set[str]:
        """Apply the net changes of a transaction; return the maps that it has written to."""
        self._fire(found.going, found.moved, opened)
        if not found.going and not found.moved and not found.chosen.rounds:
            opened.abandon()
        return opened.touched()

    def _postpone(
        self, epoch: int, net_changes: list[NetChange], late: Mapping[int, str], account: EpochAccount
    ) -> None:
        """Let net changes wait, for the reasons in `late`, or refuse them if they have waited long enough."""
        for net_change in net_changes:
            reason = late.get(id(net_change))
            if reason is not None:
                account.apply(net_change.relation, row_of(net_change), -net_change.count)
                # What a deletion waits for may be told an epoch later.
                grace = 1 if net_change.added is None and net_change.relation in self._voter.later else 0
                for refused in self._waiting.add(epoch, net_change, reason, grace=grace):
                    account.refuse(refused)

    def _fire(self, net_changes: list[NetChange], moved: Sequence[Payload], opened: Transaction) -> None:
        """Apply net changes and moved rows, what goes before what comes, but static tables first."""
        gone: dict[str, dict[Row, int]] = {}
        come: dict[str, dict[Row, int]] = {}
        for net_change in net_changes:
            if net_change.removed is not None:
                rows = gone.setdefault(net_change.relation, {})
                rows[net_change.removed] = rows.get(net_change.removed, 0) - net_change.count
            if net_change.added is not None:
                rows = come.setdefault(net_change.relation, {})
                rows[net_change.added] = rows.get(net_change.added, 0) + net_change.count
        self._move_referring(net_changes, gone, come)
        for change in (change for changes in changes_of(moved, 0).values() for change in changes):
            rows = (gone if change.op == DELETE else come).setdefault(change.relation, {})
            rows[change.row] = rows.get(change.row, 0) + change.op
        static = [each for each in self._ordered if each.static]
        streams = [each for each in self._ordered if not each.static]
        for order, nets in ((static, come), (streams[::-1], gone), (streams, come)):
            for relation in order:
                if relation.name in nets:
                    opened.apply_batch(relation.name, nets[relation.name])

    def _move_referring(
        self, net_changes: list[NetChange], gone: dict[str, dict[Row, int]], come: dict[str, dict[Row, int]]
    ) -> None:
        """Let the rows that refer to a changed one, and do not go themselves, go and come back."""
        referring = self._session.referring
        moved: dict[str, dict[Row, int]] = {}
        for net_change in net_changes:
            if net_change.relation in referring.tables and net_change.removed is not None:
                for name, rows in referring.rows_to_move(
                    net_change.relation, net_change.removed, net_change.added
                ).items():
                    moved.setdefault(name, {}).update(rows)
        for name, rows in moved.items():
            going, coming = gone.setdefault(name, {}), come.setdefault(name, {})
            for row, count in rows.items():
                left = count + going.get(row, 0)
                if left:
                    going[row] = -count
                    coming[row] = coming.get(row, 0) + left

    def _tell(self, touched: set[str], net_changes: list[NetChange], done: Transaction, outcome: Outcome) -> None:
        """Note which views have changed, and which rows these could not take in."""
        for target, reads in self._assigned.items():  # the commit has computed these
            if reads & touched:
                touched.add(target)
        outcome.maps |= touched
        for name in touched:
            outcome.views |= self._watched.get(name, set())
        if done.errors:
            outcome.errors += failed_rows(self.program, done.errors, net_changes)
            outcome.error_counts = totals_with(outcome.error_counts, done.errors.counts)

    @property
    def state(self) -> BucketContents:
        """All that the bucket remembers."""
        maps = {each.name: snapshot.dump(self.engine, each.name) for each in self.program.maps}
        return BucketContents(maps, self._positions.dump(), list(self._waiting))

    def dump(self) -> bytes:
        """Return the whole state, compressed; `load` reads it back."""
        return self.state.pack()

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        self.take(BucketContents.unpack(data))

    def take(self, state: BucketContents) -> None:
        """Replace the state."""
        self._positions.load(state.positions)
        self._waiting.replace(list(state.waiting))
        try:
            self._restore(state.maps)
        except EvaluationError:
            if self.engine.fast is None:
                raise
            self._open(self._make_unbounded(), is_unbounded=True)
            self._restore(state.maps)

    def vote(self) -> Poll:
        """Return what this bucket says to the deletions that wait."""
        with decimal.localcontext(EXACT):
            return self._voter.vote(self._waiting)

    def _restore(self, maps: Mapping[str, pa.Table]) -> None:
        for name, table in maps.items():
            snapshot.restore(self.engine, name, table)
        self._session.compute_assigned()

    # --- numbers of any length --------------------------------------------------------------------------------------

    def _unbind(self) -> None:
        """Go on with maps whose sums have no bound, in Python: slower, and as exact."""
        held = self.engine
        self._open(self._make_unbounded(), is_unbounded=True)
        for definition in held.program.maps:
            self.engine.restore(definition.name, held.stored(definition.name))
        held.close()
        self._session.compute_assigned()
        self._patience.begin()

    def _bind(self) -> None:
        """Go back to sums of words if all fit."""
        try:
            held = bounded_frames(self.engine.program, self.engine.stored)
        except EvaluationError:
            return
        engine = self._make_engine()
        for name, frame in held.items():
            engine.take(name)  # what it has initially
            engine.add(name, frame)
        self._open(engine)
        self._session.compute_assigned()


def _key_indexes(program: Program, kept: Iterable[Relation]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the indexes by which kept rows are looked up by their primary keys."""
    maps = dict(program.kept)
    return [
        (maps[each.name], tuple(sorted(each.key_positions)))
        for each in kept
        if each.key and len(each.key) < len(each.columns)
    ]


def _origin(net_change: NetChange) -> tuple[str, str, int]:
    """Return where a net change comes from: its table, source and position."""
    return net_change.relation, net_change.cause.source, net_change.cause.position
