"""The door of the application: whom it lets in, from where, how often at once, and with how large a body."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cumulus.errors import AccessError, BusyError, CumulusError, LimitError, UsageError
from cumulus.server.access import EVERYBODY, NOBODY, User
from cumulus.server.http.entrance.connections import MOST_HEADERS
from cumulus.server.http.entrance.open_requests import ended_as_told
from cumulus.server.http.entrance.sessions import FailedLogins
from cumulus.server.http.problems import problem_response, unforeseen
from cumulus.server.http.site import Site

_FREE_BYTES = 1 << 20
"""Of a body that comes; what is behind them counts among those of all bodies."""
_PIECE_BYTES = 64 << 10
"""So many bytes of a body come within `Limits.body_s`."""
COOKIE = "cumulus_session"
_OPEN = frozenset({"/", "/healthz", "/readyz", "/v1/login"})
_MOST_REASON = 120
"""Bytes of the reason for the end of a WebSocket, which has 123 at most."""
_OPEN_FOLDER = "/page/files/"
"""What anybody gets: the page without any rows, and whether the server is well."""


class Guard:
    """ASGI: lets a request pass with `cumulus.user` in its scope, or answers it."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self._app, self._site = app, site
        self._failures = FailedLogins()
        self._running: Counter[tuple[str, str]] = Counter()
        self._names = _names_of(site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        has_begun, body = False, _Body()

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if message["type"] == "http.response.start" and body.is_left(scope):
                # Who is refused in the middle of a body would go on sending it.
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            try:
                await send(message)
            except RuntimeError as problem:
                if "the handler is closed" not in str(problem):
                    raise
                raise ConnectionAbortedError from None  # a client has gone, and uvicorn has not heard of it yet

        try:
            user, session = await self._checked(scope)
            scope["cumulus.user"] = user
            with self._counted(user, scope), self._held(body), self._site.open.entered(user, session, scope) as entry:
                scope["cumulus.open"] = entry
                with ended_as_told(entry):
                    await self._app(scope, self._limited(scope, receive, body), watched)
        except (ClientDisconnect, ConnectionAbortedError):
            if has_begun:
                raise ConnectionAbortedError("a client has gone, or does not take its answer") from None
        except CumulusError as problem:
            if has_begun and scope["type"] == "http":
                raise ConnectionAbortedError(f"an answer was cut: {problem.message}") from None
            await self._refuse(scope, receive, watched, problem)
        except Exception as problem:  # noqa: BLE001  # told by its number in the log, and never more
            response = unforeseen(problem)
            if has_begun:
                raise ConnectionAbortedError("an answer has failed half way") from None  # who reads it sees it is cut
            if scope["type"] == "http":
                await response(scope, receive, watched)
            else:
                await send({"type": "websocket.close", "code": 1011})

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, problem: CumulusError) -> None:
        if scope["type"] == "http":
            await problem_response(problem)(scope, receive, send)
        else:
            reason = problem.message.encode()[:_MOST_REASON].decode(errors="ignore")
            with suppress(RuntimeError):  # it was closed meanwhile
                await send({"type": "websocket.close", "code": 1008, "reason": reason})

    async def _checked(self, scope: Scope) -> tuple[User, str]:
        """Return who asks, and the number of a cookie; AccessError or UsageError for what is not let in."""
        headers = Headers(scope=scope)
        _check_heads(scope["headers"])
        host = headers.get("host", "")
        if not self._is_known(host):
            raise UsageError(
                f"this server does not answer to the name {host!r}",
                hint="Use its address, or say --host-name when it starts.",
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise AccessError(f"a page of {origin} may not ask this server")
        length = headers.get("content-length", "")
        most = self._site.limits.body_bytes
        if length.isdecimal() and int(length[:19]) > most:
            raise LimitError(f"the body has {length} bytes, more than {most:,}", hint="Send it in several requests.")
        return await self._known_user(scope, headers)

    def _is_known(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]").lower().rstrip(".")
        # A page elsewhere may have its own name lead here; an address in figures nobody else can own.
        return name in self._names or _is_address(name)

    async def _known_user(self, scope: Scope, headers: Headers) -> tuple[User, str]:
        site = self._site
        known = site.users.look()
        if not site.needs_names(known):
            return EVERYBODY, ""
        path = scope["path"]
        is_open = path in _OPEN or path.startswith(_OPEN_FOLDER)
        if known.problem:
            if is_open:
                return NOBODY, ""
            raise known.closed()
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if token:
            user = known.user_with(token.strip()) if scheme.lower() == "bearer" else None
            if user is None:
                await self._failures.delay(_peer(scope))
                raise AccessError("this token is not known here", is_known=False, hint="Ask for another one.")
            return user, ""
        number = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        user = site.sessions.user_of(number) if number else None
        if user is not None and user in known.users:
            return user, number
        if is_open:
            return NOBODY, ""
        raise AccessError(
            "who asks?", is_known=False, hint="Authorization: Bearer TOKEN; `cumulus serve token add` makes tokens."
        )

    @contextmanager
    def _counted(self, user: User, scope: Scope) -> Iterator[None]:
        limits = self._site.limits
        if scope["type"] == "websocket" or scope["path"].endswith("/changes"):
            what, most = "streams", limits.streams_per_user
        else:
            what, most = "requests", limits.requests_per_user
        counted = user.name, what
        if self._running[counted] >= most:
            raise BusyError(f"{user.name} has {most:,} {what} under way already", hint="Wait for one to end.")
        self._running[counted] += 1
        try:
            yield
        finally:
            self._running[counted] -= 1
            if not self._running[counted]:
                del self._running[counted]

    @contextmanager
    def _held(self, body: _Body) -> Iterator[None]:
        """Hold what a body takes until it is answered."""
        try:
            yield
        finally:
            self._site.waiting.give(body.held)

    def _limited(self, scope: Scope, receive: Receive, body: _Body) -> Receive:
        """Return what gives a body that is not too large, and comes in time."""
        if scope["type"] != "http":
            return receive
        due, expected = 0.0, 0
        limits = self._site.limits

        async def given() -> Message:
            nonlocal due, expected
            if body.is_whole:  # what comes now is that the client has gone, whenever that may be
                return await receive()
            if body.taken >= expected:  # who sends byte by byte is not waited for
                due, expected = monotonic() + limits.body_s, body.taken + _PIECE_BYTES
            try:
                message = await asyncio.wait_for(receive(), max(due - monotonic(), 0.0))
            except TimeoutError:
                raise HTTPException(408, "the body has not come in time") from None
            size = len(message.get("body", b""))
            body.taken += size
            if body.taken > limits.body_bytes:
                raise LimitError(f"the body has more than {limits.body_bytes:,} bytes", hint="Send it in parts.")
            if body.taken > _FREE_BYTES:
                self._site.waiting.take(size)
                body.held += size
            body.is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        return given


@dataclass(slots=True)
class _Body:
    """A body that comes: how much of it has, and what of that counts among those of all bodies."""

    taken: int = 0
    held: int = 0
    is_whole: bool = False

    def is_left(self, scope: Scope) -> bool:
        """Whether some of it has not come."""
        return not self.is_whole and any(
            name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0")
            for name, value in scope["headers"]
        )


def _check_heads(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise UsageError for a head that a proxy before the server may have read otherwise, or that is absurd."""
    names = [name for name, _ in headers]  # in small letters, as ASGI has them
    if len(names) > MOST_HEADERS:
        raise UsageError(f"the request has {len(names):,} headers", hint=f"At most {MOST_HEADERS} are taken.")
    known = set(names)
    if b"content-length" in known and b"transfer-encoding" in known:
        raise UsageError("the request says in two ways how long its body is", hint="Leave out one of them.")
    if len(known) == len(names):
        return
    counts = Counter(names)
    twice = sorted(name.decode("latin-1") for name in _ONCE if counts[name] > 1)
    if twice:
        raise UsageError(f"the request has the header {twice[0]} twice", hint="Send it once.")


_ONCE = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"content-encoding",
        b"authorization",
        b"idempotency-key",
        b"origin",
    }
)
"""What says who asks whom for what: where it comes twice, two readers may take different ones."""


def _peer(scope: Scope) -> str:
    client = HTTPConnection(scope).client
    return "" if client is None else client.host


def _names_of(site: Site) -> frozenset[str]:
    """Return the names by which a server may be asked."""
    own = [socket.gethostname(), site.settings.host, "localhost", *site.settings.hosts]
    return frozenset(name.lower() for name in own if name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
