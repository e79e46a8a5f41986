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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cumulus.cluster.messages import Block
from cumulus.cluster.placement.block_needs import NodesOfRows
from cumulus.cluster.placement.correspondence import Place, corresponding
from cumulus.cluster.placement.dispatch import rows_by_node
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central import CentralNode, nodes_in, single_events
from cumulus.cluster.protocols.central_messages import Evaluate, Expect, Push
from cumulus.cluster.protocols.deferred_work import DeferredBlock
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows
from cumulus.engine.frames.frame import MapFrame


class CentralSourceNode(CentralNode):
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`."""

    def deferred(self, message: object) -> DeferredBlock | None:
        """Return what the switch asks for: to evaluate rows, or to take in what others add."""
        match message:
            case Evaluate([first, *_] as blocks):
                read = frozenset(name for block in blocks for name in self.blocks.group(block.group).reads)
                return DeferredBlock(self.maps.kept(first.version), read, frozenset(), 0, message)
            case Expect(version, groups, pushes):
                written = frozenset(name for group in groups for name in self.blocks.group(group).writes)
                return DeferredBlock(self.maps.kept(version), frozenset(), written, pushes, message)
            case _:
                return None

    def do(self, message: Evaluate | Expect, pushes: Sequence[Push]) -> Iterator[tuple[int, Push]]:
        """Evaluate and send, or add."""
        if isinstance(message, Evaluate):
            yield from self._evaluate(message)
            return
        for push in pushes:
            for name, added in self.maps.received(push.frames):
                self.maps.maps.add(name, added)

    def _evaluate(self, message: Evaluate) -> Iterator[tuple[int, Push]]:
        for block in message.blocks:
            self.rows += self.blocks.fire(block)
        parts: dict[int, dict[str, MapFrame]] = defaultdict(dict)
        for name, added in self.maps.maps.take_out().items():
            for node, places in enumerate(self.maps.layout.targets(name, added)):
                if len(places):
                    parts[node][name] = added if len(places) == added.rows else added.take(places)
        unexpected = parts.keys() - set(message.targets)
        assert not unexpected, f"something is added on nodes {sorted(unexpected)}, which expect nothing"
        for target in message.targets:
            push = Push(message.blocks[0].version, self.maps.sent(parts[target]))
            yield from self.sent_or_noted(target, push)


class CentralSourceSwitch(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: who evaluates, and who expects what."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._nodes = plan.nodes
        groups = plan.nodes_program.groups
        self._groups = list(zip(range(len(groups)), groups, plan.layout.homes_of(groups), strict=True))
        self._sends: dict[tuple[str, str | None], dict[_Sending, None]] = defaultdict(dict)
        """Relation and home → who sends whom what statements add there."""
        for each in plan.layout.additions():
            sends = self._sends[each.flow.relation, each.home.label]
            for _, target in each.targets:
                pairs = tuple(sorted(corresponding(each.home.place, target)))
                sends[_Sending(each.home.place, target, pairs)] = None

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Evaluate | Expect]]:
        """Yield what nodes get of a block: who evaluates first, then who expects what."""
        own = [number for number, group, _ in self._groups if group.relation == block.relation]
        if own:
            for each in single_events(self._groups[own[0]][1], block):
                yield from self._dispatched(own, each)

    def _dispatched(self, own: Sequence[int], block: NumberedRows) -> Iterator[tuple[int, Evaluate | Expect]]:
        places, nodes = NodesOfRows(block.rows), self._nodes
        sends = np.zeros((nodes, nodes), np.bool_)
        blocks: dict[int, list[Block]] = defaultdict(list)
        expected: dict[int, list[int]] = defaultdict(list)
        for number in own:
            _, group, home = self._groups[number]
            mine = np.zeros((nodes, nodes), np.bool_)
            for each in self._sends[block.relation, group.home]:
                each.note(places, mine)
            sends |= mine
            columns = block.rows.select(list(group.columns))
            for node, at in enumerate(rows_by_node(places.of(home), home, nodes)):
                if len(at):
                    blocks[node].append(Block.of(number, block.version, at, columns.take(at), block.signs[at]))
            for node in nodes_in(mine.any(axis=0)):
                expected[node].append(number)
        for node, of in sorted(blocks.items()):
            yield node, Evaluate(of, nodes_in(sends[node]))
        for node, groups in sorted(expected.items()):
            yield node, Expect(block.version, groups, int(sends[:, node].sum()))


@dataclass(frozen=True, slots=True)
class _Sending:
    """Who sends whom what a statement adds to a replica set.

    Parameters
    ----------
    pairs
        By how much senders and receivers lie behind the first nodes of a row.
    """

    home: Place
    target: Place
    pairs: tuple[tuple[int, int], ...]

    def note(self, places: NodesOfRows, sends: npt.NDArray[np.bool_]) -> None:
        """Note in a table of senders and receivers who sends whom something for rows."""
        first = np.unique(places.of(self.home) * len(sends) + places.of(self.target))
        senders, receivers = np.divmod(first, len(sends))
        for sender, receiver in self.pairs:
            sends[senders + sender, receivers + receiver] = True
