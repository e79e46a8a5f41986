"""Cases: a random ring, its source and its queries, and what must have become of them at the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cumulus.machine import Completed, Effect, Input, Lost, Machine, Name, Perform, Received
from cumulus_lab.experiments.ring.update_world import UpdateLedger
from cumulus_lab.experiments.ring_seeds.breaks import RING_BREAKS, UPDATE_BREAKS, NodeBreak
from cumulus_lab.experiments.ring_seeds.engine import ScriptedRun
from cumulus_lab.experiments.ring_seeds.member import STEWARD, CatalogueRead, RingLedger, RingMember, RingTold
from cumulus_lab.experiments.ring_seeds.random_faults import RandomFaults
from cumulus_lab.experiments.ring_seeds.ring_wire import RING_WIRE
from cumulus_lab.experiments.ring_seeds.scripts import random_queries
from cumulus_lab.experiments.ring_seeds.source import LARGEST, UNIT, SimulatedSource
from cumulus_lab.experiments.ring_seeds.update_runs import UpdateClients, check_updates, random_updates
from cumulus_lab.simulation import (
    Choices,
    ChoiceStream,
    Conditions,
    Reports,
    Scenario,
    StartIncarnation,
    World,
    faults_named,
)
from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.messages import LoadChunk, MemberWish, Refresh
from cumulus_ring.machine.settings import MILLISECOND_US, SECOND_US
from cumulus_ring.machine.update_messages import ReadManifest, SwitchManifest, WriteVersion

NODES = (3, 2, 4, 5, 6, 7, 8)
CRASHES = 1 / 300
"""How often a node crashes, per step."""
LINK_FAULTS = ("drop", "duplicate", "delay")
WORLD_FAULTS = ("crash", "slow", "partition")
RING_FAULTS = (*LINK_FAULTS, *WORLD_FAULTS)
POLICIES: dict[str, dict[str, Any]] = {
    "request-flow": {"request_flow": True},
    "forwarding": {"forwarding": True},
    "inner-ring": {"inner_every": 2, "promote_loi": 0.0, "promote_cycles": 1},
    "relevance": {"relevance": True},
    "pulsation": {"pulse_us": SECOND_US},
    "nomads": {"nomad_hops": 3},
    "eager": {"intermediates": "eager"},
    "lazy": {"intermediates": "lazy", "intermediate_bytes": 2 * UNIT},
    "updates": {"updates": True, "mode": "ring"},
    "lru": {"cache": "lru"},
    "lfu": {"cache": "lfu"},
    "pix": {"cache": "pix"},
    "lix": {"cache": "lix"},
}
"""Name → the settings of nodes that have the policy."""
PATIENCE_S = 200
"""A query that has not ended after so long never will."""


@dataclass
class Steward:
    """Starts all nodes, and starts a ring epoch when one has ended: with the node anew, or without it.

    Parameters
    ----------
    names
        All nodes.
    stream
        Decides who is left out.
    """

    names: Sequence[Name]
    stream: ChoiceStream
    reports: Reports
    ring_epoch: int = 0
    left_out: set[Name] = field(default_factory=set)
    is_due: bool = True
    is_renewing: bool = False

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        for each in inputs:
            match each:
                case Lost(peer) if peer in self.names:
                    self.is_due = True
                    self.left_out.discard(peer)
                    # While a ring begins, the node may be started by that, and nobody is put out of a ring alive.
                    if not self.is_renewing and self.stream.chance(1 / 2):
                        self.left_out.add(peer)
                case Completed(StartIncarnation(), _):
                    self.is_renewing = False
                case Received(node, MemberWish(leaves)) if not self.is_renewing:
                    self._grant(node, leaves)
                case _:
                    pass
        if not self.is_due or self.is_renewing:
            return []
        self.is_due, self.is_renewing = False, True
        self.ring_epoch += 1
        if len(self.left_out) == len(self.names):
            self.left_out.clear()
        members = tuple(name for name in self.names if name not in self.left_out)
        return [Perform(StartIncarnation(self.ring_epoch, RingTold(self.ring_epoch, members)))]

    def _grant(self, node: Name, leaves: bool) -> None:
        """Let a node go that wishes to, or let another one come for it (section 7.3)."""
        if leaves and node not in self.left_out and len(self.left_out) + 2 < len(self.names):
            self.left_out.add(node)
            self.reports("node let go")
        elif not leaves and self.left_out:
            self.left_out.discard(self.stream.one(sorted(self.left_out)))
            self.reports("node called")
        else:
            return
        self.is_due = True

    def check(self) -> None:
        """Nothing is to be checked."""


class RingCase:
    """A ring, all lives of its nodes, and their queries.

    Parameters
    ----------
    choices
        Decide everything.
    faults
        What may happen on links.
    broken
        Breaks a rule in each node.
    nodes
        How many; 0 lets choices say.
    policies
        Those of `POLICIES` that all nodes have; of two for the same setting the last.
    """

    def __init__(
        self, choices: Choices, faults: Sequence[str], broken: NodeBreak, nodes: int, policies: Sequence[str]
    ) -> None:
        stream = choices.stream("ring")
        self._choices = choices
        self._broken = broken
        self.names = [f"node{at}" for at in range(nodes or stream.one(NODES))]
        changes = {name: value for policy in policies for name, value in POLICIES[policy].items()}
        self.settings = replace(random_settings(stream), **changes)
        self.source = SimulatedSource(choices.stream("source"))
        is_frugal = self.settings.copies == "never"
        self.runs = [ScriptedRun(each) for each in random_queries(choices.stream("queries"), self.names, is_frugal)]
        updating = choices.stream("updates")
        if self.settings.has_updates:
            lease_ms, retry_ms = updating.one([1_000, 100, 300]), updating.one([500, 100])
            in_us: dict[str, Any] = {
                "lock_lease_us": lease_ms * MILLISECOND_US,
                "update_retry_us": retry_ms * MILLISECOND_US,
            }
            self.settings = replace(self.settings, **in_us)
        self.updates = random_updates(updating, self.names, self.source, self.settings.has_updates)
        self._update_ledger = UpdateLedger()
        self._shares = {name: (stream.one([0.0, 0.02, 0.1]) if name in faults else 0.0) for name in LINK_FAULTS}
        self._reports = Reports()
        self._ledger = RingLedger()
        self._steward = Steward(self.names, choices.stream("members"), self._reports)
        self._members: dict[Name, RingMember] = {}

    def scenario(self) -> Scenario:
        """Return what is run."""
        return Scenario(
            dict.fromkeys([STEWARD, *self.names], self._made),
            RING_WIRE,
            perform=self._perform,
            supervisor=STEWARD,
            may_crash=frozenset(self.names),
            at_rest={
                "queries": self._check_queries,
                "requests": self._check_requests,
                "empty": self._check_empty,
                "updates": self._check_updates,
            },
            goes_on=self._goes_on,
            reports=self._reports,
        )

    def _made(self, name: Name, life: int) -> Machine:
        if name == STEWARD:
            return self._steward
        runs = [run for run in self.runs if run.script.node == name]
        if name in self._members:
            self._bury(self._members[name], runs)
        rng = random.Random(self._choices.stream("jitter").below(1 << 30))
        node = self._broken(RingNode(name, self.settings, rng))
        drop, delay, duplicate = (self._shares[each] for each in ("drop", "delay", "duplicate"))
        faults = RandomFaults(drop, delay, duplicate, self._choices.stream(f"fault on the way to {name}"))
        member = RingMember(
            name, node, self.settings, runs, self.source, faults, self._ledger, self._reports, self._move
        )
        own = [run for run in self.updates if run.node == name]
        member.clients = UpdateClients(own, self._update_ledger, member.hear, self._reports)
        self._members[name] = member
        return member

    def _bury(self, member: RingMember, runs: Sequence[ScriptedRun]) -> None:
        """End what ends with a life."""
        self._reports.counts.update(member.node.status().counts)
        self._reports("node lost with chunks in flight", times=int(member.node.buffers.transit_bytes > 0))
        for run in runs:
            if run.state == "running":
                run.state = "lost"
                self._reports("node lost with a query")
        member.clients.lose("node lost with an update")

    def _move(self, run: ScriptedRun) -> None:
        """Take a query to the node at which it settles, as a client does; if the node is lost, to its next life."""
        self._members[run.script.node].engine.take(run)

    def _perform(self, name: Name, task: Any) -> Any:
        match task:
            case LoadChunk(chunk):
                return self.source.read(chunk)
            case ReadManifest() | WriteVersion() | SwitchManifest():
                return self._update_ledger.perform(task)
            case Refresh():
                told = self._members[name].told
                return CatalogueRead(self.source.version, told.members, told.ring_epoch)
            case _:
                raise AssertionError(f"nobody does {task!r}")

    # --- checks -----------------------------------------------------------------------------------------------------

    def _in_ring(self, world: World) -> list[RingMember]:
        members = [self._members[name] for name in self.names if name in world.lives and name in self._members]
        return [each for each in members if each.is_in]

    def _goes_on(self, world: World) -> bool:
        """Whether somebody waits for something, and not for too long already."""
        if world.agenda.now >= PATIENCE_S * SECOND_US:
            return False
        members = self._in_ring(world)
        names = {each.name for each in members}
        is_open = any(not run.is_over and run.script.node in names for run in self.runs)
        is_open = is_open or any(not run.is_over and run.node in names for run in self.updates)
        return is_open or not all(each.is_empty for each in members)

    def _check_queries(self, world: World) -> None:
        """Each query has finished, or failed with the right reason (property 1, and 5)."""
        members = self._in_ring(world)
        for each in members:
            self._reports.counts.update(each.node.status().counts)
        names = {each.name for each in members}
        self._reports("ring epoch", times=self._steward.ring_epoch)
        for run in self.runs:
            number, state = run.script.number, run.state
            assert run.is_over or (state == "to come" and run.script.node not in names), f"query {number} never ends"
            missing = any(self.source.is_gone(chunk) for chunk in run.chunks)
            damaged = any(chunk in self.source.damaged for chunk in run.chunks)
            if state == "failed":
                is_right = missing if run.failure.startswith("no node has chunk") else damaged
                assert is_right, f"query {number} fails without a cause: {run.failure}"
                self._reports("query failed for a missing chunk", times=int(missing))

    def _check_requests(self, world: World) -> None:
        """No chunk is asked for more often than those who need it have time to (property 7)."""
        rounds = 1 + self._steward.ring_epoch + world.agenda.now / self.settings.resend_floor_us
        for chunk, count in self._ledger.sent.items():
            most = self._ledger.needs[chunk] * rounds + self._ledger.straight[chunk]
            assert count <= most, f"{count} requests for chunk {chunk}"

    def _check_updates(self, world: World) -> None:
        """All updates have ended, and each that is done counts exactly once."""
        check_updates(self.updates, self._update_ledger, self.source, {each.name for each in self._in_ring(world)})

    def _check_empty(self, world: World) -> None:
        """Nothing is left of queries, and the ring is empty (properties 2, 3 and 4)."""
        for each in self._in_ring(world):
            assert each.is_empty, f"{each.name} is not empty: {each.node.status()}"


def random_settings(stream: ChoiceStream) -> RingSettings:
    """Return settings of a small ring, with room for a single chunk or for all of them."""
    copies_never = stream.chance(1 / 8)
    return RingSettings(
        queue_bytes=stream.one([8, 4, 5, 16, 64]) * UNIT,
        credit_bytes=stream.one([None, 2 * LARGEST, 3 * LARGEST, 10 * LARGEST]),
        largest_chunk=LARGEST,
        stall_us=stream.one([300, 50]) * MILLISECOND_US,
        dbms_bytes=stream.one([LARGEST, 4 * LARGEST, None] if copies_never else [LARGEST, 0, 2 * LARGEST, None]),
        neutral_bytes=stream.one([0, LARGEST, 4 * LARGEST, 40 * LARGEST]),
        copies="never" if copies_never else "when-full",
        count_missed_interest=stream.chance(1 / 2),
        loit_levels=stream.one([(0.1, 0.6, 1.1), (0.1,), (1.1,), (0.3, 0.9)]),
        adapt_us=stream.one([100, 50, 20]) * MILLISECOND_US,
        dwell_us=stream.one([0, 200]) * MILLISECOND_US,
        load_all_us=stream.one([50, 100]) * MILLISECOND_US,
        load_order=stream.one(["oldest", "age-per-byte"]),
        reserve_after_us=stream.one([None, 200 * MILLISECOND_US]),
        direct_load=stream.one(["paper", "fair"]),
        resend_floor_us=stream.one([200, 50, 1000]) * MILLISECOND_US,
        resend_cycles=stream.one([2.0, 1.0]),
        resend_backoff=stream.one([2.0, 1.0]),
        lost_floor_us=stream.one([400, 100, 2000]) * MILLISECOND_US,
        lost_cycles=stream.one([4.0, 2.0]),
        open_groups=stream.one([2, 1, 3]),
        ask_ahead=stream.one([None, 1, 2]),
        asks_again=stream.chance(1 / 2),
        mode=stream.one(["ring", "ring", "pull", "auto"]),
        share_us=stream.one([2000, 100]) * MILLISECOND_US,
    )


def ring_case(
    choices: Choices,
    faults: Sequence[str] = RING_FAULTS,
    broken: str = "",
    nodes: int = 0,
    policies: Sequence[str] = (),
) -> Scenario:
    """Return a random ring; see `RingCase`."""
    if broken in UPDATE_BREAKS:
        policies = (*policies, "updates")
    return RingCase(choices, faults, RING_BREAKS[broken] if broken else lambda node: node, nodes, policies).scenario()


def ring_conditions(faults: Sequence[str]) -> Conditions:
    """Return the conditions of a case: those of its faults that are the world's."""
    rates = dict(faults_named([name for name in faults if name in WORLD_FAULTS]))
    if "crash" in rates:
        rates["crash"] = CRASHES
    return Conditions(faults=rates, tick_ms=50, most_steps=60_000)


RING_NEEDED = (
    "another version",
    "auto changed from straight to ring",
    "chunk doubled",
    "chunk dropped",
    "chunk late",
    "chunk lost",
    "chunk sent straight",
    "chunk thrown away for want of credit",
    "chunk without an owner destroyed",
    "cold load",
    "group refused",
    "kept chunk given up",
    "load failed",
    "load postponed",
    "load skipped over",
    "node lost with a query",
    "node lost with chunks in flight",
    "offer revoked",
    "old incarnation destroyed",
    "own chunk held by the bubble rule",
    "pin by copy",
    "pin by reference",
    "pin without a buffer",
    "query cancelled",
    "query failed for a missing chunk",
    "request absorbed",
    "request dropped",
    "request forwarded past a sent one",
    "request held for a refresh",
    "request returned",
    "request sent again",
    "ring of one",
    "scan asked again",
    "scan ended early",
    "scan never opened",
    "straight chunk dropped",
    "straight chunk postponed",
    "threshold lowered",
    "threshold raised",
    "unload",
    "warm load",
)
"""What must happen in a large run with all faults; else it has shown little."""
