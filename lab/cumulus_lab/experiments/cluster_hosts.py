"""Hosts in a virtual world: which machines are on which, which are lost, and what standbys have of their machines.

A machine that is lost may be lost with its host. Then all that were there end; those whose standby has everything go on
at its host, from the copy, and what their own host has is gone. The others start again where they were, as if the host
had come back. Places are kept as `cumulus.cluster.processes.machine_hosts` keeps them.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from cumulus.cluster.processes.copy_files import StandbyTasks, branch_of, take_over
from cumulus.cluster.processes.host_places import HostPlaces
from cumulus.cluster.processes.tasks import StateFiles
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.resets import Reset
from cumulus.cluster.standby.copies import CopyReady, CopyWhole, ReadOwnLog
from cumulus.cluster.standby.standby import Standby, standby_name
from cumulus.durable.log_files import RecordLog
from cumulus.machine import Machine, Name
from cumulus_lab.simulation import ChoiceStream, Reports, VirtualLog

HOST_LOSS = 3 / 4
"""How often a machine is lost with its host."""
BACK = 1 / 2
"""How often a host that was lost is there again at the next loss."""


class VirtualHosts:
    """The hosts of a cluster's machines, with what standbys do.

    Parameters
    ----------
    stream
        Decides how many there are, who is where, and what is lost.
    machines
        The publisher first.
    home
        The folder with the state of all of them.
    disks
        Machine → its log; replaced when it moves.
    """

    def __init__(
        self,
        stream: ChoiceStream,
        machines: Sequence[Name],
        home: Path,
        disks: MutableMapping[Name, VirtualLog],
        reports: Reports,
    ) -> None:
        self.count = stream.one([2, 3])
        self.standbys = [standby_name(host) for host in range(self.count)]
        self._agents = [(f"h{host}", 1) for host in range(self.count)]
        others = {name: stream.one([*self._agents, *self._agents[1:]]) for name in machines}
        self._first = {**others, PUBLISHER: self._agents[0]}
        self._stream, self._home, self._disks, self._reports = stream, home, disks, reports
        self._lost: set[tuple[str, int]] = set()
        self._tasks: dict[Name, StandbyTasks] = {}
        self.begin()

    def begin(self) -> None:
        """Read where everybody is, as a supervisor does that starts."""
        self._home.mkdir(parents=True, exist_ok=True)
        self._places = HostPlaces(self._home, self._agents)
        self._places.settle({**self._first, **self._places.known(())})
        self._places.begin()
        self._places.choose(self._lost)

    def reset(self, epoch: int) -> Reset:
        """Return what all are told when they meet."""
        return Reset(epoch, self._places.standbys())

    def take(self, name: Name, message: object) -> None:
        """Take what a machine says of its standby."""
        if isinstance(message, CopyReady):
            self._reports("standby caught up")
            self._places.cover(name, message.standby, message.branch)

    def lose(self, machines: Collection[Name]) -> frozenset[Name]:
        """Decide which hosts are lost with these machines; return who ends with them, or must let go of copies."""
        self._lost -= {host for host in sorted(self._lost) if self._stream.chance(BACK)}
        ending: set[Name] = set()
        for name in sorted(machines):
            if name in self.standbys or name == PUBLISHER:
                continue
            host = self._places.address(name)
            if host == self._agents[0] or host in self._lost or not self._stream.chance(HOST_LOSS):
                continue
            ending |= {*self._places.machines_at(host), standby_name(self._agents.index(host))}
            if not self._places.may_move(self._places.machines_at(host), {*self._lost, host}):
                self._reports("host lost and waited for")
                continue
            self._lost.add(host)
            for moved, where in self._places.move(self._places.machines_at(host)).items():
                self._reports("moved to its standby")
                ending |= {moved, standby_name(self._agents.index(where))}
        self._places.choose(self._lost)
        return frozenset(ending)

    # --- files ------------------------------------------------------------------------------------------------------

    def made(self, name: Name) -> Machine:
        """Return a standby, in a new life."""
        if name in self._tasks:
            self._tasks[name].close()
        self._tasks[name] = StandbyTasks(self._home / name)
        return Standby()

    def bring(self, name: Name) -> None:
        """Put what a machine's standby has in place of its own state, if it has moved to it."""
        branch = self._places.branches().get(name, 0)
        folder = self._home / name
        if branch_of(folder) == branch:
            return
        standby = standby_name(self._agents.index(self._places.address(name)))
        take_over(self._home / standby, name, branch)
        shutil.rmtree(folder)
        (self._home / standby / name).rename(folder)
        log = RecordLog(folder / "log")
        self._disks[name] = VirtualLog(*log.recover())
        log.close()

    def perform(self, name: Name, task: Any) -> Any:
        """Do a task of a standby, or one for it."""
        if not isinstance(task, ReadOwnLog):
            return self._tasks[name].run(task)
        self._reports("copied whole")
        saved = StateFiles(name, self._home / name).read_all()
        return CopyWhole(task.branch, saved, *self._disks[name].records(task.first, task.last))
