"""Links: one TCP connection for each pair of machines, which keeps the order of messages in both directions.

Of two machines the one with the lesser name connects. Clients are not members; they may connect to any machine. A lost
link comes back in a new incarnation only, because messages on it may be lost. All links are then replaced, so that no
message of the old incarnation arrives in the new one.

Messages wait until their link is up and the peer reads. Back-pressure: from `CONGESTED_BYTES` unread bytes on, a link
is congested, and the driver pauses reading (`pause_reading`) from the peers that feed the machine. A client that does
not read delays only itself.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Mapping, Sequence
from ssl import SSLCertVerificationError
from typing import Protocol

from cumulus.durable.faults import crash_point
from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.connections import CONGESTED_BYTES, SILENCE_SECONDS, Address, Connection, place_text
from cumulus.transport.framing import PAYLOAD_BYTES, FrameKind, Piece, framed
from cumulus.transport.greeting import Credentials, RefusalError, RefusalPolicy, is_loopback, one_to_close
from cumulus.transport.machine_spec import SUPERVISOR

LOOPBACK = "127.0.0.1"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
"""Seconds between two attempts to connect."""
INSIST_SECONDS = 3.0
"""How long a peer must go on refusing a machine for good before it ends: what refuses may be a stranger that has taken
the port of a machine that has just died, and nothing proves a refusal."""
_CLIENT_BYTES = 2 * PAYLOAD_BYTES
"""With so many unsent bytes a client is sent away: one that reads has only what it has asked for to come."""
_HALVES_BYTES = 4 * PAYLOAD_BYTES
"""What may have come of clients' messages that are not whole yet, of all of them together."""
_MOST_STRANGERS, _MOST_CLIENTS = 100, 500
"""Connections of those who have not said who they are, and of clients: a process may have only so many files open."""
_LOOK_SECONDS, _REACH_SECONDS = 1.0, 3.0
"""How often links are looked at, and how long an attempt to connect may take."""
_BACKLOG = 1024
"""How many may wait to be accepted: beyond that a member would have to come again."""
_MESSAGE = int(FrameKind.MESSAGE)


class LinkReceiver(Protocol):
    """Callbacks of the links. They run in the event loop, so each must return soon."""

    def received(self, peer: Name, payload: bytes) -> None:
        """Handle a message; raise RemoteProtocolError if it cannot be decoded."""

    def lost(self, peer: Name, is_client: bool, reason: str) -> None:
        """Handle the loss of a link."""

    def resumed(self) -> None:
        """Handle the end of back-pressure: peers may be read from again."""

    def refused(self, other_side: str, problem: RemoteProtocolError) -> None:
        """Handle a connection that was closed for breaking the protocol or failing the greeting."""

    def failed(self, problem: RemoteProtocolError) -> None:
        """End: a peer will never talk to this machine."""

    def unreached(self, peer: Name, why: str) -> None:
        """Take notice that a peer cannot be reached; it is tried on."""


class _Link:
    """The link to one machine: what waits, and its connection, if it is up."""

    __slots__ = ("bytes_waiting", "connection", "is_client", "is_lost", "peer", "pieces")

    def __init__(self, peer: Name, *, is_client: bool = False) -> None:
        self.peer = peer
        self.is_client = is_client
        self.is_lost = False
        self.connection: Connection | None = None
        self.pieces: list[Piece] = []
        self.bytes_waiting = 0


