"""Rules of a cluster that can be broken on purpose, to see that the checks of its simulation notice."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cumulus.cluster.intake import Intake
from cumulus.cluster.machine_tasks import WriteOutputs
from cumulus.cluster.messages import Deltas, EpochEnd, EpochPart, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.node import ClusterNode, NodeOutput
from cumulus.cluster.placement.layout import ClusterLayout, divided
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions, central_options
from cumulus.cluster.protocols.central import CentralNode
from cumulus.cluster.protocols.central_messages import Fetch, Push, Put, VersionCommit
from cumulus.cluster.protocols.central_source import CentralSourceNode
from cumulus.cluster.protocols.central_target import CentralTargetNode
from cumulus.cluster.protocols.eventual import EventualNode, EventualSwitch
from cumulus.cluster.protocols.eventual_state import Indices
from cumulus.cluster.protocols.four_logs import FourLogsNode
from cumulus.cluster.protocols.protocol import NodeProtocol
from cumulus.cluster.protocols.ticks import TicksNode
from cumulus.cluster.protocols.tree_dispatch import TreeNode
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.resets import Reset
from cumulus.cluster.standby.copied_machine import CopiedMachine
from cumulus.cluster.standby.copies import CopyForget, CopyReady, CopyRecord
from cumulus.cluster.switch import Switch
from cumulus.engine.frames.frame import MapFrame
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.stages.judge import TableDelta
from cumulus.machine import Append, Completed, Effect, Forget, Input, Machine, Name, Perform, Received, Send
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus_lab.experiments.cluster_counts import CountedMachine, machine_in
from cumulus_lab.experiments.cluster_queries import AnswersQueriesAtOnce
from cumulus_lab.experiments.epoch_breaks import EPOCH_BREAKS
from cumulus_lab.experiments.option_breaks import OPTION_BREAKS
from cumulus_lab.simulation import BrokenRule

Breaking: TypeAlias = Callable[[Name, Machine, ClusterLayout], Machine]
"""Makes a machine of which a rule is broken of one as it should be; the layout is that of its cluster."""

DEALT_TWICE = "keys on two nodes after growing"


class DropsDeltas(BrokenRule):
    """A node that sends no deltas."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Leave deltas out."""
        return [each for each in effects if not (isinstance(each, Send) and isinstance(each.message, Deltas))]


class TellsDepthsEarly(BrokenRule):
    """A node that says that it has sent everything of an epoch, and sends it a few steps later."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._held: deque[list[Effect]] = deque([[] for _ in range(5)])

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Send the deltas of an earlier step, and what else there is."""
        deltas: list[Effect] = [each for each in effects if isinstance(each, Send) and isinstance(each.message, Deltas)]
        self._held.append(deltas)
        return [*self._held.popleft(), *(each for each in effects if each not in deltas)]


class WritesBeforeItIsDurable(BrokenRule):
    """A machine that does what stands behind a record at once, and keeps the record in memory until the next one."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Hold records back until others come, or until some are to be forgotten."""
        records = [each for each in effects if isinstance(each, Append)]
        rest: list[Effect] = [each for each in effects if not isinstance(each, Append)]
        if not records and not any(isinstance(each, Forget) for each in rest):
            return rest
        held, self._held = self._held, records
        return [*held, *rest]

    _held: Sequence[Effect] = ()


class DoublesBlocks(BrokenRule):
    """A switch that sends its blocks twice."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Send blocks before everything, and again where they stand."""
        return [
            each for each in effects for _ in range(1 + (isinstance(each, Send) and isinstance(each.message, Events)))
        ]


class DropsErrors(BrokenRule):
    """A machine that writes nothing of the rows that views could not take in."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._asked: list[tuple[object, object]] = []
        """What is written instead of what the machine has asked for."""

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Say that what the machine has asked for is done."""
        return [
            Completed(asked, each.result)
            if isinstance(each, Completed) and (asked := self._asked_for(each.task)) is not None
            else each
            for each in inputs
        ]

    def _asked_for(self, done: object) -> object:
        return next((asked for other, asked in self._asked if other is done), None)

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Leave errors out of what is written."""
        return [self._without(each) if isinstance(each, Perform) else each for each in effects]

    def _without(self, effect: Perform) -> Perform:
        match effect.task:
            case WriteOutputs(changed=NodeOutput(outcome=Outcome() as outcome) as changed) as task:
                good = replace(outcome, errors=[], error_counts={})
                other = replace(task, changed=replace(changed, outcome=good))
                self._asked.append((other, task))
                return Perform(other)
            case _:
                return effect


class GatesEarly(BrokenRule):
    """A node whose gate takes in with an epoch what has come of the next one."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._open: set[int] = set()
        """Epochs that a switch has ended, and that are not done."""

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Say of what a switch has sent that it is of the epoch before, if that is open."""
        found: list[Input] = []
        for each in inputs:
            match each:
                case Received(switch, EpochEnd(epoch, _, payload) as end):
                    self._open.add(epoch)
                    if epoch - 1 in self._open:
                        found.append(Received(switch, EpochPart(epoch - 1, payload)))
                        payload = b""
                    found.append(Received(switch, replace(end, payload=payload)))
                case _:
                    found.append(each)
        return found

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Note what is done."""
        for each in effects:
            if isinstance(each, Perform) and isinstance(each.task, WriteOutputs):
                self._open = {epoch for epoch in self._open if epoch > each.task.epoch}
        return effects


