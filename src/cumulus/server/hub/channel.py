"""A channel: what is told to all who subscribe to one selection in one form, encoded once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Lock

from cumulus.errors import HistoryError
from cumulus.server.hub.feed import ViewFeed
from cumulus.server.hub.messages import MessageForm, encode
from cumulus.server.hub.selections import RowSelection

PROGRESS_S = 1.0
"""Where no selected row changes, subscribers are told that `at` has moved so often."""


@dataclass(frozen=True, slots=True)
class Message:
    """What leads from the state after the transaction `start` to that after `at`."""

    start: int
    at: int
    data: bytes


class Channel:
    """The messages of one selection; the hub's thread adds to it, the loop reads.

    A subscriber knows where it is. It gets the message that begins there, the same bytes as others; or, if none does, a
    message of its own that leads to where the channel is. So nothing waits for a slow one.

    Parameters
    ----------
    every_s
        Changes within so many seconds are put together.
    kept_bytes
        Messages are kept for those who are behind, up to so many bytes.
    """

    def __init__(
        self, feed: ViewFeed, selection: RowSelection, form: MessageForm, every_s: float, kept_bytes: int
    ) -> None:
        self.feed, self.selection, self.form, self.every_s = feed, selection, form, every_s
        self.at = feed.at
        self.subscribers = 0
        self.idle_since = 0.0
        """When the last subscriber went."""
        self.news = asyncio.Event()
        """Set when there is something new, and another one then; of the loop."""
        self.problem: BaseException | None = None
        """Why nothing more comes."""
        self._kept_bytes = kept_bytes
        self._messages: dict[int, Message] = {}
        """By the transaction after which each begins, in order."""
        self._bytes = 0
        self._told = 0.0
        self._is_quiet = False
        """Whether no selected row has changed, the last time that somebody looked."""
        self._lock = Lock()

    @property
    def is_behind(self) -> bool:
        """Whether somebody is to be told something, now or later."""
        return self.subscribers > 0 and self.at < self.feed.at

    def due_s(self, now: float) -> float:
        """Return in how many seconds something may have to be told."""
        pause_s = PROGRESS_S if self._is_quiet or not self.every_s else self.every_s
        return max(0.0, self._told + pause_s - now)

    def emit(self, now: float) -> bool:
        """Make a message of what has changed, if it is time; return whether there is a new one."""
        at = self.feed.at
        if not self.is_behind:
            return False
        if now - self._told < self.every_s:
            self._is_quiet = False  # nobody has looked
            return False
        try:
            net = self.selection.net(self.feed.between(self.at, at))
        except HistoryError:  # it was kept for nobody; who is there has to begin anew
            with self._lock:
                self._messages.clear()
                self.at, self._bytes, self._told = at, 0, now
            return True
        self._is_quiet = not net
        if not net and now - self._told < PROGRESS_S:
            return False
        message = Message(self.at, at, encode(self.form, self.selection.table(net), at))
        with self._lock:
            self._messages[message.start] = message
            self._bytes += len(message.data)
            while self._bytes > self._kept_bytes and len(self._messages) > 1:
                self._bytes -= len(self._messages.pop(next(iter(self._messages))).data)
            self.at, self._told = at, now
        return True

    def after(self, at: int) -> Message | None:
        """Return the message that begins after a transaction; None if there is none."""
        with self._lock:
            return self._messages.get(at)

    def catch_up(self, at: int) -> Message:
        """Return one message that leads from the state after a transaction to where the channel is.

        Raises
        ------
        HistoryError
            If what came after it is not kept any more.
        """
        end = self.at
        net = self.selection.net(self.feed.between(at, end))
        return Message(at, end, encode(self.form, self.selection.table(net), end))

    def wake(self) -> None:
        """Let all who wait look; called in the loop."""
        news, self.news = self.news, asyncio.Event()
        news.set()
