"""The last changes of a view, transaction by transaction: what a subscriber that comes late or is slow gets from."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from cumulus.catalog.events import Row
from cumulus.errors import HistoryError
from cumulus.hosts import ChangeFeed


@dataclass(frozen=True, slots=True)
class _Entry:
    """What changed after the transaction `start`, up to `at`."""

    start: int
    at: int
    net: Counter[Row]


class ViewFeed:
    """Changes of one view; the hub's thread adds to it, any thread reads.

    Parameters
    ----------
    changes
        Where they come from: all that came after the transaction `at`.
    kept_rows
        So many changed rows are kept; older ones are forgotten.
    """

    def __init__(self, view: str, changes: ChangeFeed, at: int, kept_rows: int) -> None:
        self.view, self.at = view, at
        """The last transaction that is in it, or did not change the view."""
        self.since = at
        """What came after this transaction is kept."""
        self._changes, self._kept_rows = changes, kept_rows
        self._entries: deque[_Entry] = deque()
        self._rows = 0
        self._lock = Lock()

    def pump(self, at: int) -> None:
        """Take what has come up to a transaction, or even later ones.

        Raises
        ------
        CumulusError
            If the changes of a transaction cannot be computed. The feed is of no use then.
        """
        taken = self._changes.take()
        with self._lock:
            for each in taken:
                net = Counter[Row]()
                for old, new in each.rows:
                    if old is not None:
                        net[old] -= 1
                    if new is not None:
                        net[new] += 1
                self._entries.append(_Entry(each.since if each.is_sum else each.number - 1, each.number, net))
                self._rows += len(net)
                self.at = max(self.at, each.number)
            self.at = max(self.at, at)
            while self._rows > self._kept_rows and len(self._entries) > 1:
                gone = self._entries.popleft()
                self._rows -= len(gone.net)
                self.since = gone.at

    def between(self, start: int, end: int) -> Iterator[tuple[Row, int]]:
        """Yield how often rows came or left after the transaction `start`, up to `end`; a row may come several times.

        Raises
        ------
        HistoryError
            If that is not kept any more.
        """
        with self._lock:
            wanted = [each for each in self._entries if start < each.at <= end]
            if start < self.since or any(each.start < start for each in wanted):
                raise HistoryError(
                    f"the changes of {self.view} after {start} are not kept any more, only those after {self.since}",
                    hint="Begin anew with a snapshot.",
                )
        return (item for each in wanted for item in each.net.items())

    def close(self) -> None:
        """End it."""
        self._changes.close()
