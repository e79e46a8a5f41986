"""How often what matters happens in a simulated cluster, seen by what its machines take in and ask for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.machine_tasks import CommitEpoch, WriteOutputs
from cumulus.cluster.messages import (
    Deltas,
    EpochEnd,
    EpochToken,
    EpochTurn,
    EpochWanted,
    Events,
    RowsAccepted,
    RowsHeld,
)
from cumulus.cluster.mode import RULES
from cumulus.cluster.node import ClusterNode, NodeOutput
from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import Correct, ForwardedBlock, Push, VersionCommit
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import LoggedRows
from cumulus.cluster.standby.copied_machine import CopiedMachine
from cumulus.cluster.switch import Switch
from cumulus.engine.frames.frame import MapFrame
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.m3.dataflow import depths
from cumulus.machine import Append, Effect, Input, Machine, Name, Perform, Received, Send
from cumulus_lab.experiments.cluster_ledger import Ledger
from cumulus_lab.simulation import Reports

NEEDED = (
    "CORRECT sent",
    "EPOCH END REQUEST",
    "PUSH sent",
    "COMMIT of a version sent",
    "block forwarded",
    "block in order",
    "block that waited",
    "block sent again",
    "call over several switches",
    "client rows accepted",
    "client rows held",
    "client rows sent again",
    "commits by switches",
    "copied whole",
    "correction of depth 1",
    "correction of depth 2",
    "correction sent on",
    "dealt out anew",
    "deltas sent",
    "empty PUSH sent",
    "epoch",
    "epoch commit after a crash",
    "epoch commit with another one open",
    "epoch with a failing view",
    "gated payload that waited",
    "late block",
    "host lost and waited for",
    "late delta",
    "message held by back-pressure",
    "message lost",
    "message of an old incarnation",
    "moved to its standby",
    "program refused",
    "query answered",
    "query compared",
    "row quarantined",
    "rows computed part by part",
    "snapshot with later versions present",
    "standby caught up",
    "task SaveState",
    "token passed on",
    "view error",
)
"""What must happen in a large run with all faults; else it has shown little."""


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Rows of a client in the log of a switch: their epoch, the number of the record, and their place in it."""

    epoch: int
    record: int
    place: int


class ClusterHistory:
    """What the machines of a cluster have done, over all its lives.

    Attributes
    ----------
    turns
        Epoch → the files that it takes in.
    taken
        Switch, client and number → where its rows are. Records that a crash has taken away are written again.
    """

    def __init__(self) -> None:
        self.turns: dict[int, Mapping[str, Sequence[str]]] = {}
        self.taken: dict[tuple[Name, Name, int], TakenRows] = {}
        self._blocks: dict[tuple[Name, int, int], int] = {}
        self._ended: set[tuple[int, int]] = set()
        """Switch and epoch that it has ended in some life."""
        self._corrections: tuple[int, dict[tuple[str, int], int]] = (0, {})

    def follow(self, before: ClusterHistory, last: int, switches: int) -> None:
        """Go on behind the last epoch of a cluster that had another number of switches."""
        self.turns |= before.turns
        self._ended |= {(switch, last) for switch in range(switches)}

    def note_end(self, switch: int, epoch: int, switches: int) -> None:
        """Note that a switch ends an epoch, which the one before it must have ended, if they do so in turns."""
        before = (switch - 1, epoch) if switch else (switches - 1, epoch - 1)
        is_due = before[1] == 0 or before in self._ended or (switch, epoch) in self._ended
        assert is_due, f"switch {switch} ends epoch {epoch}, and switch {before[0]} has not ended {before[1]}"
        self._ended.add((switch, epoch))

    def is_again(self, node: Name, group: int, version: int, life: int) -> bool:
        """Whether a block was sent in another life of the cluster before; it is noted."""
        return self._blocks.setdefault((node, group, version), life) != life

    def corrections(self, life: int) -> dict[tuple[str, int], int]:
        """Return map and version → how deep the deltas there are corrections of corrections, in this life."""
        if self._corrections[0] != life:
            self._corrections = life, {}
        return self._corrections[1]


def machine_in(machine: Machine) -> Machine:
    """Return the node, switch or publisher in what is around it."""
    while isinstance(machine, CountedMachine | CopiedMachine):
        machine = machine.machine
    return machine


