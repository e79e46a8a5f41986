"""From the states of the buckets of one plan to those of another: each new bucket gets its share, nothing is evaluated.

What a run of the new plan from the first epoch on would have in its buckets, the new buckets have together: the same
maps, the same positions, the same rows that wait. How the parts of a sum lie in buckets does not matter, so the first
new bucket has all of it.
"""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.events import UPSERT, Row
from cumulus.catalog.partition import bucket_of_row, buckets_of
from cumulus.catalog.types import EXACT
from cumulus.engine.protocol import Stored
from cumulus.engine.snapshot import column_names, entries_of_table, is_tagged, table_of_entries
from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.bucket.net_changes import InputChange, Key
from cumulus.epochs.bucket.positions import DumpedPositions, last_positions, owned_positions
from cumulus.epochs.plan import BucketPlan, Ownership, layout_of
from cumulus.epochs.stages.contents import BucketSet, bucket_sets, pack_parts, unpack_parts
from cumulus.errors import LayoutError
from cumulus.explain.layout.co_partitioning import Merge
from cumulus.m3.program import MapDef, Program
from cumulus.scalars.python_code import canonical


def reshape(program: Program, old: BucketPlan, parts: Sequence[bytes], new: BucketPlan) -> list[bytes]:
    """Return the states of the parts of a new plan, after the same epoch.

    Parameters
    ----------
    program
        The program of the run.
    old, parts
        The plan that it had, and the states of its parts, as `cumulus.epochs.stages.contents` has them.
    new
        The plan that it is to have.

    Raises
    ------
    LayoutError
        If the old plan does not keep a map that the new one needs.
    """
    before = bucket_sets(program, old)
    states = unpack_parts(old, parts)
    with decimal.localcontext(EXACT):
        wholes = _WholeMaps(before, states)
        sets = [_shares(each, wholes) for each in bucket_sets(program, new)]
    rows, after = sets[0], bucket_sets(program, new)[0]
    owners = [Ownership(program, after.plan, at) for at in range(new.buckets)]
    positions = _positions(program, before[0].plan, states[0], owners)
    waiting = list(_waiting(program, before[0].plan, states[0]))
    judges = [
        BucketContents(maps, places, [change for change in waiting if _waits_at(owner, change, after.plan)])
        for maps, places, owner in zip(rows, positions, owners, strict=True)
    ]
    groups = [[BucketContents(maps, {}, []) for maps in each] for each in sets[1:]]
    return list(pack_parts(new, [judges, *groups]))


def repeated_key(
    program: Program, plan: BucketPlan, parts: Sequence[bytes], tables: Sequence[str]
) -> tuple[str, Key] | None:
    """Return a table and a primary key that several of its kept rows have, of some tables; None if there is none.

    Buckets that each have some rows of a key cannot see that it is repeated.

    Parameters
    ----------
    program, plan, parts
        As `reshape` takes them.
    tables
        Those to look at.
    """
    if not tables:
        return None
    rows = bucket_sets(program, plan)[0].program
    states, kept = unpack_parts(plan, parts)[0], dict(rows.kept)
    for name in tables:
        relation = program.relation(name)
        counts: Counter[Key] = Counter()
        for state in states:
            definition = rows.map(kept[name])
            for row, _ in entries_of_table(definition, state.maps[kept[name]]):
                counts[tuple([row[at] for at in relation.key_positions])] += 1
        repeated = next((key for key, count in counts.items() if count > 1), None)
        if repeated is not None:
            return name, repeated
    return None


