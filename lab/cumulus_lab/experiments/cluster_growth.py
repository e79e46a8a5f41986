"""A simulated cluster that has grown: its home reads some epochs with other numbers of nodes and switches before.

A cluster of the first shape runs in a world of its own, where nothing fails, and stops after an epoch. What its
machines have written goes to the disk, and the home is opened as one of the other shape, by what resizes real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes import resizing
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.resizing import open_home
from cumulus.cluster.protocols.eventual_state import Indices
from cumulus.durable.log_files import RecordLog
from cumulus.engine.frames.frame import MapFrame
from cumulus.machine import Machine, Name
from cumulus.transport.machine_spec import SUPERVISOR
from cumulus_lab.experiments.cluster_modes import chosen_cuts, chosen_splits, planned
from cumulus_lab.experiments.cluster_starter import Starter
from cumulus_lab.experiments.virtual_cluster import WIRE, VirtualCluster
from cumulus_lab.simulation import Choices, Conditions, Reports, Scenario, VirtualLog, World

GROWN = 1 / 8
"""The share of clusters that have had another shape."""
NODES = (2, 1, 3, 4, 5)
SWITCHES = (1, 2, 3)
_GIVEN_APART = (
    *("out", "home", "checkpoint", "program", "sources"),
    *("nodes", "switches", "mode", "homes", "cuts", "splits", "layout", "slots", "read_at"),
)
"""Settings that are given otherwise, or that a home has of itself."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The shape that a cluster has before, and how many epochs it reads so.

    Parameters
    ----------
    nodes, switches, cuts, splits
        As `ClusterSettings` has them.
    epochs
        At least 1.
    """

    nodes: int
    switches: int
    cuts: tuple[str, ...]
    splits: tuple[str, ...]
    epochs: int


def chosen_growth(
    choices: Choices, name: str, mode: Mode, plan: ClusterPlan, *, has_cuts: bool, is_grown: bool
) -> Growth | None:
    """Return what a seed says a cluster was before; None if it begins as it is.

    Parameters
    ----------
    name
        Of the program.
    plan
        Of what the cluster is to be.
    has_cuts
        Whether maps are cut in that.
    is_grown
        Whether it was something else if it can have been.
    """
    stream = choices.stream("growth")
    if not (stream.chance(GROWN) or is_grown):
        return None
    nodes = stream.one([each for each in NODES if each != plan.nodes])
    switches = 1 if plan.tables.switches == 1 and stream.chance(1 / 2) else stream.one(SWITCHES)
    apart = Choices(stream.below(1 << 30))  # what is older draws what it has drawn
    cuts = chosen_cuts(apart, plan.program, nodes, mode) if has_cuts else ()  # a home that has cuts keeps having some
    splits = chosen_splits(apart, plan.program, switches, mode)
    before = planned(name, nodes, switches, mode, cuts=cuts, splits=splits)
    if before.division != plan.division:
        return None  # a home cannot go from one to the other
    if before.judged != plan.judged:
        return None  # splits with which other references are checked: nobody could judge both alike
    return Growth(before.nodes, before.tables.switches, cuts, splits, 1 + stream.below(3))


class GrownHome:
    """A home that becomes one of another shape.

    Parameters
    ----------
    settings, plan
        What it is to have; their places and slots are not those that it gets.
    growth
        What it is before.
    is_dealt_twice
        Whether a rule is broken: what is dealt to a node is dealt to the next one, too.

    Attributes
    ----------
    settings, plan
        What it has in the end.
    disks
        Machine → what is on its disk then.
    """

    def __init__(
        self, settings: ClusterSettings, plan: ClusterPlan, growth: Growth, *, is_dealt_twice: bool = False
    ) -> None:
        self.settings, self.plan = settings, plan
        self.disks: dict[Name, VirtualLog] = {}
        self._growth, self._is_dealt_twice = growth, is_dealt_twice
        self._kept = {name: getattr(settings, name) for name in asdict(settings) if name not in _GIVEN_APART}
        self._kept |= {"program": plan.program, "sources": settings.sources}
        self._kept |= {"out": Path(settings.out), "checkpoint": Path(settings.home)}

    def grow(
        self,
        choices: Choices,
        incarnations: list[int],
        watched: Callable[[Name, Machine, ClusterPlan], Machine],
        reports: Reports,
    ) -> None:
        """Read the first epochs, and deal out what the machines have.

        Parameters
        ----------
        choices
            Decide the delays.
        incarnations
            Those that there were; this life adds its own.
        watched
            Puts what counts around a machine.

        Raises
        ------
        FailedRunError
            If the cluster of the first shape fails.
        """
        growth, mode = self._growth, Mode(self.settings.mode)
        shape: dict[str, Any] = {"nodes": growth.nodes, "switches": growth.switches}
        shape |= {"cuts": growth.cuts, "splits": growth.splits}
        with Home(mode=mode, **shape, **self._kept) as home:
            self._run(home, choices, incarnations, watched, reports)
        after: dict[str, Any] = {"nodes": self.plan.nodes, "switches": self.plan.tables.switches}
        after |= {"cuts": self.settings.cuts, "splits": self.settings.splits}
        notes: list[str] = []
        with _dealing(is_twice=self._is_dealt_twice):
            opened = open_home(mode=mode, note=notes.append, **after, **self._kept)
        with opened as home:
            self.settings, self.plan = home.settings, home.plan
        assert notes, "nothing was dealt out"
        reports("dealt out anew")
        for name in VirtualCluster(self.settings, self.plan, None, 0, reports).names:
            log = RecordLog(self.settings.folder(name) / "log")
            self.disks[name] = VirtualLog(*log.recover())
            log.close()

    def _run(
        self,
        home: Home,
        choices: Choices,
        incarnations: list[int],
        watched: Callable[[Name, Machine, ClusterPlan], Machine],
        reports: Reports,
    ) -> None:
        """Read as many epochs as the home is to have before; write what machines have on their disks to files."""
        cluster = VirtualCluster(home.settings, home.plan, None, self._growth.epochs, reports)
        starter = Starter(cluster.names, incarnations, lambda: False)
        disks: dict[Name, VirtualLog] = {}

        def made(name: Name, life: int) -> Machine:
            return starter if name == SUPERVISOR else watched(name, cluster.made(name), home.plan)

        names = frozenset(cluster.names)
        scenario = Scenario(
            dict.fromkeys([SUPERVISOR, *cluster.names], made),
            WIRE,
            cluster.perform,
            logs=names,
            supervisor=SUPERVISOR,
            disks=disks,
        )
        World(scenario, Conditions(most_steps=20_000), choices).run()
        assert starter.is_done, "the cluster rests before it has read what it should"
        cluster.close()
        for name in cluster.names:
            _write_log(home.settings.folder(name) / "log", disks[name])


def _write_log(folder: Path, disk: VirtualLog) -> None:
    """Write what a virtual log has to files."""
    first, records = disk.records(1, disk.durable)
    log = RecordLog(folder, sync="never", segment_bytes=1)
    assert log.recover() == (1, []), "machines write to the world's disk"
    for group in ([b""] * (first - 1), records):
        if group:
            log.write(group)
    log.forget(first - 1)
    log.close()


@contextmanager
def _dealing(*, is_twice: bool) -> Iterator[None]:
    """Deal out what nodes have, once or, to see that it is noticed, to the next node, too."""
    placed = getattr(resizing, "_placed")  # noqa: B009

    def twice(
        entries: Mapping[str, list[MapFrame]], plan: ClusterPlan
    ) -> Iterator[tuple[int, MapFrame, list[Indices]]]:
        for number, frame, nodes in placed(entries, plan):
            both = [np.union1d(nodes[at], nodes[at - 1]) for at in range(len(nodes))]
            yield number, frame, both

    if is_twice:
        setattr(resizing, "_placed", twice)  # noqa: B010
    try:
        yield
    finally:
        setattr(resizing, "_placed", placed)  # noqa: B010
