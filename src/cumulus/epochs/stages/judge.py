"""A judge: a bucket that keeps rows and no views, and tells what has changed in its tables.

It decides which rows count, and which row an update replaces, as any bucket does. Beside the rows of each kept table it
has a map with the net change of every table, which is emptied each time it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import DELETE, INSERT, OP_COLUMN, POSITION_COLUMN, Row
from cumulus.catalog.schema import Relation
from cumulus.engine import snapshot
from cumulus.engine.integrity import Integrity
from cumulus.engine.protocol import Engine
from cumulus.engine.referring_rows import ReferringRows
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.intake.packing import Payload, unpack
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.keeping import judging_program
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.stages.origins import last_places
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import Program

NOWHERE = -1
"""The position of a row of which nobody can tell where it came from."""


@dataclass(frozen=True, slots=True)
class TableDelta:
    """The net change of a table: different rows, how often each came (positive) or went; or its events, in order."""

    relation: str
    rows: pa.Table
    counts: npt.NDArray[np.int64]


def take_nets(bucket: Bucket, nets: Mapping[str, str], ordered: Iterable[Relation]) -> Iterator[TableDelta]:
    """Yield the net changes of tables since the last call; their maps are empty then.

    Parameters
    ----------
    bucket
        Runs a `judging_program`.
    nets
        Table → map of its net change.
    ordered
        The tables, in the order of what is yielded.
    """
    for relation in ordered:
        name = nets[relation.name]
        table = snapshot.dump(bucket.engine, name)
        if table.num_rows:
            bucket.engine.load(name, ())
            counts = table.column(table.num_columns - 1).to_numpy().astype(np.int64)
            rows = table.select(range(table.num_columns - 1)).rename_columns(relation.column_names)
            changed = counts != 0
            if not changed.all():
                rows, counts = rows.filter(pa.array(changed)), counts[changed]
            yield TableDelta(relation.name, rows, counts)


class Judge:
    """Judges the rows of a bucket, and keeps those of tables with keys.

    Parameters
    ----------
    program
        The whole program, with keys and references as they are to be checked.
    plan
        Which rows come to which judge.
    index
        Which of them this one is.
    make_engine, late_epochs
        As of `Bucket`.
    """

    def __init__(
        self,
        program: Program,
        plan: BucketPlan,
        index: int,
        make_engine: Callable[..., Engine],
        late_epochs: int = LATE_EPOCHS,
        published: Collection[str] = (),
    ) -> None:
        judging, self._nets = judging_program(program)
        self._program, self._plan = program, plan
        self.bucket = Bucket(judging, replace(plan, groups=()), index, make_engine, late_epochs, published=published)
        self.index = index
        self._ordered = parents_first(program)
        self._known: tuple[Integrity, ReferringRows] | None = None

    def apply(self, epoch: int, packed: Sequence[bytes]) -> tuple[Outcome, list[Reading]]:
        """Judge payloads; return what became of their rows, and what has changed in tables, of which this judge tells.

        The rows that go and come have the place in the input that had the last word on them.
        """
        outcome = self.bucket.apply(epoch, packed)
        deltas = list(take_nets(self.bucket, self._nets, self._ordered))
        moved = self._moved(deltas)
        payloads: dict[str, list[Payload]] = {}
        for payload in (each for each in (unpack(packed) if deltas else ()) if each.rows.num_rows):
            payloads.setdefault(payload.relation, []).append(payload)
        told = [each for each in deltas if self._tells(each.relation)]
        readings = [reading for each in told for reading in self._readings(each, payloads.get(each.relation, []))]
        return outcome, [*readings, *moved]

    def _tells(self, table: str) -> bool:
        """Whether this judge tells of a table: of those that all have whole, one does."""
        return self.index == 0 or table in self._plan.partitioned

    def dump(self) -> bytes:
        """Return the whole state."""
        return self.bucket.dump()

    def load(self, data: bytes) -> None:
        """Replace the state by what `dump` returned."""
        self.bucket.load(data)

    # --- rows that move -----------------------------------------------------------------------------------------------

    def _moved(self, deltas: Iterable[TableDelta]) -> list[Reading]:
        """Return the rows that stay while what they refer to changes: they go before it and come back after it."""
        referring = self._referring()
        nets = {each.relation: each for each in deltas}
        found: dict[str, dict[Row, int]] = {}
        for name in referring.tables & nets.keys():
            for old, new in _updates(self._program.relation(name), nets[name]):
                for table, rows in referring.rows_to_move(name, old, new).items():
                    found.setdefault(table, {}).update(rows)
        readings = []
        for table, rows in found.items():
            fresh = _counts(nets[table]) if table in nets else {}
            staying = {row: count - max(fresh.get(row, 0), 0) for row, count in rows.items() if self._tells(table)}
            relation = self._program.relation(table)
            signed = [(row, sign) for row, count in staying.items() for sign in (DELETE, INSERT) for _ in range(count)]
            if signed:
                columns = table_of(relation.columns, [row for row, _ in signed])
                columns = columns.append_column(OP_COLUMN, pa.array([sign for _, sign in signed], pa.int8()))
                columns = columns.append_column(POSITION_COLUMN, pa.array([NOWHERE] * len(signed), pa.int64()))
                readings.append(Reading(table, columns, "", (), is_moved=True))
        return readings

    def _referring(self) -> ReferringRows:
        """Return what finds rows that refer to others, among those that the bucket keeps now."""
        integrity = self.bucket.integrity
        if self._known is None or self._known[0] is not integrity:  # the bucket has another engine
            self._known = integrity, ReferringRows(self._program, integrity)
        return self._known[1]

    # --- where rows came from -----------------------------------------------------------------------------------------

    def _readings(self, delta: TableDelta, payloads: Sequence[Payload]) -> Iterator[Reading]:
        """Yield the rows of a net change as events, by the file that they came from."""
        relation = self._program.relation(delta.relation)
        sources, positions = self._origins(relation, delta, payloads)
        at = np.repeat(np.arange(delta.rows.num_rows), np.abs(delta.counts))
        rows = delta.rows if len(at) == delta.rows.num_rows else delta.rows.take(pa.array(at))
        rows = rows.append_column(OP_COLUMN, pa.array(np.sign(delta.counts).astype(np.int8)[at]))
        rows = rows.append_column(POSITION_COLUMN, pa.array(positions[at]))
        labels = sources[at]
        for source in dict.fromkeys(labels.tolist()):
            mine = rows if (labels == source).all() else rows.filter(pa.array(labels == source))
            yield Reading(delta.relation, mine, source, ())

    def _origins(
        self, relation: Relation, delta: TableDelta, payloads: Sequence[Payload]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Return for each row of a net change the label of its file and its position there."""
        count = delta.rows.num_rows
        sources, positions = np.full(count, "", object), np.full(count, NOWHERE, np.int64)
        if payloads:
            names = relation.key or relation.column_names
            last, at = last_places(names, payloads, delta.rows)
            labels = np.repeat(
                np.array([payload.source for payload in payloads], object), [each.rows.num_rows for each in payloads]
            )
            places = np.concatenate([each.rows.column(POSITION_COLUMN).to_numpy() for each in payloads])
            sources[at], positions[at] = labels[last], places[last]
        causes = {
            (row, sign): each.cause
            for each in self.bucket.applied
            if each.relation == delta.relation
            for row, sign in ((each.removed, -1), (each.added, 1))
            if row is not None
        }
        if causes:  # what waited, and what had the last word in several changes of a key
            columns = [column.to_pylist() for column in delta.rows.columns]
            for place, row in enumerate(zip(*columns, strict=True)):
                cause = causes.get((row, int(np.sign(delta.counts[place]))))
                if cause is not None:
                    sources[place], positions[place] = cause.source, cause.position
        return sources, positions


def _updates(relation: Relation, delta: TableDelta) -> Iterator[tuple[Row, Row]]:
    """Yield the old and the new row of each primary key of which one goes and one comes."""
    old: dict[Row, Row] = {}
    new: dict[Row, Row] = {}
    for row, count in _counts(delta).items():
        key = tuple([row[at] for at in relation.key_positions])
        (old if count < 0 else new)[key] = row
    return ((row, new[key]) for key, row in old.items() if key in new)


def _counts(delta: TableDelta) -> dict[Row, int]:
    columns = [column.to_pylist() for column in delta.rows.columns]
    return dict(zip(zip(*columns, strict=True), delta.counts.tolist(), strict=True))
