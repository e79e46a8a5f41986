"""Answers that are kept for a while, so that their pages are all of one state."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from cumulus.errors import HistoryError
from cumulus.hosts import Answer


@dataclass(slots=True)
class _Kept:
    found: Answer
    user: str
    until: float


class KeptPages:
    """The answers of which somebody reads page after page: the oldest go when they take too much, or were left."""

    def __init__(self, most_bytes: int, kept_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._most_bytes, self._kept_s, self._clock = most_bytes, kept_s, clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, found: Answer, user: str) -> str:
        """Keep an answer for a user; return what it is asked for by."""
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[key] = _Kept(found, user, self._clock() + self._kept_s)
            self._bytes += found.table.nbytes
            while len(self._kept) > 1 and (self._bytes > self._most_bytes or self._first.until < self._clock()):
                self._drop(next(iter(self._kept)))
        return key

    @property
    def _first(self) -> _Kept:
        return next(iter(self._kept.values()))

    def _drop(self, key: str) -> None:
        self._bytes -= self._kept.pop(key).found.table.nbytes

    def get(self, key: str, user: str) -> Answer:
        """Return an answer that was kept for a user; HistoryError if it is not any more."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.user != user or kept.until < self._clock():
                raise HistoryError("the pages of this answer are not kept any more", hint="Begin with the first page.")
            kept.until = self._clock() + self._kept_s
            self._kept.move_to_end(key)
            return kept.found
