"""The last few of something, by a key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentValues(Generic[Value]):
    """A cache of values, least recently used given up first; any thread may use it.

    Parameters
    ----------
    most
        How many there are.

    Examples
    --------
    >>> recent = RecentValues(2)
    >>> for key in "aba", "b", "aba", "c":
    ...     recent.keep(key, key.upper())
    >>> recent.find("aba"), recent.find("b")
    ('ABA', None)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> Value | None:
        """Return a value; None if it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: Hashable, value: Value) -> None:
        """Keep a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
