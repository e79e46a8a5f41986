"""Switches and nodes of a mode that tells nodes what a block needs; messages arrive in any order that links keep."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cumulus.catalog.arrow import table_of
from cumulus.cluster import codec
from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.cuts import MapGrid
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.regions import Regions
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from cumulus.cluster.planning.message_counts import CountedMessages
from cumulus.cluster.protocols.central_messages import TickSet
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.protocol import NumberedRows
from cumulus.cluster.protocols.table import node_protocol, switch_protocol
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.m3.program import Program
from support.spread_cases import Block, approximately

MOST_TICKS = 10
"""So often it is told that time has passed, when nothing is on its way: then nothing waits any more."""


class CentralNodes:
    """The protocols of a cluster without machines.

    Attributes
    ----------
    sent, bytes
        Class of message → how many went between machines, and with how many bytes.
    formula
        The same, from the tables of the plan.
    """

    def __init__(
        self,
        program: Program,
        mode: Mode,
        nodes: int,
        seed: int,
        engine: str = "interpreter",
        cuts: Sequence[str] = (),
        switches: int = 1,
        options: Sequence[str] = (),
        central: CentralOptions = DEFAULT_CENTRAL,
        regions: Mapping[str, Regions] | None = None,
    ) -> None:
        self.plan: ClusterPlan = plan_cluster(
            program, nodes, switches, mode, cuts=cuts, options=options, central=central
        )
        if regions is not None:  # cuts of each map of its own, which no option can ask for
            homes = self.plan.layout.homes
            layout = ClusterLayout(program, homes, nodes, has_replicas=False, grid=MapGrid(regions))
            self.plan = replace(self.plan, layout=layout)
        self._engine, self._rng = engine, random.Random(seed)
        self._switches = [switch_protocol(self.plan) for _ in range(switches)]
        self.nodes = [node_protocol(NodeLife(self.plan, number, engine)) for number in range(nodes)]
        self._numberings, self._tick = [Numbering(VersionOrder.CLOCK, each) for each in range(switches)], 0
        self.links: dict[tuple[int, int], deque[bytes]] = {}
        self.sent: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._told: list[tuple[int, Block]] = []
        """What was told, with its version: row by row, where each is a block."""
        self._ticks: dict[int, int] = {}
        self.formula = CountedMessages(self.plan)
        self.most_waiting = 0
        self._ended = 0
        """The last epoch of which nodes hear, with each message, that it has ended."""

    def send(self, block: Block, epoch: int = 1, version: int | None = None) -> None:
        """Let the switch of its table send a block, with a version that the test gives or the next one."""
        relation = self.plan.program.relation(block.relation)
        rows = table_of(relation.columns, [row for _, row in block.rows])
        signs = np.array([sign for sign, _ in block.rows], dtype=np.int8)
        self._tick += 1
        switch = self.plan.tables.switch_of[block.relation]
        if version is None:
            version = self._numberings[switch].next(epoch, self._tick, len(block.rows))
        see_each_other = {group.relation for group in self.plan.nodes_program.groups if group.has_row_versions}
        parts = [(row,) for row in block.rows] if block.relation in see_each_other else [block.rows]
        self._told += ((version + at, Block(block.first, block.relation, part)) for at, part in enumerate(parts))
        numbered = NumberedRows(block.relation, version, rows, signs)
        assert not list(self.formula.dispatch(numbered))
        for node, message in self._switches[switch].dispatch(numbered):
            self._send(-1 - switch, node, message)

    def _send(self, source: int, target: int, message: Any) -> None:
        assert source != target, "nothing is sent to oneself"
        data = b"".join(codec.encode(message))
        self.sent[type(message).__name__] += 1
        self.bytes[type(message).__name__] += len(data)
        if isinstance(message, TickSet):
            self._ticks[message.version] = message.tick
        self.links.setdefault((source, target), deque()).append(data)

    def deliver(self) -> bool:
        """Deliver the first message of some link; whether there was one."""
        if not self.links:
            return False
        self.deliver_on(*self._rng.choice(sorted(self.links)))
        return True

    def deliver_on(self, source: int, target: int) -> Any:
        """Deliver the first message of a link, and return it; switches are −1, −2, …."""
        link = source, target
        message = codec.decode(self.links[link].popleft())
        if not self.links[link]:
            del self.links[link]
        if target < 0:
            for node, told in self._switches[-1 - target].take(source, message):
                self._send(target, node, told)
            return message
        self.nodes[target].take(source, message)
        for node, told in self.nodes[target].drain(self._ended):
            self._send(target, node, told)
        self.nodes[target].check()
        self.most_waiting = max(self.most_waiting, int(self.nodes[target].facts().get("blocks_waiting", 0)))  # type: ignore[call-overload]
        return message

    def drain(self, *, is_time: bool = False) -> None:
        """Let all nodes do what they can; with `is_time` they hear that time has passed."""
        for number, node in enumerate(self.nodes):
            for target, told in node.drain(self._ended, is_time=is_time):
                self._send(number, target, told)
            node.check()

    def end(self, epoch: int) -> None:
        """Let all nodes hear that all switches have ended an epoch, if that says more than that."""
        for switch, protocol in enumerate(self._switches):
            passed_on = protocol.take_passed_on()
            for node in passed_on.puts:
                self.nodes[node].take(-1 - switch, passed_on.end(epoch, False, b"", node))

    def in_order(self) -> list[Block]:
        """Return what was told in the order in which it is done: that of versions, or of ticks and then of versions."""
        told = sorted(self._told, key=lambda each: (self._ticks.get(each[0], -1), each[0]))
        return [Block(at, block.relation, block.rows) for at, (_, block) in enumerate(told)]

    def run(self, blocks: Sequence[Block]) -> None:
        """Send blocks and deliver in between, by chance; then deliver everything."""
        tells_time, self._ended = self.plan.options.tick_ms > 0, 0
        for block in blocks:
            self.send(block)
            while self._rng.random() < 0.6 and self.deliver():
                if tells_time and self._rng.random() < 0.1:
                    self.drain(is_time=True)
        self.end(1)
        while self.deliver():
            pass
        for _ in range(MOST_TICKS if tells_time else 0):
            self.drain(is_time=True)
            while self.deliver():
                pass
        self._ended = 1
        self.drain()
        while self.deliver():
            pass
        assert all(node.is_flushed(1) for node in self.nodes)

    def must_have(self, expected: Mapping[str, dict[Any, Any]]) -> None:
        """Compare the entries of all spread maps with those of one engine: floats within rounding."""
        assert {name: approximately(each) for name, each in self.entries().items()} == {
            name: approximately(expected[name]) for name in self.nodes[0].maps.names
        }

    def entries(self) -> dict[str, dict[Any, Any]]:
        """Return the entries of all maps, each from its owner; who else has it has the same."""
        found: dict[str, dict[Any, Any]] = {}
        for name in self.nodes[0].maps.names:
            held = [dict(node.maps.maps.engine.items(name)) for node in self.nodes]
            found[name] = {
                key: values
                for number, entries in enumerate(held)
                for key, values in entries.items()
                if self.plan.layout.owner_of(name, key) == number
            }
            for number, entries in enumerate(held):
                assert all(number in self.plan.layout.nodes_of(name, key) for key in entries), (name, number)
        return found
