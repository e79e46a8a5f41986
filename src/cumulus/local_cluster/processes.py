"""From the card of a home to the machine of one process, with its log and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.gate import Gate
from cumulus.cluster.messages import node_name, switch_name
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.publisher import PUBLISHER, Publisher
from cumulus.cluster.switch import Switch
from cumulus.engine.engines import make_engine
from cumulus.epochs.output.identity import resumed_program
from cumulus.epochs.output.sink import Manifest, Sink, committed_epochs, read_manifest
from cumulus.errors import StoreError
from cumulus.local_cluster.card import ClusterCard, read_card
from cumulus.local_cluster.tasks import NodeTasks, PublisherTasks, SwitchTasks, newest_state
from cumulus.m3.program import Program
from cumulus.machine import Machine, Name
from cumulus.scalars.function_modules import functions_in
from cumulus.scalars.user import given_functions
from cumulus.transport.equipment import SUPERVISOR, Equipment
from cumulus.transport.log_files import RecordLog

TICK_MS = 50


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
    folder = card.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    epochs = committed_epochs(card.out)
    newest = read_manifest(card.out, epochs[-1]) if epochs else None
    machine, perform = _machine(card, program, name, folder, newest, argument)
    return Equipment(
        machine,
        codec,
        perform,
        program=card.program.encode(),
        log=RecordLog(folder / "log"),
        sources=_fed_by(card, name),
        tick_ms=TICK_MS if name == PUBLISHER else 0,
    )


def _machine(
    card: ClusterCard,
    program: Program,
    name: Name,
    folder: Path,
    newest: Manifest | None,
    argument: Mapping[str, Any],
) -> tuple[Machine, Callable[[Any], Any]]:
    committed = newest.epoch if newest else 0
    functions = given_functions(functions_in(card.functions))
    if name == PUBLISHER:
        every_ms, last = argument.get("every_ms"), int(argument.get("last", 0))
        progress = newest.offsets if newest else {}
        sink = Sink(card.out, card.checkpoint, card.program)
        publisher = Publisher(card.nodes, card.switches, SUPERVISOR, committed, progress, every_ms, last)
        tasks = PublisherTasks(card, program, functions, sink, is_endless=every_ms is not None, last=last)
        return publisher, tasks.run
    if name.startswith("switch"):
        number = int(name.removeprefix("switch"))
        tables = frozenset(table for table, switch in card.tables.items() if switch == number)
        return Switch(number, card.nodes, tables, card.gates, committed), SwitchTasks(card, program).run
    number = int(name.removeprefix("node"))
    gate, size = None, 0
    if number in card.gates:
        state = newest_state(folder, committed)
        make = partial(make_engine, card.engine)
        bucket, size = card.gates.index(number), len(state[1]) if state else 0
        gate = Gate(program, card.plan, bucket, make, late_epochs=card.late_epochs, functions=functions, state=state)
    return ClusterNode(number, card.switches, committed, gate, size), NodeTasks(card, gate, folder, newest).run


def _fed_by(card: ClusterCard, name: Name) -> frozenset[Name]:
    """Return who feeds a machine: the publisher the switches, these the nodes."""
    if name.startswith("switch"):
        return frozenset((PUBLISHER,))
    if name.startswith("node"):
        return frozenset(switch_name(number) for number in range(card.switches))
    return frozenset()
