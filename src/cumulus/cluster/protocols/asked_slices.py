"""What nodes ask each other for, as messages have it: slices, their keys, and which of the entries a target needs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import from_ipc
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, numbers_of
from cumulus.cluster.placement.correspondence import named_flows, place_of
from cumulus.cluster.placement.regions import AxisCut
from cumulus.cluster.placement.segments import hashed_alike
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import AskedSlice, Fetch
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.engine.frames.frame import MapFrame
from cumulus.errors import RemoteProtocolError


class AskedSlices:
    """Reads messages that ask a node for slices, or send it some."""

    def __init__(self, plan: ClusterPlan, maps: SpreadMaps) -> None:
        self._slices, self._logs = plan.nodes_program.slices, plan.nodes_program.logs
        self._shared, self._maps = shared_keys(plan), maps

    def slice(self, number: int) -> FetchedSlice:
        """Return a slice of the node program; RemoteProtocolError if there is none with that number."""
        if not 0 <= number < len(self._slices):
            raise RemoteProtocolError(f"there is no slice {number}")
        return self._slices[number]

    def versioned(self, number: int, data: bytes) -> MapFrame:
        """Return what a node has sent of a slice, each with a version; RemoteProtocolError if there is none such."""
        self.slice(number)
        return self._maps.versioned_frame_of(self._logs[number].answered, data)

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
        try:
            keys = from_ipc(asked.keys)
        except (pa.ArrowException, OSError) as problem:
            raise RemoteProtocolError(f"the keys of a FETCH cannot be read: {problem}") from None
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
