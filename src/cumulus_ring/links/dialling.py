"""Connecting to a neighbour: again and again until it is there, and lets this one in, or until a deadline."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from threading import Event, Lock

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.framing import HEADER_BYTES, STRANGER_BYTES, header, parsed_header
from cumulus.transport.greeting import Credentials, Greeting, RefusalError, RefusalPolicy
from cumulus_ring.links.open_link import LinkAddress, LinkClosedError, LinkCounts, OpenLink, closing_reason

CONNECT_SECONDS = 10.0
"""How long a neighbour may take to be there, if no other time is given."""
_ATTEMPT_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.25


class Dial:
    """A link that this side is to open.

    Parameters
    ----------
    peer
        Who listens there.
    purpose
        What the link is for; its listener must expect it.
    epoch
        Of the ring; both sides must be in the same one.
    seconds
        How long to try.
    absence_s
        How long the other side's computer may be gone before the link is; None: as the system says.
    """

    def __init__(
        self,
        me: Credentials,
        address: LinkAddress,
        peer: Name,
        purpose: str,
        epoch: int,
        seconds: float = CONNECT_SECONDS,
        absence_s: float | None = None,
    ) -> None:
        self.peer = peer
        self.purpose = purpose
        self.epoch = epoch
        self._me = me
        self._address = address
        self._seconds, self._absence_s = seconds, absence_s
        self._closing = Event()
        self._lock = Lock()
        self._socket: socket.socket | None = None

    def open(self) -> OpenLink:
        """Connect, and return the link.

        Raises
        ------
        RemoteProtocolError
            If the time is over, with the last reason, or if this side will never be let in.
        LinkClosedError
            If it was closed meanwhile.
        """
        until = time.monotonic() + self._seconds
        pause, reason = _FIRST_PAUSE, "it does not answer"
        while not self._closing.is_set() and (left := until - time.monotonic()) > 0:
            try:
                return self._attempt(min(left, _ATTEMPT_SECONDS))
            except RefusalError as problem:
                if problem.outlook is not RefusalPolicy.AGAIN:
                    raise
                reason = problem.message
            except (OSError, LinkClosedError) as problem:
                reason = closing_reason(problem)
            self._closing.wait(max(0.0, min(pause, until - time.monotonic())))
            pause = min(2 * pause, _LONGEST_PAUSE)
        if self._closing.is_set():
            raise LinkClosedError("closed by this side")
        raise RemoteProtocolError(
            f"{self._me.name} cannot connect to {self.peer} within {self._seconds:g} s: {reason}",
            hint="See whether it runs, and what it has written.",
        )

    def close(self) -> None:
        """Stop trying."""
        with self._lock:
            self._closing.set()
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _attempt(self, seconds: float) -> OpenLink:
        family = socket.AF_UNIX if isinstance(self._address, str) else _family(self._address[0])
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            with self._lock:
                if self._closing.is_set():
                    raise LinkClosedError("closed by this side")
                self._socket = connection
            until = time.monotonic() + seconds
            connection.settimeout(seconds)
            connection.connect(f"\0{self._address}" if isinstance(self._address, str) else self._address)
            counts = LinkCounts()
            try:
                self._greet(connection, until, counts)
            except TimeoutError:
                raise LinkClosedError("who listens there does not say who it is") from None
            except RefusalError:
                raise
            except RemoteProtocolError:
                what = f"{self._me.name} cannot connect to {self.peer}: something else listens there"
                raise RemoteProtocolError(what, hint="See whether its port is another's.") from None
            with self._lock:
                self._socket = None
                if self._closing.is_set():
                    raise LinkClosedError("closed by this side")
            link = OpenLink(connection, self.peer, self.purpose, self.epoch, counts)
            if self._absence_s is not None:
                link.limit_absence(self._absence_s)
            return link
        except BaseException:
            with self._lock:
                self._socket = None
            connection.close()
            raise

    def _greet(self, connection: socket.socket, until: float, counts: LinkCounts) -> None:
        greeting = Greeting(self._me, self.epoch, self.peer, lambda _: None, self.purpose)
        answer = greeting.begin()
        while not greeting.is_over:
            frames = b"".join(header(kind, len(payload), self.epoch) + payload for kind, payload in answer)
            connection.sendall(frames)
            counts.wire_out += len(frames)
            # Not a byte more than the greeting: credits may be right behind it.
            kind, length, _ = parsed_header(_exactly(connection, HEADER_BYTES, until), 0, STRANGER_BYTES)
            answer = greeting.take(kind, _exactly(connection, length, until))
            counts.wire_in += HEADER_BYTES + length


def _exactly(connection: socket.socket, count: int, until: float) -> bytes:
    found = b""
    while len(found) < count:
        connection.settimeout(max(0.001, until - time.monotonic()))
        came = connection.recv(count - len(found))
        if not came:
            raise LinkClosedError("closed by the other side")
        found += came
    return found


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
