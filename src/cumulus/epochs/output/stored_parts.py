"""Entries of maps as a fold reads them, from the files of an epoch: only the columns and rows that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cumulus.algebra.float_sums import add_cells, read_stored
from cumulus.catalog.arrow import array_of
from cumulus.catalog.arrow_cells import decoded
from cumulus.catalog.schema import Column
from cumulus.catalog.types import Kind, coerce
from cumulus.durable.store import Store, read_parquet
from cumulus.engine.frame_columns import FrameColumns, added_entries
from cumulus.engine.frames.from_arrow import frame_of_arrays
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.snapshot import column_names_of, entries_of_table, is_tagged
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.output.parts import SHARE
from cumulus.errors import StoreError
from cumulus.m3.program import MapDef
from cumulus.scalars.python_code import canonical
from cumulus.views.entries import Key, Values
from cumulus.views.finishing import Finisher
from cumulus.views.folding.bounds import Between, Bound
from cumulus.views.folding.plan import FoldPlan
from cumulus.views.folding.reading import typed_bounds

Stored = tuple[Any, ...]
_COMPARED = (Kind.BOOLEAN, Kind.VARCHAR, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.DECIMAL, Kind.HUGEINT)
"""Kinds beside whole numbers of which Parquet compares two values as SQL does; NaN and -0.0 are not such values."""


@dataclass(slots=True)
class _Need:
    """What a fold needs of a map: its keys and value columns, by their places, and bounds on keys."""

    keys: set[int]
    values: set[int]
    bounds: list[tuple[int, Bound]]


class StoredParts:
    """The maps of an epoch that a fold reads; a `cumulus.views.folding.StoredMaps`.

    What it does not need is not read: such keys and values are None. Without a plan it is all that makes rows.
    """

    def __init__(
        self, out: Store, manifest: Manifest, finisher: Finisher, plan: FoldPlan | None, where: Sequence[Bound] = ()
    ) -> None:
        self._out, self._manifest, self._program = out, manifest, finisher.program
        self._needs = _all_of_rows(finisher) if plan is None else _needs(finisher, plan, where)
        self._wanted: dict[str, dict[Key, Stored]] = {}
        self._tables: dict[str, list[pa.Table]] = {}

    def stored(self, map: str) -> Iterator[tuple[Key, Stored]]:
        """Iterate over everything that is stored and may be wanted."""
        definition = self._program.map(map)
        entries = chain.from_iterable(entries_of_table(definition, table) for table in self._read(map))
        return iter(_added(definition, entries).items()) if self._is_shared(map) else entries

    def items(self, map: str) -> Iterator[tuple[Key, Values]]:
        """Iterate over the existing entries."""
        definition = self._program.map(map)
        count = definition.column_index(definition.count) if definition.count else None
        needed = self._needs[map].values
        for key, stored in self.stored(map):
            values = stored if len(needed) < len(stored) else read_stored(definition.values, stored)
            if any(values) if count is None else values[count]:
                yield key, values

    def stored_count(self, map: str) -> int:
        """Return how many entries the files have; or how many of them were read, if they were."""
        if map in self._tables:
            return sum(table.num_rows for table in self._tables[map])
        return entry_count(self._out, self._manifest, map)

    def stored_at(self, map: str, key: Key) -> Stored | None:
        """Return what is stored under a key that is wanted; what is wanted is read at once."""
        if map not in self._wanted:
            self._wanted[map] = {
                tuple([canonical(value) for value in each]): stored for each, stored in self.stored(map)
            }
        return self._wanted[map].get(key)

    def indexes(self, map: str) -> Sequence[tuple[int, ...]]:
        """Return nothing: files are read for all values at once."""
        return ()

    def stored_slice(self, map: str, positions: tuple[int, ...], values: Key) -> Iterator[tuple[Key, Stored]]:
        """Iterate over what is stored with some values."""
        raise AssertionError(f"{map} has no index by {positions}")

    def fold_columns(self, map: str) -> FrameColumns | None:
        """Return what is stored and may be wanted as columns; None where entries are tuples."""
        definition, tables = self._program.map(map), self._read(map)
        if any(is_tagged(field) for table in tables for field in table.schema):
            return None
        try:
            table = pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException:  # numbers of several widths
            return None
        there = frozenset(table.column_names)
        names = [[f"key {key.name}"] for key in definition.keys] + [
            column_names_of(value) for value in definition.values
        ]
        columns = [None if there.isdisjoint(each) else [_joined(table.column(name)) for name in each] for each in names]
        frame = frame_of_arrays(layout_of(definition), columns, table.num_rows)
        if frame is not None and self._is_shared(map):
            frame = added_entries(definition, frame)
        return None if frame is None else FrameColumns(definition, frame)

    def along(self, map: str, end: str, axis: int, others: Key, column: int | None) -> None:
        """Return None: nothing is kept in order."""

    def _is_shared(self, map: str) -> bool:
        """Whether entries of several buckets are to be added."""
        files = files_of(self._out, self._manifest, map)
        return len(files) > 1 and files[0].endswith(SHARE)

    def _read(self, map: str) -> list[pa.Table]:
        """Return what is needed of the files of a map, each read once."""
        if map not in self._tables:
            files = files_of(self._out, self._manifest, map)
            self._tables[map] = [self._read_file(self._program.map(map), path) for path in files]
        return self._tables[map]

    def _read_file(self, definition: MapDef, path: str) -> pa.Table:
        need, is_shared = self._needs[definition.name], self._is_shared(definition.name)
        names = [f"key {key.name}" for place, key in enumerate(definition.keys) if is_shared or place in need.keys]
        for place in sorted(need.values) or [0]:
            names += column_names_of(definition.values[place])
        try:
            wanted = _filter(definition, need, pq.read_schema(self._out.open(path)))
            return read_parquet(self._out, path, columns=names, filters=wanted)
        except (OSError, pa.ArrowException) as problem:
            raise _unread(self._out, self._manifest, problem) from None


def _joined(column: pa.ChunkedArray) -> pa.Array:
    plain = decoded(column)
    return pa.concat_arrays(plain.chunks) if plain.num_chunks else pa.array([], plain.type)


def files_of(out: Store, manifest: Manifest, map: str) -> list[str]:
    """Return the files of a map in an epoch, by bucket.

    Raises
    ------
    StoreError
        If there are none.
    """
    files = [path for _, path in sorted(manifest.parts.get(map, {}).items())]
    if not files:
        raise StoreError(
            f"{out}: epoch {manifest.epoch} has no entries of {map}", hint="Run it again, into new folders."
        )
    return files


def entry_count(out: Store, manifest: Manifest, map: str) -> int:
    """Return how many entries the files of a map have."""
    try:
        return sum(pq.read_metadata(out.open(path)).num_rows for path in files_of(out, manifest, map))
    except (OSError, pa.ArrowException) as problem:
        raise _unread(out, manifest, problem) from None


def _unread(out: Store, manifest: Manifest, problem: Exception) -> StoreError:
    return StoreError(f"{out}: a file of epoch {manifest.epoch} cannot be read: {problem}")


def _needs(finisher: Finisher, plan: FoldPlan, where: Sequence[Bound]) -> dict[str, _Need]:
    program, bounds = finisher.program, typed_bounds(finisher, where)
    found: dict[str, _Need] = {}

    def need(map: str, groups: Sequence[int], keys: Iterable[int], values: Iterable[int]) -> None:
        """Note what is read of a map whose keys at `groups` are those of the view."""
        placed = [(groups[place], bound) for bound, _, place, _ in bounds]
        mine = _Need({*keys, *(groups[place] for place in plan.by), *(each[0] for each in placed)}, {*values}, placed)
        before = found.setdefault(map, mine)
        if before is not mine:
            before.keys |= mine.keys
            before.values |= mine.values
            before.bounds = [each for each in before.bounds if each in placed]

    every = range(len(plan.keys))
    added = [number for number in plan.numbers if number.distinct is None]
    has_others = any(number.place for number in added)
    for place, name in enumerate(plan.maps):
        values = {number.column for number in added if number.place == place}
        if place == 0 or values:
            own = {plan.count} if place == 0 and plan.count is not None else set[int]()
            need(name, every, every if has_others else (), values | own)
    for end in plan.ends:
        definition = program.map(end.map)
        values = _telling(definition) if end.column is None else {*_telling(definition), end.column}
        need(end.map, end.groups, [end.axis], values)
    for number in plan.numbers:
        if number.distinct is not None:
            counted = number.distinct.counted
            need(counted.map, counted.groups, counted.values, _telling(program.map(counted.map)) | {counted.column})
    return {**found, **_all_of_rows(finisher)} if plan.fixed else found


def _all_of_rows(finisher: Finisher) -> dict[str, _Need]:
    maps = [finisher.program.map(name) for name in finisher.view.reads]
    return {each.name: _Need({*range(len(each.keys))}, {*range(len(each.values))}, []) for each in maps}


def _telling(definition: MapDef) -> set[int]:
    """Return the value columns that say whether an entry exists."""
    return {definition.column_index(definition.count)} if definition.count else set(range(len(definition.values)))


def _added(definition: MapDef, entries: Iterable[tuple[Key, Stored]]) -> dict[Key, Stored]:
    """Return the entries of several buckets, those of one key added."""
    floats = [column.type is not None and column.type.is_float for column in definition.values]
    found: dict[Key, Stored] = {}
    for key, stored in entries:
        key = tuple(map(canonical, key))
        before = found.get(key)
        found[key] = (
            stored
            if before is None
            else tuple(
                None if new is None else add_cells(old, new, 1) if is_float else old + new
                for old, new, is_float in zip(before, stored, floats, strict=True)
            )
        )
    return found


def _filter(definition: MapDef, need: _Need, schema: pa.Schema) -> pc.Expression | None:
    """Return what Parquet can tell of the rows that are wanted: no row that is wanted is left out."""
    found = [
        expression
        for place, bound in need.bounds
        if (expression := _condition(definition.keys[place], bound, schema)) is not None
    ]
    return reduce(and_, found) if found else None


def _condition(key: Column, bound: Bound, schema: pa.Schema) -> pc.Expression | None:
    """Return a bound as a condition of a file; None where Arrow may see it otherwise."""
    name = f"key {key.name}"
    stored = schema.field(name)
    if is_tagged(stored) or key.type is None:
        return None
    if not (key.type.is_integer or key.type.kind in _COMPARED):
        return None
    try:
        return _compared(pc.field(name), key, bound, stored.type)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return None  # a value that the key cannot have, where a view shows it in a wider type


def _compared(field: pc.Expression, key: Column, bound: Bound, kind: pa.DataType) -> pc.Expression:
    def stored(values: Sequence[Any]) -> pa.Array:
        assert key.type is not None
        return array_of([coerce(value, key.type) for value in values], key.type).cast(kind)

    if isinstance(bound.within, Between):
        low, high = bound.within.low, bound.within.high
        known = field.is_valid()
        known = known if low is None else known & (field >= stored([low])[0])
        return known if high is None else known & (field <= stored([high])[0])
    values = [value for value in bound.within if value is not None]
    some = field.isin(stored(values))
    return some | field.is_null() if len(values) < len(bound.within) else some
