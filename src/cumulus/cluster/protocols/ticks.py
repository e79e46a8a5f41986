"""Target aggregation by several switches: nodes agree with a switch on the tick of each block, and keep to ticks.

A switch sends what `cumulus.cluster.protocols.central_target` does, as one message to each node that takes part:

=========  ============================================================================================================
TICKASKED  the FETCH and the PUT of a block, tentatively: when can this node do it?
TICKTOLD   a node's tick, past all that it has done
TICKSET    from the switch, to all of them: the block is posted at the greatest of these ticks
PUSH       as in target aggregation
=========  ============================================================================================================

Nodes do blocks in the order of their ticks, and within one in that of versions. A node that has told its tick does
nothing of that tick or a later one until it hears which it has become: so all that have two blocks in common do them in
the same order, and there is no cycle of who waits for whom.

A node tells its tick for a block when all of the epochs before are posted here. Blocks that meet have a node in common,
so those of an epoch come before those of the next one.

A tick is no time here: it is over when all that is posted at it is done. How many ticks later than its block a map is
written, its depth in the graph, is how many PUSHes it waits for, one behind the other.

References
----------
Cumulus architecture, "Pipeline Scheduling". There clocks move ticks on, and nodes wait by the depth of a map.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from cumulus.cluster.messages import Deltas
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import Fetch, Push, Put, TickAsked, TickSet, TickTold
from cumulus.cluster.protocols.central_target import CentralTargetNode, CentralTargetSwitch
from cumulus.cluster.protocols.deferred_work import Arrival, DeferredWork
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.protocol import NumberedRows, PassedOn, Sent
from cumulus.errors import RemoteProtocolError


class TicksNode:
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`.

    Attributes
    ----------
    target
        What does blocks, one after the other.
    tick
        The one of this node.
    """

    def __init__(self, life: NodeLife) -> None:
        self.target = CentralTargetNode(life)
        self.target.work = DeferredWork(arrival=Arrival.AS_IT_COMES)
        self.maps, self.depths, self.tick = self.target.maps, 0, 0
        self._has_static = any(relation.static for relation in life.plan.program.relations)
        self._held: deque[tuple[int, TickAsked]] = deque()
        """What no tick was told for, with its switch."""
        self._told: dict[int, tuple[int, TickAsked]] = {}
        """Version → the tick that was told for it."""
        self._posted: list[tuple[int, TickAsked]] = []
        """What waits for its turn, with its tick."""

    def take(self, sender: int, message: object) -> None:
        """Take what switches ask for and say, and what nodes send."""
        match message:
            case TickAsked() if sender < 0:
                self._held.append((sender, message))
            case TickSet(version, tick) if sender < 0:
                told, asked = self._told.pop(version, (-1, None))
                if asked is None or tick < told:
                    raise RemoteProtocolError(f"tick {tick} is set for version {version}, and {told} was told")
                self._posted.append((tick, asked))
                self.tick = max(self.tick, tick + 1)
            case Push() | Deltas() if sender >= 0:
                self.target.take(sender, message)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no message of this mode")

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Sent]]:
        """Tell ticks, then do what can be done now; yield what nodes and switches must get."""
        yield from self._tell(ended)
        first = self.earliest_to_come()
        self._posted.sort(key=self._turn)
        while self._posted and (first is None or self._turn(self._posted[0]) < first):
            _, asked = self._posted.pop(0)
            for message in (*asked.fetches, *asked.puts):
                self.target.take(-1, message)
        yield from self.target.drain()

    def earliest_to_come(self) -> tuple[int, int] | None:
        """Return the first tick, and version, at which something may be posted yet; None if nothing was asked for."""
        return min(((tick, self.maps.kept(version)) for version, (tick, _) in self._told.items()), default=None)

    def may_tell(self, asked: TickAsked, ended: int) -> bool:
        """Whether all is posted here of the epochs before that of a block.

        Static tables are of epoch 0, and have come when the first one has ended.
        """
        epoch = self._epoch(asked.version)
        before = epoch if epoch == 1 and self._has_static else epoch - 1
        return before <= ended and all(self._epoch(version) >= epoch for version in self._told)

    def _tell(self, ended: int) -> Iterator[tuple[int, TickTold]]:
        """Tell this node's tick for what comes behind epochs of which all is posted here."""
        while self._held:
            switch, asked = min(self._held, key=lambda each: self._epoch(each[1].version))
            if not self.may_tell(asked, ended):
                return
            self._held.remove((switch, asked))
            self._told[asked.version] = self.tick, asked
            yield switch, TickTold(asked.version, self.tick, asked.nodes)

    def _turn(self, posted: tuple[int, TickAsked]) -> tuple[int, int]:
        return posted[0], self.maps.kept(posted[1].version)

    def _epoch(self, version: int) -> int:
        return self.maps.window.epoch_of(self.maps.kept(version))

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing waits of an epoch."""
        waiting = (*(each for _, each in self._held), *(each for _, each in (*self._told.values(), *self._posted)))
        return all(self._epoch(each.version) > epoch for each in waiting) and self.target.is_flushed(epoch)

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed."""
        self.target.commit(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch, and forget what waits."""
        self._held.clear()
        self._told.clear()
        self._posted.clear()
        self.target.reset(epoch)

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        self.target.move_on(committed)

    def late_share(self) -> tuple[int, int]:
        """Return that nothing comes late, and how many rows have come."""
        return self.target.late_share()

    def facts(self) -> dict[str, object]:
        """Return how much was computed, how much waits, and the tick."""
        waiting = len(self._held) + len(self._told) + len(self._posted) + len(self.target.work)
        return {**self.target.facts(), "blocks_waiting": waiting, "tick": self.tick}

    def check(self) -> None:
        """Check what holds between two steps."""
        assert all(tick <= self.tick for tick, _ in self._told.values()), self._told
        self.target.check()


class TicksSwitch:
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol`: asks nodes for their ticks, and sets the greatest."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._target = CentralTargetSwitch(plan)
        self._told: dict[int, dict[int, int]] = {}
        """Version → node → its tick."""

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, TickAsked]]:
        """Yield what nodes get of a block."""
        for version, sent in groupby(self._target.dispatch(block), key=lambda each: each[1].version):
            fetches: dict[int, list[Fetch]] = {}
            puts: dict[int, list[Put]] = {}
            for node, message in sent:
                if isinstance(message, Fetch):
                    fetches.setdefault(node, []).append(replace(message, after=-1))
                else:
                    puts.setdefault(node, []).append(message)
            nodes = sorted(fetches.keys() | puts.keys())
            for node in nodes:
                yield node, TickAsked(version, len(nodes), fetches.get(node, []), puts.get(node, []))

    def take(self, node: int, message: object) -> Iterator[tuple[int, TickSet]]:
        """Take the tick of a node; yield which the block has got, once all have told theirs."""
        match message:
            case TickTold(version, tick, nodes):
                told = self._told.setdefault(version, {})
                if node in told:
                    raise RemoteProtocolError(f"node {node} tells its tick for version {version} again")
                told[node] = tick
                if len(told) == nodes:
                    del self._told[version]
                    yield from ((each, TickSet(version, max(told.values()))) for each in sorted(told))
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no answer of this mode")

    def reset(self) -> None:
        """Forget what nodes have told: all is sent again."""
        self._told.clear()

    def take_passed_on(self) -> PassedOn:
        """Return that nodes hear of all blocks from here."""
        return PassedOn()
