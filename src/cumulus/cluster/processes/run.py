"""A cluster over folders: its processes are started, started again when one dies, and stopped when all is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

from cumulus.cluster import codec
from cumulus.cluster.messages import EpochTold, SourcesDone, node_name
from cumulus.cluster.processes.cluster_hosts import HostSettings
from cumulus.cluster.processes.cluster_settings import INCARNATION_FILE, incarnation_of
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.machine_hosts import MachineHosts
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.resets import Halt, Halted
from cumulus.durable.files import write_durably
from cumulus.epochs.committed.manifest import committed_epochs, newest_epoch, read_manifest
from cumulus.epochs.progress import Epoch
from cumulus.errors import ProcessError, StoreError
from cumulus.machine import Name
from cumulus.transport.agents.agent_links import HostLostError
from cumulus.transport.forked_processes import ForkServer
from cumulus.transport.hang_watch import DEAD_AFTER_SECONDS, HangWatch
from cumulus.transport.machine_process import LinkLost, MachineMessage, ProcessEnded
from cumulus.transport.supervisor import StartError, Supervisor

MOST_DEATHS = 5
"""Processes may die so often in a row without an epoch in between."""
_SOUND_S = 60.0
"""Or if all was well for so long: a cluster that nobody feeds has no epochs."""
_LOOK_S = 0.2
"""How long to wait for something to happen before looking whether to stop."""
_HALT_S = 10.0
"""How long the publisher may take to finish a commit."""
_LINK_S = 2.0
"""How long after a link was lost the end of one of its two processes may be told."""


class ClusterRun:
    """The processes of a cluster, as long as its epochs are asked for.

    Parameters
    ----------
    every_s
        How long to wait before looking for files again where there were none; None to end then.
    last
        The number of the last epoch to do; 0 for no end.
    note
        Takes a line to tell when all processes start anew.
    secret
        What clients must know; without it there can be none.
    on_up
        Called each time when all processes run.
    dead_after_s
        For how long a machine may hang (`cumulus.transport.hang_watch`) until it is ended, and all start anew.
    factory
        What makes a machine, as `cumulus.transport.machine_process.Process` has it.
    hosts
        Where the machines run; None: all on this computer, without agents.
    on_memory
        Is told again and again how much memory the process of each machine has, in bytes.
    forks
        What forks those of this computer; None: the run has its own, while it lasts.
    """

    def __init__(
        self,
        home: Home,
        every_s: float | None,
        last: int = 0,
        *,
        note: Callable[[str], None] = lambda _: None,
        secret: bytes | None = None,
        on_up: Callable[[Supervisor], None] | None = None,
        dead_after_s: float = DEAD_AFTER_SECONDS,
        factory: str = "cumulus.cluster.processes.import_without_pandas:start_machine",
        hosts: HostSettings | None = None,
        on_memory: Callable[[Mapping[Name, int]], None] = lambda _: None,
        forks: ForkServer | None = None,
    ) -> None:
        self._on_memory = on_memory
        self._dead_after_s = dead_after_s
        self._home, self._note, self._secret, self._on_up = home, note, secret, on_up
        argument = {
            "home": home.settings.home,
            "every_ms": None if every_s is None else round(every_s * 1000),
            "last": last,
            "has_functions": bool(home.settings.functions),
        }
        self._hosts = MachineHosts(hosts, home, factory, argument, note, forks)
        self._epoch = home.epoch
        self._deaths = 0
        self._since = 0.0
        gate = home.plan.gate
        self._gated = [] if gate is None else [node_name(node) for node in gate.nodes]
        self._is_done = False
        """Whether all was read."""

    def epochs(self, is_stopped: Callable[[], bool]) -> Iterator[Epoch]:
        """Yield epochs as they are committed, until all is read, or it is stopped.

        Raises
        ------
        ProcessError
            If a process cannot go on, or processes die again and again.
        StoreError
            If the home cannot be written.
        """
        with self._hosts as machines:

            def is_ended() -> bool:
                return is_stopped() or machines.is_stop_wished

            is_over, is_first = False, True
            while not is_over:
                machines.gather(is_ended, is_first=is_first)
                is_first = False
                if is_ended():
                    return
                try:
                    with Supervisor(
                        machines.processes(),
                        incarnation=self._next_incarnation(),
                        clients_secret=self._secret,
                        idle_seconds=self._dead_after_s,
                        is_unwanted=is_ended,
                        launchers=machines.launchers,
                        message=machines.reset(newest_epoch(self._home.settings.out) or 0),
                    ) as supervisor:
                        self._tell_all(supervisor)
                        is_over = yield from self._until_one_ends(supervisor, is_ended)
                except StartError as problem:
                    self._count_loss(self._mourned(problem.ended))
                except HostLostError as problem:
                    self._count_loss(problem.message)

    def _until_one_ends(self, supervisor: Supervisor, is_stopped: Callable[[], bool]) -> Generator[Epoch, None, bool]:
        """Yield what is told until a process dies; return whether all is over."""
        self._since = time.monotonic()
        lost: list[tuple[float, LinkLost]] = []  # most often a process has died, which is told soon
        watch = HangWatch(supervisor, self._dead_after_s, self._note)
        while not is_stopped():
            hung, why = watch.poll(), ""
            self._on_memory(supervisor.resident_bytes())
            if hung is not None:
                supervisor.kill(hung)  # it would not hear that it is to end
                supervisor.wait_for_ends([hung])  # else it would be renewed, as one that lives, and be lost once more
                why = f"{hung} has not answered for {self._dead_after_s:g} s and was killed"
            elif lost and time.monotonic() > lost[0][0] + _LINK_S:
                each = lost[0][1]
                why = f"{each.name} has lost its link to {each.peer} ({each.reason})"
            news = "" if why else self._hosts.news()
            match None if why or news else supervisor.wait(_LOOK_S):
                case MachineMessage() as said:
                    yield from self._heard(said)  # Halted is of a reset that was given up
                    if self._is_done:
                        return True
                case ProcessEnded() as ended if not is_stopped():  # who stops all may have stopped it, too
                    why = self._mourned(ended)
                case LinkLost() as found:
                    lost.append((time.monotonic(), found))
                case _:
                    pass
            if why:
                self._count_loss(why)
            elif news:
                self._note(f"{news}; all meet anew")
            if why or news:
                lost.clear()
                if not (yield from self._reset(supervisor, is_stopped)):
                    return self._is_done
        return True

    # --- when a machine is lost -------------------------------------------------------------------------------------

    def _reset(self, supervisor: Supervisor, is_stopped: Callable[[], bool]) -> Generator[Epoch, None, bool]:
        """Start again who has ended, and let the others go back to the last committed epoch (`cumulus.cluster.resets`).

        A host that is lost is waited for, or left. Return False if all must start anew, as a machine does not answer.

        Raises
        ------
        StartError, HostLostError
            If one is lost meanwhile: all must start anew then, too.
        """
        while not self._hosts.settle(supervisor):
            if is_stopped():
                return False
            yield from self._hear(supervisor)
        for name in self._gated:
            supervisor.kill(name)  # it cannot take back an epoch that it has applied
        committed = yield from self._halt(supervisor)
        if committed is None:
            return False
        supervisor.wait_for_ends(self._gated)
        self._hosts.refit(supervisor)
        supervisor.renew(self._next_incarnation(), self._hosts.reset(committed), self._hosts.processes())
        self._tell_all(supervisor)
        return True

    def _tell_all(self, supervisor: Supervisor) -> None:
        """Tell who is to know that all machines run."""
        self._hosts.announce(supervisor, self._secret)
        if self._on_up is not None:
            self._on_up(supervisor)

    def _halt(self, supervisor: Supervisor) -> Generator[Epoch, None, int | None]:
        """Let the publisher commit nothing more; return the last committed epoch, None if it does not answer."""
        if supervisor.is_alive(PUBLISHER):
            supervisor.send(PUBLISHER, b"".join(codec.encode(Halt())))
        until = time.monotonic() + _HALT_S
        while supervisor.is_alive(PUBLISHER) and time.monotonic() < until:
            halted = yield from self._hear(supervisor)
            if self._is_done:
                return None
            if halted is not None:
                return halted
        if supervisor.is_alive(PUBLISHER):
            return None
        yield from self._committed(0)
        return newest_epoch(self._home.settings.out) or 0

    def _hear(self, supervisor: Supervisor) -> Generator[Epoch, None, int | None]:
        """Take what happens next while a machine is lost; return the last committed epoch if it was halted there."""
        match supervisor.wait(_LOOK_S):
            case MachineMessage() as said:
                return (yield from self._heard(said))
            case ProcessEnded() as ended:
                self._mourned(ended)  # it is started again with the first one
            case _:
                pass
        return None

    def _heard(self, said: MachineMessage) -> Generator[Epoch, None, int | None]:
        """Take what a machine says; return the last committed epoch if it says that it was halted there."""
        match codec.decode(said.payload):
            case EpochTold(_, files_left):
                yield from self._committed(files_left)
            case SourcesDone():
                yield from self._committed(0)  # one whose process died before it could tell
                self._is_done = True
            case Halted(epoch):
                return int(epoch)
            case message:
                self._hosts.take(said.name, message)
        return None

    def _committed(self, files_left: int) -> Iterator[Epoch]:
        """Yield the epochs that have been committed since the last call."""
        out = Path(self._home.settings.out)
        for number in committed_epochs(out):
            if number > self._epoch:
                try:
                    manifest = read_manifest(out, number)
                except StoreError:
                    if number in committed_epochs(out):
                        raise
                    continue  # the publisher has dropped it by now
                now = time.monotonic()
                self._epoch, self._deaths = number, 0
                yield Epoch.of(manifest, now - self._since, {}, files_left, ("kept",), out)
                self._since = now

    def _mourned(self, ended: ProcessEnded) -> str:
        """Return what to say of a process that is to be started again; raise ProcessError if it would end again."""
        if why := self._hosts.spared(ended):
            return f"{ended.name} cannot go on, and {why}: {ended.reason}"
        if ended.code > 0:  # it has said why it cannot go on
            raise ProcessError(f"{ended.name}: {ended.reason}", hint=" ".join(filter(None, (ended.hint, self._so_far))))
        return f"{ended.name} was {ended.reason if ended.code else 'asked to end, by a signal'}"

    def _count_loss(self, why: str) -> None:
        """Note what was lost; raise ProcessError if that was so too often in a row."""
        if time.monotonic() - self._since > _SOUND_S:
            self._deaths = 0
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            raise ProcessError(
                f"{why}; processes of the cluster were lost {self._deaths} times without an epoch in between",
                hint=f"{self._so_far} The system's log may say who kills them.",
            )
        self._note(f"{why}; the cluster goes on after epoch {self._epoch}")

    @property
    def _so_far(self) -> str:
        return f"The epochs up to {self._epoch} are committed." if self._epoch else "No epoch is committed yet."

    def _next_incarnation(self) -> int:
        home = self._home.settings.home
        incarnation = incarnation_of(home) + 1
        write_durably(Path(home) / INCARNATION_FILE, str(incarnation).encode())
        return incarnation
