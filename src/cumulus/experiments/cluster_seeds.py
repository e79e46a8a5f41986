"""A cluster over folders in a virtual world: random programs and files, all faults, and the embedded host as the judge.

The machines are those that run in processes of their own, and so are their tasks: files are read, views written,
epochs committed, in a folder that is gone afterwards. Their logs are the world's. When a machine ends, all are started
anew, as `cumulus.local_cluster.run` does it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.messages import Deltas, EpochTold, Events, SourcesDone
from cumulus.cluster.mode import Mode
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.spread_part import SpreadPart
from cumulus.engine.engines import make_engine
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.sources import sources_from
from cumulus.experiments.cluster_counts import BlocksSent, CountedMachine
from cumulus.experiments.cluster_programs import PROGRAMS, program_named, write_random_files
from cumulus.experiments.equal_outputs import difference
from cumulus.local_cluster.home import Home
from cumulus.local_cluster.processes import equip_by_plan, machine_names
from cumulus.machine import Append, Completed, Effect, Forget, Input, Lost, Machine, Name, Perform, Received, Send
from cumulus.simulation import BrokenRule, Choices, Conditions, Renew, Reports, Scenario, Wire, World, faults_named
from cumulus.transport.equipment import SUPERVISOR, Equipment

ORDERS = ("clock", "switch")
CRASHES = 1 / 60
"""How often a machine crashes, per step: a case has a few hundred."""
WIRE = Wire(lambda message: b"".join(codec.encode(message)), codec.decode, lambda message: type(message).__name__)


@dataclass
class Starter:
    """Starts all machines, and starts them anew when one has ended, until all is read.

    Parameters
    ----------
    members
        Whom it starts.
    incarnations
        How many there were; it outlives the machine.
    """

    members: Sequence[Name]
    incarnations: list[int]
    is_due: bool = True
    is_renewing: bool = False
    is_done: bool = False
    epochs: list[int] = field(default_factory=list)

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        for each in inputs:
            match each:
                case Lost(peer) if peer in self.members:
                    self.is_due = True
                case Completed(Renew(), _):
                    self.is_renewing = False
                case Received(_, EpochTold(epoch, _)):
                    self.epochs.append(epoch)
                case Received(_, SourcesDone()):
                    self.is_done = True
                case _:
                    pass
        if not self.is_due or self.is_renewing or self.is_done:
            return []
        self.is_due, self.is_renewing = False, True
        self.incarnations.append(len(self.incarnations) + 1)
        return [Perform(Renew(self.incarnations[-1], ends=True))]

    def check(self) -> None:
        """Epochs are told in their order."""
        assert self.epochs == sorted(set(self.epochs)), self.epochs


class VirtualCluster:
    """The machines of a cluster, life after life, with what does their tasks.

    Parameters
    ----------
    home
        Its folders.
    reports
        Where it is counted what happens.
    """

    def __init__(self, home: Home, reports: Reports) -> None:
        self.names = machine_names(home.card)
        self._home = home
        self._argument = {"home": home.card.home, "every_ms": None, "last": 0}
        self._equipped: dict[Name, Equipment] = {}
        self._reports = reports

    def made(self, name: Name, life: int) -> Machine:
        """Return the machine of a life, as its process would make it."""
        self._equipped.pop(name, None)  # it holds locks
        equipment = equip_by_plan(name, self._argument, self._home.card, self._home.plan)
        if equipment.log is not None:
            equipment.log.close()  # records are on the world's disk
        self._equipped[name] = equipment
        return equipment.machine

    def perform(self, name: Name, task: Any) -> Any:
        """Do a task of a machine."""
        self._reports(f"task {type(task).__name__}")
        return self._equipped[name].perform(task)


class Case:
    """A cluster and its judge, over the same random files.

    Parameters
    ----------
    choices
        Decide the program, its files, and the shape of the cluster.
    breaking
        Makes a machine of which a rule is broken of one as it should be.
    nodes, switches
        How many; 0 lets choices say.
    """

    def __init__(
        self, choices: Choices, breaking: Callable[[Name, Machine], Machine], nodes: int = 0, switches: int = 0
    ) -> None:
        stream = choices.stream("cluster")
        self._folder = tempfile.TemporaryDirectory(prefix="cumulus-seed-")
        root = Path(self._folder.name)
        self._program = program_named(stream.one(list(PROGRAMS)))
        self._out, self._judged = root / "out", root / "judged"
        write_random_files(self._program, choices.stream("files"), root / "in", most_epochs=4, most_rows=5)
        self._sources = sources_from([str(root / "in")], self._program)
        self._home = Home(
            self._program,
            self._sources,
            self._out,
            None,
            mode=stream.one([Mode.EVENTUAL, Mode.EVENTUAL, Mode.EVENTUAL, Mode.GATED]),
            nodes=nodes or 1 + stream.below(4),
            switches=switches or 1 + stream.below(3),
            order=stream.one(ORDERS),
            block_rows=stream.one([10_000, 1, 2]),
            snapshot_bytes=stream.one([1 << 25, 0, 2_000]),
            engine="interpreter",
        )
        self._starter: Starter | None = None
        self._incarnations: list[int] = []
        self._breaking = breaking
        self._reports, self._blocks = Reports(), BlocksSent()
        self._cluster = VirtualCluster(self._home, self._reports)

    def scenario(self) -> Scenario:
        """Return what is run."""
        names = self._cluster.names
        return Scenario(
            dict.fromkeys([SUPERVISOR, *names], self._made),
            WIRE,
            perform=self._cluster.perform,
            logs=frozenset(names),
            supervisor=SUPERVISOR,
            may_crash=frozenset([SUPERVISOR, *names]),
            at_rest={"same as embedded": self._judge},
            reports=self._reports,
        )

    def _made(self, name: Name, life: int) -> Machine:
        if name == SUPERVISOR:
            self._starter = Starter(self._cluster.names, self._incarnations)
            return self._starter
        machine = CountedMachine(self._cluster.made(name, life), self._reports, self._blocks, len(self._incarnations))
        return self._breaking(name, machine)

    def _judge(self, world: World) -> None:
        """All is read, and each epoch is as the embedded host leaves it."""
        assert self._starter is not None
        assert self._starter.is_done, "the cluster rests before all is read"
        engines = partial(make_engine, "interpreter")
        with EmbeddedRun(self._program, self._sources, self._judged, make_engine=engines) as judge:
            for _ in judge.steps():
                self._reports("epoch")
        found = difference(self._judged, self._out)
        assert not found, found


def _as_it_is(name: Name, machine: Machine) -> Machine:
    return machine


class DropsDeltas(BrokenRule):
    """A node that sends no deltas."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Leave deltas out."""
        return [each for each in effects if not (isinstance(each, Send) and isinstance(each.message, Deltas))]


