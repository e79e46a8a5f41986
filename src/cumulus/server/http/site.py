"""What all routes share: the source, its settings, and how a request reads without holding up others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.requests import HTTPConnection

from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.errors import BusyError, ClosedError, DelayError, LimitError, StoreError
from cumulus.hosts import Answer
from cumulus.m3.program import ViewDef
from cumulus.server.access import EVERYBODY, LOG, NOBODY, User, UserFile, UserList
from cumulus.server.asking.processes import QueryProcesses
from cumulus.server.http.entrance.open_requests import OpenRequest, OpenRequests
from cumulus.server.http.entrance.sessions import Sessions
from cumulus.server.http.kept_pages import KeptPages
from cumulus.server.hub.hub import Hub
from cumulus.server.intake.bounds import BodyBounds
from cumulus.server.limits import ByteBudget, Limits
from cumulus.server.settings import ServerSettings
from cumulus.server.sources import ServedSource
from cumulus.views.duckdb_sql.limits import QueryLimits

T = TypeVar("T")
_UNPACKERS = 2


class Arrivals:
    """Wakes who waits, in the loop, for the source to show a transaction or an epoch."""

    def __init__(self, source: ServedSource) -> None:
        self._source = source
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[asyncio.Future[None], int] = {}
        source.listen(self._moved)

    def _moved(self, _: int) -> None:
        if self._waiting and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        at = self._source.at
        for future in [future for future, wanted in self._waiting.items() if wanted <= at and not future.done()]:
            future.set_result(None)

    def close(self) -> None:
        """Wake all who wait, in vain."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(ClosedError("the server is going down", hint="Ask again when it is back."))

    async def wait_for(self, at: int, timeout_s: float) -> None:
        """Return when readers see a transaction or an epoch; DelayError if that takes too long."""
        if self._source.at >= at:
            return
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[future] = at
        try:
            if self._source.at >= at:  # it has moved before anybody could know who waits
                return
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise DelayError(
                f"{at} has not come within {timeout_s:g} s; readers see {self._source.at}",
                hint="Ask again, or leave out after=.",
            ) from None
        finally:
            del self._waiting[future]


@dataclass
class Site:
    """A source behind HTTP.

    Parameters
    ----------
    settings
        As given: `open_site` checks them first.
    """

    source: ServedSource
    settings: ServerSettings
    nonce: str = field(default_factory=lambda: secrets.token_hex(4))

    def __post_init__(self) -> None:
        self.limits: Limits = self.settings.limits
        """The limits of the server."""
        self.users, self.sessions = UserFile(self.settings.data), Sessions()
        try:
            self.users.require()
        except StoreError as problem:  # a folder that is only read
            LOG.warning("%s", problem)
        self.open = OpenRequests(self.users.look, self.is_let_in)
        self.arrivals = Arrivals(self.source)
        self.pages = KeptPages(self.limits.page_bytes, self.limits.page_s)
        self._readers: anyio.CapacityLimiter | None = None
        self._unpackers: anyio.CapacityLimiter | None = None
        self._bounds: dict[str, tuple[Relation, BodyBounds]] = {}
        self.queries = QueryProcesses(self.limits.query_bytes)
        self.answers = ByteBudget(self.limits.answer_bytes, "answers")
        self.waiting = ByteBudget(self.limits.waiting_bytes, "bodies of requests")
        self._hub: Hub | None = None

    @property
    def hub(self) -> Hub:
        """Who tells subscribers; begun by the first of them, in the loop."""
        if self._hub is None:
            self._hub = Hub(self.source, asyncio.get_running_loop())
        return self._hub

    def problem(self) -> str:
        """Return why requests are not answered, or rows not taken, at this moment; "" if they are."""
        return self.users.look().problem or str(self.source.status().get("problem") or "")

    def end_subscriptions(self) -> None:
        """Tell all subscribers, and those who wait for something to come, that nothing more comes; end long queries."""
        self.arrivals.close()
        self.queries.close()
        if self._hub is not None:
            self._hub.close()

    def needs_names(self, known: UserList) -> bool:
        """Whether who asks must be known: where there are users, or strangers could come."""
        return known.is_there or not (self.settings.is_local or self.settings.insecure)

    def is_let_in(self, entry: OpenRequest, known: UserList) -> bool:
        """Whether the user of a request that is under way would still be let in."""
        if entry.user == NOBODY or not self.needs_names(known):
            return True
        if entry.session and self.sessions.user_of(entry.session) != entry.user:
            return False
        return entry.user in known.users  # with the same role and views

    @property
    def query_limits(self) -> QueryLimits:
        """The limits of a query."""
        limits = self.limits
        return QueryLimits(limits.statement_s, limits.result_rows, limits.result_bytes, self.queries.ask)

    def views_of(self, user: User) -> list[ViewDef]:
        """Return the views that there are for a user."""
        return [view for view in self.source.program.shown_views if user.may_read(view.name)]

    def view_named(self, user: User, name: str) -> ViewDef:
        """Return a view; UnknownNameError if there is none for the user."""
        known = {view.name: view for view in self.views_of(user)}
        return known[known_name(name, known, "view")]

    async def read(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return what a reading function returns, called in a thread; only some run at once.

        Raises
        ------
        BusyError
            If there is no place for it in time.
        """
        if self._readers is None:
            self._readers = anyio.CapacityLimiter(self.limits.concurrent_reads)
        if self._readers.available_tokens < 1:
            await self._place(self._readers)
        return await anyio.to_thread.run_sync(partial(call, *arguments, **named), limiter=self._readers)

    def bounds_of(self, relation: Relation) -> BodyBounds:
        """Return how large a body with rows of a table may be."""
        known = self._bounds.get(relation.name)
        if known is None or known[0] is not relation:
            made = BodyBounds.of(relation, self.limits.body_rows, self.limits.body_bytes)
            known = self._bounds[relation.name] = relation, made
        return known[1]

    async def take_apart(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what is made of a body, in a thread; only a few run at once, so that others have the machine, too."""
        if self._unpackers is None:
            self._unpackers = anyio.CapacityLimiter(_UNPACKERS)
        return await anyio.to_thread.run_sync(partial(call, *arguments), limiter=self._unpackers)

    async def _place(self, readers: anyio.CapacityLimiter) -> None:
        with anyio.move_on_after(self.limits.wait_s) as scope:
            async with readers:
                return
        if scope.cancelled_caught:
            raise BusyError("too many others are reading", hint="Ask again a little later.")

    def check_size(self, found: Answer) -> Answer:
        """Return rows; LimitError if they are more than one answer may have."""
        rows, size = self.limits.result_rows, self.limits.result_bytes
        if rows is not None and found.table.num_rows > rows:
            raise LimitError(f"the answer has {found.table.num_rows:,} rows, more than {rows:,}", hint="Use limit=.")
        if size is not None and found.table.nbytes > size:
            raise LimitError(f"the answer has {found.table.nbytes:,} bytes, more than {size:,}", hint="Use limit=.")
        return found


def user_of(request: HTTPConnection) -> User:
    """Return who asks."""
    found: User = request.scope.get("cumulus.user", EVERYBODY)
    return found


def entry_of(request: HTTPConnection) -> OpenRequest | None:
    """Return a request among those under way; None where no guard stands before the application."""
    found: OpenRequest | None = request.scope.get("cumulus.open")
    return found
