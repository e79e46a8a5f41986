"""Listening for neighbours: who connects says who it is, what for, in which epoch of the ring, and proves the secret.

Whoever has not done so yet is a stranger: it has little time, little room, and may not be one of too many. All of them
are looked after by one thread, which waits for none.
"""

from __future__ import annotations

import errno
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from threading import Lock, Thread
from typing import TypeAlias

from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.connections import place_text
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.greeting import (
    GREETING_SECONDS,
    Credentials,
    Greeting,
    RefusalError,
    RefusalPolicy,
    is_loopback,
    one_to_close,
    refusal,
)
from cumulus_ring.links.open_link import LinkAddress, LinkCounts, OpenLink

Expected: TypeAlias = Mapping[str, Name]
"""Who may connect, by what for."""

MOST_STRANGERS = 64
"""When more have not said who they are, one of them is sent away (`cumulus.transport.greeting`)."""
_BACKLOG = 1024
"""How many may wait to be accepted: beyond that a neighbour would have to come again."""


class _Stranger:
    """A connection before its greeting is over."""

    __slots__ = ("connection", "counts", "epoch", "greeting", "host", "reader", "until")

    def __init__(self, connection: socket.socket, host: str, greeting: Greeting, epoch: int) -> None:
        self.connection = connection
        self.host = host
        self.greeting = greeting
        self.epoch = epoch
        self.reader = FrameReader()
        self.counts = LinkCounts()
        self.until = time.monotonic() + GREETING_SECONDS