class TellsDepthsEarly(BrokenRule):
    """A node that says that it has sent everything of an epoch, and then sends it."""

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Send checkpoints before deltas, and deltas at the next step."""
        deltas = [each for each in effects if isinstance(each, Send) and isinstance(each.message, Deltas)]
        late, self._late = self._late, deltas
        return [*late, *(each for each in effects if each not in deltas)]

    _late: Sequence[Effect] = ()


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


class BrokenSpreadPart(BrokenRule):
    """A node of which something inside is changed when it is made.

    Parameters
    ----------
    change
        Changes its part for spread views.
    """

    def __init__(self, machine: Machine, change: Callable[[SpreadPart], None]) -> None:
        super().__init__(machine)
        assert isinstance(machine, CountedMachine), machine
        node = machine.machine
        if isinstance(node, ClusterNode) and node.spread is not None:
            change(node.spread)


def _take_late_as_fast(part: SpreadPart) -> None:
    """Evaluate late blocks as if nothing later had come."""
    fire = part.state.maps.fire
    setattr(part.state.maps, "fire", lambda *block, is_late: fire(*block, is_late=False))  # noqa: B010


def _drop_corrections(part: SpreadPart) -> None:
    """Add late deltas, and correct nothing."""
    setattr(part.state.maps, "correct", part.state.maps.add)  # noqa: B010


def _of(kind: str, breaking: Callable[[Machine], Machine]) -> Callable[[Name, Machine], Machine]:
    """Break the rule in the machines of a kind."""
    return lambda name, machine: breaking(machine) if name.startswith(kind) else machine


BREAKS: Mapping[str, Callable[[Name, Machine], Machine]] = {
    "deltas dropped": _of("node", DropsDeltas),
    "checkpoint before deltas": _of("node", TellsDepthsEarly),
    "node ready before durable": _of("node", WritesBeforeItIsDurable),
    "switch sends before durable": _of("switch", WritesBeforeItIsDurable),
    "blocks doubled": _of("switch", DoublesBlocks),
    "late blocks as fast": _of("node", partial(BrokenSpreadPart, change=_take_late_as_fast)),
    "corrections dropped": _of("node", partial(BrokenSpreadPart, change=_drop_corrections)),
}
"""Name → a rule broken."""


def cluster_case(choices: Choices, broken: str = "", nodes: int = 0, switches: int = 0) -> Scenario:
    """Return a random cluster with random files; see `Case`."""
    return Case(choices, BREAKS[broken] if broken else _as_it_is, nodes, switches).scenario()


def cluster_conditions(faults: Sequence[str]) -> Conditions:
    """Return the conditions of a case: faults by name, crashes often enough for its few steps."""
    rates = faults_named(faults)
    return Conditions(faults={**rates, **({"crash": CRASHES} if "crash" in rates else {})}, most_steps=20_000)