class Cascades:
    """How deep corrections go: of a late delta, of what corrects another one, and so on; counted by depth.

    What is computed under a version that no block has had since the last time corrects. Where several deltas came
    late at once, it counts for one more than the least of them, so never for too much.

    Parameters
    ----------
    most
        The length of the longest path of the map graph: cascades are never deeper (consistency paper, section 4.2).
    """

    def __init__(self, maps: NodeMaps, depths: dict[tuple[str, int], int], most: int, reports: Reports) -> None:
        self._depths, self._most, self._reports = depths, most, reports
        self._fired: set[int] = set()
        self._late: list[int] = []
        self._maps = maps
        fire, correct, take_out = maps.fire, maps.correct, maps.take_out

        def fired(group: Any, rows: Any, signs: Any, versions: Any, *, is_late: bool) -> None:
            self._fired.update(versions.tolist())
            fire(group, rows, signs, versions, is_late=is_late)

        def corrected(name: str, deltas: MapFrame) -> None:
            self._late.append(max(depths.get((name, each), 0) for each in maps.versions(name, deltas).tolist()))
            correct(name, deltas)

        def taken(names: Collection[str] | None = None) -> dict[str, MapFrame]:
            return self._counted(take_out()) if names is None else take_out(names)  # these count with what is left

        for name, does in (("fire", fired), ("correct", corrected), ("take_out", taken)):
            setattr(maps, name, does)

    def _counted(self, computed: dict[str, MapFrame]) -> dict[str, MapFrame]:
        late, fired = self._late, self._fired
        self._late, self._fired = [], set()
        if not late:
            return computed
        depth = 1 + min(late)
        assert depth <= self._most, f"a correction of depth {depth}, and no path is longer than {self._most}"
        for name, frame in computed.items():
            for version in {*self._maps.versions(name, frame).tolist()} - fired:
                self._depths[name, version] = depth
                self._reports(f"correction of depth {depth}")
        return computed


class EdgesOfNode:
    """Checks that a node sends nothing of a map to a node to which its plan has no edge for that.

    Parameters
    ----------
    number
        Of the node.
    """

    def __init__(self, plan: ClusterPlan, number: int) -> None:
        self._routes, self._number = plan.epoch_routes, number
        spread = plan.division.spread
        self._depths = {} if plan.is_cyclic or not RULES[plan.mode].corrects else depths(spread)
        sliced = [each.map for each in plan.nodes_program.slices]
        self._names = [each.name for each in spread.maps] if RULES[plan.mode].has_replicas else sliced

    def check(self, to: Name, message: object) -> None:
        """Check what is sent to a node."""
        if self._depths and isinstance(message, Deltas | Push | Correct):
            receiver = int(to.removeprefix("node"))
            for name in (self._names[at] for at, _ in message.frames):
                has_edge = self._routes.has_edge(self._depths[name], self._number, receiver)
                assert has_edge, f"node {self._number} sends something of {name} to {to}, without an edge"