class LinkListener:
    """Where a node's neighbours connect, until `close`.

    Parameters
    ----------
    is_local
        Whether to listen for processes of this machine alone, which can be given descriptors; host and port mean
        nothing then.
    refused
        Is told of those that were sent away, by their address or name, and why; called by the listener's thread.

    Raises
    ------
    UsageError
        If the port is taken, or others than this machine's users could connect and there is no secret.
    """

    def __init__(
        self,
        me: Credentials,
        *,
        is_local: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        refused: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        self._me = me
        self._refused = refused
        self._socket, self.address = _local_socket() if is_local else _tcp_socket(me, host, port)
        self._epoch = 0
        self._expected: dict[str, Name] = {}
        self._clients: frozenset[str] = frozenset()
        self._came: Callable[[OpenLink], None] = lambda link: link.close()
        self._lock = Lock()
        self._strangers: dict[socket.socket, _Stranger] = {}  # in the order in which they came
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._socket.setblocking(False)
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = Thread(target=self._listen, name=f"listener of {me.name}", daemon=True)
        self._thread.start()

    def expect(
        self, epoch: int, peers: Expected, came: Callable[[OpenLink], None], *, clients: Collection[str] = ()
    ) -> None:
        """Let these in from now on, each once, in this epoch of the ring alone; `came` gets their links.

        `came` is called by the listener's thread, and soon returns.

        Parameters
        ----------
        clients
            What for anybody who knows the secret may connect, as often as they like.
        """
        with self._lock:
            self._epoch, self._expected, self._came = epoch, dict(peers), came
            self._clients = frozenset(clients)

    def close(self) -> None:
        """Listen no more; links that are open stay."""
        with suppress(OSError):
            self._wake.send(b".")

    def join(self, seconds: float | None = None) -> bool:
        """Wait until everything is closed; return whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _listen(self) -> None:
        try:
            while True:
                ready = [key.fileobj for key, _ in self._selector.select(self._patience())]
                if self._woken in ready:
                    return
                for each in ready:
                    if each is self._socket:
                        self._accept()
                    elif each in self._strangers:
                        self._hear(self._strangers[each])
                self._lose_patience()
        finally:
            for stranger in list(self._strangers.values()):
                self._forget(stranger).close()
            self._selector.close()
            for each in (self._socket, self._wake, self._woken):
                each.close()

    def _patience(self) -> float | None:
        for stranger in self._strangers.values():
            return max(0.0, stranger.until - time.monotonic())
        return None

    def _lose_patience(self) -> None:
        now = time.monotonic()
        for stranger in list(self._strangers.values()):
            if stranger.until > now:
                break
            self._send_away(stranger, RemoteProtocolError(f"it has not said within {GREETING_SECONDS:g} s who it is"))

    def _accept(self) -> None:
        try:
            connection, place = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no more files may be open: those that are open are more important
            if not self._strangers:
                time.sleep(0.01)
            for stranger in list(self._strangers.values())[:1]:
                self._send_away(stranger, RemoteProtocolError("there is no file left for it"))
            return
        connection.setblocking(False)
        with self._lock:
            epoch = self._epoch
        greeting = Greeting(self._me, epoch, None, lambda name: self._admit(stranger, name))
        stranger = _Stranger(connection, "" if isinstance(place, str | bytes) else place[0], greeting, epoch)
        self._strangers[connection] = stranger
        self._selector.register(connection, selectors.EVENT_READ)
        if len(self._strangers) > MOST_STRANGERS:
            strangers = list(self._strangers.values())
            oldest = strangers[one_to_close([each.host for each in strangers])]
            self._send_away(oldest, RemoteProtocolError("too many others have not said who they are"))

    def _hear(self, stranger: _Stranger) -> None:
        try:
            count = stranger.connection.recv_into(stranger.reader.room())
            if not count:
                raise RemoteProtocolError("it has closed before it has said who it is")
            stranger.counts.wire_in += count
            for kind, _, payload in stranger.reader.filled(count):
                if stranger.greeting.is_over:
                    raise RemoteProtocolError("it says more than a greeting")
                self._answer(stranger, stranger.greeting.take(kind, payload))
        except BlockingIOError:
            return
        except RefusalError as problem:
            with suppress(OSError, RemoteProtocolError):
                self._say(stranger, [(FrameKind.REFUSAL, refusal(problem))])
            self._send_away(stranger, problem)
        except RemoteProtocolError as problem:
            self._send_away(stranger, problem)
        except OSError as problem:
            self._send_away(stranger, RemoteProtocolError(problem.strerror or str(problem)))
        else:
            if stranger.greeting.is_over:
                self._let_in(stranger)

    def _answer(self, stranger: _Stranger, frames: list[tuple[FrameKind, bytes]]) -> None:
        if stranger.greeting.is_over:  # its last words: from here on somebody may have to expect it no more
            self._take_place(stranger)
        self._say(stranger, frames)

    def _say(self, stranger: _Stranger, frames: list[tuple[FrameKind, bytes]]) -> None:
        data = b"".join(header(kind, len(payload), 0) + payload for kind, payload in frames)
        if not data:
            return
        if stranger.connection.send(data) < len(data):
            raise RemoteProtocolError("it does not read what is said to it")
        stranger.counts.wire_out += len(data)

    def _admit(self, stranger: _Stranger, name: Name) -> None:
        purpose = stranger.greeting.purpose
        with self._lock:
            is_client = purpose in self._clients
            if stranger.epoch != self._epoch or not (is_client or self._expected.get(purpose) == name):
                raise RefusalError(
                    f"{self._me.name} expects no link of {name!r} for {purpose!r} now", RefusalPolicy.AGAIN, hint=""
                )

    def _take_place(self, stranger: _Stranger) -> None:
        """Let nobody else in under this name; RefusalError if somebody was quicker."""
        assert stranger.greeting.peer is not None
        self._admit(stranger, stranger.greeting.peer)
        with self._lock:
            self._expected.pop(stranger.greeting.purpose, None)

    def _let_in(self, stranger: _Stranger) -> None:
        connection = self._forget(stranger)
        assert stranger.greeting.peer is not None
        with self._lock:
            # A client has been told that it is in, and does not care who else is a neighbour by now.
            is_welcome = stranger.epoch == self._epoch or stranger.greeting.purpose in self._clients
            came = self._came
        link = OpenLink(connection, stranger.greeting.peer, stranger.greeting.purpose, stranger.epoch, stranger.counts)
        if is_welcome:
            came(link)
        else:
            link.close()

    def _send_away(self, stranger: _Stranger, problem: RemoteProtocolError) -> None:
        name = stranger.greeting.peer
        if name is None:
            try:
                place = stranger.connection.getpeername()
                name = place_text(place[:2]) if place else "somebody on this machine"
            except OSError:
                name = "somebody"
        self._forget(stranger).close()
        self._refused(name, problem.message)

    def _forget(self, stranger: _Stranger) -> socket.socket:
        del self._strangers[stranger.connection]
        self._selector.unregister(stranger.connection)
        return stranger.connection


def _local_socket() -> tuple[socket.socket, LinkAddress]:
    """Listen in the abstract namespace: there is no file, so no folder's path can be too long, and nothing is left."""
    name = f"cumulus-{secrets.token_hex(16)}"
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(f"\0{name}")
    found.listen(_BACKLOG)
    return found, name


def _tcp_socket(me: Credentials, host: str, port: int) -> tuple[socket.socket, LinkAddress]:
    if me.secret is None and not is_loopback(host):
        raise UsageError(
            f"{me.name}: {host} can be reached from other machines, and there is no secret",
            hint="Give a secret, or listen at 127.0.0.1.",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
    except OSError as problem:
        found.close()
        reason, hint = f"cannot be used: {problem.strerror}", "Give an address of this computer, and a port of yours."
        if problem.errno == errno.EADDRINUSE:
            reason, hint = "is taken", "Give another one, or 0 for any that is free."
        raise UsageError(f"{me.name}: port {port} of {host} {reason}", hint=hint) from None
    host, port = found.getsockname()[:2]
    return found, (host, port)