class OwnersOnly:
    """Sends deltas to the owners of entries, and to no other replica."""

    def __init__(self, layout: ClusterLayout) -> None:
        self._layout = layout

    def targets(self, name: str, deltas: MapFrame) -> Sequence[Indices]:
        """Return for every node the rows that it gets."""
        return divided(self._layout.owners(name, deltas), self._layout.nodes)


def _leave_replicas_out(protocol: EventualNode, layout: ClusterLayout) -> None:
    setattr(protocol.state, "_router", OwnersOnly(layout))  # noqa: B010


def _take_late_as_fast(protocol: EventualNode, layout: ClusterLayout) -> None:
    """Evaluate late blocks as if nothing later had come."""
    fire = protocol.state.maps.fire
    setattr(protocol.state.maps, "fire", lambda *block, is_late: fire(*block, is_late=False))  # noqa: B010


def _drop_corrections(protocol: EventualNode, layout: ClusterLayout) -> None:
    """Add late deltas, and correct nothing."""
    setattr(protocol.state.maps, "correct", protocol.state.maps.add)  # noqa: B010


def _give_blocks_one_version(protocol: EventualNode, layout: ClusterLayout) -> None:
    """Evaluate all rows of a block under its first version, also where they read what others of them write."""
    fire = protocol.state.fire
    setattr(  # noqa: B010
        protocol.state, "fire", lambda group, first, rows, signs, places: fire(group, first, rows, signs, 0 * places)
    )


def _cut_too_much(protocol: NodeProtocol, layout: ClusterLayout) -> None:
    """Forget with an epoch the rows and the deltas of the next one, too."""
    maps, last = protocol.maps, protocol.maps.window.last_version
    setattr(maps, "cut", lambda epoch: maps.maps.cut(last(epoch + 1), last(epoch + 1)))  # noqa: B010


def _reset_too_far(protocol: NodeProtocol, layout: ClusterLayout) -> None:
    """Take back at a reset what the last committed epoch has changed, too."""
    reset = protocol.reset
    setattr(protocol, "reset", lambda epoch: reset(max(epoch - 1, 0)))  # noqa: B010


def _take_nothing_back(protocol: NodeProtocol, layout: ClusterLayout) -> None:
    """Keep at a reset what is there of epochs that are not committed, and will come again."""
    setattr(protocol, "reset", lambda epoch: None)  # noqa: B010


class SendsNothingAgain(BrokenRule):
    """A switch that does not hear of resets."""

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Leave them out."""
        return [each for each in inputs if not (isinstance(each, Received) and isinstance(each.message, Reset))]


class SkipsEmptyPushes(BrokenRule):
    """A node that sends no PUSH that has nothing in it."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Leave them out."""
        return [
            each
            for each in effects
            if not (isinstance(each, Send) and isinstance(each.message, Push) and not each.message.frames)
        ]


class PutsBeforeFetches(BrokenRule):
    """A switch that tells nodes to write for a block before it tells them to read for it."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Send a FETCH behind the last PUT of its version."""
        found: list[Effect] = []
        held: list[Send] = []
        for each in effects:
            message = each.message if isinstance(each, Send) else None
            if isinstance(message, Fetch) and isinstance(each, Send):
                if held and isinstance(held[0].message, Fetch) and held[0].message.version != message.version:
                    found, held = [*found, *held], []
                held.append(each)
                continue
            if not isinstance(message, Put):
                found, held = [*found, *held], []
            found.append(each)
        return [*found, *held]


def _wait_for_nothing(protocol: CentralNode, layout: ClusterLayout) -> None:
    """Read what earlier blocks have still to write, and write what earlier blocks have still to read."""
    work = protocol.work
    defer = work.defer
    setattr(work, "defer", lambda each: defer(replace(each, reads=frozenset(), writes=frozenset())))  # noqa: B010


def _forget_last_child(protocol: TreeNode, layout: ClusterLayout) -> None:
    """Send blocks on to all children but the last one."""
    protocol.children = protocol.children[:-1]


