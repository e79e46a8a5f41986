"""From the card of a home to the machine of one process, with its log and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from cumulus.cluster import codec
from cumulus.cluster.blocks import BlockMaker
from cumulus.cluster.clients.client_sessions import ClientSessions
from cumulus.cluster.gate import Gate
from cumulus.cluster.messages import node_name, switch_name
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.placement.dispatch import Dispatch
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.planning.order_of_events import intake_of_switch
from cumulus.cluster.processes.card import ClusterCard, read_card
from cumulus.cluster.processes.home import plan_of
from cumulus.cluster.processes.tasks import NodeTasks, PublisherTasks, StateFiles, SwitchTasks
from cumulus.cluster.publisher import PUBLISHER, Publisher
from cumulus.cluster.senders import Senders
from cumulus.cluster.spread_part import SpreadPart
from cumulus.cluster.switch import SpreadIntake, Switch
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.durable.log_files import RecordLog
from cumulus.engine.engines import make_engine
from cumulus.epochs.output.identity import resumed_program
from cumulus.epochs.output.sink import Manifest, Sink, newest_manifest
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.errors import StoreError
from cumulus.machine import Machine, Name
from cumulus.scalars.function_modules import functions_in
from cumulus.scalars.user import given_functions
from cumulus.transport.equipment import SUPERVISOR, Equipment

TICK_MS = 50
Perform: TypeAlias = Callable[[Any], Any]


def machine_names(card: ClusterCard) -> list[Name]:
    """Return what the machines of a cluster are called."""
    return [
        PUBLISHER,
        *(switch_name(number) for number in range(card.switches)),
        *(node_name(number) for number in range(card.nodes)),
    ]


def equip(name: Name, argument: Mapping[str, Any]) -> Equipment:
    """Return the machine that a process is to drive.

    Parameters
    ----------
    argument
        "home": the folder with the card; of the publisher also "every_ms" and "last".

    Raises
    ------
    StoreError
        If the home is damaged.
    """
    home = str(argument["home"])
    card, program = read_card(home), resumed_program(home)
    if card is None or program is None:
        raise StoreError(f"{home}: this is no home of a cluster", hint="Start with new folders.")
    return equip_by_plan(name, argument, card, plan_of(program, card))


def equip_by_plan(name: Name, argument: Mapping[str, Any], card: ClusterCard, plan: ClusterPlan) -> Equipment:
    """Return the machine that a process is to drive, by what its home says; see `equip`."""
    folder = card.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    log = RecordLog(folder / "log")
    part = _Parts(card, plan, StateFiles(name, folder), newest_manifest(card.out), log.facts)
    if name == PUBLISHER:
        machine, perform = part.publisher(argument.get("every_ms"), int(argument.get("last", 0)))
    elif name.startswith("switch"):
        machine, perform = part.switch(int(name.removeprefix("switch")))
    else:
        machine, perform = part.node(int(name.removeprefix("node")))
    return Equipment(
        machine,
        codec,
        perform,
        program=card.program.encode(),
        log=log,
        sources=fed_by(card, name),
        tick_ms=0 if name.startswith("node") else TICK_MS,
        may_send=Senders(name, card.nodes, card.switches).may_send,
    )


class _Parts:
    """Makes machines, with what does their tasks."""

    def __init__(
        self,
        card: ClusterCard,
        plan: ClusterPlan,
        states: StateFiles,
        newest: Manifest | None,
        process: Mapping[str, object],
    ) -> None:
        self._card, self._plan, self._states, self._newest = card, plan, states, newest
        self._process = process
        self._committed = newest.epoch if newest else 0
        self._functions = given_functions(functions_in(card.functions))
        self._make_engine = partial(make_engine, card.engine)

    def publisher(self, every_ms: int | None, last: int) -> tuple[Machine, Perform]:
        """Return the publisher, which holds the output folder."""
        card, plan = self._card, self._plan
        sink = Sink(card.out, card.checkpoint, card.program)
        progress = self._newest.offsets if self._newest else {}
        machine = Publisher(card.nodes, card.switches, SUPERVISOR, self._committed, progress, every_ms, last)
        tasks = PublisherTasks(card, plan, self._functions, sink, is_endless=every_ms is not None, last=last)
        return machine, tasks.run

    def switch(self, number: int) -> tuple[Machine, Perform]:
        """Return a switch."""
        card, plan = self._card, self._plan
        tables = frozenset(plan.tables.tables_of(number))
        static = frozenset(relation.name for relation in plan.program.relations if relation.static)
        spread = None
        if plan.division.spread.maps:
            intake = intake_of_switch(plan, number, self._make_engine, card.late_epochs)
            dispatch = Dispatch(plan.nodes_program.groups, plan.nodes)
            numbering = Numbering(VersionOrder(card.order), number)
            spread = SpreadIntake(intake, BlockMaker(numbering, dispatch, static, card.block_rows))
        gates = () if plan.gate is None else plan.gate.nodes
        buckets = None if plan.gate is None else plan.gate.buckets
        sessions = ClientSessions(plan.program, tables, buckets, is_spread=spread is not None)
        state = self._states.newest(self._committed)
        machine = Switch(
            number,
            plan.nodes,
            tables,
            gates,
            self._committed,
            spread,
            sessions,
            static=not static.isdisjoint(tables),
            state=state,
            least_log_bytes=card.snapshot_bytes,
            process=self._process,
            open_bytes=card.open_bytes,
        )
        return machine, SwitchTasks(card, plan, number, self._states).run

    def node(self, number: int) -> tuple[Machine, Perform]:
        """Return a node."""
        card, plan = self._card, self._plan
        gate = None
        if plan.gate is not None and number in plan.gate.nodes:
            gate = Gate(
                plan.division.gated,
                plan.gate.buckets,
                plan.gate.nodes.index(number),
                self._make_engine,
                late_epochs=card.late_epochs,
                functions=self._functions,
            )
        spread = None
        if plan.division.spread.maps:
            spread = SpreadPart(plan, number, card.engine, VersionOrder(card.order), self._committed)
        snapshots = Snapshots.after(self._newest, card.snapshot_every)
        state = self._states.newest(self._committed)
        machine = ClusterNode(
            number,
            plan.nodes,
            plan.tables.switches,
            self._committed,
            snapshots,
            gate,
            spread,
            state,
            card.snapshot_bytes,
            self._process,
        )
        return machine, NodeTasks(card, plan, number, gate, snapshots, self._states).run


def fed_by(card: ClusterCard, name: Name) -> frozenset[Name]:
    """Return who feeds a machine: the publisher the switches, these the nodes."""
    if name.startswith("switch"):
        return frozenset((PUBLISHER,))
    if name.startswith("node"):
        return frozenset(switch_name(number) for number in range(card.switches))
    return frozenset()
