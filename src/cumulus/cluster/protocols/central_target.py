"""Target aggregation: the node that has an entry computes it, from slices that the other nodes send for each block.

For a block the switch tells, in this order,

=====  ================================================================================================================
FETCH  each node that has entries which the block reads: send them, as they are before the block, to these nodes
PUT    each node that has entries to which the block adds: these rows, and how many PUSHes there will be
PUSH   from each reader to each writer that needs something of it, also if it is empty; its own stay where they are
=====  ================================================================================================================

A FETCH names the version of the last PUT that its node got before the event's own ones: with the event's own, as the
paper prints it, it would read new values, and two nodes could wait for each other. Links keep order, so a node that
takes things in the order in which they come answers with these values; the version is checked.

References
----------
Cumulus architecture, "Anatomy of an Update", "Trigger Dispatch"; Cumulus consistency paper, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.cluster.messages import Block
from cumulus.cluster.node_programs.fetched_slice import FetchedSlice, numbers_of
from cumulus.cluster.placement.correspondence import Place, corresponding, named_flows, place_of
from cumulus.cluster.placement.regions import AxisCut
from cumulus.cluster.placement.segments import hashed_alike
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central import CentralNode, nodes_in, single_events
from cumulus.cluster.protocols.central_messages import AskedSlice, Fetch, Push, Put
from cumulus.cluster.protocols.deferred_work import DeferredBlock
from cumulus.cluster.protocols.protocol import NumberedRows
from cumulus.cluster.versions import VersionOrder
from cumulus.engine.frames.frame import MapFrame
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy.typing as npt


class CentralTargetNode(CentralNode):
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`; its parameters are those of `CentralNode`."""

    def __init__(self, plan: ClusterPlan, number: int, engine: str, order: VersionOrder, committed: int) -> None:
        super().__init__(plan, number, engine, order, committed)
        self._last_put = -1
        self._shared = shared_keys(plan)

    def deferred(self, message: object) -> DeferredBlock | None:
        """Return what the switch asks for: to send slices, or to compute."""
        match message:
            case Fetch():
                read = frozenset(self._slice(each.slice).map for each in message.asked)
                if message.after >= 0 and self._last_put >= 0 and message.after != self._last_put:
                    raise RemoteProtocolError(f"a FETCH after version {message.after} comes after {self._last_put}")
                return DeferredBlock(self.kept(message.version), read, frozenset(), 0, message)
            case Put(block, pushes):
                written = frozenset(self.group(block.group).writes)
                self._last_put = block.version
                return DeferredBlock(self.kept(block.version), frozenset(), written, pushes, message)
            case _:
                return None

    def _slice(self, number: int) -> FetchedSlice:
        slices = self.made.slices
        if not 0 <= number < len(slices):
            raise RemoteProtocolError(f"there is no slice {number}")
        return slices[number]

    def do(self, message: Fetch | Put, pushes: Sequence[Push]) -> Iterator[tuple[int, Push]]:
        """Answer or compute."""
        if isinstance(message, Fetch):
            yield from self._answer(message)
        else:
            self._compute(message.block, pushes)

    def _answer(self, fetch: Fetch) -> Iterator[tuple[int, Push]]:
        version = self.kept(fetch.version)
        frames: dict[int, list[tuple[int, bytes]]] = {target: [] for target in fetch.targets}
        for asked in fetch.asked:
            if asked.target not in frames:
                raise RemoteProtocolError(f"entries are asked for node {asked.target}, which gets no PUSH")
            found = self._cut(self.maps.maps.ask(asked.slice, version, self._keys(asked)), asked)
            if found.rows:
                frames[asked.target].append((asked.slice, found.to_bytes()))
        for target, sent in frames.items():
            yield from self.sent_or_noted(target, Push(fetch.version, sent))

    def _keys(self, asked: AskedSlice) -> pa.Table | None:
        """Return the keys that are asked for; RemoteProtocolError if they are not those of the slice."""
        bound = len(self._slice(asked.slice).bound)
        if not bound and not asked.keys:
            return None
        try:
            keys = from_ipc(asked.keys)
        except (pa.ArrowException, OSError) as problem:
            raise RemoteProtocolError(f"the keys of a FETCH cannot be read: {problem}") from None
        if keys.num_columns != bound:
            raise RemoteProtocolError(f"slice {asked.slice} has {bound} keys, and {keys.num_columns} have come")
        return keys

    def _cut(self, found: MapFrame, asked: AskedSlice) -> MapFrame:
        """Return the entries that the target needs for what it has: the others correspond to other regions."""
        wanted = np.zeros(found.rows, np.bool_)
        for shared in self._shared[asked.slice]:
            mine = np.ones(found.rows, np.bool_)
            for key, dimension in shared:
                mine &= dimension.parts_of_key(found, key) == dimension.part_at(asked.target)
            wanted |= mine
        return found if wanted.all() else found.filter(wanted)

    def _compute(self, block: Block, pushes: Sequence[Push]) -> None:
        """Compute what a block adds here from what was sent for it: where the result is another node's, it is not whole
        here, and left to that.
        """
        maps, made = self.maps.maps, self.made
        for push in pushes:
            for number, data in push.frames:
                maps.give(number, self.maps.frame_of(self._slice(number).got, data))
        self.fire(block)
        for name, added in maps.take_out().items():
            mine = added.filter(self.maps.layout.owners(name, added) == self.maps.number)
            if mine.rows:
                maps.add(name, mine)
        maps.clear_got(made.groups[block.group].relation)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch."""
        self._last_put = -1
        super().reset(epoch)


@dataclass(frozen=True, slots=True)
class _ReadPlan:
    """Of a read of a statement: its slice, where that lies, and which nodes correspond to which of what is written."""

    slice: int
    place: Place
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _FlowPlan:
    """Of a statement: where it writes, behind what its columns say, and what it reads."""

    writes: Place
    offsets: tuple[int, ...]
    reads: tuple[_ReadPlan, ...]


class CentralTargetSwitch:
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: the dispatch table of the architecture, by regions."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._nodes = plan.nodes
        self._groups = {group.relation: (at, group) for at, group in enumerate(plan.nodes_program.groups)}
        self._bound = [each.bound for each in plan.nodes_program.slices]
        numbers = numbers_of(plan.nodes_program.slices)
        self._flows: dict[str, list[_FlowPlan]] = defaultdict(list)
        program, regions = plan.division.spread, plan.layout.regions
        for flow in named_flows(program):
            writes = place_of(program, flow.relation, flow.writes, regions[flow.writes.map])
            reads = []
            for read in flow.reads:
                place = place_of(program, flow.relation, read, regions[read.map])
                number = numbers[flow.relation, read.map, read.columns]
                reads.append(_ReadPlan(number, place, tuple(sorted(corresponding(place, writes)))))
            offsets = {to for _, to in corresponding(Place((), ()), writes)}
            self._flows[flow.relation].append(_FlowPlan(writes, tuple(sorted(offsets)), tuple(reads)))
        self._last_put = [-1] * plan.nodes

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Fetch | Put]]:
        """Yield what nodes get of a block: first all FETCHes, then all PUTs."""
        if block.relation in self._groups:
            for each in single_events(self._groups[block.relation][1], block):
                yield from self._dispatched(each)

    def _dispatched(self, block: NumberedRows) -> Iterator[tuple[int, Fetch | Put]]:
        relation, version, rows, nodes = block.relation, block.version, block.rows, self._nodes
        is_target = np.zeros((rows.num_rows, nodes), np.bool_)
        sends = np.zeros((nodes, nodes), np.bool_)
        needed: dict[tuple[int, int, int], npt.NDArray[np.bool_]] = {}
        """Reader, target, slice → the rows for which it is needed."""
        for flow in self._flows[relation]:
            writers = _nodes_of_rows(flow.writes, rows)
            for to in flow.offsets:
                is_target[np.arange(rows.num_rows), writers + to] = True
            for read in flow.reads:
                readers = _nodes_of_rows(read.place, rows)
                for at, to in read.offsets:
                    pairs = (readers + at) * nodes + writers + to
                    for pair in np.unique(pairs).tolist():
                        reader, target = divmod(pair, nodes)
                        sends[reader, target] = True
                        place, of = (reader, target, read.slice), pairs == pair
                        needed[place] = needed[place] | of if place in needed else of
        number, group = self._groups[relation]
        asked: dict[int, list[AskedSlice]] = defaultdict(list)
        for (reader, target, slice_), of in sorted(needed.items(), key=lambda item: item[0]):
            asked[reader].append(AskedSlice(target, slice_, keys_sent(rows, self._bound[slice_], of)))
        for reader in nodes_in(sends.any(axis=1)):
            yield reader, Fetch(version, self._last_put[reader], nodes_in(sends[reader]), asked[reader])
        columns = rows.select(list(group.columns))
        for target in nodes_in(is_target.any(axis=0)):
            mine = np.flatnonzero(is_target[:, target])
            part = Block.of(number, version, mine, columns.take(mine), block.signs[mine])
            self._last_put[target] = version
            yield target, Put(part, int(sends[:, target].sum()))


def _nodes_of_rows(place: Place, rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each row the node that its columns say, where all loop variables are in their first parts."""
    found = np.zeros(rows.num_rows, np.int64)
    for column, dimension in place.columns:
        found += dimension.stride * dimension.parts_of(rows.column(column))
    return found


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


def keys_sent(rows: pa.Table, columns: Sequence[str], wanted: npt.NDArray[np.bool_]) -> bytes:
    """Return the different values that some rows have in columns, as a FETCH has them; empty without columns.

    Equal keys must be one: an entry that is asked for twice would count twice.
    """
    if not columns:
        return b""
    names = [f"k{place}" for place in range(len(columns))]
    table = pa.table([_alike(rows.column(column)) for column in columns], names=names).filter(pa.array(wanted))
    return to_ipc(table.group_by(names, use_threads=False).aggregate([]))


def _alike(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column whose equal values have equal bits."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):  # -0.0 is 0.0, and all NaN are one
        return pc.if_else(
            pc.is_nan(column), pa.scalar(np.nan, column.type), pc.add(column, pa.scalar(0.0, column.type))
        )
    return column
