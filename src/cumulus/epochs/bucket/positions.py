"""The last position of each primary key of a table: what came before it, or again, is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.events import DELETE, OP_COLUMN, ORDER_COLUMN
from cumulus.catalog.schema import Relation
from cumulus.epochs.bucket.net_changes import Key, Position
from cumulus.epochs.intake.packing import Payload
from cumulus.epochs.plan import Ownership
from cumulus.m3.program import Program

_FAR = 1 << 61
"""Sequence numbers beyond this have no room in a word for what else belongs to a position."""

DumpedPositions: TypeAlias = tuple[dict[Key, Position], bytes]
"""Positions as Python values, and those that machine code holds as an Arrow stream, empty if there are none."""


def positions_of(dumped: DumpedPositions) -> dict[Key, Position]:
    """Return the positions that `Positions.dump` has given, that of the last truncation by a key of NULLs."""
    here, there = dumped
    if not there:
        return here
    *keys, words = (column.to_pylist() for column in from_ipc(there).columns)
    rows = zip(zip(*keys, strict=True), words, strict=True)
    return {key: (word >> 1, word & 1) for key, word in rows} | here


def last_positions(seen: Sequence[DumpedPositions]) -> DumpedPositions:
    """Return the last position of each key in several buckets: an update goes to all, so several may have seen one."""
    if len(seen) == 1:
        return seen[0]
    tables = [from_ipc(there) for _, there in seen if there]
    heres: list[dict[Key, Position]] = [here for here, _ in seen]
    if len(tables) == len(seen) and not any(map(pa.types.is_floating, tables[0].schema.types)):
        *names, position = tables[0].column_names
        found = pa.concat_tables(tables).group_by(names).aggregate([(position, "max")])
        there = to_ipc(found.select([*names, f"{position}_max"]).rename_columns([*names, position]))
    else:
        heres, there = list(map(positions_of, seen)), b""
    last: dict[Key, Position] = {}
    for here in heres:
        for key, place in here.items():
            if key not in last or place > last[key]:
                last[key] = place
    return last, there


def owned_positions(last: DumpedPositions, relation: Relation, owner: Ownership) -> DumpedPositions:
    """Return those positions of a table that a bucket must know; a key of NULLs stands for the last truncation."""
    here, there = last
    mine = {
        key: place for key, place in here.items() if all(value is None for value in key) or owner.may_own(relation, key)
    }
    if there:
        table = from_ipc(there)
        at = owner.buckets_of_keys(relation, table)
        there = there if at is None else to_ipc(table.filter(pc.equal(at, owner.index)))
    return mine, there


class Positions:
    """Positions by the primary key of a table; with machine code, whole columns can be asked."""

    def __init__(self, relation: Relation, *, is_native: bool) -> None:
        self._names = [relation.columns[place].name for place in relation.key_positions]
        self._here: dict[Key, Position] = {}
        """All of them; with machine code, those that it cannot hold."""
        self._truncated: Position | None = None
        self._every: Key = (None,) * len(self._names)
        """What the last truncation is remembered under: no row has such a key."""
        self._there = None
        if is_native:
            from cumulus.epochs.bucket.native_positions import Newest

            self._there = Newest([relation.columns[place] for place in relation.key_positions])

    def get(self, key: Key) -> Position | None:
        """Return the last position of a key; of `_every`, that of the last truncation."""
        if key == self._every:
            return self._truncated
        found = self._here.get(key)
        if found is None and self._there is not None:
            word = self._there.get(key)
            return None if word is None else (word >> 1, word & 1)
        return found

    def update(self, positions: Mapping[Key, Position]) -> None:
        """Remember positions, each newer than the last one of its key."""
        if self._every in positions:
            self._truncated = positions[self._every]
            positions = {key: place for key, place in positions.items() if key != self._every}
        if self._there is None:
            self._here.update(positions)
            return
        near = {key: place for key, place in positions.items() if key not in self._here and -_FAR < place[0] < _FAR}
        self._here.update({key: place for key, place in positions.items() if key not in near})
        self._there.update({key: seq << 1 | last for key, (seq, last) in near.items()})

    def dump(self) -> DumpedPositions:
        """Return all positions; `load` takes them, with machine code or without."""
        here = self._here if self._truncated is None else {**self._here, self._every: self._truncated}
        return here, b"" if self._there is None else to_ipc(self._there.dump())

    def load(self, dumped: DumpedPositions) -> None:
        """Remember what `dump` has given, and nothing else."""
        here, there = dumped
        self._here, self._truncated = {}, None
        if there and self._there is not None:
            self._there.load(from_ipc(there))
            self.update(here)
        else:
            self.update(positions_of(dumped))

    def newer(self, payloads: Sequence[Payload]) -> list[Payload] | None:
        """Return payloads of one epoch without what is repeated, and remember the rest.

        None, and nothing is remembered, where that must be done row by row.
        """
        ordered = [ORDER_COLUMN in payload.rows.column_names for payload in payloads]
        if not any(ordered):
            return list(payloads)
        if self._there is None or self._here or not all(ordered):
            return None
        rows = pa.concat_tables([payload.rows.select([*self._names, OP_COLUMN, ORDER_COLUMN]) for payload in payloads])
        if rows.column(ORDER_COLUMN).null_count:
            return None
        seq = rows.column(ORDER_COLUMN).to_numpy().astype(np.int64)
        if len(seq) and not (seq.min() > -_FAR and seq.max() < _FAR):
            return None
        if self._truncated is not None and len(seq) and seq.min() <= self._truncated[0]:
            return None
        places = seq << 1 | (rows.column(OP_COLUMN).to_numpy() != DELETE)
        order = np.argsort(places, kind="stable")
        sorted_rows = rows.take(pa.array(order))
        flags = self._there.take([sorted_rows.column(name) for name in self._names], places[order])
        if flags is None:
            return None
        keep = np.zeros(len(flags), dtype=np.bool_)
        keep[order] = flags
        found, at = [], 0
        for payload in payloads:
            mine = keep[at : at + payload.rows.num_rows]
            at += payload.rows.num_rows
            found.append(payload if mine.all() else replace(payload, rows=payload.rows.filter(pa.array(mine))))
        return found


class TablePositions:
    """The positions of all tables with primary keys, each made when it is first needed."""

    def __init__(self, program: Program, *, is_native: bool) -> None:
        self._program, self._is_native = program, is_native
        self._last: dict[str, Positions] = {}

    def of(self, relation: Relation) -> Positions:
        """Return those of a table."""
        if relation.name not in self._last:
            self._last[relation.name] = Positions(relation, is_native=self._is_native)
        return self._last[relation.name]

    def dump(self) -> dict[str, DumpedPositions]:
        """Return them as `load` takes them."""
        return {name: each.dump() for name, each in self._last.items()}

    def load(self, dumped: Mapping[str, DumpedPositions]) -> None:
        """Replace them by what `dump` returned."""
        self._last = {}
        for name, positions in dumped.items():
            self.of(self._program.relation(name)).load(positions)
