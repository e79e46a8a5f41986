"""The eventual mode: nodes that exchange deltas in any interleaving end as one engine, and commit what it commits."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus import m3
from cumulus.algebra.scope import maps_of
from cumulus.catalog.arrow import table_of
from cumulus.cluster.node_programs.program import node_program
from cumulus.cluster.placement.dispatch import Dispatch, Dispatched
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.statement_placement import choose_homes
from cumulus.cluster.protocols.eventual_state import EventualState
from cumulus.cluster.spread import divide
from cumulus.cluster.versions import LAST_VERSION, Numbering, VersionOrder, last_version, unpack
from cumulus.engine.frames.frame import MapFrame
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program
from support import random_sql
from support.engines import chosen, engine_of
from support.random_programs import RandomProgram
from support.spread_cases import (
    BENCHMARKS,
    SMALL,
    Block,
    approximately,
    random_blocks,
    spread_program,
    states,
    views_that_look_up,
)
from support.tiers import WHOLE, examples, sampled
from support.versioned_entries import deltas_between, entries_at

EPOCHS = 3


class Links:
    """Reliable links between machines, each of which keeps its order; who delivers first is left to chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._waiting: dict[tuple[Any, Any], deque[tuple[int, Any]]] = {}

    def send(self, source: Any, target: Any, least: int, message: Any) -> None:
        """Put a message behind others; `least` is the first version in it."""
        self._waiting.setdefault((source, target), deque()).append((least, message))

    def deliver(self, most: int | None = None) -> tuple[Any, Any] | None:
        """Return a message with its target, from a link that has one with versions up to `most`."""
        links = [
            link
            for link, messages in sorted(self._waiting.items(), key=lambda item: str(item[0]))
            if any(most is None or least <= most for least, _ in messages)
        ]
        if not links:
            return None
        link = self._rng.choice(links)
        return link[1], self._waiting[link].popleft()[1]

    def clear(self) -> None:
        self._waiting.clear()


