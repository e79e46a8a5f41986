"""What a machine has after the last committed epoch: taken out of its files, and put into those of another layout.

A machine that sees the home is read and written in the process that deals out. On another host the agent starts a
process that does nothing else (`StateCarrier`): it says what there is to the supervisor, and is told what is to be, in
pieces.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes.cluster_hosts import read_card
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.copy_files import take_over
from cumulus.cluster.processes.home import plan_of
from cumulus.cluster.processes.processes import Away, equip_by_plan
from cumulus.cluster.processes.tasks import StateFiles
from cumulus.cluster.records import HeldState, LoggedRows, NodeState, SwitchState
from cumulus.cluster.standby.state_pieces import GiveState, KeepState, StateKept, StatePiece
from cumulus.cluster.switch import Switch
from cumulus.cluster.switches.files_elsewhere import LookingSwitch
from cumulus.durable.files import make_folder
from cumulus.durable.log_files import RecordLog
from cumulus.machine import Completed, Effect, Input, Machine, Name, Perform, Received, Recovered, Send
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec

_PIECE_BYTES = 16 << 20
"""Of a state on its way: the agents that pass it on are heard after each."""


def held_state(name: Name, spec: MachineSpec, plan: ClusterPlan, committed: int) -> HeldState:
    """Return what a machine has, which does not run.

    Parameters
    ----------
    spec
        Of the machine, just made.
    plan
        By which it is made.
    committed
        The last committed epoch.

    Raises
    ------
    StoreError
        If its files are damaged, or lack a committed epoch.
    """
    assert spec.log is not None
    try:
        first, records = spec.log.recover()
        logged = [(record, codec.decode(record)) for record in records]
        done = [record for record, each in logged if each.epoch <= committed]
        since = [(record, each) for record, each in logged if isinstance(each, LoggedRows) and each.epoch > committed]
        spec.machine.step([Recovered(first, done)])
        state = b"".join(codec.encode(_state_of(spec.machine, name, plan, committed))) if committed else b""
        return HeldState(state, [record for record, _ in since], max((each.epoch for _, each in since), default=0))
    finally:
        spec.log.close()


def _state_of(machine: Machine, name: Name, plan: ClusterPlan, committed: int) -> NodeState | SwitchState:
    if isinstance(machine, LookingSwitch):
        machine = machine.machine
    if isinstance(machine, Switch):
        return machine.state(committed)
    assert isinstance(machine, ClusterNode), f"{name} keeps nothing that is dealt out"
    gate = b"" if machine.gate is None else machine.gate.save()
    if machine.spread is None:
        return NodeState(committed, gate, [], [])
    maps, number = machine.spread.maps, int(name.removeprefix("node"))
    frames = {at: maps.newest(at) for at in machine.spread.names}
    owned = {at: frame.filter(plan.layout.owners(at, frame) == number) for at, frame in frames.items()}
    return NodeState(committed, gate, machine.spread.numbered(owned), [], machine.spread.failed.dump())


def keep_state(name: Name, settings: ClusterSettings, committed: int, held: HeldState) -> None:
    """Write what a machine of a layout is to begin with; what is in its folder is left of a resize that was killed.

    Parameters
    ----------
    settings
        Of the layout.
    committed
        The last committed epoch.
    held
        What the machine is to have after it.

    Raises
    ------
    StoreError
        If the disk does not take it.
    """
    folder = settings.folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    if held.state:
        StateFiles(name, folder).save(SaveState(committed, committed, held.state))
    if held.rows:
        log = RecordLog(folder / "log")
        log.recover()
        log.write(list(held.rows))
        log.close()


class StateCarrier:
    """The machine of a process that reads and writes the states of machines on its host, as the supervisor asks."""

    def __init__(self) -> None:
        self._pieces: dict[Name, list[bytes]] = {}

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received(_, GiveState() as task):
                    effects.append(Perform(task))
                case Completed(GiveState(machine), HeldState() as held):
                    effects.extend(Send(SUPERVISOR, piece) for piece in pieces_of(machine, held))
                case Received(_, StatePiece(machine) as piece):
                    whole = with_piece(self._pieces, piece)
                    if whole is not None:
                        effects.append(Perform(KeepState(machine, whole)))
                case Completed(KeepState(machine), _):
                    effects.append(Send(SUPERVISOR, StateKept(machine)))
                case _:
                    pass  # of other carriers, with which it has nothing to do
        return effects

    def check(self) -> None:
        """Check nothing: it has no state of its own."""


def pieces_of(machine: Name, held: HeldState) -> Iterator[StatePiece]:
    """Yield what a machine has in pieces."""
    data = b"".join(codec.encode(held))
    for begin in range(0, len(data), _PIECE_BYTES):
        yield StatePiece(machine, data[begin : begin + _PIECE_BYTES], begin + _PIECE_BYTES >= len(data))


def with_piece(pieces: dict[Name, list[bytes]], piece: StatePiece) -> HeldState | None:
    """Put a piece to those before; return what the machine has, once that is the last one."""
    pieces.setdefault(piece.machine, []).append(piece.data)
    if not piece.is_last:
        return None
    held: HeldState = codec.decode(b"".join(pieces.pop(piece.machine)))
    return held


class _OwnFiles:
    """Does the tasks of a carrier, on the files of its host.

    Parameters
    ----------
    argument
        As `start_carrier` takes it.
    """

    def __init__(self, argument: Mapping[str, Any]) -> None:
        self._argument = argument
        self._data = str(argument["data"])

    def run(self, task: Any) -> HeldState | None:
        """Do a task; return its result."""
        if isinstance(task, KeepState):
            settings, _, newest = read_card(self._argument["after"], self._data, task.machine)
            keep_state(task.machine, settings, 0 if newest is None else newest.epoch, task.held)
            return None
        assert isinstance(task, GiveState), f"no task of a carrier: {task}"
        settings, program, newest = read_card(self._argument["before"], self._data, task.machine)
        take_over(settings.root, task.machine, int(self._argument["branches"].get(task.machine, 0)))
        plan = plan_of(program, settings)
        spec = equip_by_plan(task.machine, {}, settings, plan, Away(newest))
        return held_state(task.machine, spec, plan, 0 if newest is None else newest.epoch)


def start_carrier(name: Name, argument: Mapping[str, Any]) -> MachineSpec:
    """Return the carrier of the states on a host.

    Parameters
    ----------
    argument
        "before" and "after": the cluster as it was and as it is to be, by
        `cumulus.cluster.processes.cluster_hosts.card_of`; "branches": machine → the branch of its log; "data": the
        folder for the state.
    """
    return MachineSpec(StateCarrier(), codec, _OwnFiles(argument).run, may_send=lambda *_: False)
