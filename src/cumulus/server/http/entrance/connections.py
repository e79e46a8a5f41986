"""Connections as they are kept: a head is small and comes in time, and there are only so many of them."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import NoReturn

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cumulus.server.limits import Limits

HEAD_BYTES = 64 << 10
MOST_HEADERS = 200
_MOST_BEHIND = 50
"""Requests that a client may have sent before the first of them is answered."""


class HeldConnections:
    """The connections of a server, and which of them wait for a request: the one that has waited longest is first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.strangers: dict[BoundedProtocol, None] = {}
        """Those that wait for their first request."""
        self.waiting: dict[BoundedProtocol, None] = {}
        self.count = 0

    def protocol(self) -> type[BoundedProtocol]:
        """Return the class of which uvicorn makes one for each connection."""
        return type("HeldProtocol", (BoundedProtocol,), {"held": self})

    def has_place(self) -> bool:
        """Whether one more may stay; who has waited longest gives way, of those without any request before others."""
        if self.count <= self.limits.connections:
            return True
        for oldest in chain(self.strangers, self.waiting):
            oldest.give_way()
            return True
        return False


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, within limits."""

    held: HeldConnections
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _has_asked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take a connection, if there is a place for it."""
        super().connection_made(transport)
        self.held.count += 1
        if self.held.has_place():
            self._await_head()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.held.count -= 1
        self._stop_waiting()
        super().connection_lost(exc)

    def give_way(self) -> None:
        """Close the connection; nothing of a request is lost by that."""
        self._stop_waiting()
        self.transport.abort()

    def _await_head(self) -> None:
        self._wait()
        self._deadline = self.loop.call_later(self.held.limits.header_s, self.give_way)
        self._head_bytes = 0

    def _wait(self) -> None:
        (self.held.waiting if self._has_asked else self.held.strangers)[self] = None

    def _stop_waiting(self) -> None:
        self.held.waiting.pop(self, None)
        self.held.strangers.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def data_received(self, data: bytes) -> None:
        """Take bytes; too many that are no whole head end the connection."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._deadline is not None and self._head_bytes > HEAD_BYTES:
            self.give_way()

    def on_message_begin(self) -> None:
        """Expect the rest of a head soon, when its first byte has come."""
        if len(self.pipeline) >= _MOST_BEHIND:
            self._leave_off("so many requests at once")
        super().on_message_begin()
        if self._deadline is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; with too many the connection ends, before the others of the same bytes are read."""
        if len(self.headers) >= 2 * MOST_HEADERS:  # with fewer, the answer says so
            self._leave_off("a head of so many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Wait no more: the head is whole."""
        self._stop_waiting()
        super().on_headers_complete()

    def _leave_off(self, why: str) -> NoReturn:
        self.give_way()
        raise ValueError(why)  # ends the parser, which would go on with what has come already

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, unless the connection has ended."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn says how long."""
        super().on_response_complete()
        self._has_asked = True
        if not self.transport.is_closing() and not self.pipeline:
            self._wait()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the protocol of WebSockets, of which each user has only so many."""
        self._stop_waiting()
        self.held.count -= 1
        super().handle_websocket_upgrade()
