"""A bucket: one engine and everything that decides which changes reach it.

A bucket is a function of its state and the packed payloads of an epoch, nothing else: replaying a log of payloads
gives the same maps, the same quarantine, the same errors and the same waiting rows. Both hosts rely on that.
"""

from __future__ import annotations

import decimal
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.algebra.user import Functions
from cumulus.catalog.events import Row
from cumulus.catalog.partition import bucket_of
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine import snapshot
from cumulus.engine.assignments import sources
from cumulus.engine.bulk import Columns, rows_of
from cumulus.engine.collecting import uncollected
from cumulus.engine.protocol import Engine
from cumulus.epochs.changes import (
    Change,
    Key,
    Move,
    Refused,
    bag_moves,
    changes_of,
    drop_repeated,
    keyed_moves,
)
from cumulus.epochs.files import from_ipc, to_ipc
from cumulus.epochs.packing import Chunk, unpack
from cumulus.epochs.plan import Plan, layout_of
from cumulus.epochs.positions import Positions
from cumulus.epochs.reading import DELETE, INSERT, UPSERT, Rejected
from cumulus.epochs.references import Reference, reference, sees, violations
from cumulus.epochs.view_errors import FailedRow, failed_rows, row_text
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import Program

LATE_EPOCHS = 10


@dataclass(slots=True)
class Outcome:
    """What an epoch did to a bucket.

    Parameters
    ----------
    events
        Input rows that this bucket counts (each row of the input is counted by one bucket).
    repeated
        Rows dropped because their position was seen.
    waiting
        Rows that wait for a parent, or for children to go.
    quarantine
        Rows that were refused.
    views
        Views whose maps changed.
    errors, error_counts
        Rows that views could not take in whole: the first of each view, and how many of each.
    """

    events: int = 0
    repeated: int = 0
    waiting: int = 0
    quarantine: list[Rejected] = field(default_factory=list)
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
        Gives an empty engine for a program and the functions that it calls.
    late_epochs
        How many epochs a row may wait for its parent.
    functions
        The user's that the program's views call when they are written.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        index: int,
        make_engine: Callable[[Program, Functions | None], Engine],
        late_epochs: int = LATE_EPOCHS,
        functions: Functions | None = None,
    ) -> None:
        self.program = program
        self.functions = functions
        self.plan = plan
        self.index = index
        self.late_epochs = late_epochs
        self.engine = make_engine(layout_of(program, plan).bucket_program(index, plan.buckets), functions)
        self._order = parents_first(program)
        self._kept = dict(program.kept)
        self._watched: dict[str, set[str]] = {}
        for view in program.views:
            for name in view.reads:
                self._watched.setdefault(name, set()).add(view.name)
        self._assigned = sources(program)
        self._current: dict[str, dict[Key, Row]] = {}
        self._last: dict[str, Positions] = {}
        self._waiting: list[Change] = []
        self._references = self._empty_references()
        self._index_rows()

    def apply(self, epoch: int, payloads: Iterable[bytes]) -> Outcome:
        """Apply the payloads of one epoch; all of it or, on an exception, nothing of use (throw the bucket away)."""
        with decimal.localcontext(EXACT), uncollected():
            return self._apply(epoch, payloads)

    def _apply(self, epoch: int, payloads: Iterable[bytes]) -> Outcome:
        chunks = unpack(payloads)
        outcome = Outcome(events=sum(chunk.count for chunk in chunks))
        for chunk in chunks:
            outcome.quarantine.extend(chunk.rejected)
            outcome.events += len(chunk.rejected)
        straight = self._straight(chunks, outcome)
        changes = changes_of((chunk for chunk in chunks if chunk.relation not in straight), epoch)
        waited: dict[str, list[Change]] = {}
        for change in self._waiting:
            waited.setdefault(change.relation, []).append(change)
        moves: list[Move] = []
        for relation in self._order:
            mine = [*waited.get(relation.name, ()), *changes.get(relation.name, ())]
            if mine:
                if relation.static:
                    mine = self._loadable(epoch, mine, outcome)
                moves.extend(self._moves(relation, mine, outcome))
        going, late = violations(self._references, moves)
        self._waiting = []
        for move in moves:
            reason = late.get(id(move))
            if reason is not None:
                self._wait(epoch, move, reason, outcome)
        if not self._fire(going, straight, outcome):
            # Some row is unusual or fails: all of them go the long way, which knows what to say.
            again = changes_of((chunk for mine in straight.values() for chunk in mine), epoch)
            for name, mine in again.items():
                going.extend(self._moves(self.program.relation(name), mine, outcome))
            self._fire(going, {}, outcome)
        outcome.waiting = len(self._waiting)
        return outcome

    def _loadable(self, epoch: int, changes: list[Change], outcome: Outcome) -> list[Change]:
        """Refuse what is not an insertion into a static table in the first epoch: no trigger could take it."""
        fine = [change for change in changes if epoch == 1 and change.op == INSERT]
        for change in changes:
            if epoch != 1 or change.op != INSERT:
                reason = f"static table: {change.relation} is loaded in epoch 1 and does not change"
                self._refuse(Refused(change, reason), outcome)
        return fine

    def _moves(self, relation: Relation, changes: list[Change], outcome: Outcome) -> list[Move]:
        name = relation.name
        if relation.key:
            last = self._positions(relation)
            changes, seen, repeated = drop_repeated(changes, relation.key_positions, last)
            last.update(seen)
            if self._reports(name, None):
                outcome.repeated += repeated
        if name in self._current:
            moves, refused = keyed_moves(relation, changes, self._current[name], lambda row: self._owns(name, row))
        else:
            count_of = self._multiplicity(self._kept[name]) if name in self._kept else None
            moves, refused = bag_moves(relation, changes, count_of)
        for each in refused:
            self._refuse(each, outcome)
        return moves

    def _multiplicity(self, kept: str) -> Callable[[Row], int]:
        def count_of(row: Row) -> int:
            values = self.engine.read(kept, row)
            return 0 if values is None else int(values[0])

        return count_of

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

    def _straight(self, chunks: list[Chunk], outcome: Outcome) -> dict[str, list[Chunk]]:
        """Return the rows of tables whose every row is a plain insertion or deletion that nothing can refuse.

        Nothing is kept of them, so their net change needs not be known: machine code takes the columns as they are.
        What was repeated is dropped from them.
        """
        if self.engine.name != "native":
            return {}
        plain: dict[str, list[Chunk]] = {}
        for chunk in chunks:
            if chunk.rows.num_rows:
                plain.setdefault(chunk.relation, []).append(chunk)
        found: dict[str, list[Chunk]] = {}
        for name, mine in plain.items():
            relation = self.program.relation(name)
            if relation.static or name in self._kept or any(map(_has_upserts, mine)):
                continue
            newer = self._positions(relation).newer(mine) if relation.key else mine
            if newer is None:
                continue
            found[name] = newer
            if self._reports(name, None):
                outcome.repeated += sum(each.rows.num_rows for each in mine) - sum(each.rows.num_rows for each in newer)
        return found

    def _fire(self, moves: list[Move], straight: dict[str, list[Chunk]], outcome: Outcome) -> bool:
        """Apply moves and rows in one transaction; False, and nothing is done, if a row cannot go straight."""
        if not moves and not straight:
            return True
        touched = self._transaction(moves, straight)
        if touched is None:
            return False
        for name in touched:
            outcome.views |= self._watched.get(name, set())
        errors = self.engine.take_errors()
        if errors:
            outcome.errors = failed_rows(self.program, errors, moves)
            outcome.error_counts = dict(errors.counts)
        for move in moves:
            self._remember(move)
        return True

    def _transaction(self, moves: list[Move], straight: dict[str, list[Chunk]]) -> set[str] | None:
        """Apply moves and rows, what goes before what comes; return the maps written to, None if a row was left."""
        gone: dict[str, dict[Row, int]] = {}
        come: dict[str, dict[Row, int]] = {}
        for move in moves:
            if move.removed is not None:
                rows = gone.setdefault(move.relation, {})
                rows[move.removed] = rows.get(move.removed, 0) - move.count
            if move.added is not None:
                rows = come.setdefault(move.relation, {})
                rows[move.added] = rows.get(move.added, 0) + move.count
        self.engine.begin()
        for sign, order, nets in ((-1, reversed(self._order), gone), (1, iter(self._order), come)):
            for relation in order:
                if relation.name in nets:
                    self.engine.on_batch(relation.name, nets[relation.name])
                for chunk in straight.get(relation.name, ()):
                    if not self._went_straight(sign, relation, chunk.rows):
                        self.engine.rollback()
                        return None
        touched = self.engine.touched()
        self.engine.commit()
        for target, reads in self._assigned.items():  # the commit computes these
            if reads & touched:
                touched.add(target)
        return touched

    def _went_straight(self, sign: int, relation: Relation, table: pa.Table) -> bool:
        """Fire the insertions, or the deletions, of a table; False if one was left."""
        mine = table.filter(pc.equal(table.column("_op"), sign)).select(list(relation.column_names))
        bulk = rows_of(sign, relation, mine, relation.checked)
        run = self.engine.runner(bulk, each=False) if isinstance(bulk, Columns) else None
        return run is not None and run(0) == len(bulk)

    def _remember(self, move: Move) -> None:
        current = self._current.get(move.relation)
        if current is not None:
            at = self.program.relation(move.relation).key_positions
            if move.removed is not None:
                current.pop(tuple([move.removed[i] for i in at]), None)
            if move.added is not None:
                current[tuple([move.added[i] for i in at])] = move.added
        for each in self._references:
            if move.removed is not None:
                each.count(move.relation, move.removed, -move.count)
            if move.added is not None:
                each.count(move.relation, move.added, move.count)

    def _empty_references(self) -> list[Reference]:
        return [
            reference(child, key, self.program.relation(key.parent))
            for child in self.program.relations
            for key in child.foreign_keys
            if child.name in self._kept and key.parent in self._kept and sees(self.plan.partitioned, child.name, key)
        ]

    def _index_rows(self) -> None:
        """Build the look-ups over kept rows from the engine's maps."""
        self._references = self._empty_references()
        self._current = {}
        for relation in self.program.relations:
            kept = self._kept.get(relation.name)
            if kept is None:
                continue
            at = relation.key_positions
            if at:
                self._current[relation.name] = {}
            for row, values in self.engine.items(kept):
                if at:
                    self._current[relation.name][tuple([row[i] for i in at])] = row
                for each in self._references:
                    each.count(relation.name, row, int(values[0]))

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
        self._waiting = [Change(*each) for each in waiting]
        for name, table in maps.items():
            snapshot.restore(self.engine, name, from_ipc(table))
        with decimal.localcontext(EXACT):
            self.engine.begin()  # the := maps are computed; what fails in that was told before
            self.engine.commit()
        self.engine.take_errors()
        self._index_rows()


def _has_upserts(chunk: Chunk) -> bool:
    return bool(pc.any(pc.equal(chunk.rows.column("_op"), UPSERT)).as_py())


def _text(program: Program, change: Change) -> str:
    sign = {INSERT: "+", DELETE: "-", UPSERT: "~"}[change.op]
    return f"{sign}{change.relation}({row_text(program, change.relation, change.row)})"
