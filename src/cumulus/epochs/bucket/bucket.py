"""A bucket: one engine and everything that decides which changes reach it.

A bucket is a function of its state and the packed payloads of an epoch, nothing else: replaying a log of payloads
gives the same maps, the same quarantine, the same errors and the same waiting rows. Both hosts rely on that.
"""

from __future__ import annotations

import decimal
import pickle
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import DELETE, INSERT, TRUNCATE, UPSERT, Row
from cumulus.catalog.partition import bucket_of
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine import snapshot
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.batches import Columns, Upserts, rows_of
from cumulus.engine.garbage_collection import uncollected
from cumulus.engine.integrity import Integrity, references, wanted_indexes
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.fast_path import is_plain, only_comes, rounds
from cumulus.epochs.bucket.moves import (
    InputChange,
    Key,
    Move,
    Position,
    Refused,
    bag_moves,
    changes_of,
    drop_repeated,
    in_order,
    keyed_moves,
    truncated_bag_moves,
)
from cumulus.epochs.bucket.positions import Positions
from cumulus.epochs.bucket.references import sees, violations
from cumulus.epochs.bucket.view_errors import FailedRow, failed_rows, row_text
from cumulus.epochs.intake.packing import Payload, unpack
from cumulus.epochs.intake.reading import Rejected
from cumulus.epochs.plan import BucketPlan, layout_of
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions

LATE_EPOCHS = 10


@dataclass(slots=True)
class Outcome:
    """What an epoch did to a bucket.

    What comes in is somewhere afterwards: ``events + waited`` is ``applied + repeated + waiting + quarantined +
    ignored``, where `waited` is what waited before the epoch.

    Parameters
    ----------
    events
        Input rows that this bucket counts (each row of the input is counted by one bucket), records that say nothing,
        and the deletions that truncations are.
    applied
        Rows that are in the tables, or were replaced or taken back in the same epoch.
    repeated
        Rows dropped because their position was seen.
    waiting
        Rows that wait for a parent, or for children to go.
    quarantine
        Rows that were refused.
    ignored
        Records that say nothing about rows, by what they are.
    views
        Views whose maps changed.
    errors, error_counts
        Rows that views could not take in whole: the first of each view, and how many of each.
    """

    events: int = 0
    applied: int = 0
    repeated: int = 0
    waiting: int = 0
    quarantine: list[Rejected] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    views: set[str] = field(default_factory=set)
    errors: list[FailedRow] = field(default_factory=list)
    error_counts: dict[str, int] = field(default_factory=dict)


