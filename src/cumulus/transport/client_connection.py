"""Blocking connection of a client to one machine: it sends and receives in the thread of its caller."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Sequence

from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.connections import Address, keep_alive
from cumulus.transport.framing import PAYLOAD_BYTES, FrameKind, FrameReader, Piece, framed
from cumulus.transport.greeting import Credentials, Greeting


def _admit_nobody(name: Name) -> None:
    raise RemoteProtocolError(f"{name} wants to connect to a client")


class ClientConnection:
    """A connection to a machine, from its greeting on.

    Parameters
    ----------
    incarnation
        Of the machines; in another one the link is refused, and lost when another one begins.
    until
        When to give up if the machine does not answer the greeting, by `time.monotonic`.

    Raises
    ------
    OSError
        If nobody listens there, or the connection breaks; TimeoutError if the machine does not answer in time.
    RemoteProtocolError
        If the machine refuses; a `RefusalError` says what is to be done then.
    """

    def __init__(self, me: Credentials, peer: Name, address: Address, incarnation: int, until: float) -> None:
        self._incarnation = incarnation
        self._reader = FrameReader()
        self._messages: deque[bytes] = deque()
        self._greeting = Greeting(me, incarnation, peer, _admit_nobody)
        self._socket = socket.create_connection(address, max(until - time.monotonic(), 0.001))
        try:
            if me.tls is not None:
                self._socket = me.tls.client_context().wrap_socket(self._socket, server_hostname=address[0])
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(self._socket)
            self._say(self._greeting.begin())
            while not self._is_up:
                if not self._read(until):
                    raise TimeoutError(f"{peer} does not answer")
        except BaseException:
            self.close()
            raise

    def send(self, pieces: Sequence[Piece], until: float) -> None:
        """Send a message.

        Parameters
        ----------
        until
            When to give up, by `time.monotonic`.

        Raises
        ------
        OSError
            If the link is lost, or nobody reads it in time.
        UsageError
            If it is longer than what a client may send.
        """
        length = sum(map(len, pieces))
        if length > PAYLOAD_BYTES:
            raise UsageError(
                f"a message of {length:,} bytes is to be sent; {PAYLOAD_BYTES:,} are allowed",
                hint="Make what is sent at once smaller.",
            )
        self._socket.settimeout(max(until - time.monotonic(), 0.001))
        self._socket.sendall(b"".join(framed(FrameKind.MESSAGE, pieces, self._incarnation)))

    def receive(self, until: float) -> bytes | None:
        """Return the next message, None if none comes until then, by `time.monotonic`.

        Raises
        ------
        OSError
            If the link is lost.
        RemoteProtocolError
            If something else comes.
        """
        while not self._messages:
            if not self._read(until):
                return None
        return self._messages.popleft()

    def close(self) -> None:
        """Close the link."""
        self._socket.close()

    @property
    def _is_up(self) -> bool:
        return self._greeting.is_over

    def _read(self, until: float) -> bool:
        """Take what comes next; return whether something has come in time."""
        left = until - time.monotonic()
        if left <= 0:
            return False
        self._socket.settimeout(left)
        try:
            count = self._socket.recv_into(self._reader.room())
        except TimeoutError:
            return False
        if not count:
            raise ConnectionResetError("the other side has closed the link")
        for kind, incarnation, payload in self._reader.filled(count):
            if not self._is_up:
                self._greet(kind, payload)
            elif kind == FrameKind.MESSAGE and incarnation == self._incarnation:
                self._messages.append(payload)
            else:
                raise RemoteProtocolError(f"a frame of kind {kind} and incarnation {incarnation} has come")
        return True

    def _greet(self, kind: int, payload: bytes) -> None:
        self._say(self._greeting.take(kind, payload))
        if self._is_up:
            self._reader.trust()

    def _say(self, frames: Sequence[tuple[FrameKind, bytes]]) -> None:
        for kind, payload in frames:
            self._socket.sendall(b"".join(framed(kind, [payload])))
