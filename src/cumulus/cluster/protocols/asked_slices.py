"""What nodes ask each other for, as messages have it: slices, their keys, and which of the entries a target needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, numbers_of
from cumulus.cluster.placement.block_needs import BlockNeeds
from cumulus.cluster.placement.correspondence import named_flows, place_of
from cumulus.cluster.placement.regions import AxisCut
from cumulus.cluster.placement.segments import hashed_alike
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import AskedSlice, Fetch
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.engine.frames.frame import MapFrame
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SliceForTarget:
    """Entries that this node must send to another one, or give to itself.

    Parameters
    ----------
    target
        The number of the other one.
    slice
        The number of the slice in the node program.
    keys
        The values of its bound keys, each row once; None where it is the whole map.
    """

    target: int
    slice: int
    keys: pa.Table | None

    @property
    def count(self) -> int:
        """How many slices of this kind that are."""
        return 1 if self.keys is None else self.keys.num_rows


class AskedSlices:
    """Reads messages that ask a node for slices, or send it some."""

    def __init__(self, plan: ClusterPlan, maps: SpreadMaps) -> None:
        self._slices, self._logs = plan.nodes_program.slices, plan.nodes_program.logs
        self._shared, self._maps = shared_keys(plan), maps
        self._groups, self._layout = plan.nodes_program.groups, plan.layout

    @cached_property
    def _needs(self) -> BlockNeeds:
        """What rows need: only FETCHes with rows are answered by it."""
        return BlockNeeds(self._layout, self._slices)

    def slice(self, number: int) -> FetchedSlice:
        """Return a slice of the node program; RemoteProtocolError if there is none with that number."""
        if not 0 <= number < len(self._slices):
            raise RemoteProtocolError(f"there is no slice {number}")
        return self._slices[number]

    def versioned(self, number: int, data: bytes) -> MapFrame:
        """Return what a node has sent of a slice, each with a version; RemoteProtocolError if there is none such."""
        self.slice(number)
        return self._maps.versioned_frame_of(self._logs[number].answered, data)

    def maps_read(self, fetch: Fetch) -> frozenset[str]:
        """Return the maps that a FETCH reads; RemoteProtocolError if they are none of the program."""
        named = {self.slice(each.slice).map for each in fetch.asked}
        relations = {self._relation(group) for group, _ in fetch.rows}
        return frozenset(named | {each.map for each in self._slices if each.relation in relations})

    def _relation(self, group: int) -> str:
        if not 0 <= group < len(self._groups):
            raise RemoteProtocolError(f"there is no group {group}")
        return self._groups[group].relation

    def sent_for(self, fetch: Fetch) -> tuple[dict[int, list[tuple[int, bytes]]], list[SliceForTarget]]:
        """Return for each node that gets a PUSH where its entries go, and which entries of this node it gets.

        Raises
        ------
        RemoteProtocolError
            If something is asked for that there is not.
        """
        targets = self.by_target(fetch)
        found = [SliceForTarget(each.target, each.slice, self.keys(each)) for each in fetch.asked]
        found += (each for group, data in fetch.rows for each in self._of_rows(self._relation(group), data))
        for target in (*(each.target for each in found), *(to for to, _ in fetch.puts)):
            targets.setdefault(target, [])
        return targets, found

    def _of_rows(self, relation: str, data: bytes) -> Iterator[SliceForTarget]:
        """Yield what rows of a relation ask this node for."""
        rows = _table(data)
        if missing := {*self._needs.columns(relation)} - {*rows.column_names}:
            raise RemoteProtocolError(f"rows of {relation} in a FETCH have no {', '.join(sorted(missing))}")
        known: dict[tuple[tuple[str, ...], bytes], pa.Table | None] = {}
        for (reader, target, number), of in self._needs.sent(relation, rows).items():
            if reader == self._maps.number:
                place = bound, _ = self._slices[number].bound, of.tobytes()
                if place not in known:  # often several slices, or nodes, need the same keys
                    known[place] = keys_of(rows, bound, of)
                yield SliceForTarget(target, number, known[place])

    def by_target(self, fetch: Fetch) -> dict[int, list[tuple[int, bytes]]]:
        """Return for each node that gets a PUSH where its entries go; RemoteProtocolError if others are named."""
        targets: dict[int, list[tuple[int, bytes]]] = {target: [] for target in fetch.targets}
        for asked in fetch.asked:
            if asked.target not in targets:
                raise RemoteProtocolError(f"entries are asked for node {asked.target}, which gets no PUSH")
        return targets

    def keys(self, asked: AskedSlice) -> pa.Table | None:
        """Return the keys that are asked for; RemoteProtocolError if they are not those of the slice."""
        bound = len(self.slice(asked.slice).bound)
        if not bound and not asked.keys:
            return None
        keys = _table(asked.keys)
        if keys.num_columns != bound:
            raise RemoteProtocolError(f"slice {asked.slice} has {bound} keys, and {keys.num_columns} have come")
        return keys

    def cut(self, found: MapFrame, number: int, target: int) -> MapFrame:
        """Return the entries that the target needs for what it has: the others correspond to other regions."""
        wanted = np.zeros(found.rows, np.bool_)
        for shared in self._shared[number]:
            mine = np.ones(found.rows, np.bool_)
            for key, dimension in shared:
                mine &= dimension.parts_of_key(found, key) == dimension.part_at(target)
            wanted |= mine
        return found if wanted.all() else found.filter(wanted)


def shared_keys(plan: ClusterPlan) -> list[set[frozenset[tuple[int, AxisCut]]]]:
    """Return for each slice, and each statement that reads it, the keys that loop with a key by which the result lies:
    a target needs the entries of its own parts.
    """
    found: list[set[frozenset[tuple[int, AxisCut]]]] = [set() for _ in plan.nodes_program.slices]
    numbers = numbers_of(plan.nodes_program.slices)
    program = plan.division.spread
    for flow in named_flows(program):
        by_loop = dict(place_of(program, flow.relation, flow.writes, plan.layout.regions[flow.writes.map]).loops)
        written = {name: program.map(flow.writes.map).keys[at].type for at, name in enumerate(flow.writes.loops)}
        for read in flow.reads:
            keys = program.map(read.map).keys
            shared = {
                (place, by_loop[name])
                for place, name in enumerate(read.loops)
                if name in by_loop and name in written and hashed_alike(keys[place].type, written[name])
            }
            found[numbers[flow.relation, read.map, read.columns]].add(frozenset(shared))
    return found


def _table(data: bytes) -> pa.Table:
    try:
        return from_ipc(data)
    except (pa.ArrowException, OSError) as problem:
        raise RemoteProtocolError(f"the keys of a FETCH cannot be read: {problem}") from None


def keys_sent(rows: pa.Table, columns: Sequence[str], wanted: npt.NDArray[np.bool_]) -> bytes:
    """Return the different values that some rows have in columns, as a FETCH has them; empty without columns."""
    keys = keys_of(rows, columns, wanted)
    return b"" if keys is None else to_ipc(keys)


def keys_of(rows: pa.Table, columns: Sequence[str], wanted: npt.NDArray[np.bool_]) -> pa.Table | None:
    """Return the different values that some rows have in columns; None without columns.

    Equal keys must be one: an entry that is asked for twice would count twice.
    """
    if not columns:
        return None
    names = [f"k{place}" for place in range(len(columns))]
    table = pa.table([_alike(rows.column(column)) for column in columns], names=names).filter(pa.array(wanted))
    return table.group_by(names, use_threads=False).aggregate([])


def _alike(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose equal values have equal bits."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):  # -0.0 is 0.0, and all NaN are one
        return pc.if_else(
            pc.is_nan(column), pa.scalar(np.nan, column.type), pc.add(column, pa.scalar(0.0, column.type))
        )
    return column
