"""Source aggregation in one order: nodes compute where what is read lies, and send what is added, always.

For a block the switch tells, in this order,

========  =============================================================================================================
EVALUATE  each node where rows of it are at home: these rows, and to which nodes it sends what they add
EXPECT    each node that may get some of it: how many nodes send it
PUSH      from each of these nodes to each of those, also if nothing is added
========  =============================================================================================================

A node evaluates a block when all earlier writes to what it reads are in, and takes writes in when all earlier blocks
that read there are evaluated (`cumulus.cluster.protocols.deferred_work`). So nothing is late, and nothing corrected.

References
----------
Cumulus consistency paper, section 3.3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cumulus.cluster.messages import Block, Deltas
from cumulus.cluster.placement.segments import Slice, flow_of
from cumulus.cluster.placement.slice_nodes import SliceNodes
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central import OrderedMaps, nodes_in, single_events
from cumulus.cluster.protocols.central_messages import Evaluate, Expect, Push
from cumulus.cluster.protocols.deferred_work import DeferredBlock
from cumulus.cluster.protocols.protocol import NumberedRows
from cumulus.cluster.versions import VersionOrder
from cumulus.engine.frames.frame import MapFrame
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    pass


class CentralSourceNode:
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`.

    Parameters
    ----------
    number, engine, order, committed
        As `OrderedMaps` takes them.

    Attributes
    ----------
    ordered
        The maps, and what waits.
    """

    def __init__(self, plan: ClusterPlan, number: int, engine: str, order: VersionOrder, committed: int) -> None:
        self.ordered = OrderedMaps(plan, number, engine, order, committed)
        self.maps, self.depths, self._number = self.ordered.maps, 0, number

    def take(self, sender: int, message: object) -> None:
        """Take what the switch asks for, and what nodes send."""
        ordered = self.ordered
        match message:
            case Evaluate([first, *_] as blocks) if sender < 0:
                read = frozenset(name for block in blocks for name in ordered.group(block.group).reads)
                ordered.work.defer(DeferredBlock(ordered.kept(first.version), read, frozenset(), 0, message))
            case Expect(version, groups, pushes) if sender < 0:
                written = frozenset(name for group in groups for name in ordered.group(group).writes)
                ordered.work.defer(DeferredBlock(ordered.kept(version), frozenset(), written, pushes, message))
            case Push() if sender >= 0:
                ordered.note(sender, message)
            case Deltas() if sender >= 0:
                ordered.take_failures(message)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no message of source aggregation")

    def drain(self) -> Iterator[tuple[int, Push | Deltas]]:
        """Evaluate and add what can be; yield what nodes must get."""
        for work, pushes in self.ordered.work.ready():
            if isinstance(work.message, Evaluate):
                yield from self._evaluate(work.message)
            else:
                for push in pushes:
                    for name, added in self.maps.received(push.frames):
                        self.maps.maps.add(name, added)
            self.maps.note_errors()
        yield from self.maps.failures()

    def _evaluate(self, message: Evaluate) -> Iterator[tuple[int, Push]]:
        for block in message.blocks:
            self.ordered.fire(block)
        parts: dict[int, dict[str, MapFrame]] = defaultdict(dict)
        for name, added in self.maps.maps.take_out().items():
            for node, places in enumerate(self.maps.layout.targets(name, added)):
                if len(places):
                    parts[node][name] = added if len(places) == added.rows else added.take(places)
        unexpected = parts.keys() - set(message.targets)
        assert not unexpected, f"something is added on nodes {sorted(unexpected)}, which expect nothing"
        for target in message.targets:
            push = Push(message.blocks[0].version, self.maps.sent(parts[target]))
            if target == self._number:
                self.ordered.note(target, push)
            else:
                yield target, push

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing waits of an epoch."""
        return self.ordered.is_flushed(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch."""
        self.ordered.reset(epoch)

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        self.ordered.move_on(committed)

    def late_share(self) -> tuple[int, int]:
        """Return that nothing comes late, and how many rows have come."""
        return 0, self.ordered.rows

    def facts(self) -> dict[str, object]:
        """Return how much was computed, and how much waits."""
        return self.ordered.facts()

    def check(self) -> None:
        """Check what holds between two steps."""
        self.ordered.check()


class CentralSourceSwitch:
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: who evaluates, and who expects what."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._layout = plan.layout
        self._groups = list(enumerate(plan.nodes_program.groups))
        program = plan.division.spread
        self._writes: dict[tuple[str, str | None], set[Slice]] = defaultdict(set)
        """Relation and home → what its statements there write."""
        for (index, place), home in plan.layout.homes.items():
            trigger = program.triggers[index]
            flow = flow_of(program, trigger, trigger.statements[place])
            self._writes[flow.relation, home].add(flow.writes)

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Evaluate | Expect]]:
        """Yield what nodes get of a block: who evaluates first, then who expects what."""
        own = [number for number, group in self._groups if group.relation == block.relation]
        if own:
            for each in single_events(self._groups[own[0]][1], block):
                yield from self._dispatched(own, each)

    def _dispatched(self, own: Sequence[int], block: NumberedRows) -> Iterator[tuple[int, Evaluate | Expect]]:
        relation, version, rows = block.relation, block.version, block.rows
        places, nodes = SliceNodes(self._layout, relation, rows), self._layout.nodes
        sends = np.zeros((nodes, nodes), np.bool_)
        blocks: dict[int, list[Block]] = defaultdict(list)
        expected: dict[int, list[int]] = defaultdict(list)
        for number in own:
            group = self._groups[number][1]
            homes = places.of_home(group.home)
            reached = np.zeros_like(homes)
            for written in sorted(self._writes[relation, group.home], key=repr):
                reached |= places.of_replicas(written)
            sends |= homes.T.astype(np.float32) @ reached > 0
            columns = rows.select(list(group.columns))
            for node in nodes_in(homes.any(axis=0)):
                mine = np.flatnonzero(homes[:, node])
                blocks[node].append(Block.of(number, version, mine, columns.take(mine), block.signs[mine]))
            for node in nodes_in(reached.any(axis=0)):
                expected[node].append(number)
        for node, of in sorted(blocks.items()):
            yield node, Evaluate(of, nodes_in(sends[node]))
        for node, groups in sorted(expected.items()):
            yield node, Expect(version, groups, int(sends[:, node].sum()))
