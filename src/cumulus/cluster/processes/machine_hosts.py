"""The hosts on which a cluster's machines run, while they do: which are lost, who moves where, whose standby is where.

A machine moves to the host of its standby when its own has been lost for the lease: the link counts as lost after the
lease, and the agent ends its machines after the lease, so none of them runs any more then. A machine without a standby
waits for its host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.processes.cluster_hosts import HostSettings, agents_of, card_of
from cumulus.cluster.processes.home import Home, reader_hosts
from cumulus.cluster.processes.host_places import HostPlaces
from cumulus.cluster.processes.machine_modules import fork_server
from cumulus.cluster.processes.processes import machine_names
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.resets import Reset
from cumulus.cluster.standby.copies import CopyReady
from cumulus.cluster.standby.standby import STANDBY
from cumulus.errors import UsageError
from cumulus.machine import Name
from cumulus.transport.agents.agent_messages import Directory
from cumulus.transport.connections import place_text
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.machine_process import Launcher, Process, ProcessEnded
from cumulus.transport.supervisor import Supervisor

_FIRST_PATIENCE_S = 10.0
"""How long an agent may take to be there when a cluster is started."""
_LOOK_S = 0.2
_AGAIN_S, _TELL_S = 5.0, 1.0
"""How often a host without machines is looked for, and after how long it is told that one is waited for."""


class MachineHosts:
    """The hosts of a cluster, as a context.

    Parameters
    ----------
    hosts
        None: all machines run on this computer, without agents.
    factory, argument
        What makes a machine, and what that is told; see `cumulus.transport.machine_process.Process`.
    note
        Takes a line about a host.
    forks
        What forks machines on this computer, if all are here; None: these hosts have their own.

    Raises
    ------
    CumulusError
        If a machine cannot be where it is to be.
    """

    def __init__(
        self,
        hosts: HostSettings | None,
        home: Home,
        factory: str,
        argument: Mapping[str, Any],
        note: Callable[[str], None],
        forks: ForkServer | None = None,
    ) -> None:
        self.launchers: dict[Name, Launcher] = {}
        self._hosts, self._home, self._factory, self._argument, self._note = hosts, home, factory, argument, note
        self._names = machine_names(home.settings)
        self._beside = frozenset(self._names)
        """The machines that see the home."""
        self._forks, self._opened = forks, ExitStack()
        self._told: set[Any] = set()
        """Hosts of which it was told that they are waited for."""
        self._next_look = 0.0
        self._failed: set[Name] = set()
        """Machines that cannot go on where they are."""
        if hosts is None:
            return
        readers = reader_hosts(home.settings, home.plan)
        if hosts.standbys and len(hosts.agents) < 2:
            raise UsageError(
                "--standby 1 needs another host, and one --host is given", hint="Give --host again, or leave it out."
            )
        self._places = HostPlaces(home.settings.root, hosts.addresses(), bound=readers)
        known = self._places.known(hosts.place)
        beside = {PUBLISHER, *(name for name, host in readers.items() if not host)}
        self._places.settle(hosts.placed(self._names, readers, known), beside)
        self._beside = self._places.beside(beside)
        if not hosts.standbys:
            self._places.give_up_standbys()
        self._links = agents_of(hosts, home.settings.checkpoint)

    def __enter__(self) -> MachineHosts:
        if self._hosts is not None:
            self._opened.enter_context(self._links)
        else:
            forks = self._forks or self._opened.enter_context(fork_server(self._note))
            self.launchers |= dict.fromkeys(self._names, forks.launch)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def is_stop_wished(self) -> bool:
        """Whether an operator has asked an agent to end the cluster."""
        return self._hosts is not None and self._links.is_stop_wished

    def gather(self, is_stopped: Callable[[], bool], *, is_first: bool) -> None:
        """Wait until the hosts of all machines are there, and let nothing of this cluster run on them.

        Raises
        ------
        ProcessError
            If one refuses; at the first start also if it is not there in time.
        """
        if self._hosts is None:
            return
        if not is_first:
            while not self.settle(None) and not is_stopped():
                time.sleep(_LOOK_S)
        wanted = [each for each in self._hosts.addresses() if is_first or each not in self._links.lost()]
        self._links.connect(is_stopped, self._note, _FIRST_PATIENCE_S if is_first else None, wanted)
        self._places.begin()
        self._choose()

    def settle(self, supervisor: Supervisor | None) -> bool:
        """Look once whether the hosts of all machines are there; let machines move that may. Return whether it is so.

        Parameters
        ----------
        supervisor
            Of the machines, if some run.

        Raises
        ------
        ProcessError
            If the agent of one of these hosts refuses.
        """
        if self._hosts is None:
            return True
        for host, problem in self._links.retry().items():
            if self._places.machines_at(host):
                raise problem
        lost = self._links.lost()
        now = time.monotonic()
        failed, self._failed = [each for each in self._failed if self._places.may_move([each], lost)], set()
        self._move(failed, "it cannot go on", supervisor)  # others fail once more, and that is told
        is_waited_for = False
        for host, since in lost.items():
            machines = self._places.machines_at(host)
            if not machines:
                continue
            if now - since >= self._hosts.lease_s and self._places.may_move(machines, lost):
                self._move(machines, f"{place_text(host)} is lost", supervisor)
                continue
            is_waited_for = True
            if host not in self._told and now - since > _TELL_S:
                self._told.add(host)
                self._note(f"the host {place_text(host)} is lost, and waited for")
        self._told &= {*lost}
        return not is_waited_for

    def _move(self, machines: Sequence[Name], why: str, supervisor: Supervisor | None) -> None:
        """Let machines start from their copies, which their standbys must let go of."""
        standbys = self._places.standbys()
        for name, address in self._places.move(machines).items():
            self._note(f"{name} moves to its standby at {place_text(address)}: {why}")
            if supervisor is not None:
                supervisor.kill(standbys[name])
                supervisor.wait_for_ends([standbys[name]])

    def news(self) -> str:
        """Return why all should meet anew, though nobody is lost; "" if they need not."""
        if self._hosts is None or not self._hosts.standbys or time.monotonic() < self._next_look:
            return ""
        self._next_look = time.monotonic() + _AGAIN_S
        self._links.retry()  # a host that refuses is none that is waited for
        return "a host is back that machines can have a standby on" if self._places.lacks(self._links.lost()) else ""

    def refit(self, supervisor: Supervisor) -> None:
        """Choose standbys anew, before all meet in a new incarnation; forget those that are nobody's."""
        if self._hosts is None:
            return
        self._choose()
        for name in [each for each in supervisor.pids() if each.startswith(STANDBY)]:
            if name not in self._places.standby_hosts():
                supervisor.give_up(name)

    def _choose(self) -> None:
        assert self._hosts is not None
        if self._hosts.standbys:
            self._places.choose(self._links.lost())
        here = {name: self._places.address(name) for name in self._names}
        self.launchers.clear()
        self.launchers |= {
            name: self._links.launcher(at) for name, at in {**here, **self._places.standby_hosts()}.items()
        }

    def take(self, name: Name, message: object) -> None:
        """Take what a machine says of its standby."""
        if isinstance(message, CopyReady):
            self._places.cover(name, message.standby, message.branch)

    def spared(self, ended: ProcessEnded) -> str:
        """Return why all can go on though a process cannot, "" if they cannot.

        The host of a standby is nobody's standby any more; a machine whose disk has failed has a copy of what it had.
        """
        if ended.code <= 0 or self._hosts is None:
            return ""
        if ended.name.startswith(STANDBY):
            self._places.bar(ended.name)
            return "its host keeps no copies any more"
        if ended.name not in self._places.standbys() or not self._places.may_move([ended.name], self._links.lost()):
            return ""
        self._failed.add(ended.name)
        return "its standby takes its place"

    def processes(self) -> list[Process]:
        """Return what to start: who is not beside the home is told all that it needs of it."""
        if self._hosts is None:
            return [Process(name, self._factory, dict(self._argument)) for name in self._names]
        argument = {**self._argument, "card": card_of(self._home.settings)}
        if self._hosts.standbys:
            argument |= {"ack": self._hosts.ack, "hosts": len(self._hosts.agents)}
        away = {**argument, "is_away": True, "branches": self._places.branches()}
        names = [*self._names, *self._places.standby_hosts()]
        return [Process(name, self._factory, argument if name in self._beside else away) for name in names]

    def announce(self, supervisor: Supervisor, clients_secret: bytes | None) -> None:
        """Let the agents tell clients where the machines are."""
        if self._hosts is None or clients_secret is None:
            return
        machines = {name: list(address) for name, address in supervisor.addresses().items() if name in self._names}
        self._links.announce(Directory(machines, supervisor.incarnation, card_of(self._home.settings)), clients_secret)

    def reset(self, committed: int) -> bytes:
        """Return what all are told when they meet."""
        standbys = {} if self._hosts is None else self._places.standbys()
        return b"".join(codec.encode(Reset(committed, standbys)))
