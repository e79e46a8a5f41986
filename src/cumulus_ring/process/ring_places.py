"""How a client finds the nodes of a ring: by its home on this computer, or by the address of its keeper."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, Protocol

from cumulus.errors import NotRunningError, RemoteProtocolError, UsageError
from cumulus.transport.connections import Address
from cumulus.transport.greeting import Credentials, RefusalError
from cumulus.transport.secret_file import read_secret
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.open_link import LinkClosedError, OpenLink, closing_reason
from cumulus_ring.process.home import LOG, RingAddress, read_address
from cumulus_ring.process.membership.keeper_door import ASK, KEEPER, KEEPER_EPOCH
from cumulus_ring.process.settings import RingOptions
from cumulus_ring.process.wire import error_of, receive_said, send_said

SCHEME = "ring://"
_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 10.0


class RingPlace(Protocol):
    """Where a client looks for the nodes of a ring."""

    def read(self) -> RingAddress:
        """Return where they are now; NotRunningError if the ring does not run."""

    def remove(self, node: str, wait_s: float) -> None:
        """Let a node go, and wait until it has gone."""

    @property
    def where_to_look(self) -> str:
        """What to do when no node answers."""


class RingByHome:
    """The home of a ring, on this computer.

    Raises
    ------
    InputError
        If this is no home of a ring.
    NotRunningError
        If the ring does not run.
    """

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).absolute()
        self.read()

    def read(self) -> RingAddress:
        """Return where the nodes are now."""
        return read_address(self.home)

    def remove(self, node: str, wait_s: float) -> None:
        """Let a node go; UsageError if the ring listens nowhere."""
        address = self.read()
        if not address.door:
            raise UsageError(
                f"{self.home}: nodes of this ring stay as long as it runs",
                hint="Start it with --listen HOST:PORT, and nodes may come and go.",
            )
        RingByAddress(address.door, bytes.fromhex(address.secret)).remove(node, wait_s)

    @property
    def where_to_look(self) -> str:
        """What to do when no node answers."""
        return f"See {self.home / LOG}."


class RingByAddress:
    """The keeper of a ring, on any computer.

    Parameters
    ----------
    address
        Such as ``ring://h1:7200`` or ``h1:7200``.
    secret
        That of the ring, or the file that has it.

    Raises
    ------
    UsageError
        If the address is none, or there is no secret.
    InputError
        If the file cannot be read, or is not one's own alone.
    """

    def __init__(self, address: str, secret: bytes | str | Path) -> None:
        self.address = keeper_address(address)
        self.text = address.removeprefix(SCHEME)
        if not secret:
            raise UsageError(
                f"{address}: the ring's secret is needed",
                hint="Give a copy of its file, readable by you alone: --secret-file F, or secret_file=… in Python.",
            )
        self._secret = secret if isinstance(secret, bytes) else read_secret(Path(secret))

    def read(self) -> RingAddress:
        """Return where the nodes are now."""
        said = self._ask({"ask": "where"}, _ANSWER_SECONDS)["place"]
        if not said:
            raise NotRunningError(f"the ring at {self.text} starts", hint="Ask again in a moment.")
        nodes = {name: (host, port) for name, (host, port) in said.pop("nodes").items()}
        return RingAddress(secret=self._secret.hex(), nodes=nodes, options=RingOptions("", ""), **said)

    def remove(self, node: str, wait_s: float) -> None:
        """Let a node go, and wait until it has gone."""
        self._ask({"ask": "remove", "name": node, "wait_s": wait_s}, None)

    @property
    def where_to_look(self) -> str:
        """What to do when no node answers."""
        return f"Ask cumulus ring status --ring {self.text} --secret-file F, or see the log of its keeper."

    def _ask(self, said: dict[str, Any], seconds: float | None) -> dict[str, Any]:
        link = connect_to_keeper(self.address, f"client-{uuid.uuid4().hex[:12]}", ASK, self._secret)
        try:
            if seconds is not None:
                link.limit_waiting(seconds)
            send_said(link, said)
            answer, _ = receive_said(link)
        except (LinkClosedError, OSError, RemoteProtocolError) as problem:
            raise NotRunningError(
                f"the keeper of the ring at {self.text} has gone before it has answered: {closing_reason(problem)}",
                hint="Look whether it runs there.",
            ) from None
        finally:
            link.close()
        if "error" in answer:
            raise error_of(answer["error"])
        return answer


def keeper_address(text: str) -> Address:
    """Return the address in such a text as ``ring://h1:7200``, ``h1:7200`` or ``[::1]:7200``.

    Raises
    ------
    UsageError
        If there is none.

    Examples
    --------
    >>> keeper_address("ring://h1:7200")
    ('h1', 7200)
    """
    host, colon, port = text.removeprefix(SCHEME).rstrip("/").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{text!r} is no address of a ring", hint="Write HOST:PORT, such as h1:7200.")
    return host, int(port)


def connect_to_keeper(address: Address, name: str, purpose: str, secret: bytes) -> OpenLink:
    """Return a connection to the keeper of a ring, behind its greeting.

    Raises
    ------
    NotRunningError
        If nobody listens there, it is something else, or it does not know this secret.
    """
    dial = Dial(Credentials(name, secret=secret), address, KEEPER, purpose, KEEPER_EPOCH, _CONNECT_SECONDS)
    try:
        return dial.open()
    except (RemoteProtocolError, OSError, LinkClosedError) as problem:
        place = "{}:{}".format(*address)
        reason = closing_reason(problem)
        if isinstance(problem, RefusalError):  # for good: it is this keeper, and another secret
            raise NotRunningError(
                f"the keeper of the ring at {place} has another secret",
                hint="Give --secret-file a copy of the file that the ring was started with.",
            ) from None
        raise NotRunningError(
            f"no ring answers at {place}: {reason.partition(': ')[2] or reason}",
            hint="Look whether `cumulus ring start --listen` runs there, and whether its port can be reached.",
        ) from None
