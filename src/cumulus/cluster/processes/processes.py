"""Builds the machine of one process from the settings in its home folder, with its log and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from cumulus.cluster import codec
from cumulus.cluster.clients.client_sessions import ClientSessions
from cumulus.cluster.gate import Gate
from cumulus.cluster.intake import BlockMaker
from cumulus.cluster.messages import node_name, switch_name
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.placement.distribution_tree import DistributionTree
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.planning.order_of_events import intake_of_switch
from cumulus.cluster.processes.cluster_hosts import read_card
from cumulus.cluster.processes.cluster_settings import ClusterSettings, read_settings
from cumulus.cluster.processes.copy_files import (
    OwnLogTasks,
    StandbyTasks,
    branch_of,
    remove_older_layouts,
    take_over,
)
from cumulus.cluster.processes.home import plan_of
from cumulus.cluster.processes.tasks import (
    NodeTasks,
    PublisherTasks,
    SpoolingTasks,
    StateFiles,
    SwitchTasks,
    check_sources,
    looks_of,
)
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.table import node_protocol, switch_protocol, takes_of
from cumulus.cluster.publisher import PUBLISHER, Publisher
from cumulus.cluster.senders import Senders
from cumulus.cluster.standby.copied_machine import CopiedMachine
from cumulus.cluster.standby.standby import STANDBY, Standby
from cumulus.cluster.switch import SpreadIntake, Switch
from cumulus.cluster.switches.commits import commits_of_switch, coordinator_of
from cumulus.cluster.switches.epoch_transitions import epoch_transitions
from cumulus.cluster.switches.files_elsewhere import LookingSwitch
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.durable.log_files import RecordLog
from cumulus.engine.engines import make_engine
from cumulus.epochs.committed.manifest import Manifest, newest_manifest
from cumulus.epochs.output.identity import resumed_program
from cumulus.epochs.output.sink import Sink
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.errors import StoreError
from cumulus.machine import Machine, Name
from cumulus.scalars.function_modules import functions_in
from cumulus.scalars.user import given_functions
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec

TICK_MS = 50
OPEN_ROW_BYTES = 64
"""What an entry that waits for a commit is taken to have: a node asks for a commit when `open_bytes` are open."""
Perform: TypeAlias = Callable[[Any], Any]


def machine_names(settings: ClusterSettings) -> list[Name]:
    """Return what the machines of a cluster are called."""
    return [
        PUBLISHER,
        *(switch_name(number) for number in range(settings.switches)),
        *(node_name(number) for number in range(settings.nodes)),
    ]


def equip(name: Name, argument: Mapping[str, Any]) -> MachineSpec:
    """Return the machine that a process is to drive.

    Parameters
    ----------
    argument
        "home": the folder with the settings; of publisher and switches also "every_ms"; of the publisher "last".
        "is_away": the home is not seen; then "card" is by `cumulus.cluster.processes.cluster_hosts.card_of`, and "data"
        the folder for the state. "ack": machines may have a standby, and what waits for it; then "hosts" is how many
        hosts there are, and "branches" has the branches of logs other than 0.

    Raises
    ------
    StoreError
        If the home is damaged.
    """
    if argument.get("is_away"):
        told, program, newest = read_card(argument["card"], str(argument["data"]), name)
        remove_older_layouts(told)
        if name.startswith(STANDBY):
            return equip_standby(name, argument, told)
        take_over(told.root, name, int(argument.get("branches", {}).get(name, 0)))
        plan = plan_of(program, told)
        if name.startswith("switch"):
            check_sources(told, looks_of(told, plan, int(name.removeprefix("switch"))))
        return equip_by_plan(name, argument, told, plan, Away(newest))
    home = str(argument["home"])
    settings, resumed = read_settings(home), resumed_program(home)
    if settings is None or resumed is None:
        raise StoreError(
            f"{home}: this is no home of a cluster",
            hint="Start with new folders; with --host, on the host that is named first.",
        )
    card = argument.get("card")
    if card is not None and card["settings"]["checkpoint"] != settings.checkpoint:
        raise StoreError(
            f"{home}: the home of another cluster is there, on the first --host",
            hint="Start on that host, which has the home, or name another one first.",
        )
    return equip_by_plan(name, argument, settings, plan_of(resumed, settings))


@dataclass(frozen=True, slots=True)
class Away:
    """That a machine does not see the home: the manifest of the last epoch, None before the first."""

    newest: Manifest | None


def equip_by_plan(
    name: Name, argument: Mapping[str, Any], settings: ClusterSettings, plan: ClusterPlan, away: Away | None = None
) -> MachineSpec:
    """Return the machine that a process is to drive, built from the plan of its cluster.

    Parameters
    ----------
    name
        The machine.
    argument
        As in `equip`.
    settings, plan
        Those of the cluster.
    away
        Whether the machine sees the home: None.
    """
    folder = settings.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    log = RecordLog(folder / "log")
    newest = newest_manifest(settings.out) if away is None else away.newest
    part = _Parts(settings, plan, StateFiles(name, folder), newest, log.facts)
    if name == PUBLISHER:
        machine, perform = part.publisher(argument.get("every_ms"), int(argument.get("last", 0)))
    elif name.startswith("switch"):
        machine, perform = part.switch(int(name.removeprefix("switch")), argument.get("every_ms"))
    else:
        machine, perform = part.node(int(name.removeprefix("node")))
    if away is not None:
        perform = SpoolingTasks(perform, Path(settings.out)).run
    hosts = 0
    if "ack" in argument and name != PUBLISHER:
        saved = max(StateFiles(name, folder).epochs(), default=0)
        machine = CopiedMachine(name, machine, branch_of(folder), saved, argument["ack"])
        perform, hosts = OwnLogTasks(perform, folder).run, int(argument["hosts"])
    return MachineSpec(
        machine,
        codec,
        perform,
        program=settings.agreed,
        log=log,
        sources=fed_by(settings, name),
        tick_ms=plan.options.tick_ms if name.startswith("node") else TICK_MS,
        may_send=Senders(name, settings.nodes, settings.switches, takes_of(plan.mode, plan.central), hosts).may_send,
    )


def equip_standby(name: Name, argument: Mapping[str, Any], settings: ClusterSettings) -> MachineSpec:
    """Return the standby of a host, which keeps copies beside what machines of this host have."""
    return MachineSpec(
        Standby(),
        codec,
        StandbyTasks(settings.root).run,
        program=settings.agreed,
        may_send=Senders(name, settings.nodes, settings.switches, {}, int(argument["hosts"])).may_send,
    )


class _Parts:
    """Makes machines, with what does their tasks."""

    def __init__(
        self,
        settings: ClusterSettings,
        plan: ClusterPlan,
        states: StateFiles,
        newest: Manifest | None,
        process: Mapping[str, object],
    ) -> None:
        self._settings, self._plan, self._states, self._newest = settings, plan, states, newest
        self._process = process
        self._committed = newest.epoch if newest else 0
        self._functions = given_functions(functions_in(settings.functions))
        self._make_engine = partial(make_engine, settings.engine)

    def publisher(self, every_ms: int | None, last: int) -> tuple[Machine, Perform]:
        """Return the publisher, which holds the output folder."""
        settings, plan = self._settings, self._plan
        sink = Sink(settings.out, settings.checkpoint, settings.program)
        progress = self._newest.offsets if self._newest else {}
        begun = (settings.nodes, settings.switches, SUPERVISOR, self._committed, progress, every_ms, last)
        elsewhere: dict[Name, list[str]] = {}
        for source in settings.sources_elsewhere:
            switch = switch_name(plan.tables.switch_of[source.relation])
            elsewhere.setdefault(switch, []).append(source.relation)
        machine = Publisher(*begun, commit=settings.endings.commit, elsewhere=elsewhere)
        tasks = PublisherTasks(settings, plan, self._functions, sink, is_endless=every_ms is not None, last=last)
        return machine, tasks.run

    def switch(self, number: int, every_ms: int | None) -> tuple[Machine, Perform]:
        """Return a switch."""
        settings, plan = self._settings, self._plan
        count, endings = settings.switches, settings.endings
        tables = frozenset(plan.tables.tables_of(number))
        static = frozenset(relation.name for relation in plan.program.relations if relation.static)
        spread = None
        if plan.division.spread.maps:
            intake = intake_of_switch(plan, number, self._make_engine, settings.late_epochs)
            numbering = Numbering(VersionOrder(settings.order), number)
            blocks = BlockMaker(numbering, switch_protocol(plan), static, settings.block_rows)
            spread = SpreadIntake(intake, blocks, plan.has_query_marks)
        gates = () if plan.gate is None else plan.gate.nodes
        buckets = None if plan.gate is None else plan.gate.buckets
        sessions = ClientSessions(
            plan.program, tables, buckets, is_spread=spread is not None, shares=plan.tables.shares_of(number)
        )
        state = self._states.newest(self._committed)
        machine: Machine = Switch(
            number,
            plan.nodes,
            plan.epoch_routes.of_switch(number),
            tables,
            gates,
            self._committed,
            spread,
            sessions,
            commits_of_switch(number, plan.nodes, count, endings.commit, self._committed),
            epoch_transitions(number, count, endings.transitions, every_ms, self._committed),
            static=not static.isdisjoint(tables),
            state=state,
            least_log_bytes=settings.snapshot_bytes,
            process=self._process,
            open_bytes=settings.open_bytes,
        )
        tasks = SwitchTasks(settings, plan, number, self._states)
        if tasks.looks:
            machine = LookingSwitch(machine, PUBLISHER)
        return machine, tasks.run

    def node(self, number: int) -> tuple[Machine, Perform]:
        """Return a node."""
        settings, plan = self._settings, self._plan
        gate = None
        if plan.gate is not None and number in plan.gate.nodes:
            gate = Gate(
                plan.gated,
                plan.gate.buckets,
                plan.gate.nodes.index(number),
                self._make_engine,
                late_epochs=settings.late_epochs,
                functions=self._functions,
            )
        protocol = None
        if plan.division.spread.maps:
            order = VersionOrder(settings.order)
            protocol = node_protocol(NodeLife(plan, number, settings.engine, order, self._committed))
        snapshots = Snapshots.after(self._newest, settings.snapshot_every, generation=settings.layout)
        state = self._states.newest(self._committed)
        machine = ClusterNode(
            number,
            plan.nodes,
            plan.tables.switches,
            self._committed,
            snapshots,
            gate,
            protocol,
            plan.epoch_routes.of_node(number),
            coordinator_of(number, settings.switches, settings.endings.commit),
            state,
            settings.snapshot_bytes,
            self._process,
            settings.open_bytes // OPEN_ROW_BYTES,
        )
        return machine, NodeTasks(settings, plan, number, gate, snapshots, self._states).run


def fed_by(settings: ClusterSettings, name: Name) -> frozenset[Name]:
    """Return who feeds a machine: the publisher the switches, these the nodes, and a node its children in a tree."""
    if name.startswith("switch"):
        return frozenset((PUBLISHER,))
    if name.startswith("node"):
        feeders = [switch_name(number) for number in range(settings.switches)]
        if settings.central.has_tree:
            parent = DistributionTree(settings.nodes, settings.central.arity).parent(int(name.removeprefix("node")))
            feeders += [] if parent is None else [node_name(parent)]
        return frozenset(feeders)
    return frozenset()