class Links:
    """All links of one machine.

    Parameters
    ----------
    sources
        The peers that are not read from while this machine holds, beside all clients.
    """

    def __init__(self, me: Credentials, receiver: LinkReceiver, sources: frozenset[Name] = frozenset()) -> None:
        self.me = me
        self._client_context = None if me.tls is None else me.tls.client_context()
        self.incarnation = 0  # nobody has been met yet
        self.sent_messages = self.sent_bytes = 0
        self.is_holding = False
        self._receiver = receiver
        self._sources = sources
        self._links: dict[Name, _Link] = {}
        self._to_write: dict[Name, _Link] = {}
        self._connections: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}  # those that were accepted and have proved nothing, oldest first
        self._attempts: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None

    async def listen(self, host: str = LOOPBACK, port: int = 0) -> Address:
        """Listen for others; return where.

        Raises
        ------
        UsageError
            If the port is taken, or others than this machine's users could connect and there is no secret.
        """
        if self.me.secret is None and not is_loopback(host):
            raise UsageError(
                f"{self.me.name}: {host} can be reached from other machines, and there is no secret",
                hint=f"Give a secret, or listen at {LOOPBACK}.",
            )
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self),
                host,
                port,
                backlog=_BACKLOG,
                ssl=None if self.me.tls is None else self.me.tls.server_context(),
            )
        except OSError as problem:
            reason = "is taken" if problem.errno == errno.EADDRINUSE else f"cannot be used: {problem.strerror}"
            raise UsageError(
                f"{self.me.name}: port {port} of {host} {reason}", hint="Give another one, or 0 for any that is free."
            ) from None
        self._look()
        found: Address = self._server.sockets[0].getsockname()[:2]
        return found

    def _look(self) -> None:
        """Give up links to machines whose system says nothing any more."""
        for link in self._links.values():
            if link.connection is not None and not link.is_client and link.connection.unheard_s() > SILENCE_SECONDS:
                link.connection.abort(f"nothing has come from it for {SILENCE_SECONDS:g} s")
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def reconnect_all(self, incarnation: int, addresses: Mapping[Name, Address]) -> None:
        """Begin a new incarnation: drop all links, and connect to these machines."""
        assert incarnation > self.incarnation, f"{self.me.name}: incarnation {incarnation} after {self.incarnation}"
        for link in list(self._links.values()):
            self._lose(link, f"incarnation {incarnation} begins")
        for task in self._attempts:
            task.cancel()
        for connection in list(self._connections):
            connection.abort(f"incarnation {incarnation} begins")
        self.incarnation = incarnation
        self._links = {name: _Link(name) for name in sorted(addresses) if name != self.me.name}
        for name, link in self._links.items():
            if self.me.name < name:
                task = asyncio.get_running_loop().create_task(self._connect(link, addresses[name]))
                self._attempts.add(task)
                task.add_done_callback(self._attempts.discard)

    async def _connect(self, link: _Link, address: Address) -> None:
        """Connect, again and again until the other side is there: that it has ended somebody else finds out."""
        loop, pause, refused_since = asyncio.get_running_loop(), _FIRST_PAUSE, math.inf
        told_at = loop.time() + SILENCE_SECONDS
        while True:
            outlook, problem = await self._attempt(link, address)
            if outlook is None and problem is not None and loop.time() > told_at:
                told_at = math.inf
                why = f"{place_text(address)} has not been reached for {SILENCE_SECONDS:g} s: {problem}"
                self._receiver.unreached(link.peer, why)
            if outlook is RefusalPolicy.NEVER:
                refused_since = min(refused_since, loop.time())
                if loop.time() - refused_since >= INSIST_SECONDS:
                    assert problem is not None
                    self._receiver.failed(problem)
                    break
            elif outlook is RefusalPolicy.AGAIN:
                refused_since = math.inf
            elif outlook is not None or problem is None:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if outlook is RefusalPolicy.LOST:
            self._lose(link, "it broke before it was up")

    async def _attempt(self, link: _Link, address: Address) -> tuple[RefusalPolicy | None, RemoteProtocolError | None]:
        """Try to connect; return what to do after it, None if the link is up, and what is against it."""
        name = None if self._client_context is None else address[0]
        try:
            async with asyncio.timeout(_REACH_SECONDS):  # or one that began while a cable was out would wait on
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self, link.peer), *address, ssl=self._client_context, server_hostname=name
                )
        except SSLCertVerificationError as untrusted:
            return RefusalPolicy.NEVER, RemoteProtocolError(
                f"{link.peer} at {address[0]} shows a certificate that is not trusted: {untrusted.verify_message}",
                hint="Give all hosts the same --tls-ca, and each a certificate for its address in --host.",
            )
        except OSError:
            return None, RemoteProtocolError("nobody listens there")
        return await connection.settled, connection.problem

    def send(self, to: Name, pieces: Sequence[Piece], incarnation: int) -> bool:
        """Send a message that was made in this incarnation; it is on its way after `flush`. Return whether it is.

        It is dropped if the incarnation, the link or the client is gone: the machine has been told, or will be.
        """
        link = self._links.get(to)
        if incarnation != self.incarnation or link is None or link.is_lost:
            return False
        frame = framed(_MESSAGE, pieces, incarnation)
        link.pieces += frame
        length = sum(map(len, frame))
        link.bytes_waiting += length
        self.sent_messages += 1
        self.sent_bytes += length
        self._to_write[to] = link
        return True

    def flush(self) -> None:
        """Hand what was sent to the system, by one call for each peer if it is little."""
        for link in self._to_write.values():
            if link.connection is not None:
                link.connection.write(link.pieces)
                link.pieces, link.bytes_waiting = [], 0
                crash_point("between-peers", self.me.name)
                if link.is_client and link.connection.bytes_unsent > _CLIENT_BYTES:
                    link.connection.abort("it reads too little of what it asks for")
        self._to_write.clear()

    @property
    def is_congested(self) -> bool:
        """Whether a peer leaves more unread than it should."""
        for link in self._links.values():
            if not link.is_client and (
                link.connection.is_full if link.connection else link.bytes_waiting >= CONGESTED_BYTES
            ):
                return True
        return False

    def queued(self) -> dict[Name, int]:
        """Return how many bytes have not left yet, by peer."""
        return {
            name: link.bytes_waiting + (link.connection.bytes_unsent if link.connection else 0)
            for name, link in sorted(self._links.items())
        }

    def pause_reading(self, is_paused: bool) -> None:
        """Pause or resume reading from the peers that feed the machine."""
        self.is_holding = is_paused
        for link in self._links.values():
            self._pace(link)

    def _pace(self, link: _Link) -> None:
        """Read from a peer, or do not."""
        if link.connection is not None:
            feeds = link.is_client or link.peer in self._sources
            link.connection.pause((self.is_holding and feeds) or (link.is_client and link.connection.is_full))

    async def close(self, seconds: float = 0.0) -> None:
        """Let what was sent leave, for at most so long; then close everything."""
        for task in self._attempts:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        ends = [connection.gone for connection in self._connections]
        for connection in list(self._connections):
            connection.close()
        if ends and seconds:
            await asyncio.wait(ends, timeout=seconds)
        for connection in list(self._connections):
            connection.abort("the machine ends")
        if ends:
            await asyncio.wait(ends)

    # --- what connections tell ---

    def is_client(self, name: Name) -> bool:
        """Whether nobody was told of a machine of this name."""
        return name not in self._links or self._links[name].is_client

    def admit(self, name: Name) -> None:
        """Raise RefusalError if a machine of this name, which it has proved, may not connect now."""
        link = self._links.get(name)
        is_mine = name in (self.me.name, SUPERVISOR)
        if is_mine or (link is not None and not link.is_client and name > self.me.name):
            raise RefusalError(f"{self.me.name} takes no connection from {name!r}", RefusalPolicy.NEVER)
        if link is not None and (link.is_lost or link.connection is not None):
            if link.connection is not None and not link.is_client:
                link.connection.abort("it connects anew")  # a peer asks anew only if its end is gone
            raise RefusalError(f"{self.me.name} had a link to {name} already", RefusalPolicy.LOST)
        if link is None and sum(each.is_client for each in self._links.values()) >= _MOST_CLIENTS:
            raise RefusalError(f"{self.me.name} has {_MOST_CLIENTS} clients", RefusalPolicy.AGAIN)

    def opened(self, connection: Connection) -> None:
        """Take a connection whose other side is not known yet; if there are too many of them, an older one goes."""
        self._connections.add(connection)
        if connection.connects:
            return
        if len(self._strangers) >= _MOST_STRANGERS:
            strangers = list(self._strangers)
            oldest = strangers[one_to_close([each.host for each in strangers])]
            del self._strangers[oldest]
            oldest.abort("too many others have not said who they are")
        self._strangers[connection] = None

    def up(self, connection: Connection) -> None:
        """Take a connection whose other side has shown who it is."""
        peer = connection.peer
        self._strangers.pop(connection, None)
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = _Link(peer, is_client=True)
            connection.limit_silence()
        elif not link.is_client:
            connection.expect_soon()
        link.connection = connection
        self._to_write[peer] = link
        self.flush()
        self._pace(link)
        self._receiver.resumed()

    def received(self, peer: Name, payload: bytes) -> None:
        """Handle a message; raise RemoteProtocolError if it cannot be decoded."""
        self._receiver.received(peer, payload)

    def grown(self) -> None:
        """Send the client away that keeps most, if what clients have not sent whole is too much together."""
        clients = [each.connection for each in self._links.values() if each.is_client and each.connection is not None]
        if sum(each.bytes_kept for each in clients) > _HALVES_BYTES:
            largest = max(clients, key=lambda each: each.bytes_kept)
            largest.abort("clients keep too much memory for what they have not sent whole: send less in one message")

    def back_pressure_changed(self, connection: Connection) -> None:
        """Take notice that the other side does not read, or does again."""
        link = self._links.get(connection.peer)
        if link is not None and link.connection is connection:
            self._pace(link)
        if not connection.is_full:
            self._receiver.resumed()

    def closed(self, connection: Connection, problem: RemoteProtocolError | None, reason: str) -> None:
        """Take notice of the end of a connection, and of what was wrong."""
        self._connections.discard(connection)
        self._strangers.pop(connection, None)
        link = self._links.get(connection.peer)
        if link is not None and link.connection is connection:
            self._lose(link, reason)
        if problem is None or (isinstance(problem, RefusalError) and problem.outlook is not RefusalPolicy.NEVER):
            return
        self._receiver.refused(connection.other_side, problem)

    def _lose(self, link: _Link, reason: str) -> None:
        link.connection = None
        link.pieces, link.bytes_waiting = [], 0
        if not link.is_lost:
            link.is_lost = True
            if link.is_client:
                del self._links[link.peer]
            else:
                self._send_clients_away()
            self._receiver.lost(link.peer, link.is_client, reason)
            self._receiver.resumed()

    def _send_clients_away(self) -> None:
        """Let clients look where all are: this machine may be one that another has taken the place of."""
        for each in [each for each in self._links.values() if each.is_client]:
            if each.connection is not None:
                each.connection.abort("a machine is lost")