class _WholeMaps:
    """What one bucket would store of each map, from the buckets of a plan."""

    def __init__(self, sets: Sequence[BucketSet], states: Sequence[Sequence[BucketContents]]) -> None:
        self._states = states
        self._sets = sets
        self._kept = dict(sets[0].program.kept)
        self._where = {each.name: at for at, one in reversed([*enumerate(sets)]) for each in one.program.maps}

    def table(self, program: Program, definition: MapDef) -> pa.Table:
        """Return all of a map of a program that is to have it."""
        table = next((table for table, name in program.kept if name == definition.name), "")
        name = self._kept[table] if table else definition.name
        if name in self._where:
            found = self._gathered(self._where[name], name)
            return found.rename_columns(column_names(definition))
        if program.views:
            raise LayoutError(
                f"map {definition.name} belongs to no view, so buckets of views behind judges have not kept it",
                hint="Ask for a layout of judges (--layout judged), or start with a new --out and --checkpoint.",
            )
        return table_of_entries(definition, ())  # the net change of a table is empty between epochs

    def _gathered(self, at: int, name: str) -> pa.Table:
        program, plan = self._sets[at]
        tables = [state.maps[name] for state in self._states[at]]
        layout, definition = layout_of(program, plan), program.map(name)
        if plan.buckets == 1 or layout.merge(name) is Merge.ANY:
            return tables[0]
        some = [table for table in tables if table.num_rows]
        if len(some) < 2:
            return some[0] if some else tables[0]
        if layout.merge(name) is Merge.ADD:
            entries = layout.stored(name, (_entries(definition, table) for table in some))
            return table_of_entries(definition, entries.items())
        if all(table.schema.equals(some[0].schema, check_metadata=True) for table in some):
            return pa.concat_tables(some)
        return table_of_entries(definition, chain.from_iterable(_entries(definition, table) for table in some))


def _entries(definition: MapDef, table: pa.Table) -> Iterator[tuple[Key, Stored]]:
    """Iterate over entries, with keys that a dict finds: a NaN from a table is not the one of this process."""
    for key, stored in entries_of_table(definition, table):
        yield tuple(map(canonical, key)), stored


def _shares(to: BucketSet, wholes: _WholeMaps) -> list[dict[str, pa.Table]]:
    """Return the maps of each bucket of a set."""
    program, plan = to
    shares: list[dict[str, pa.Table]] = [{} for _ in range(plan.buckets)]
    for definition in program.maps:
        whole, name = wholes.table(program, definition), definition.name
        merge = Merge.ANY if plan.buckets == 1 else layout_of(program, plan).merge(name)
        owners = _owners(definition, layout_of(program, plan).tags[name].keys, plan, whole)
        for at, mine in enumerate(shares):
            match merge:
                case Merge.ANY:
                    mine[name] = whole
                case Merge.ADD:
                    mine[name] = whole.slice(0, None if at == 0 else 0)
                case Merge.UNION:
                    mine[name] = whole.filter(pc.equal(owners, at))
    return shares


def _owners(definition: MapDef, places: Sequence[int], plan: BucketPlan, table: pa.Table) -> pa.Array | None:
    """Return the bucket of each entry of a map that lies by keys in some places; None if it does not."""
    if plan.buckets == 1 or not places:
        return None
    keys = [table.column(f"key {definition.keys[place].name}") for place in places]
    if not any(is_tagged(table.schema.field(f"key {definition.keys[place].name}")) for place in places):
        return buckets_of(keys[0], plan.buckets, *keys[1:])
    found = [
        bucket_of_row([key[place] for place in places], plan.buckets) for key, _ in entries_of_table(definition, table)
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
        last = last_positions(seen)
        for mine, owner in zip(made, owners, strict=True):
            mine[relation.name] = owned_positions(last, relation, owner)
    return made


def _waiting(program: Program, old: BucketPlan, states: Sequence[BucketContents]) -> Iterator[InputChange]:
    """Yield the changes that wait in any bucket, each once: from the bucket that counts it."""
    for at, state in enumerate(states):
        owner = Ownership(program, old, at)
        yield from (change for change in state.waiting if owner.reports(change.relation, change.row))


def _waits_at(owner: Ownership, change: InputChange, plan: BucketPlan) -> bool:
    """Whether a change is to wait in a new bucket: where its row is to be, and an update also where its old row may be,
    as when it comes from a source.
    """
    row: Row = change.row
    return owner.owns(change.relation, row) or (change.op == UPSERT and change.relation not in plan.by_key)
