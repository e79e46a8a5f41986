"""Target aggregation: the node that has an entry computes it, from slices that the other nodes send for each block.

For a block the switch tells, in this order,

=====  ================================================================================================================
FETCH  each node that has entries which the block reads: send them, as they are before the block, to these nodes
PUT    each node that has entries to which the block adds: these rows, and how many PUSHes there will be
PUSH   from each reader to each writer that needs something of it, also if it is empty; its own stay where they are
=====  ================================================================================================================

With `--dispatch directives` nodes find FETCHes and PUTs themselves (`cumulus.cluster.protocols.tree_dispatch`).

A FETCH names the version of the last PUT that its node got before the event's own ones: with the event's own, as the
paper prints it, it would read new values, and two nodes could wait for each other. Links keep order, so a node that
takes things in the order in which they come answers with these values; the version is checked.

References
----------
Cumulus architecture, "Anatomy of an Update", "Trigger Dispatch"; Cumulus consistency paper, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cumulus.cluster.messages import Block
from cumulus.cluster.node_programs.slice_entries import SliceEntries
from cumulus.cluster.placement.block_needs import BlockNeeds
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.asked_slices import AskedSlices, keys_sent
from cumulus.cluster.protocols.central import CentralNode, nodes_in, single_events
from cumulus.cluster.protocols.central_messages import (
    AskedSlice,
    Fetch,
    Push,
    Put,
    PutsAsked,
    VersionCommit,
)
from cumulus.cluster.protocols.deferred_work import DeferredBlock
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.polled_work import PolledWork
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows, Sent
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    from cumulus.cluster.placement.block_needs import NeedsOfRows, SlicesOfReader


class CentralTargetNode(CentralNode):
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`."""

    def __init__(self, life: NodeLife) -> None:
        super().__init__(life)
        self._last_put = -1
        self._asked = AskedSlices(life.plan, self.maps)
        self._entries = SliceEntries(self.maps.maps)
        self.polls = PolledWork(self.maps) if life.plan.central.poll_blocks else None

    def take(self, sender: int, message: object) -> None:
        """Take what the switch asks for, and what nodes send."""
        if self.polls is not None and sender < 0 and isinstance(message, PutsAsked | VersionCommit):
            self.polls.take(sender, message, self.work.first())
        else:
            super().take(sender, message)

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Sent]]:
        """Do what can be done now; yield what nodes and the switch must get."""
        yield from super().drain(ended, is_time=is_time)
        if self.polls is not None:
            yield from self.polls.answers(self.work.first(), self.has_come)

    def has_come(self, version: int) -> bool:
        """Whether all blocks up to a version, as this node keeps it, have come, if a message about them has."""
        return True

    def renumber(self, less: int) -> None:
        """Take something away from all versions that are kept beside the maps."""
        super().renumber(less)
        if self.polls is not None:
            self.polls.renumber(less)

    def facts(self) -> dict[str, object]:
        """Return how much was computed, how much waits, and what was done for polls."""
        return super().facts() | ({} if self.polls is None else self.polls.facts())

    def deferred(self, message: object) -> DeferredBlock | None:
        """Return what the switch asks for: to send slices, or to compute."""
        if self.polls is not None and isinstance(message, Fetch | Put):
            self.polls.require_later(message.version)
        match message:
            case Fetch():
                read = frozenset(self._asked.slice(each.slice).map for each in message.asked)
                if message.after >= 0 and self._last_put >= 0 and message.after != self._last_put:
                    raise RemoteProtocolError(f"a FETCH after version {message.after} comes after {self._last_put}")
                return DeferredBlock(self.maps.kept(message.version), read, frozenset(), 0, message)
            case Put(block, pushes):
                written = frozenset(self.blocks.group(block.group).writes)
                self._last_put = block.version
                return DeferredBlock(self.maps.kept(block.version), frozenset(), written, pushes, message)
            case _:
                return None

    def do(self, message: Fetch | Put, pushes: Sequence[Push]) -> Iterator[tuple[int, Push]]:
        """Answer or compute."""
        if isinstance(message, Fetch):
            yield from self._answer(message)
        else:
            self._compute(message.block, pushes)

    def _answer(self, fetch: Fetch) -> Iterator[tuple[int, Push]]:
        version = self.maps.kept(fetch.version)
        frames = self._asked.by_target(fetch)
        for asked in fetch.asked:
            found = self._entries.ask(asked.slice, version, self._asked.keys(asked))
            found = self._asked.cut(found, asked.slice, asked.target)
            if found.rows:
                frames[asked.target].append((asked.slice, self.maps.packed(found)))
        for target, sent in frames.items():
            yield from self.sent_or_noted(target, Push(fetch.version, sent))

    def _compute(self, block: Block, pushes: Sequence[Push]) -> None:
        """Compute what a block adds here from what was sent for it: where the result is another node's, it is not whole
        here, and left to that.
        """
        maps, made = self.maps.maps, self.made
        for push in pushes:
            for number, data in push.frames:
                self._entries.give(number, self.maps.frame_of(self._asked.slice(number).got, data))
        self.rows += self.blocks.fire(block)
        for name, added in maps.take_out().items():
            mine = self.maps.own(name, added)
            if mine.rows:
                maps.add(name, mine)
        self._entries.clear(made.groups[block.group].relation)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch."""
        self._last_put = -1
        self._entries.clear_all()
        if self.polls is not None:
            self.polls.reset()
        super().reset(epoch)


class CentralTargetSwitch(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: the dispatch table of the architecture, by regions.

    Attributes
    ----------
    groups
        Relation → the number of its group of statements, and the group.
    needs
        What rows need.
    """

    def __init__(self, plan: ClusterPlan) -> None:
        self.groups = {group.relation: (at, group) for at, group in enumerate(plan.nodes_program.groups)}
        self.needs = BlockNeeds(plan.layout, plan.nodes_program.slices)
        self._bound = [each.bound for each in plan.nodes_program.slices]
        self._last_put = [-1] * plan.nodes

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Fetch | Put]]:
        """Yield what nodes get of a block: first all FETCHes, then all PUTs."""
        if block.relation in self.groups:
            for each in single_events(self.groups[block.relation][1], block):
                yield from self.tell_nodes(each, self.needs.of(each.relation, each.rows))

    def tell_nodes(self, block: NumberedRows, needs: NeedsOfRows) -> Iterator[tuple[int, Fetch | Put]]:
        """Yield what nodes get of rows that do not see each other."""
        for reader, slices in needs.by_reader.items():
            yield reader, self.fetch(block, slices, self._last_put[reader])
        for target, put in self.puts(block, needs):
            self._last_put[target] = block.version
            yield target, put

    def fetch(self, block: NumberedRows, slices: SlicesOfReader, after: int = -1) -> Fetch:
        """Return the FETCH of a node that sends some slices, behind its last PUT."""
        asked = [
            AskedSlice(target, number, keys_sent(block.rows, self._bound[number], of))
            for (target, number), of in slices.items()
        ]
        return Fetch(block.version, after, sorted({target for target, _ in slices}), asked)

    def puts(self, block: NumberedRows, needs: NeedsOfRows) -> Iterator[tuple[int, Put]]:
        """Yield what nodes must compute."""
        number, group = self.groups[block.relation]
        columns, readers = block.rows.select(list(group.columns)), needs.readers
        for target in nodes_in(needs.is_target.any(axis=0)):
            mine = np.flatnonzero(needs.is_target[:, target])
            part = Block.of(number, block.version, mine, columns.take(mine), block.signs[mine])
            yield target, Put(part, len(readers.get(target, ())))
