"""The eventual mode, as switches and nodes speak it: blocks go to the homes of their statements, deltas to replicas.

What a node computes is in `cumulus.cluster.protocols.eventual_state`; here are its messages.

References
----------
Cumulus consistency paper, section 4.1, with `buffer` section 4.2, with `per-depth` section 6 ("buffering for greater
periods as we go down the dataflow dag"); with `patience` Cumulus semester paper, section 6; "Trigger Dispatch" of the
Cumulus architecture, without fetching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby

from cumulus.cluster.messages import Block, Deltas, Events
from cumulus.cluster.placement.dispatch import Dispatch
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.eventual_state import EventualState
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.protocol import HearsNothing, NumberedRows
from cumulus.cluster.spread_maps import BlockRows
from cumulus.engine.frames.frame import MapFrame, concat
from cumulus.errors import RemoteProtocolError


class EventualNode:
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`.

    Attributes
    ----------
    state
        What is computed.
    """

    def __init__(self, life: NodeLife) -> None:
        plan = life.plan
        self.state = EventualState(plan.nodes_program, plan.layout, life.number, life.engine)
        self.maps = life.spread_maps_over(self.state.maps)
        self.depths = plan.depths
        self._blocks: list[tuple[int, Block]] = []
        """What has come, each with the time at which it may be evaluated: until then earlier deltas may come."""
        self._patience = [plan.patience_with(each.reads) for each in plan.nodes_program.groups]
        self._deltas: list[Deltas] = []
        """What has come and was not drained; together, in the order of versions, it costs less."""
        self._committed = life.committed
        self._collected_for = _ticks_of_maps(plan)
        """Map → for how many ticks its deltas are collected; empty if they are not."""
        self._now, self._holds = 0, False
        """How often it was told that time has passed, and whether something may be collected."""

    def take(self, sender: int, message: object) -> None:
        """Take blocks of switches, and deltas of nodes."""
        match message:
            case Events(blocks) if sender < 0:
                self._blocks += ((self._now + self._patience_with(each), each) for each in blocks)
            case Deltas() if sender >= 0:
                self._deltas.append(message)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no message of the eventual mode")

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Deltas]]:
        """Do everything that can be done here; yield what nodes must get."""
        self._now += is_time
        blocks, deltas, self._deltas = self._due_blocks(ended), self._deltas, []
        self._take_in(map(self.maps.block_rows, blocks), deltas)
        due = None if ended > self._committed else self._due(is_time=is_time)  # the end of an epoch waits for all
        self._holds = due is not None and (self._holds or bool(blocks or deltas))
        sent = self.state.drain(due)
        self.maps.note_errors()
        for node, frames in sent.items():
            yield node, Deltas(self.maps.sent(frames))
        yield from self.maps.failures()

    def _due_blocks(self, ended: int) -> list[Block]:
        """Return the blocks that may be evaluated; keep those whose time is not over, if their epoch has not ended."""
        last = self.maps.window.last_version(ended) if ended > self._committed else -1
        found, blocks, self._blocks = [], self._blocks, []
        for not_before, block in blocks:
            if self._now < not_before and self.maps.kept(block.version) > last:
                self._blocks.append((not_before, block))
            else:
                found.append(block)
        return found

    def _patience_with(self, block: Block) -> int:
        is_known = 0 <= block.group < len(self._patience)
        return self._patience[block.group] if is_known else 0  # and refused as soon as its rows are read

    def _due(self, *, is_time: bool) -> list[str] | None:
        """Return the maps whose deltas are not collected any longer; None for all."""
        due = [name for name, ticks in self._collected_for.items() if is_time and self._now % ticks == 0]
        return None if len(due) == len(self._collected_for) else due

    def _take_in(self, blocks: Iterable[BlockRows], deltas: Iterable[Deltas]) -> None:
        """Take in what has come in a step, in the order of versions: what is in order needs no correction.

        Deltas of one map are added at once, but for those that a block waits for which others are behind.
        """
        waiting = self._received(deltas)
        for block in sorted(blocks, key=lambda each: each.first):
            if waiting:
                waiting = self._receive_before(block.first, self.state.made.groups[block.group].reads, waiting)
            self.state.fire(block.group, block.first, block.rows, block.signs, block.places)
            self.maps.note_errors()
        self.state.receive(waiting)
        self.maps.note_errors()

    def _received(self, deltas: Iterable[Deltas]) -> dict[str, MapFrame]:
        """Return what other nodes have sent, by map."""
        frames: dict[str, list[MapFrame]] = {}
        for each in deltas:
            for name, frame in self.maps.received(each.frames):
                frames.setdefault(name, []).append(frame)
            self.maps.failed.load(each.failed)
        return {name: concat(self.state.maps.alike(name, found)) for name, found in frames.items()}

    def _receive_before(self, version: int, reads: Iterable[str], waiting: dict[str, MapFrame]) -> dict[str, MapFrame]:
        """Add the deltas of maps before a version, if any are; return the others."""
        early = {}
        for name in reads:
            if name in waiting:
                versions = self.state.maps.versions(name, waiting[name])
                is_early = versions < version
                if is_early.any():
                    early[name] = waiting[name].filter(is_early)
                    waiting[name] = waiting[name].filter(~is_early)
        if early:
            self.state.receive(early)
        return waiting

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing is collected that is not sent, and no block of an epoch waits."""
        last = self.maps.window.last_version(epoch)
        return not self._holds and all(self.maps.kept(block.version) > last for _, block in self._blocks)

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed."""
        self._committed = epoch
        self.maps.cut(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch."""
        self._blocks.clear()
        self._deltas.clear()
        self._holds = False
        self.state.reset(self.maps.reset(epoch))

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        if less := self.maps.move_on(committed):
            self.state.renumber(less)

    def late_share(self) -> tuple[int, int]:
        """Return how many rows and deltas have come late in this life, and how many have come at all."""
        shares = self.state.shares
        return shares.rows_late + shares.deltas_late, shares.total

    def facts(self) -> dict[str, object]:
        """Return how much came late."""
        return asdict(self.state.shares)

    def check(self) -> None:
        """Check what holds between two steps."""
        if not self._holds:
            self.state.check()


def _ticks_of_maps(plan: ClusterPlan) -> dict[str, int]:
    """Return map → for how many ticks its deltas are collected; empty if they are not."""
    ticks, names = plan.options.ticks(plan.options.buffer_ms), [each.name for each in plan.division.spread.maps]
    if not ticks or not plan.options.per_depth:
        return dict.fromkeys(names, ticks) if ticks else {}
    return {name: ticks * (1 + depth) for name, depth in plan.depth_of.items()}


class EventualSwitch(HearsNothing):
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: nodes get the rows whose statements are at home there."""

    def __init__(self, plan: ClusterPlan) -> None:
        groups = plan.nodes_program.groups
        self._dispatch = Dispatch(groups, plan.layout.homes_of(groups), plan.nodes)

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Events]]:
        """Yield what nodes get of a block, all groups of one together."""
        routed = self._dispatch.route(block.relation, block.rows, block.signs)
        for node, parts in groupby(routed, key=lambda each: each.node):
            yield node, Events([Block.of(e.group, block.version, e.rows, e.columns, e.signs) for e in parts])