class Cluster:
    """Switches that number random blocks, and nodes in the eventual mode."""

    def __init__(
        self, program: Program, rng: random.Random, order: VersionOrder, events: list[tuple[int, str, tuple]]
    ) -> None:
        nodes, switches = rng.randint(1, 4), rng.randint(1, 3)
        self.program, self.rng, self.nodes = program, rng, nodes
        homes = choose_homes(program, Statistics())
        if rng.random() < 0.3:
            homes = dict.fromkeys(homes)  # all at node 0
        self.made = node_program(program, homes)
        self.layout = ClusterLayout(program, homes, nodes)
        self.dispatch = Dispatch(self.made.groups, self.layout.homes_of(self.made.groups), nodes)
        self.lives: list[EventualState] = []  # all states that there were
        self.states = [self.state(node) for node in range(nodes)]
        self.relations = {relation.name: relation for relation in program.relations}
        self.links = Links(rng)
        self.blocks: list[tuple[int, Block]] = []
        """With the numbers of their switches, in each switch's order."""
        self.undispatched: list[list[Block]] = [[] for _ in range(switches)]
        self.snapshots_with_later = 0
        self._number(events, [Numbering(order, switch) for switch in range(switches)])

    def state(self, node: int) -> EventualState:
        self.lives.append(EventualState(self.made, self.layout, node, engine_of(self.made.program)))
        return self.lives[-1]

    def _number(self, events: list[tuple[int, str, tuple]], numberings: list[Numbering]) -> None:
        """Make blocks of events; blocks of a switch keep the order of events, and epochs take their shares."""
        at = 0
        while at < len(events):
            end, relation = at + self.rng.randint(1, 5), events[at][1]
            rows = [(sign, row) for sign, name, row in events[at:end] if name == relation]
            rest = [event for event in events[at:end] if event[1] != relation]
            events[at:end] = [*((sign, relation, row) for sign, row in rows), *rest]
            switch, epoch = self.rng.randrange(len(numberings)), 1 + at * EPOCHS // len(events)
            first = numberings[switch].next(epoch, at + self.rng.randint(0, 3), len(rows))
            self.blocks.append((switch, Block(first, relation, tuple(rows))))
            at += len(rows)
        self._undispatch(0)

    def _undispatch(self, epoch: int) -> None:
        """Let all switches begin anew behind an epoch."""
        for switch, waiting in enumerate(self.undispatched):
            waiting[:] = [each for own, each in self.blocks if own == switch and unpack(each.first)[0] > epoch]

    # --- steps ------------------------------------------------------------------------------------------------------

    def send_block(self, switch: int) -> None:
        block = self.undispatched[switch].pop(0)
        table = table_of(self.relations[block.relation].columns, [row for _, row in block.rows])
        signs = np.array([sign for sign, _ in block.rows], dtype=np.int8)
        for part in self.dispatch.route(block.relation, table, signs):
            self.links.send(f"switch{switch}", part.node, block.first, (block.first, part))

    def deliver(self, most: int | None = None) -> bool:
        """Deliver messages to one node, and send what it computes."""
        found = self.links.deliver(most)
        if found is None:
            return False
        node, message = found
        state = self.states[node]
        if isinstance(message[1], Dispatched):
            first, part = message
            state.fire(part.group, first, part.columns, part.signs, part.rows)
        else:
            state.receive(dict([message]))
        if self.rng.random() < 0.7 or most is not None:
            self.drain(node)
        return True

    def drain(self, node: int) -> None:
        for target, deltas in self.states[node].drain().items():
            assert target != node
            for name, frame in deltas.items():
                least = int(frame.numbers(len(self.program.map(name).keys)).min())
                sent = MapFrame.of_bytes(frame.layout, frame.to_bytes())
                self.links.send(node, target, least, (name, sent))

    def settle(self, most: int | None = None) -> None:
        """Deliver until nothing up to a version is under way."""
        while True:
            for node in range(self.nodes):
                self.drain(node)
            if not self.deliver(most):
                return

    # --- what must hold ---------------------------------------------------------------------------------------------

    def expected(self, end: int) -> dict[str, dict]:
        return states(self.program, [block for _, block in self.blocks if block.first <= end])

    def committed(self, name: str, end: int) -> dict:
        """Return the entries of a map after a version, from their owners; replicas have the same."""
        found: dict = {}
        held = [entries_at(state.maps, name, end) for state in self.states]
        for node, entries in enumerate(held):
            for key, values in entries.items():
                if self.layout.owner_of(name, key) == node:
                    found[key] = values
                assert node in self.layout.nodes_of(name, key)
                for other in self.layout.nodes_of(name, key):
                    assert held[other].get(key) == approximately({0: values})[0], (name, key)
        return found

    def check(self, end: int) -> None:
        for name, entries in self.expected(end).items():
            assert self.committed(name, end) == approximately(entries), name
        for state in self.states:
            state.check()

    def save(self, epoch: int) -> list[tuple[dict[str, MapFrame], dict[str, MapFrame]]]:
        """Return of each node the newest values, and what of them is of epochs beyond one."""
        names, beyond = list(self.made.overlays), last_version(epoch) + 1
        return [
            (
                {name: state.maps.newest(name) for name in names},
                {name: deltas_between(state.maps, name, beyond, LAST_VERSION) for name in names},
            )
            for state in self.states
        ]

    def restart(self, lost: int, epoch: int, saved: list[tuple[dict[str, MapFrame], dict[str, MapFrame]]]) -> None:
        """Lose a node, which comes back with what was saved at the epoch before and deltas; the others with what is."""
        end, before = last_version(epoch), last_version(epoch - 1)
        gone = self.states[lost]
        deltas = {name: deltas_between(gone.maps, name, before + 1, end) for name in self.made.overlays}
        kept = [*self.save(epoch)]
        kept[lost : lost + 1] = saved[lost : lost + 1]  # none in the first epoch
        self.links.clear()
        self.states = [self.state(node) for node in range(self.nodes)]
        there = [state for node, state in enumerate(self.states) if node != lost or saved]
        for state, (newest, later) in zip(there, kept, strict=True):
            state.maps.load(newest)
            for name, frame in later.items():
                state.maps.restore(name, frame, -1)
        for name, frame in deltas.items():
            self.states[lost].maps.restore(name, frame)
        self._undispatch(epoch)
        self.check(end)

    def checkpoint(self, epoch: int) -> None:
        """Bring an epoch to its end while parts of later ones are there."""
        end = last_version(epoch)
        for switch, waiting in enumerate(self.undispatched):
            while waiting and (waiting[0].first <= end or self.rng.random() < 0.4):
                self.send_block(switch)
        for _ in range(self.rng.randint(0, 20)):
            self.deliver()
        self.settle(end)
        self.snapshots_with_later += any(state.newest > end for state in self.states)
        self.check(end)


