"""A bucket: one session and everything that decides which changes reach it.

A bucket is a function of its state and the packed payloads of an epoch, nothing else: replaying a log of payloads
gives the same maps, the same quarantine, the same errors and the same waiting rows. Both hosts rely on that.
"""

from __future__ import annotations

import decimal
import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine import snapshot
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.integrity import references, wanted_indexes
from cumulus.engine.protocol import Engine
from cumulus.engine.session import Session
from cumulus.engine.transaction import Transaction
from cumulus.epochs.bucket.fast_path import Chosen, ColumnarPath
from cumulus.epochs.bucket.move_finder import MoveFinder
from cumulus.epochs.bucket.moves import InputChange, Move
from cumulus.epochs.bucket.outcome import EpochAccount, Outcome
from cumulus.epochs.bucket.ownership import Ownership
from cumulus.epochs.bucket.positions import TablePositions
from cumulus.epochs.bucket.references import is_checked, violations
from cumulus.epochs.bucket.view_errors import failed_rows, totals_with
from cumulus.epochs.bucket.votes import Poll, Voter
from cumulus.epochs.bucket.waiting import WaitingRows, row_of
from cumulus.epochs.intake.packing import notice_in, unpack
from cumulus.epochs.plan import BucketPlan, layout_of
from cumulus.garbage_collection import uncollected
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions

