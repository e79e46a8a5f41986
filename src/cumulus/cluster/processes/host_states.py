"""What the machines of a cluster have, read and written where they are: beside the home, or on hosts with agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

from cumulus.cluster import codec
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes.cluster_hosts import HostSettings, agents_of, card_of
from cumulus.cluster.processes.cluster_settings import ClusterSettings
from cumulus.cluster.processes.home import Home, reader_hosts
from cumulus.cluster.processes.host_places import HostPlaces, has_places
from cumulus.cluster.processes.machine_states import held_state, keep_state, pieces_of, with_piece
from cumulus.cluster.processes.processes import equip_by_plan, machine_names
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import HeldState
from cumulus.cluster.standby.state_pieces import GiveState, StateKept, StatePiece
from cumulus.errors import MismatchError, ProcessError
from cumulus.machine import Name
from cumulus.transport.connections import Address, place_text
from cumulus.transport.hang_watch import DEAD_AFTER_SECONDS, HangWatch
from cumulus.transport.machine_process import MachineMessage, Process, ProcessEnded
from cumulus.transport.supervisor import Supervisor

_FACTORY = "cumulus.cluster.processes.machine_states:start_carrier"
_PATIENCE_S = 10.0
"""How long an agent may take to be there."""
_LOOK_S = 0.2


class HostStates:
    """The states of a cluster's nodes and switches, as a context: processes of all hosts give and take them.

    Parameters
    ----------
    home
        Opened as it was.
    after
        The settings with which it is to go on.
    hosts
        The hosts on which machines are to be; None: all beside the home.
    note
        Takes a line about a host.

    Raises
    ------
    MismatchError
        If machines have their state on hosts, and none are given.
    UsageError
        If the state of one is at a host that is not given.
    """

    def __init__(
        self, home: Home, after: ClusterSettings, hosts: HostSettings | None, note: Callable[[str], None]
    ) -> None:
        self._home, self._after, self._hosts, self._note = home, after, hosts, note
        self._known: dict[Name, Address] = {}
        """Machine → the host that has its state; one that is not named has it in the home."""
        self._opened = ExitStack()
        self._carriers: dict[Address, Name] = {}
        self._branches: dict[Name, int] = {}
        if not has_places(home.settings.root):
            return
        if hosts is None:
            raise MismatchError(
                f"{home.settings.home}: what its machines have is on other hosts, and no --host is given",
                hint="Give --host for each of them.",
            )
        places = HostPlaces(home.settings.root, hosts.addresses())
        known = places.known(())
        places.settle(known)  # one whose host is gone has moved to its standby
        beside = places.beside({PUBLISHER, *reader_hosts(home.settings, home.plan)})
        self._known = {name: at for name, at in known.items() if name not in beside}
        self._branches = places.branches()

    def __enter__(self) -> HostStates:
        if self._hosts is None:
            return self
        with self._opened as opened:
            agents = self._hosts.addresses()
            links = opened.enter_context(agents_of(self._hosts, self._home.settings.checkpoint))
            links.connect(lambda: False, self._note, _PATIENCE_S, agents)
            self._carriers = {host: f"carrier{number}" for number, host in enumerate(agents)}
            argument = {
                "before": card_of(self._home.settings),
                "after": card_of(self._after),
                "branches": self._branches,
            }
            self._supervisor = Supervisor(
                [Process(name, _FACTORY, argument) for name in self._carriers.values()],
                launchers={name: links.launcher(host) for host, name in self._carriers.items()},
                idle_seconds=DEAD_AFTER_SECONDS,
            )
            opened.enter_context(self._supervisor)
            self._watch = HangWatch(self._supervisor, DEAD_AFTER_SECONDS, self._note)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def read(self, names: Iterable[Name]) -> dict[Name, HeldState]:
        """Return what machines have, as they were after the last committed epoch.

        Raises
        ------
        ProcessError
            If one on another host cannot be read.
        StoreError
            If one beside the home is damaged.
        """
        home, found, away = self._home, dict[Name, HeldState](), set[Name]()
        for name in names:
            if name in self._known:
                away.add(name)
                self._tell(self._known[name], GiveState(name))
                continue
            spec = equip_by_plan(name, {"home": home.settings.home}, home.settings, home.plan)
            found[name] = held_state(name, spec, home.plan, home.epoch)
        pieces: dict[Name, list[bytes]] = {}
        while away:
            piece = self._heard()
            assert isinstance(piece, StatePiece), piece
            held = with_piece(pieces, piece)
            if held is not None:
                found[piece.machine] = held
                away.remove(piece.machine)
        return found

    def place(self, plan: ClusterPlan) -> dict[Name, Address]:
        """Choose where the machines of the next layout are, and take it down in its folder.

        Return the host that gets the state of each; one that is not named keeps it in the home.

        Raises
        ------
        UsageError
            If a machine is placed where it cannot be.
        """
        if self._hosts is None:
            return {}
        names = machine_names(self._after)
        known = {name: at for name, at in self._known.items() if name in names and name not in self._hosts.place}
        readers = reader_hosts(self._after, plan)
        placed = self._hosts.placed(names, readers, known)
        beside = {PUBLISHER, *(name for name, host in readers.items() if not host)}
        places = HostPlaces(self._after.root, self._hosts.addresses())
        places.settle(placed, beside)
        places.begin()
        return {name: at for name, at in placed.items() if name not in beside}

    def keep(self, states: Mapping[Name, HeldState], placed: Mapping[Name, Address]) -> None:
        """Write what machines of the next layout are to begin with.

        Parameters
        ----------
        states
            Of all machines that have any.
        placed
            By `place`.

        Raises
        ------
        ProcessError
            If a host cannot keep it.
        StoreError
            If the disk beside the home cannot.
        """
        away = set()
        for name, held in states.items():
            if name not in placed:
                keep_state(name, self._after, self._home.epoch, held)
                continue
            away.add(name)
            for piece in pieces_of(name, held):
                self._tell(placed[name], piece)
        while away:
            kept = self._heard()
            assert isinstance(kept, StateKept), kept
            away.remove(kept.machine)

    def _tell(self, host: Address, message: object) -> None:
        self._supervisor.send(self._carriers[host], b"".join(codec.encode(message)))

    def _heard(self) -> Any:
        """Return what a carrier says next; ProcessError if one ends, or hangs."""
        hosts = {name: place_text(host) for host, name in self._carriers.items()}
        while True:
            hung = self._watch.poll()
            if hung is not None:
                raise ProcessError(
                    f"the states at {hosts[hung]} are not moved: it has not answered for {DEAD_AFTER_SECONDS:g} s",
                    hint="Look at that host, then ask again.",
                )
            match self._supervisor.wait(_LOOK_S):
                case MachineMessage(_, payload):
                    return codec.decode(payload)
                case ProcessEnded(name, _, reason, _, hint):
                    raise ProcessError(
                        f"the states at {hosts[name]} are not moved: {reason}", hint=hint or "Ask again."
                    )
                case _:
                    pass
