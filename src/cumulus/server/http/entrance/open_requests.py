"""The requests, streams and sockets under way: who has them, and their end when their user is not let in any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any

from starlette.types import Scope

from cumulus.errors import AccessError, CumulusError
from cumulus.server.access import User, UserList

_LOOK_S = 0.25
"""Whether the users of open requests are still let in is looked at so often."""
_GRACE_S = 0.4
"""A stream has so long to tell its subscriber why it ends; then it is cut."""
_ALL_S = 5.0
"""Sessions end by themselves, too: all are looked at so often."""


@dataclass(eq=False)
class OpenRequest:
    """A request, stream or socket that is under way.

    Parameters
    ----------
    session
        The number in the cookie by which its user was known; "" for a token.
    view
        The view that it follows, if it follows one.
    problem
        Why it was ended; None as long as it was not.
    """

    id: int
    user: User
    session: str
    scope: Scope
    task: asyncio.Task[Any]
    begun: float = field(default_factory=monotonic)
    view: str = ""
    problem: CumulusError | None = None
    _ending: list[Callable[[CumulusError], None]] = field(default_factory=list)
    _cut: asyncio.TimerHandle | None = None

    def when_ended(self, tell: Callable[[CumulusError], None]) -> None:
        """Have a function called with the reason when it is ended: one that lets it end by itself, soon."""
        self._ending.append(tell)

    def end(self, problem: CumulusError) -> None:
        """End it, in the loop; a second time does nothing."""
        if self.problem is not None:
            return
        self.problem = problem
        for tell in self._ending:
            tell(problem)
        grace_s = _GRACE_S if self.view and self._ending else 0.0
        self._cut = asyncio.get_running_loop().call_later(grace_s, self.task.cancel)

    def close(self) -> None:
        """It is over: do not cut what its task does next."""
        if self._cut is not None:
            self._cut.cancel()

    def described(self) -> dict[str, Any]:
        """Return what an admin is shown of it."""
        scope = self.scope
        client, route = scope.get("client"), scope.get("route")
        kind = "socket" if scope["type"] == "websocket" else "stream" if self.view else "request"
        return {
            "id": self.id,
            "user": self.user.name,
            "kind": kind,
            "address": str(getattr(route, "path", "")),
            "view": self.view or None,
            "peer": client[0] if client else None,
            "seconds": round(monotonic() - self.begun, 1),
        }


class OpenRequests:
    """All that is under way at a server.

    Parameters
    ----------
    look
        Returns the users as they are now.
    is_let_in
        Whether the user of a request would still be let in.
    """

    def __init__(self, look: Callable[[], UserList], is_let_in: Callable[[OpenRequest, UserList], bool]) -> None:
        self._look, self._is_let_in = look, is_let_in
        self._open: dict[int, OpenRequest] = {}
        self._numbers = count(1)
        self._watch: asyncio.Task[None] | None = None

    @contextmanager
    def entered(self, user: User, session: str, scope: Scope) -> Iterator[OpenRequest]:
        """Have a request among those under way in the block; the request's task runs it."""
        task = asyncio.current_task()
        assert task is not None, "requests are answered in a loop"
        made = OpenRequest(next(self._numbers), user, session, scope, task)
        self._open[made.id] = made
        if self._watch is None:
            self._watch = asyncio.create_task(self._look_on())
        try:
            yield made
        finally:
            del self._open[made.id]
            made.close()

    def listed(self) -> list[OpenRequest]:
        """Return what is under way, the oldest first."""
        return list(self._open.values())

    async def _look_on(self) -> None:
        """End what is not let in any more, until nothing is under way."""
        known, all_at = None, 0.0
        try:
            while self._open:
                await asyncio.sleep(_LOOK_S)
                found, now = self._look(), monotonic()
                if found is known and now < all_at:
                    continue
                known, all_at = found, now + _ALL_S
                for each in self.listed():
                    if each.problem is None and not self._is_let_in(each, found):
                        each.end(_gone(found))
        finally:
            self._watch = None

    def end_session(self, number: str) -> None:
        """End what goes on under the number of a cookie that is forgotten."""
        for each in self.listed():
            if number and each.session == number and each.task is not asyncio.current_task():
                each.end(_gone(None))


def _gone(known: UserList | None) -> CumulusError:
    if known is not None and known.problem:
        return known.closed()
    return AccessError("this token is not known any more", is_known=False, hint="Ask for another one.")


@contextmanager
def ended_as_told(entry: OpenRequest) -> Iterator[None]:
    """Raise the reason in place of the cancellation when a request was ended.

    Raises
    ------
    CumulusError
        Why it was ended.
    """
    try:
        yield
    except asyncio.CancelledError:
        if entry.problem is None:
            raise
        with suppress(AttributeError):
            asyncio.current_task().uncancel()  # type: ignore[union-attr]  # it runs in one
        raise entry.problem from None
