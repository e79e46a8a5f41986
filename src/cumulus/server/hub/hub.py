"""The hub: a thread that takes the changes of views as they come, and tells channels; and who subscribes to these."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

import pyarrow as pa

from cumulus.catalog.names import known_name
from cumulus.errors import ClosedError, CumulusError, EvaluationError, HistoryError, UsageError
from cumulus.hosts import RowRequest
from cumulus.server.hub.channel import Channel, Message
from cumulus.server.hub.feed import ViewFeed
from cumulus.server.hub.messages import MessageForm, encode, encode_error
from cumulus.server.hub.selections import RowSelection, select_rows
from cumulus.server.sources import ServedSource
from cumulus.views.folding import Bound
from cumulus.views.row_changes import CHANGE

_LINGER_S = 15.0
_ChannelKey: TypeAlias = tuple[RowSelection, MessageForm, float]
"""Changes are kept so long after the last subscriber went, for one that comes back."""
_ROWS_AT_ONCE = 10_000
"""More rows of a snapshot come in several messages."""


@dataclass(frozen=True, slots=True)
class HubLimits:
    """What the hub keeps.

    Parameters
    ----------
    kept_rows
        Changed rows of a view, for those who are behind or come back.
    kept_bytes
        Messages of a channel.
    """

    kept_rows: int = 200_000
    kept_bytes: int = 16 << 20


_LIMITS = HubLimits()


class Hub:
    """Tells subscribers how views change.

    Parameters
    ----------
    source
        Whose views they are.
    loop
        The loop in which subscribers wait.
    """

    def __init__(self, source: ServedSource, loop: asyncio.AbstractEventLoop, limits: HubLimits | None = None) -> None:
        self._source, self._loop, self._limits = source, loop, limits or HubLimits()
        self._feeds: dict[str, ViewFeed] = {}
        self._channels: dict[_ChannelKey, Channel] = {}
        self._lock = threading.Lock()
        """Held by who reads or changes feeds and channels, and while they are pumped."""
        self._moved = threading.Event()
        self._is_closed = False
        source.listen(lambda at: self._moved.set())
        self._thread = threading.Thread(target=self._work, name="hub", daemon=True)
        self._thread.start()

    async def subscribe(
        self,
        view: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        form: MessageForm = MessageForm.JSON,
        snapshot: bool = True,
        since: int | None = None,
        every_s: float = 0.0,
    ) -> Subscriber:
        """Return the messages to whoever subscribes to rows of a view.

        Parameters
        ----------
        columns, where
            Which columns of which rows; None is all columns.
        snapshot
            Begin with all rows that there are.
        since
            Begin with what came after this transaction instead. If that is not kept any more and `snapshot` is given,
            begin with the snapshot.
        every_s
            Put together what changes within so many seconds.

        Raises
        ------
        UnknownNameError, UsageError
            If the view has no such column, or a value is not of its type.
        HistoryError
            If what came after `since` is not kept any more.
        """
        program = self._source.program
        name = known_name(view, [each.name for each in program.views], "view")
        selection = select_rows(program.view(name), columns, where)
        if since is not None and since > self._source.at:
            raise UsageError(
                f"since={since}: the last transaction is number {self._source.at}",
                hint="since is the at of a message, or of an answer.",
            )
        channel = await asyncio.to_thread(self._open, (selection, form, every_s))
        try:
            if since is not None and _reaches(channel, since, or_raise=not snapshot):
                return Subscriber(self, channel, [], since)
            first, at = await asyncio.to_thread(self._begin, selection, form, snapshot)
            return Subscriber(self, channel, first, at)
        except BaseException:
            self.leave(channel)
            raise

    def leave(self, channel: Channel) -> None:
        """End a subscription to a channel."""
        channel.idle_since = monotonic()
        channel.subscribers -= 1
        self._moved.set()  # so that it is known when to forget it

    @property
    def subscribers(self) -> int:
        """How many subscribers there are."""
        return sum(channel.subscribers for channel in tuple(self._channels.values()))

    def forget_idle(self) -> None:
        """Close now what is kept for subscribers that might come back: who drops a view does not wait for them."""
        with self._lock:
            self._forget(float("inf"))

    def close(self) -> None:
        """End all subscriptions."""
        self._is_closed = True
        self._moved.set()
        self._thread.join()
        problem = ClosedError("the server is going down", hint="Subscribe again, since the last at, when it is back.")
        with self._lock:
            for feed in list(self._feeds.values()):
                self._fail(feed, problem)
                feed.close()

    # --- beginning --------------------------------------------------------------------------------------------------

    def _open(self, key: _ChannelKey) -> Channel:
        """Return the channel of a selection, and count its new subscriber."""
        with self._lock:
            selection, form, every_s = key
            feed = self._feeds.get(selection.view)
            if feed is None:
                at, changes = self._source.host.changes(selection.view)
                feed = self._feeds[selection.view] = ViewFeed(selection.view, changes, at, self._limits.kept_rows)
            channel = self._channels.get(key)
            if channel is None:
                channel = self._channels[key] = Channel(feed, selection, form, every_s, self._limits.kept_bytes)
            channel.subscribers += 1
            self._moved.set()  # it has told nothing while it had nobody
            return channel

    def _begin(self, selection: RowSelection, form: MessageForm, snapshot: bool) -> tuple[list[bytes], int]:
        """Return the messages of a snapshot, and after which transaction it is."""
        if not snapshot:
            at = self._source.at
            return [encode(form, selection.table(selection.net([])), at)], at
        found = self._source.host.read(RowRequest(selection.view, tuple(selection.names), selection.where))
        assert found.at is not None
        ones = pa.array([1] * min(found.table.num_rows, _ROWS_AT_ONCE), pa.int64())
        messages = []
        for begin in range(0, max(found.table.num_rows, 1), _ROWS_AT_ONCE):
            rows = found.table.slice(begin, _ROWS_AT_ONCE)
            is_last = begin + _ROWS_AT_ONCE >= found.table.num_rows
            table = rows.add_column(0, CHANGE, ones.slice(0, rows.num_rows))
            messages.append(encode(form, table, found.at, progress=is_last, snapshot=True))
        return messages, found.at

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._is_closed:
            now = monotonic()
            channels = tuple(self._channels.values())
            waits = [channel.due_s(now) for channel in channels if channel.is_behind]
            waits += [channel.idle_since + _LINGER_S - now for channel in channels if not channel.subscribers]
            self._moved.wait(max(0.0, min(waits)) if waits else None)
            self._moved.clear()
            self._pump()

    def _pump(self) -> None:
        at, now = self._source.at, monotonic()
        with self._lock:
            self._forget(now)
            failed = set()
            for feed in self._feeds.values():
                try:
                    feed.pump(at)
                except Exception as problem:  # noqa: BLE001  # the other views go on
                    failed.add(feed.view)
                    known = problem if isinstance(problem, CumulusError) else EvaluationError(str(problem))
                    self._fail(feed, known)
            for name in failed:
                self._feeds.pop(name).close()
            news = [channel for key, channel in list(self._channels.items()) if self._has_news(key, channel, now)]
        if news:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_wake, news)

    def _has_news(self, key: _ChannelKey, channel: Channel, now: float) -> bool:
        """Let a channel tell what has changed, if it is time; whether there is something for its subscribers."""
        try:
            return channel.emit(now)
        except Exception as problem:  # noqa: BLE001  # a value that has no place in a message; the others go on
            what = f"the changes of {channel.feed.view} cannot be told: {problem}"
            del self._channels[key]  # whoever comes again begins anew
            channel.problem = EvaluationError(what, hint="Read its rows, or other columns of it.")
            return True

    def _fail(self, feed: ViewFeed, problem: CumulusError) -> None:
        """Tell all who subscribe to a view that its changes are not known."""
        ended = [key for key, channel in self._channels.items() if channel.feed is feed]
        channels = [self._channels.pop(key) for key in ended]
        for channel in channels:
            channel.problem = problem
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_wake, channels)

    def _forget(self, now: float) -> None:
        """Close what nobody has subscribed to for a while."""
        for key, channel in list(self._channels.items()):
            if not channel.subscribers and now - channel.idle_since > _LINGER_S:
                del self._channels[key]
        used = {channel.feed.view for channel in self._channels.values()}
        for name in self._feeds.keys() - used:
            self._feeds.pop(name).close()


def _reaches(channel: Channel, at: int, or_raise: bool) -> bool:
    """Whether what came after a transaction is kept; HistoryError instead of no, if asked for."""
    try:
        channel.feed.between(at, channel.feed.at)
    except HistoryError:
        if or_raise:
            raise
        return False
    return True


def _wake(channels: Sequence[Channel]) -> None:
    for channel in channels:
        channel.wake()


class Subscriber:
    """Messages to one subscriber, to be iterated over in the loop; `aclose` ends it.

    Attributes
    ----------
    at
        The transaction up to which it was told everything.
    """

    def __init__(self, hub: Hub, channel: Channel, first: list[bytes], at: int) -> None:
        self._hub, self._channel, self._first, self.at = hub, channel, first, at
        self._is_closed = False
        self._problem: CumulusError | None = None

    async def messages(self, idle_s: float | None = None) -> AsyncGenerator[bytes | None, None]:
        """Iterate over messages for ever; None each time that there was none for so many seconds.

        The last message tells why nothing more comes, if the changes are not known or not kept any more.
        """
        try:
            while self._first:
                yield self._first.pop(0)
            while True:
                try:
                    message = await self._next(idle_s)
                except CumulusError as problem:
                    yield encode_error(self._channel.form, problem, self.at)
                    return
                if message is None:
                    yield None
                    continue
                self.at = message.at
                yield message.data
        finally:
            self.close()

    async def _next(self, idle_s: float | None) -> Message | None:
        channel = self._channel
        while True:
            if self._problem is not None:
                raise self._problem
            news = channel.news
            found = channel.after(self.at)
            if found is not None:
                return found
            if self.at < channel.at:
                return await asyncio.to_thread(channel.catch_up, self.at)
            if channel.problem is not None:
                raise channel.problem
            try:
                async with asyncio.timeout(idle_s):
                    await news.wait()
            except TimeoutError:
                return None

    def end(self, problem: CumulusError) -> None:
        """Have the next message tell why nothing more comes; called in the loop."""
        self._problem = problem
        self._first.clear()
        self._channel.wake()

    def close(self) -> None:
        """End it; more than once does no harm."""
        if not self._is_closed:
            self._is_closed = True
            self._hub.leave(self._channel)