class CountedMachine:
    """A machine that is counted; it does what it does.

    Parameters
    ----------
    machine
        As it is.
    history
        Of its cluster.
    incarnation
        Of the cluster, from 1.
    ledger
        Where rows and errors of this machine are entered.
    plan
        Of the cluster.
    """

    def __init__(
        self,
        name: Name,
        machine: Machine,
        reports: Reports,
        history: ClusterHistory,
        incarnation: int,
        ledger: Ledger,
        plan: ClusterPlan,
    ) -> None:
        self.machine = machine
        self._name, self._reports, self._history, self._incarnation = name, reports, history, incarnation
        inner = machine_in(machine)
        self._node = inner if isinstance(inner, ClusterNode) else None
        self._open: set[int] = set()
        self._ledger, self._switches = ledger, plan.tables.switches
        self._edges = None if self._node is None else EdgesOfNode(plan, int(name.removeprefix("node")))
        if isinstance(inner, Switch) and inner.intake is not None:
            ledger.watch(name, inner.intake, incarnation)
        if self._node is not None and self._node.protocol is not None:
            protocol = self._node.protocol
            Cascades(protocol.maps.maps, history.corrections(incarnation), protocol.depths - 1, reports)

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Let the machine step, and count."""
        before = self._late()
        effects = self.machine.step(inputs)
        late = self._late()
        self._reports("late block", times=late[0] - before[0])
        self._reports("late delta", times=late[1] - before[1])
        self._reports("block in order", times=late[2] - before[2])
        self._reports("block that waited", times=int(late[3] > 0))
        sends = any(isinstance(effect, Send) and isinstance(effect.message, Deltas) for effect in effects)
        self._reports("correction sent on", times=int(sends and late[1] > before[1]))
        for effect in effects:
            self._count(effect)
            if self._edges is not None and isinstance(effect, Send):
                self._edges.check(effect.to, effect.message)
        self._count_waiting(inputs, effects)
        return effects

    def check(self) -> None:
        """Check the machine."""
        self.machine.check()

    def _late(self) -> tuple[Any, ...]:
        """Return how many rows and deltas came late, how many rows in order, and how many blocks wait."""
        protocol = None if self._node is None else self._node.protocol
        facts = {} if protocol is None else protocol.facts()
        return tuple(facts.get(name, 0) for name in ("rows_late", "deltas_late", "rows_in_order", "blocks_waiting"))

    def _count(self, effect: Effect) -> None:
        match effect:
            case Send(_, Deltas()):
                self._reports("deltas sent")
            case Send(_, Correct()):
                self._reports("CORRECT sent")
            case Send(_, ForwardedBlock(block)):
                self._reports("block forwarded")
                is_again = self._history.is_again(effect.to, block.group, block.version, self._incarnation)
                self._reports("forwarded block sent again", times=int(is_again))
            case Send(_, VersionCommit()):
                self._reports("COMMIT of a version sent")
            case Send(_, Push(frames=frames)):
                self._reports("PUSH sent" if frames else "empty PUSH sent")
            case Send(node, Events(blocks)):
                again = [self._history.is_again(node, each.group, each.version, self._incarnation) for each in blocks]
                self._reports("block sent again", times=sum(again))
            case Send(_, EpochTurn(epoch, files)):
                self._history.turns[epoch] = files
                self._open.add(epoch)
            case Send(_, EpochToken(epoch)):
                self._reports("token passed on")
                self._history.note_end(int(self._name.removeprefix("switch")), epoch, self._switches)
            case Send(_, EpochWanted()) if self._node is not None:
                self._reports("EPOCH END REQUEST")
            case Send(_, RowsAccepted()):
                self._reports("client rows accepted")
            case Send(_, RowsHeld()):
                self._reports("client rows held")
            case Append(number, record) if self._name.startswith("switch"):
                logged = codec.decode(record)
                if isinstance(logged, LoggedRows):
                    for place, (sender, sent) in enumerate(logged.senders):
                        client = sender.partition("\n")[0]  # of each table it has numbers of its own
                        self._history.taken[self._name, client, sent] = TakenRows(logged.epoch, number, place)
            case Perform(WriteOutputs(epoch, changed=Outcome() as outcome)):
                self._ledger.note(self._name, epoch, outcome)
            case Perform(WriteOutputs(epoch, changed=NodeOutput(outcome, shares))):
                if outcome is not None:
                    self._ledger.note(self._name, epoch, outcome)
                later = any(rows.rows for maps in shares.values() for _, rows in maps.values())
                self._reports("snapshot with later versions present", times=int(later))
            case Perform(CommitEpoch(epoch=epoch)) if self._name == PUBLISHER:
                self._open.discard(epoch)
                self._reports("epoch commit with another one open", times=int(bool(self._open)))
                self._reports("epoch commit after a crash", times=int(self._incarnation > 1))
            case _:
                pass

    def _count_waiting(self, inputs: Sequence[Input], effects: Sequence[Effect]) -> None:
        """Count what came for the gate and was not applied at once, since others had not ended the epoch."""
        written = {
            effect.task.epoch
            for effect in effects
            if isinstance(effect, Perform) and isinstance(effect.task, WriteOutputs)
        }
        for each in inputs:
            match each:
                case Received(_, EpochEnd(epoch, _, payload)) if payload and epoch not in written:
                    self._reports("gated payload that waited")
                case _:
                    pass