def run(
    program: Program,
    seed: int,
    order: VersionOrder = VersionOrder.CLOCK,
    events: list[tuple[int, str, tuple]] | None = None,
) -> Cluster:
    rng = random.Random(seed)
    if events is None:
        events = [(sign, block.relation, row) for block in random_blocks(program, rng, 18) for sign, row in block.rows]
    cluster = Cluster(program, rng, order, events)
    saved: list[tuple[dict[str, MapFrame], dict[str, MapFrame]]] = []
    for epoch in range(1, EPOCHS + 1):
        for _ in range(rng.randint(0, 25)):
            ready = [switch for switch, waiting in enumerate(cluster.undispatched) if waiting]
            if ready and rng.random() < 0.4:
                cluster.send_block(rng.choice(ready))
            else:
                cluster.deliver()
        cluster.checkpoint(epoch)
        if rng.random() < 0.8:
            for state in cluster.states:
                state.maps.cut(last_version(epoch), last_version(epoch - 1))
            cluster.check(last_version(epoch - 1))
        if rng.random() < 0.3:
            cluster.restart(rng.randrange(cluster.nodes), epoch, saved)
        saved = cluster.save(epoch)
    cluster.settle()
    for name, entries in cluster.expected(last_version(EPOCHS)).items():
        assert cluster.committed(name, last_version(EPOCHS)) == approximately(entries)
        owned = {
            key: values
            for node, state in enumerate(cluster.states)
            for key, values in state.engine.items(name)
            if cluster.layout.owner_of(name, key) == node
        }
        assert owned == approximately(entries), name
    return cluster


@pytest.mark.parametrize("name", sampled(SMALL, of=2))
def test_nodes_end_as_one_engine_and_commit_what_it_does(name, each_engine):
    seeds = range(examples(20)) if chosen() == "interpreter" else range(examples(4))
    found = [run(spread_program(name), seed) for seed in seeds]
    shares = [state.shares for cluster in found for state in cluster.lives]
    assert sum(each.deltas_late for each in shares) > 0
    if chosen() == "interpreter" and WHOLE:  # of more seeds
        assert sum(each.rows_in_order for each in shares) > 0
        assert sum(each.rows_late for each in shares) > 0
        assert sum(each.deltas_in_order for each in shares) > 0
        assert sum(cluster.snapshots_with_later for cluster in found) > 0


@pytest.mark.parametrize("name", [*sampled(BENCHMARKS, of=3), pytest.param("flights", marks=pytest.mark.slow)])
def test_benchmarks(name, each_engine):
    cluster = run(spread_program(name), 3)
    assert sum(state.shares.rows_in_order + state.shares.rows_late for state in cluster.lives)


def test_random_programs():
    """Hand-written maps without definitions, joins of loop variables, sums inside, initial entries."""
    corrected = ran = 0
    for seed in range(examples(25)):
        program = divide(m3.read(RandomProgram(seed).text())).spread
        if not any(maps_of(statement.term) for _, statement in program.statements()):
            continue
        cluster = run(program, seed, VersionOrder.SWITCH if seed % 3 == 0 else VersionOrder.CLOCK)
        ran += 1
        corrected += sum(state.shares.deltas_late for state in cluster.lives)
    assert ran > (10 if WHOLE else 1)
    assert corrected > 0


@given(random_sql.scripts(), st.integers(0, 10**9))
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
def test_random_views(script, seed):
    program, events = views_that_look_up(script, seed, 60)
    run(program, seed, events=events)