def _end_without_blocks(protocol: TreeNode, layout: ClusterLayout) -> None:
    """Take an epoch for whole when the switch has ended it, whatever is still on its way along the tree."""
    setattr(protocol, "has_come", lambda version: True)  # noqa: B010


class CommitsTooFar(BrokenRule):
    """A switch that says of one version more than nodes have told that it is done everywhere."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Add one to the versions."""
        return [
            replace(each, message=VersionCommit(each.message.version + 1))
            if isinstance(each, Send) and isinstance(each.message, VersionCommit)
            else each
            for each in effects
        ]


def _see_later_writes(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Answer with the newest entries, whatever the version for which they are asked for."""
    ask = protocol.logs.ask
    setattr(protocol.logs, "ask", lambda *asked, is_late: ask(*asked, is_late=False))  # noqa: B010


def _forget_what_was_sent(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Forget with each answer to whom entries were sent so far."""
    ask = protocol.logs.ask

    def asked_alone(*asked: Any, is_late: bool) -> MapFrame:
        protocol.logs.clear_sent()
        return ask(*asked, is_late=is_late)

    setattr(protocol.logs, "ask", asked_alone)  # noqa: B010


def _leave_pushes_as_they_are(protocol: FourLogsNode, layout: ClusterLayout) -> None:
    """Correct what was computed alone, and not what waits to be."""
    setattr(protocol.work, "noted", lambda sender: [])  # noqa: B010


def _wait_for_no_tick(protocol: TicksNode, layout: ClusterLayout) -> None:
    """Do what is posted at once, whatever may be posted before it yet."""
    setattr(protocol, "earliest_to_come", lambda: None)  # noqa: B010


def _tell_ticks_early(protocol: TicksNode, layout: ClusterLayout) -> None:
    """Tell ticks for blocks of epochs before which others are not posted."""
    setattr(protocol, "may_tell", lambda asked, ended: True)  # noqa: B010


def _lose_net_rows(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Give no net change of the first row of a table."""
    switch = machine_in(machine)
    if isinstance(switch, Switch) and isinstance(switch.intake, Intake):
        take_nets = switch.intake.take_nets
        setattr(switch.intake, "take_nets", lambda: [_without_first(each) for each in take_nets()])  # noqa: B010
    return machine


def _without_first(net: TableDelta) -> TableDelta:
    return TableDelta(net.relation, net.rows.slice(1), net.counts[1:])


def _compute_in_first_parts(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Send rows to the first part alone of a dimension of which each part computes its own values."""
    switch = machine_in(machine)
    spread: Any = getattr(switch, "_spread") if isinstance(switch, Switch) else None  # noqa: B009
    if spread is not None and isinstance(spread.blocks.protocol, EventualSwitch):
        homes = getattr(getattr(spread.blocks.protocol, "_dispatch"), "_homes")  # noqa: B009
        homes[:] = [replace(home, loops=()) for home in homes]
    return machine


def _copied_in(machine: Machine) -> Machine:
    """Return a machine with what copies its log, if there is that, and without what counts."""
    return machine.machine if isinstance(machine, CountedMachine) else machine


class CopiesLate(BrokenRule):
    """A machine that waits for no standby, and sends it records some steps later."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        setattr(_copied_in(machine), "_waiting", ())  # noqa: B010
        self._held: deque[list[Effect]] = deque([[] for _ in range(5)])

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """Forget what is held when an incarnation begins."""
        if any(isinstance(each, Received) and isinstance(each.message, Reset) for each in inputs):
            self._held = deque([] for _ in self._held)
        return inputs

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Send records that a standby should have had before, and everything else there is."""
        late: list[Effect] = [
            each for each in effects if isinstance(each, Send) and isinstance(each.message, CopyRecord | CopyForget)
        ]
        self._held.append(late)
        return [*self._held.popleft(), *(each for each in effects if each not in late)]


def _say_copies_are_whole(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Say that the standby has all of a machine before it has."""
    copied = _copied_in(machine)
    if isinstance(copied, CopiedMachine):
        meet = getattr(copied, "_meet")  # noqa: B009

        def met(standby: Name, effects: list[Effect]) -> None:
            meet(standby, effects)
            if standby:
                effects.append(Send(SUPERVISOR, CopyReady(standby, getattr(copied, "_branch"))))  # noqa: B009

        setattr(copied, "_meet", met)  # noqa: B010
    return machine


def _machine(kind: str, breaking: Callable[[Machine], Machine]) -> Breaking:
    """Break the rule in the machines of a kind."""
    return lambda name, machine, _: breaking(machine) if name.startswith(kind) else machine


def _part(change: Callable[[Any, ClusterLayout], None], kind: type = object) -> Breaking:
    """Change what nodes do for spread views, where their protocol is of a kind."""

    def broken(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
        node = machine_in(machine)
        if isinstance(node, ClusterNode) and node.protocol is not None and isinstance(node.protocol, kind):
            change(node.protocol, layout)
        return machine

    return broken


def as_it_is(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Break nothing."""
    return machine


BREAKS: Mapping[str, Breaking] = {
    "deltas dropped": _machine("node", DropsDeltas),
    "checkpoint before deltas": _machine("node", TellsDepthsEarly),
    **EPOCH_BREAKS,
    "node ready before durable": _machine("node", WritesBeforeItIsDurable),
    "switch sends before durable": _machine("switch", WritesBeforeItIsDurable),
    "errors dropped": _machine("node", DropsErrors),
    "net rows lost": _lose_net_rows,
    "blocks doubled": _machine("switch", DoublesBlocks),
    "gate one epoch early": _machine("node", GatesEarly),
    "late blocks as fast": _part(_take_late_as_fast, EventualNode),
    "corrections dropped": _part(_drop_corrections, EventualNode),
    "one version for a self-join": _part(_give_blocks_one_version, EventualNode),
    "replica left out": _part(_leave_replicas_out, EventualNode),
    "row in the first part only": _compute_in_first_parts,
    "cut one epoch too much": _part(_cut_too_much),
    "reset one epoch too far": _part(_reset_too_far),
    "nothing taken back at a reset": _part(_take_nothing_back),
    "queries do not wait": _machine("node", AnswersQueriesAtOnce),
    "nothing sent again at a reset": _machine("switch", SendsNothingAgain),
    "empty push skipped": _machine("node", SkipsEmptyPushes),
    "put before fetch": _machine("switch", PutsBeforeFetches),
    "reads do not wait": _part(_wait_for_nothing, CentralTargetNode),
    "block not sent on": _part(_forget_last_child, TreeNode),
    "end before the blocks": _part(_end_without_blocks, TreeNode),
    "COMMIT one version too far": _machine("switch", CommitsTooFar),
    "writes do not wait": _part(_wait_for_nothing, CentralSourceNode),
    "FETCH sees later writes": _part(_see_later_writes, FourLogsNode),
    "SendLog entry forgotten": _part(_forget_what_was_sent, FourLogsNode),
    "waiting PUSH not corrected": _part(_leave_pushes_as_they_are, FourLogsNode),
    "block before its tick": _part(_wait_for_no_tick, TicksNode),
    "tick before the epochs": _part(_tell_ticks_early, TicksNode),
    "acknowledged before the standby": lambda name, machine, _: machine if name == PUBLISHER else CopiesLate(machine),
    "standby taken for whole": _say_copies_are_whole,
    DEALT_TWICE: as_it_is,  # it is about files, before any machine starts
    **{name: _part(each.change, each.protocol) for name, each in OPTION_BREAKS.items()},
}
"""Name → a rule broken."""
BROKEN_BY_ONE = ("queries do not wait",)
"""What the checks notice where one switch sends all rows."""
BROKEN_IN: Mapping[str, Mode] = {
    **dict.fromkeys(
        (
            *("empty push skipped", "put before fetch", "reads do not wait"),
            *("block not sent on", "end before the blocks", "COMMIT one version too far"),
        ),
        Mode.CENTRAL_TARGET,
    ),
    "writes do not wait": Mode.CENTRAL_SOURCE,
    **dict.fromkeys(("block before its tick", "tick before the epochs"), Mode.TICKS),
    **dict.fromkeys(
        ("FETCH sees later writes", "SendLog entry forgotten", "waiting PUSH not corrected"), Mode.FOUR_LOGS
    ),
    **{name: each.mode for name, each in OPTION_BREAKS.items()},
}
"""Name → the mode that has the rule; the others are of the eventual mode, or of all."""
BROKEN_BY: Mapping[str, CentralOptions] = {
    "put before fetch": DEFAULT_CENTRAL,
    **dict.fromkeys(("block not sent on", "end before the blocks"), central_options("directives")),
    "COMMIT one version too far": central_options(gc="poll=1"),
}
"""Name → how blocks reach nodes, and when these fold deltas, where that is what the rule is about."""
BROKEN_WITH: Mapping[str, tuple[str, ...]] = {name: each.options for name, each in OPTION_BREAKS.items()}
"""Name → the options that have the rule."""
BROKEN_IN_GRIDS = frozenset(("row in the first part only",))
"""The rules of maps that are cut."""
BROKEN_ON_HOSTS = frozenset(("acknowledged before the standby", "standby taken for whole"))
"""The rules of clusters on several hosts."""