LATE_EPOCHS = 10
UNDECIDED = "parent with children: there are rows that refer to it"


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
    ) -> None:
        self.program, self.functions, self.plan, self.index = program, functions, plan, index
        self._refused = refused
        mine = layout_of(program, plan).bucket_program(index, plan.buckets)
        kept = {each.name: each for each in program.relations if each.name in dict(program.kept)}
        indexes = dict.fromkeys([*wanted_indexes(mine), *_key_indexes(program, kept.values())])
        self.engine = make_engine(mine, functions, indexes=indexes)
        self._session = Session(mine, functions, self.engine, is_trusting=True)
        self._ownership = Ownership(program, plan, index)
        self._positions = TablePositions(program, is_native=self.engine.fast is not None)
        self._waiting = WaitingRows(late_epochs)
        self._moves = MoveFinder(self._session, self._ownership, self._positions)
        self._references = [
            each for each in references(kept) if is_checked(plan.partitioned, each.child.name, each.key, each.parent)
        ]
        self._voter = Voter(self._references, plan.partitioned, self._session.integrity.count)
        self._columnar = ColumnarPath(
            self._session, plan, self._positions, self._waiting, self._references, self._voter.tables
        )
        self._ordered = parents_first(program)
        self._assigned = sources(program)
        self._watched: dict[str, set[str]] = {}
        for view in program.views:
            for name in view.reads:
                self._watched.setdefault(name, set()).add(view.name)

    def apply(self, epoch: int, packed: Sequence[bytes]) -> Outcome:
        """Apply the payloads of an epoch; all of them or, on an exception, nothing of use (throw the bucket away).

        Where buckets vote, a notice in the payloads says what all have said in the epoch before: `Poll.plain`.
        """
        account = EpochAccount(self.program, self._ownership)
        with decimal.localcontext(EXACT), uncollected():
            notice = notice_in(packed) if self._voter.tables else None
            if notice is not None:
                self._apply_granted(epoch, Poll.of_plain(notice), account)
            self._apply(epoch, packed, account)
            account.outcome.poll = self._voter.vote(self._waiting)
        return account.outcome

    def _apply_granted(self, epoch: int, poll: Poll, account: EpochAccount) -> None:
        """Apply the deletions that have waited and to which no bucket has objected, as an epoch of their own."""
        granted = self._voter.granted(self._waiting, poll)
        if not granted:
            return
        going = set(map(id, granted))
        self._waiting.replace([change for change in self._waiting if id(change) not in going])
        with self._session.transaction() as opened:
            moves = self._moves.find(epoch, granted, (), {}, account)
            self._fire(moves, opened)  # nothing refers to these rows: each bucket has looked at them as they are now
            touched = opened.touched()
        self._tell(touched, moves, opened, account.outcome)

    def _apply(self, epoch: int, packed: Iterable[bytes], account: EpochAccount) -> None:
        payloads, outcome = unpack(packed), account.outcome
        for payload in payloads:
            outcome.take_in(payload)
        fresh, chosen = ({}, Chosen()) if self._refused else self._columnar.choose(epoch, payloads, account)
        with self._session.transaction() as opened:
            while not self._columnar.fire(opened, chosen):
                # Some row is unusual or fails: it goes the long way, which knows what to say, if need be with all.
                opened.restart()
                chosen = self._columnar.without_updates_of_parents(fresh, chosen)
            for name, tables in chosen.rounds.items():
                account.apply(name, None, sum(table.num_rows for table in tables))
            others = [payload for payload in payloads if payload.relation not in fresh]
            for name, mine in fresh.items():
                others += chosen.aside.get(name, ()) if name in chosen.rounds else mine
            moves = self._moves.find(epoch, self._waiting, others, fresh, account)
            asked = {id(move): UNDECIDED for move in moves if self._voter.is_asked_about(move)}
            decided = [move for move in moves if id(move) not in asked]
            going, late = violations(self._references, decided, self._session.integrity.count)
            going = [move for move in going if _origin(move) not in self._refused] if self._refused else going
            self._fire(going, opened)
            touched = opened.touched()
            if not going and not chosen.rounds:
                opened.abandon()
        if not opened.is_abandoned:
            self._tell(touched, going, opened, outcome)
        self._waiting.replace([])
        self._postpone(epoch, moves, late | asked, account)
        for change in self._waiting:
            account.wait(change.relation, change.row)

    def _postpone(self, epoch: int, moves: list[Move], late: Mapping[int, str], account: EpochAccount) -> None:
        """Let moves wait, for the reasons in `late`, or refuse them if they have waited long enough."""
        for move in moves:
            reason = late.get(id(move))
            if reason is not None:
                account.apply(move.relation, row_of(move), -move.count)
                # What a deletion waits for may be told an epoch later.
                grace = 1 if move.added is None and move.relation in self._voter.later else 0
                for refused in self._waiting.add(epoch, move, reason, grace=grace):
                    account.refuse(refused)

    def _fire(self, moves: list[Move], opened: Transaction) -> None:
        """Apply moves, what goes before what comes, but static tables first."""
        gone: dict[str, dict[Row, int]] = {}
        come: dict[str, dict[Row, int]] = {}
        for move in moves:
            if move.removed is not None:
                rows = gone.setdefault(move.relation, {})
                rows[move.removed] = rows.get(move.removed, 0) - move.count
            if move.added is not None:
                rows = come.setdefault(move.relation, {})
                rows[move.added] = rows.get(move.added, 0) + move.count
        self._move_referring(moves, gone, come)
        static = [each for each in self._ordered if each.static]
        streams = [each for each in self._ordered if not each.static]
        for order, nets in ((static, come), (streams[::-1], gone), (streams, come)):
            for relation in order:
                if relation.name in nets:
                    opened.apply_batch(relation.name, nets[relation.name])

    def _move_referring(
        self, moves: list[Move], gone: dict[str, dict[Row, int]], come: dict[str, dict[Row, int]]
    ) -> None:
        """Let the rows that refer to a changed one, and do not go themselves, go and come back."""
        referring = self._session.referring
        moved: dict[str, dict[Row, int]] = {}
        for move in moves:
            if move.relation in referring.tables and move.removed is not None:
                for name, rows in referring.around(move.relation, move.removed, move.added).items():
                    moved.setdefault(name, {}).update(rows)
        for name, rows in moved.items():
            going, coming = gone.setdefault(name, {}), come.setdefault(name, {})
            for row, count in rows.items():
                left = count + going.get(row, 0)
                if left:
                    going[row] = -count
                    coming[row] = coming.get(row, 0) + left

    def _tell(self, touched: set[str], moves: list[Move], done: Transaction, outcome: Outcome) -> None:
        """Note which views have changed, and which rows these could not take in."""
        for target, reads in self._assigned.items():  # the commit has computed these
            if reads & touched:
                touched.add(target)
        outcome.maps |= touched
        for name in touched:
            outcome.views |= self._watched.get(name, set())
        if done.errors:
            outcome.errors += failed_rows(self.program, done.errors, moves)
            outcome.error_counts = totals_with(outcome.error_counts, done.errors.counts)

    def dump(self) -> bytes:
        """Return the whole state, compressed; `load` reads it back."""
        maps = {each.name: to_ipc(snapshot.dump(self.engine, each.name)) for each in self.program.maps}
        rest = pickle.dumps((self._positions.dump(), [tuple(change) for change in self._waiting]), protocol=5)
        return pickle.dumps((maps, len(rest), pa.compress(rest, codec="lz4", asbytes=True)), protocol=5)

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        maps, size, compressed = pickle.loads(data)
        last, waiting = pickle.loads(pa.decompress(compressed, size, codec="lz4", asbytes=True))
        self._positions.load(last)
        self._waiting.replace([InputChange(*each) for each in waiting])
        for name, table in maps.items():
            snapshot.restore(self.engine, name, from_ipc(table))
        self._session.compute_assigned()


def _key_indexes(program: Program, kept: Iterable[Relation]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the indexes by which kept rows are looked up by their primary keys."""
    maps = dict(program.kept)
    return [
        (maps[each.name], tuple(sorted(each.key_positions)))
        for each in kept
        if each.key and len(each.key) < len(each.columns)
    ]


def _origin(move: Move) -> tuple[str, str, int]:
    """Return where a move comes from: its table, source and position."""
    return move.relation, move.cause.source, move.cause.position
