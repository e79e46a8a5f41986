"""Where a running cluster is found: in its home, by a client beside it, or at the agent of one of its hosts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cumulus.cluster.live.address import ADDRESS, STATE, read_address
from cumulus.cluster.processes.cluster_hosts import address_of, check_encrypted, read_card
from cumulus.cluster.processes.cluster_settings import ClusterSettings, read_settings
from cumulus.epochs.output.identity import resumed_program
from cumulus.errors import InputError, NotRunningError, ProcessError, RemoteProtocolError, UsageError
from cumulus.m3.program import Program
from cumulus.machine import Name
from cumulus.transport.agents.agent_messages import (
    AGENT_NAME,
    INCARNATION,
    OPERATOR_NAME,
    RELEASE,
    Directory,
    StopWished,
    decode,
    encode,
)
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.connections import Address
from cumulus.transport.greeting import Credentials, RefusalError, RefusalPolicy
from cumulus.transport.secret_file import read_secret
from cumulus.transport.tls import TlsFiles

SCHEME = "cluster://"
_STARTING_SECONDS, _LOOK_SECONDS = 60.0, 0.2
"""How long a cluster that is about to run is waited for, and how often it is looked for."""
_ANSWER_SECONDS = 5.0
"""How long an agent may take to say where the machines are."""


@dataclass(frozen=True, slots=True)
class Members:
    """The machines of a running cluster.

    Parameters
    ----------
    machines
        Machine → host, port.
    pids
        Machine → the number of its process, where it runs; 0 if nobody here knows it.
    """

    machines: Mapping[Name, Address]
    pids: Mapping[Name, int]
    incarnation: int
    secret: bytes
    tls: TlsFiles | None = None


class ClusterPlace(Protocol):
    """Where a cluster is found."""

    secret_hint: str

    def members(self) -> Members:
        """Return its machines.

        Raises
        ------
        NotRunningError
            If it does not run; `UnreachableError` if nobody who would know is reached.
        RefusalError
            If it is about to run.
        """

    def card(self) -> tuple[ClusterSettings, Program]:
        """Return how it was started, and what it runs.

        Raises
        ------
        CumulusError
            If that cannot be told.
        """


class UnreachableError(NotRunningError):
    """No agent of a cluster is reached: it may run all the same."""


class HomePlace:
    """The home of a cluster, on this host.

    Raises
    ------
    InputError
        If it is none.
    NotRunningError
        If the cluster does not run.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.secret_hint = f"{home / ADDRESS} says where the secret of the cluster is."
        read_address(home)

    def members(self) -> Members:
        """Return its machines."""
        found = read_address(self.home)
        tls = TlsFiles(found.tls_ca) if found.tls_ca else None
        return Members(found.machines, found.pids, found.incarnation, found.read_secret(), tls)

    def card(self) -> tuple[ClusterSettings, Program]:
        """Return how it was started, and what it runs."""
        settings, program = read_settings(self.home / STATE), resumed_program(self.home / STATE)
        if settings is None or program is None:
            raise InputError(f"{self.home}: not the home of a cluster", hint="Give the folder that --home has named.")
        return settings, program

    def __str__(self) -> str:
        return str(self.home)


class AgentPlace:
    """A cluster at the agents of its hosts, of which the first that answers is asked.

    Parameters
    ----------
    url
        cluster://HOST:PORT, or several, with commas.
    secret_file
        With what clients must know.
    tls_ca
        The certificates to trust; "": nothing is encrypted.
    insecure
        Whether that may be so beyond this computer.

    Raises
    ------
    UsageError
        If the address is none, or there is no secret.
    InputError
        If the secret cannot be read.
    """

    secret_hint = "Give the secret of clients: HOME/checkpoint/secret, or what the cluster's --secret-file has."

    def __init__(self, url: str, secret_file: str, tls_ca: str = "", *, insecure: bool = False) -> None:
        if not secret_file:
            raise UsageError(f"{url}: a secret is needed", hint=f"{self.secret_hint} secret_file=…")
        self.url = url
        self._agents = [address_of(each, url) for each in url.removeprefix(SCHEME).rstrip("/").split(",")]
        for each in self._agents:
            check_encrypted(each, is_encrypted=bool(tls_ca), insecure=insecure, option=url)
        self._secret = read_secret(Path(secret_file))
        self._tls = TlsFiles(tls_ca) if tls_ca else None
        self._me = Credentials(f"client-{uuid.uuid4().hex[:12]}", RELEASE, self._secret, tls=self._tls)

    def members(self) -> Members:
        """Return its machines."""
        told = self._directory()
        machines = {name: (str(host), int(port)) for name, (host, port) in told.machines.items()}
        return Members(machines, dict.fromkeys(machines, 0), told.incarnation, self._secret, self._tls)

    def card(self) -> tuple[ClusterSettings, Program]:
        """Return how it was started, and what it runs."""
        settings, program, _ = read_card(self._directory_in_time().card, "", "")
        return settings, program

    def _directory_in_time(self) -> Directory:
        """Return what an agent says; of a cluster that is about to run, once it does."""
        until = time.monotonic() + _STARTING_SECONDS
        while True:
            try:
                return self._directory()
            except RefusalError as problem:
                if time.monotonic() > until:
                    raise NotRunningError(problem.message, hint=problem.hint) from None
                time.sleep(_LOOK_SECONDS)

    def _directory(self) -> Directory:
        with closing(self._opened(self._me, self.secret_hint)) as connection:
            told = connection.receive(time.monotonic() + _ANSWER_SECONDS)
            match None if told is None else decode(told):
                case Directory() as directory:
                    return directory
                case _:
                    raise NotRunningError(f"{self.url}: the agent does not answer", hint="Ask that of another host.")

    def stop(self, seconds: float) -> None:
        """Let the cluster end, and wait for it; the secret must be that of the agents.

        Raises
        ------
        NotRunningError
            If none runs there.
        ProcessError
            If it does not end in time.
        """
        operator = replace(self._me, name=OPERATOR_NAME)
        with closing(self._opened(operator, "The secret must be that of the agents.")) as connection:
            until = time.monotonic() + seconds
            connection.send(encode(StopWished()), until)
            try:
                while connection.receive(until) is not None:
                    pass
            except OSError:
                return  # the agent lets go when the cluster has
        raise ProcessError(f"{self.url}: the cluster has not ended in {seconds:g} s", hint="See its log.")

    def _opened(self, me: Credentials, hint: str) -> ClientConnection:
        """Return a connection to the first agent that takes one; raises as `ClusterPlace.members`."""
        problems, is_reached, is_starting = [], False, False
        for host, port in self._agents:
            try:
                until = time.monotonic() + _ANSWER_SECONDS
                return ClientConnection(me, AGENT_NAME, (host, port), INCARNATION, until)
            except RemoteProtocolError as problem:
                problems.append(f"{host}:{port}: {problem.message}")
                is_reached = True
                is_starting |= isinstance(problem, RefusalError) and problem.outlook is RefusalPolicy.AGAIN
            except OSError as problem:
                problems.append(f"{host}:{port}: {problem.strerror or problem}")
        told = f"{self.url}: no cluster is found: {'; '.join(problems)}"
        look = f"Look whether it runs there. {hint}"
        if is_starting:
            raise RefusalError(told, RefusalPolicy.AGAIN, hint=look)
        raise (NotRunningError if is_reached else UnreachableError)(told, hint=look)

    def __str__(self) -> str:
        return self.url