class Bucket:
    """The state of one bucket, in memory.

    Parameters
    ----------
    program
        Compiled without RELY: nothing promises the order of tables inside an epoch.
    plan, index
        Which rows live here.
    make_engine
        Gives an empty engine for a program, the functions that it calls, and `indexes`
        (`cumulus.engine.protocol.Indexes`).
    late_epochs
        How many epochs a row may wait for its parent.
    functions
        The user's that the program's views call when they are written.
    """

    def __init__(
        self,
        program: Program,
        plan: BucketPlan,
        index: int,
        make_engine: Callable[..., Engine],
        late_epochs: int = LATE_EPOCHS,
        functions: Functions | None = None,
    ) -> None:
        self.program = program
        self.functions = functions
        self.plan = plan
        self.index = index
        self.late_epochs = late_epochs
        mine = layout_of(program, plan).bucket_program(index, plan.buckets)
        self._kept = dict(program.kept)
        keys = [(self._kept[each.name], tuple(sorted(each.key_positions))) for each in self._keyed()]
        indexes = dict.fromkeys([*wanted_indexes(mine), *keys])
        self.engine = make_engine(mine, functions, indexes=indexes)
        self._rows = Integrity(mine, self.engine)
        ordered = parents_first(program)
        self._static = tuple(each for each in ordered if each.static)
        self._streams = tuple(each for each in ordered if not each.static)
        self._watched: dict[str, set[str]] = {}
        for view in program.views:
            for name in view.reads:
                self._watched.setdefault(name, set()).add(view.name)
        self._assigned = sources(program)
        self._last: dict[str, Positions] = {}
        self._waiting: list[InputChange] = []
        kept = {each.name: each for each in program.relations if each.name in self._kept}
        self._references = [each for each in references(kept) if sees(plan.partitioned, each.child.name, each.key)]

    def _keyed(self) -> list[Relation]:
        """Return the tables whose kept rows are looked up by their primary keys."""
        kept = [each for each in self.program.relations if each.name in self._kept and each.key]
        return [each for each in kept if len(each.key) < len(each.columns)]

    def apply(self, epoch: int, packed: Iterable[bytes]) -> Outcome:
        """Apply the payloads of an epoch; all of them or, on an exception, nothing of use (throw the bucket away)."""
        with decimal.localcontext(EXACT), uncollected():
            return self._apply(epoch, packed)

    def _apply(self, epoch: int, packed: Iterable[bytes]) -> Outcome:
        payloads = unpack(packed)
        outcome = Outcome(events=sum(payload.count for payload in payloads))
        for payload in payloads:
            outcome.quarantine.extend(payload.rejected)
            outcome.events += len(payload.rejected)
            for name, count in payload.ignored.items():
                outcome.ignored[name] = outcome.ignored.get(name, 0) + count
                outcome.events += count
        fresh, straight = self._straight(epoch, payloads, outcome)
        self.engine.begin()
        if not self._went(straight):
            # Some row is unusual or fails: all of them go the long way, which knows what to say.
            self.engine.rollback()
            self.engine.begin()
            straight = {}
        for name, tables in straight.items():
            if self._reports(name, None):
                outcome.applied += sum(table.num_rows for table in tables)
        moves = self._moves_of(epoch, payloads, fresh, straight, outcome)
        going, late = violations(self._references, moves, self._rows.count)
        self._commit(self._wanted(going), straight, outcome)
        self._waiting = []
        for move in moves:
            reason = late.get(id(move))
            if reason is not None:
                self._wait(epoch, move, reason, outcome)
        outcome.waiting = sum(self._reports(each.relation, each.row) for each in self._waiting)
        return outcome

    def _moves_of(
        self,
        epoch: int,
        payloads: list[Payload],
        fresh: dict[str, list[Payload]],
        straight: Collection[str],
        outcome: Outcome,
    ) -> list[Move]:
        """Return the moves of what has waited and of what did not go straight."""
        others = [payload for payload in payloads if payload.relation not in fresh]
        others += [payload for name, mine in fresh.items() if name not in straight for payload in mine]
        changes = changes_of(others, epoch)
        waited: dict[str, list[InputChange]] = {}
        for change in self._waiting:
            waited.setdefault(change.relation, []).append(change)
        moves: list[Move] = []
        for relation in (*self._static, *self._streams):
            mine = [*waited.get(relation.name, ()), *changes.get(relation.name, ())]
            if mine:
                if relation.static:
                    mine = self._loadable(epoch, mine, outcome)
                moves.extend(self._moves(relation, mine, outcome, is_new=relation.name in fresh))
        return moves

    def _wanted(self, moves: list[Move]) -> list[Move]:
        return moves

    def _loadable(self, epoch: int, changes: list[InputChange], outcome: Outcome) -> list[InputChange]:
        """Refuse what is not an insertion into a static table in the first epoch: no trigger could take it."""
        fine = [change for change in changes if epoch == 1 and change.op == INSERT]
        for change in changes:
            if epoch != 1 or change.op != INSERT:
                reason = f"static table: {change.relation} is loaded in epoch 1 and does not change"
                self._refuse(Refused(change, reason), outcome)
        return fine

    def _moves(self, relation: Relation, changes: list[InputChange], outcome: Outcome, *, is_new: bool) -> list[Move]:
        """Return the moves of a table; `is_new`: what is repeated was dropped before."""
        name = relation.name
        positions: dict[Key, Position | None] = {}
        if relation.key and is_new:
            changes = in_order(changes)
        elif relation.key:
            last = self._positions(relation)
            if any(change.op == TRUNCATE for change in changes):
                positions = self._all_positions(relation, last)
            changes, seen, repeated = drop_repeated(changes, relation.key_positions, last)
            last.update(seen)
            outcome.repeated += sum(self._reports(name, change.row) for change in repeated)
        outcome.applied += sum(self._reports(name, change.row) for change in changes)
        gone: list[Row] = []
        if name in self._kept and relation.key:
            moves, refused, gone = keyed_moves(
                relation,
                changes,
                lambda key: self._rows.by_key(name, key),
                lambda row: self._owns(name, row),
                lambda truncation: _older(positions, truncation),
            )
        elif name in self._kept and any(change.op == TRUNCATE for change in changes):
            moves, refused, gone = truncated_bag_moves(relation, changes, self._rows_of(name))
        else:
            count_of = (lambda row: self._rows.multiplicity(name, row)) if name in self._kept else None
            moves, refused = bag_moves(relation, changes, count_of)
        for each in refused:
            self._refuse(each, outcome)
            outcome.applied -= self._reports(name, each.change.row)
        for row in gone:  # a truncation is also a deletion of each row
            outcome.events += self._reports(name, row)
            outcome.applied += self._reports(name, row)
        return moves

    def _rows_of(self, relation: str) -> dict[Row, int]:
        """Return the kept rows of a table, and how often each is there."""
        return {row: int(count) for row, (count,) in self.engine.items(self._kept[relation])}

    def _all_positions(self, relation: Relation, last: Positions) -> dict[Key, Position | None]:
        """Return the primary keys of the kept rows, and the last position of each."""
        if relation.name not in self._kept:
            return {}
        key_at = relation.key_positions
        keys = (tuple([row[at] for at in key_at]) for row, _ in self.engine.items(self._kept[relation.name]))
        return {key: last.get(key) for key in keys}

    def _owns(self, relation: str, row: Row) -> bool:
        column = self.plan.partitioned.get(relation)
        if column is None or self.plan.buckets == 1:
            return True
        position = self.program.relation(relation).position(column)
        return bucket_of(row[position], self.plan.buckets) == self.index

    def _reports(self, relation: str, row: Row | None) -> bool:
        """Whether this bucket is the one that speaks about a row: of several that saw it, exactly one does."""
        if relation not in self.plan.partitioned:
            return self.index == 0
        return row is None or self._owns(relation, row)

    def _refuse(self, refused: Refused, outcome: Outcome) -> None:
        change = refused.change
        if self._reports(change.relation, change.row):
            outcome.quarantine.append(
                Rejected(refused.reason, change.relation, change.source, change.position, _text(self.program, change))
            )

    def _wait(self, epoch: int, move: Move, reason: str, outcome: Outcome) -> None:
        cause = move.cause
        row = move.removed if move.added is None else move.added
        assert row is not None
        outcome.applied -= move.count * self._reports(move.relation, row)
        op = DELETE if move.added is None else INSERT if move.removed is None else UPSERT
        change = cause._replace(op=op, row=row, seq=None)
        if epoch - cause.since >= self.late_epochs:
            for _ in range(move.count):
                self._refuse(Refused(change, f"{reason} after {self.late_epochs} epochs"), outcome)
        else:
            self._waiting.extend([change] * move.count)

    def _positions(self, relation: Relation) -> Positions:
        if relation.name not in self._last:
            self._last[relation.name] = Positions(relation, is_native=self.engine.name == "native")
        return self._last[relation.name]

    def _straight(
        self, epoch: int, payloads: list[Payload], outcome: Outcome
    ) -> tuple[dict[str, list[Payload]], dict[str, list[pa.Table]]]:
        """Return the rows of tables from which code has dropped what is repeated, and the rounds of those of them that
        may go straight.

        Those are plain insertions and deletions, and of kept tables updates. The rows of kept tables are checked by
        code, all or none go so: it sees no moves. What has waited comes after them, so it must have other keys.
        """
        if self.engine.name != "native":
            return {}, {}
        found: dict[str, list[Payload]] = {}
        for payload in payloads:
            if payload.rows.num_rows:
                found.setdefault(payload.relation, []).append(payload)
        able = {name for name, mine in found.items() if self._may_go_straight(epoch, name, mine)}
        kept = found.keys() & self._kept.keys()
        if not kept <= able or any(self._meets(name, found[name]) for name in kept):
            able -= kept
        fresh: dict[str, list[Payload]] = {}
        straight: dict[str, list[pa.Table]] = {}
        for name in found:
            relation, mine = self.program.relation(name), found[name]
            newer = None if name not in able else self._positions(relation).newer(mine) if relation.key else mine
            if newer is None:
                continue
            fresh[name] = newer
            if self._reports(name, None):
                outcome.repeated += sum(each.rows.num_rows for each in mine) - sum(each.rows.num_rows for each in newer)
            dealt = rounds(relation, newer) if name in kept else [pa.concat_tables(each.rows for each in newer)]
            if dealt:
                straight[name] = dealt
        if not kept <= straight.keys():
            straight = {name: dealt for name, dealt in straight.items() if name not in kept}
        if epoch == 1 and any(each.name in found.keys() - straight.keys() for each in self._static):
            straight = {}  # static tables are loaded before all others
        return fresh, straight

    def _meets(self, name: str, payloads: list[Payload]) -> bool:
        """Whether a row that waits may have the key of one that has come."""
        relation = self.program.relation(name)
        first = relation.key_positions[0] if relation.key else 0
        waiting = {change.row[first] for change in self._waiting if change.relation == name}
        if not waiting:
            return False
        column = relation.columns[first].name
        return any(
            value in waiting for payload in payloads for value in payload.rows.column(column).unique().to_pylist()
        )

    def _may_go_straight(self, epoch: int, name: str, payloads: list[Payload]) -> bool:
        relation = self.program.relation(name)
        if relation.static and not (epoch == 1 and only_comes(payloads)):
            return False
        if name not in self._kept:
            return is_plain(relation, payloads, updates=False)
        # Of several buckets, one gets the new row of an update, and any may have the old one.
        updates = bool(relation.key) and (self.plan.buckets == 1 or name not in self.plan.partitioned)
        return self.engine.checks(name) and not relation.key_rely and is_plain(relation, payloads, updates=updates)

    def _went(self, straight: dict[str, list[pa.Table]]) -> bool:
        """Fire rounds of rows in the open transaction; False if a row was left."""
        for relation in self._static:
            for rows in straight.get(relation.name, ()):
                if not self._went_straight(INSERT, relation, rows):
                    return False
        steps = ((DELETE, self._streams[::-1]), (INSERT, self._streams), (UPSERT, self._streams))
        for number in range(max(map(len, straight.values()), default=0)):
            for operation, order in steps:
                for relation in order:
                    for rows in straight.get(relation.name, ())[number : number + 1]:
                        if not self._went_straight(operation, relation, rows):
                            return False
        return not straight or self.engine.is_settled()

    def _commit(self, moves: list[Move], straight: Collection[str], outcome: Outcome) -> None:
        """Apply moves, what goes before what comes, but static tables first; commit the open transaction."""
        if not moves and not straight:
            self.engine.rollback()
            return
        gone: dict[str, dict[Row, int]] = {}
        come: dict[str, dict[Row, int]] = {}
        for move in moves:
            if move.removed is not None:
                rows = gone.setdefault(move.relation, {})
                rows[move.removed] = rows.get(move.removed, 0) - move.count
            if move.added is not None:
                rows = come.setdefault(move.relation, {})
                rows[move.added] = rows.get(move.added, 0) + move.count
        for order, nets in ((self._static, come), (self._streams[::-1], gone), (self._streams, come)):
            for relation in order:
                if relation.name in nets:
                    self.engine.on_batch(relation.name, nets[relation.name])
        touched = self.engine.touched()
        self.engine.commit()
        for target, reads in self._assigned.items():  # the commit computes these
            if reads & touched:
                touched.add(target)
        for name in touched:
            outcome.views |= self._watched.get(name, set())
        errors = self.engine.take_errors()
        if errors:
            outcome.errors = failed_rows(self.program, errors, moves)
            outcome.error_counts = dict(errors.counts)

    def _went_straight(self, operation: int, relation: Relation, table: pa.Table) -> bool:
        """Fire the deletions, insertions or updates of a table; False if one was left."""
        mine = table.filter(pc.equal(table.column("_op"), operation)).select(list(relation.column_names))
        bulk = rows_of(-1 if operation == DELETE else 1, relation, mine, relation.checked)
        if not mine.num_rows or not isinstance(bulk, Columns):
            return not mine.num_rows
        run = self.engine.runner(Upserts(bulk) if operation == UPSERT else bulk, each=False)
        return run is not None and run(0) == len(bulk)

    def dump(self) -> bytes:
        """Return the whole state, compressed; `load` reads it back."""
        maps = {each.name: to_ipc(snapshot.dump(self.engine, each.name)) for each in self.program.maps}
        last = {name: each.dump() for name, each in self._last.items()}
        rest = pickle.dumps((last, [tuple(change) for change in self._waiting]), protocol=5)
        return pickle.dumps((maps, len(rest), pa.compress(rest, codec="lz4", asbytes=True)), protocol=5)

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        maps, size, compressed = pickle.loads(data)
        last, waiting = pickle.loads(pa.decompress(compressed, size, codec="lz4", asbytes=True))
        self._last = {}
        for name, positions in last.items():
            self._positions(self.program.relation(name)).load(positions)
        self._waiting = [InputChange(*each) for each in waiting]
        for name, table in maps.items():
            snapshot.restore(self.engine, name, from_ipc(table))
        with decimal.localcontext(EXACT):
            self.engine.begin()  # the := maps are computed; what fails in that was told before
            self.engine.commit()
        self.engine.take_errors()


def _older(positions: Mapping[Key, Position | None], truncation: InputChange) -> list[Key]:
    """Return the keys whose rows a truncation takes: a row from a later place of the source stays."""
    place = truncation.place()
    return [key for key, last in positions.items() if place is None or last is None or last <= place]


def _text(program: Program, change: InputChange) -> str:
    if change.op == TRUNCATE:
        return f"truncate {change.relation}"
    sign = {INSERT: "+", DELETE: "-", UPSERT: "~"}[change.op]
    return f"{sign}{change.relation}({row_text(program, change.relation, change.row)})"
