"""From the states of the buckets of one plan to those of another: each new bucket gets its share, nothing is evaluated.

What a run of the new plan from the first epoch on would have in its buckets, the new buckets have together: the same
maps, the same positions, the same rows that wait. How the parts of a sum lie in buckets does not matter, so the first
new bucket has all of it.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.events import UPSERT, Row
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine.protocol import Stored
from cumulus.engine.snapshot import entries_of_table, table_of_entries
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.bucket.net_changes import InputChange, Key, Position
from cumulus.epochs.bucket.positions import DumpedPositions, positions_of
from cumulus.epochs.plan import BucketPlan, Ownership, layout_of
from cumulus.explain.layout.co_partitioning import Merge
from cumulus.m3.program import MapDef, Program
from cumulus.scalars.python_code import canonical


def reshape(
    program: Program, old: BucketPlan, states: Sequence[BucketContents], new: BucketPlan
) -> list[BucketContents]:
    """Return the states of the buckets of a new plan, after the same epoch.

    Parameters
    ----------
    program
        The program of all buckets.
    old, states
        The plan that the buckets had, and their states by index.
    new
        The plan that they are to have.
    """
    maps: list[dict[str, pa.Table]] = [{} for _ in range(new.buckets)]
    with decimal.localcontext(EXACT):
        for definition in program.maps:
            shares = _Map(program, definition).shares(old, [state.maps[definition.name] for state in states], new)
            for mine, share in zip(maps, shares, strict=True):
                mine[definition.name] = share
    owners = [Ownership(program, new, at) for at in range(new.buckets)]
    positions = _positions(program, old, states, owners)
    waiting = list(_waiting(program, old, states))
    return [
        BucketContents(mine, places, [change for change in waiting if _waits_at(owner, change)])
        for mine, places, owner in zip(maps, positions, owners, strict=True)
    ]


def reshaped_buckets(buckets: Sequence[Bucket], plan: BucketPlan, make: Callable[[int], Bucket]) -> list[Bucket]:
    """Return new buckets with the states of old ones, which are closed.

    Parameters
    ----------
    buckets
        The old ones, after the same epoch.
    plan, make
        The new plan, and what makes an empty bucket of it with an index.
    """
    program, before = buckets[0].program, buckets[0].plan
    return opened_buckets(reshape(program, before, [bucket.state for bucket in buckets], plan), buckets, make)


def opened_buckets(
    states: Sequence[BucketContents], old: Sequence[Bucket], make: Callable[[int], Bucket]
) -> list[Bucket]:
    """Return new buckets with some states, in place of old ones, which are closed first."""
    for bucket in old:
        bucket.engine.close()  # both at once need not fit into memory
    made = []
    for at, state in enumerate(states):
        made.append(make(at))
        made[-1].take(state)
    return made


def repeated_key(program: Program, states: Sequence[BucketContents], tables: Sequence[str]) -> tuple[str, Key] | None:
    """Return a table and a primary key that several of its kept rows have, of some tables; None if there is none.

    Buckets that each have some rows of a key cannot see that it is repeated.
    """
    kept = dict(program.kept)
    for name in tables:
        relation = program.relation(name)
        counts: Counter[Key] = Counter()
        for state in states:
            definition = program.map(kept[name])
            for row, _ in entries_of_table(definition, state.maps[kept[name]]):
                counts[tuple([row[at] for at in relation.key_positions])] += 1
        repeated = next((key for key, count in counts.items() if count > 1), None)
        if repeated is not None:
            return name, repeated
    return None


class _Map:
    """One map: its entries in all buckets, as tables."""

    def __init__(self, program: Program, definition: MapDef) -> None:
        self._program, self._definition = program, definition

    def shares(self, old: BucketPlan, tables: Sequence[pa.Table], new: BucketPlan) -> list[pa.Table]:
        """Return the tables of the new buckets."""
        whole = self._whole(old, tables)
        name = self._definition.name
        merge = Merge.ANY if new.buckets == 1 else layout_of(self._program, new).merge(name)
        match merge:
            case Merge.ANY:
                return [whole] * new.buckets
            case Merge.ADD:
                return [whole, *[whole.slice(0, 0)] * (new.buckets - 1)]
            case Merge.UNION:
                owner = self._owners(new, whole)
                return [whole.filter(pc.equal(owner, at)) for at in range(new.buckets)]

    def _whole(self, old: BucketPlan, tables: Sequence[pa.Table]) -> pa.Table:
        """Return what one bucket would store."""
        layout, name = layout_of(self._program, old), self._definition.name
        if old.buckets == 1 or layout.merge(name) is Merge.ANY:
            return tables[0]
        some = [table for table in tables if table.num_rows]
        if len(some) < 2:
            return some[0] if some else tables[0]
        if layout.merge(name) is Merge.ADD:
            entries = layout.stored(name, (self._entries(table) for table in some))
            return table_of_entries(self._definition, entries.items())
        if all(table.schema.equals(some[0].schema, check_metadata=True) for table in some):
            return pa.concat_tables(some)
        return table_of_entries(self._definition, chain.from_iterable(map(self._entries, some)))

    def _entries(self, table: pa.Table) -> Iterator[tuple[Key, Stored]]:
        """Iterate over entries, with keys that a dict finds: a NaN from a table is not the one of this process."""
        for key, stored in entries_of_table(self._definition, table):
            yield tuple(map(canonical, key)), stored

    def _owners(self, new: BucketPlan, table: pa.Table) -> pa.Array:
        """Return the new bucket of each entry."""
        layout, name, every = layout_of(self._program, new), self._definition.name, range(new.buckets)
        keys = table.select([f"key {key.name}" for key in self._definition.keys])
        found = [
            next(at for at in every if layout.starts_in(name, key, at, new.buckets))
            for key, _ in entries_of_table(self._definition, keys)
        ]
        return pa.array(found, pa.int32())


def _positions(
    program: Program, old: BucketPlan, states: Sequence[BucketContents], owners: Sequence[Ownership]
) -> list[dict[str, DumpedPositions]]:
    """Return the positions of the new buckets: of each key the last that any bucket has seen."""
    made: list[dict[str, DumpedPositions]] = [{} for _ in owners]
    for relation in program.relations:
        seen = [state.positions[relation.name] for state in states if relation.name in state.positions]
        if relation.name not in old.partitioned:
            seen = seen[:1]  # all buckets have seen the same
        if not seen:
            continue
        if len(seen) == len(owners) == 1:
            made[0][relation.name] = seen[0]
            continue
        last = _last_of(seen)
        for mine, owner in zip(made, owners, strict=True):
            mine[relation.name] = {key: place for key, place in last.items() if _minds(owner, relation, key)}, b""
    return made


def _last_of(seen: Sequence[DumpedPositions]) -> Mapping[Key, Position]:
    """Return the last position of each key in several buckets: an update goes to all, so several may have seen one."""
    if len(seen) == 1:
        return positions_of(seen[0])
    last: dict[Key, Position] = {}
    for each in seen:
        for key, place in positions_of(each).items():
            if key not in last or place > last[key]:
                last[key] = place
    return last


def _minds(owner: Ownership, relation: Relation, key: Key) -> bool:
    """Whether a bucket must know the position of a key; a key of NULLs stands for the last truncation."""
    return all(value is None for value in key) or owner.may_own(relation, key)


def _waiting(program: Program, old: BucketPlan, states: Sequence[BucketContents]) -> Iterator[InputChange]:
    """Yield the changes that wait in any bucket, each once: from the bucket that counts it."""
    for at, state in enumerate(states):
        owner = Ownership(program, old, at)
        yield from (change for change in state.waiting if owner.reports(change.relation, change.row))


def _waits_at(owner: Ownership, change: InputChange) -> bool:
    """Whether a change is to wait in a new bucket: where its row is to be, and an update also where its old row may be,
    as when it comes from a source.
    """
    row: Row = change.row
    return change.op == UPSERT or owner.owns(change.relation, row)
