"""Which host each machine of a cluster runs on, and what a machine gets that does not see the home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cumulus.cluster.processes.cluster_settings import ClusterSettings, settings_of
from cumulus.cluster.standby.copied_machine import AckPolicy
from cumulus.epochs.committed.manifest import Manifest, newest_manifest
from cumulus.epochs.committed.program_text import program_of
from cumulus.epochs.output.identity import resumed_program
from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.m3.program import Program
from cumulus.machine import Name
from cumulus.transport.agents.agent_links import LEASE_SECONDS, AgentLinks
from cumulus.transport.connections import Address, place_text
from cumulus.transport.greeting import is_loopback
from cumulus.transport.secret_file import read_secret
from cumulus.transport.tls import TlsFiles

_DEFAULT_PORT = 7070


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The hosts of a cluster.

    Parameters
    ----------
    agents
        Where their agents listen, as host:port; the first one is the host of the home.
    place
        Machine → the host that it is to run on.
    secret
        The file with the secret of the agents.
    tls_ca
        The file with the certificates that are trusted; "": nothing is encrypted.
    insecure
        Whether that may be so beyond this computer.
    lease_s
        Without a word for so long a host is lost.
    standbys
        On how many other hosts there is a copy of what a machine has: 0 or 1.
    ack
        What an accepted row waits for.
    spares_first
        Whether only those machines are at the host of the home that must be, as far as nobody has placed them.
    """

    agents: tuple[str, ...]
    place: Mapping[Name, str]
    secret: str
    tls_ca: str = ""
    insecure: bool = False
    lease_s: float = LEASE_SECONDS
    standbys: int = 0
    ack: AckPolicy = "standby"
    spares_first: bool = False

    def addresses(self) -> tuple[Address, ...]:
        """Return where the agents are.

        Raises
        ------
        UsageError
            If one is no address, is given twice, or would be spoken to in the clear.
        """
        found = tuple(address_of(each, "--host") for each in self.agents)
        for each in found:
            if found.count(each) > 1:
                raise UsageError(f"--host {each[0]}:{each[1]} is given twice", hint="Give each host once.")
            check_encrypted(each, is_encrypted=bool(self.tls_ca), insecure=self.insecure, option="--host")
        return found

    def named(self, host: str, option: str) -> Address:
        """Return the agent of a host that an option names, with its port or without; UsageError if there is none."""
        agents = self.addresses()
        by_name = {f"{name}:{port}": (name, port) for name, port in agents} | {
            name: (name, port) for name, port in agents
        }
        if host not in by_name:
            raise UsageError(f"{option}: no --host {host} is given", hint=f"Give {' or '.join(by_name)}.")
        return by_name[host]

    def placed(
        self,
        machines: Sequence[Name],
        readers: Mapping[Name, str],
        known: Mapping[Name, Address] = MappingProxyType({}),
    ) -> dict[Name, Address]:
        """Return which agent starts which machine.

        What is not placed: the publisher is where the home is, who reads files where these are, other machines where
        they are known to be, and each other one goes to the host that has the fewest of these two kinds.

        Parameters
        ----------
        machines
            All, the publisher first.
        readers
            The switches that read files, with the host that has these, as host:port; "" for that of the home.
        known
            Where machines have their state.

        Raises
        ------
        UsageError
            If a machine or host is named that there is not, or one is placed where it cannot do its work.
        """
        agents = self.addresses()
        placed: dict[Name, Address] = {}
        for machine, host in self.place.items():
            if machine not in machines:
                raise UsageError(
                    f"--place {machine}={host}: there is no {machine}", hint=f"Name {', '.join(machines)}."
                )
            placed[machine] = self.named(host, f"--place {machine}={host}")
        fixed = {machines[0]: ("writes the home", agents[0])}
        for switch, host in sorted(readers.items()):
            at = self.named(host, f"--read-at {host}") if host else agents[0]
            fixed[switch] = ("reads files of this host", at)
        found: dict[Name, Address] = {}
        load = dict.fromkeys(agents, 0)
        for each in known.values():
            load[each] += 1
        if self.spares_first and len(agents) > 1:
            del load[agents[0]]
        for machine in machines:
            wanted = placed.get(machine)
            if machine in fixed:
                why, at = fixed[machine]
                if wanted not in (None, at):
                    which = "the first --host" if at == agents[0] else place_text(at)
                    raise UsageError(
                        f"--place {machine}={self.place[machine]}: {machine} {why}, {which}",
                        hint=f"Leave it out: {machine} runs at {at[0]}.",
                    )
                found[machine] = at
            elif wanted is not None:
                found[machine] = wanted
            elif machine in known:
                found[machine] = known[machine]
            else:
                found[machine] = min(load, key=load.__getitem__)
                load[found[machine]] += 1
        return found


def agents_of(hosts: HostSettings, cluster: str) -> AgentLinks:
    """Return links to the agents of a cluster's hosts.

    Raises
    ------
    CumulusError
        If the secret or the certificates cannot be read.
    """
    tls = TlsFiles(hosts.tls_ca) if hosts.tls_ca else None
    return AgentLinks(hosts.addresses(), cluster, read_secret(Path(hosts.secret)), tls, hosts.lease_s)


def address_of(text: str, option: str) -> Address:
    """Return host and port of HOST or HOST:PORT; an IPv6 address stands in brackets.

    Raises
    ------
    UsageError
        If it is none.

    Examples
    --------
    >>> address_of("h1", "--host"), address_of("[::1]:7", "--host")
    (('h1', 7070), ('::1', 7))
    """
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(_DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 <= int(port) <= 65535 or "/" in host or " " in host:
        raise UsageError(f"{option} {text!r} is no address", hint=f"Give HOST:PORT, such as h1:{_DEFAULT_PORT}.")
    return host, int(port)


def check_encrypted(address: Address, *, is_encrypted: bool, insecure: bool, option: str) -> None:
    """Refuse to speak in the clear to, or at, an address that others than this computer have.

    Parameters
    ----------
    is_encrypted, insecure
        Whether it would not be in the clear, and whether it may be.
    option
        Where the address was given, for the error.

    Raises
    ------
    UsageError
        If that would be so, and nobody has allowed it.
    """
    if not is_encrypted and not insecure and not is_loopback(address[0]):
        raise UsageError(
            f"{option} {place_text(address)}: what goes there could be read, and changed, on the way",
            hint="Give --tls-ca (and an agent --tls-cert and --tls-key), or --insecure in a network of yours alone.",
        )


def card_of(settings: ClusterSettings) -> dict[str, Any]:
    """Return what a machine on another host is built from, as JSON has it: settings, program, and the last epoch.

    The home has been opened, so its program is there.
    """
    program = resumed_program(settings.home)
    assert program is not None, f"{settings.home} has no program"
    newest = newest_manifest(settings.out)
    return {
        "settings": settings.plain(),
        "text": str(program),
        "newest": None if newest is None else asdict(newest),
    }


def read_card(card: Mapping[str, Any], data: str, machine: Name) -> tuple[ClusterSettings, Program, Manifest | None]:
    """Return settings, program and the last manifest of a card, with folders below `data`, the output the machine's.

    Raises
    ------
    RemoteProtocolError
        If it is none.
    """
    try:
        settings = settings_of(card["settings"])
        newest = None if card["newest"] is None else Manifest(**card["newest"])
        here = replace(settings, home=data)
        return replace(here, out=str(here.folder(machine) / "out")), program_of(card["text"]), newest
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise RemoteProtocolError(
            f"what the supervisor says of the cluster cannot be read: {problem}", hint="Run one release on all hosts."
        ) from None
