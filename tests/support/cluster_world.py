"""A cluster over folders in one process: its machines in a virtual world, its tasks on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cumulus.cluster.messages import EpochTold, SourcesDone
from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.processes import equip_by_plan, machine_names
from cumulus.cluster.processes.tasks import PublisherTasks
from cumulus.cluster.publisher import PUBLISHER
from cumulus.durable.log_files import RecordLog
from cumulus.epochs.folder_source import FolderSource
from cumulus.m3.program import Program
from cumulus.machine import Append, Effect, Forget, Input, Machine, Name, Received, Recovered, Send
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec
from cumulus_lab.experiments.virtual_cluster import WIRE
from cumulus_lab.simulation import Conditions, Scenario, SimulatedRun, simulated


class Watcher:
    """Who is told of committed epochs."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.is_done = False

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        for each in inputs:
            match each:
                case Received(_, EpochTold(epoch, _)):
                    self.epochs.append(epoch)
                case Received(_, SourcesDone()):
                    self.is_done = True
                case _:
                    pass
        return []

    def check(self) -> None:
        """Nothing needs to hold."""


def reopened(spec: MachineSpec) -> RecordLog:
    """Return the log of a machine, which is not synced: nobody pulls a plug here."""
    assert isinstance(spec.log, RecordLog)
    spec.log.close()
    return RecordLog(spec.log.folder, sync="never")


class LoggedMachine:
    """A machine whose log is on the disk, where a later run finds it; the world knows the records of this run alone."""

    def __init__(self, machine: Machine, log: RecordLog, sent: Counter[str]) -> None:
        self._machine, self._log, self._sent = machine, log, sent
        first, records = log.recover()
        self._recovered = Recovered(first, records)
        self._before = first + len(records) - 1

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in self._machine.step([self._recovered if isinstance(told, Recovered) else told for told in inputs]):
            match each:
                case Append(number, record):
                    assert self._log.write([record]) == number
                    effects.append(Append(number - self._before, record))
                case Forget(number):
                    self._log.forget(number)
                    effects += [Forget(number - self._before)] if number > self._before else []
                case _:
                    effects.append(each)
            if isinstance(each, Send):
                self._sent[type(each.message).__name__] += 1
        return effects

    def check(self) -> None:
        self._machine.check()


def run_cluster(
    program: Program,
    sources: Sequence[FolderSource],
    out: Path,
    *,
    nodes: int,
    switches: int,
    mode: Mode = Mode.EVENTUAL,
    seed: int = 0,
    machines: dict[Name, Machine] | None = None,
    clients: Mapping[Name, Machine] | None = None,
    every_ms: int | None = None,
    last: int = 0,
    sent: Counter[str] | None = None,
    **settings: Any,
) -> SimulatedRun:
    """Read all there is, as `cumulus run --host cluster` does, with delays that a seed chooses.

    It goes on where the last run has ended, as that does. `machines` is filled with them, for those who want to look at
    what they have become, `sent` with how many messages there were, by class. With `clients` and `every_ms` it goes on
    until epoch `last`.
    """
    others, counts = dict(clients or {}), Counter() if sent is None else sent
    with Home(program, sources, out, None, mode=mode, nodes=nodes, switches=switches, **settings) as home:
        names = machine_names(home.settings)
        argument = {"home": home.settings.home, "every_ms": every_ms, "last": last}
        equipped: dict[Name, MachineSpec] = {
            name: equip_by_plan(name, argument, home.settings, home.plan) for name in names
        }
        if machines is not None:
            machines |= {name: each.machine for name, each in equipped.items()}
        logs = {name: reopened(each) for name, each in equipped.items()}
        logged = {name: LoggedMachine(each.machine, logs[name], counts) for name, each in equipped.items()}
        watcher = Watcher()

        def machine_of(name: Name, life: int) -> Machine:
            if name == SUPERVISOR:
                return watcher
            return others[name] if name in others else logged[name]

        scenario = Scenario(
            dict.fromkeys((SUPERVISOR, *names, *others), machine_of),
            WIRE,
            lambda name, task: equipped[name].perform(task),
            logs=frozenset(names),
        )
        try:
            found = simulated(lambda _: scenario, seed, Conditions())
        finally:
            for log in logs.values():
                log.close()
            tasks = getattr(equipped[PUBLISHER].perform, "__self__", None)
            assert isinstance(tasks, PublisherTasks)
            tasks.close()
        assert found.failure is None, found.failure
        assert watcher.is_done, "the cluster came to rest before it had read everything"
        return found
