"""A log on a virtual disk: what is on it for sure, and what a crash may leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from cumulus.machine import Append, Recovered
from cumulus_lab.simulation.choices import ChoiceStream


class VirtualLog:
    """The log of one machine, over all its lives.

    Records are on the disk in the order in which they were written. Of those that are written but not yet reported to
    be there, a crash leaves as many as chance says: a real disk may have them, too. What may be forgotten is kept until
    more may be, as a log in several files does, and a recovery may or may not show it.

    Parameters
    ----------
    first, records
        What is on the disk already, and the number of the first of them.
    """

    def __init__(self, first: int = 1, records: Sequence[bytes] = ()) -> None:
        self._first = first
        self._records: deque[bytes] = deque(records)
        self._forgotten = first - 1
        self.durable = self.written

    @property
    def written(self) -> int:
        """The number of the last record, on the disk or on its way there."""
        return self._first + len(self._records) - 1

    def records(self, first: int, last: int) -> tuple[int, list[bytes]]:
        """Return records by their numbers, as far as they are kept, and the number of the first one."""
        assert last <= self.durable, f"record {last} is read, but the last on the disk is {self.durable}"
        first = max(first, self._first)
        return first, list(islice(self._records, first - self._first, last + 1 - self._first))

    def write(self, effect: Append) -> None:
        """Begin to write a record."""
        assert effect.number == self.written + 1, f"record {effect.number} is appended after record {self.written}"
        self._records.append(effect.record)

    def forget(self, number: int) -> None:
        """Take notice that records up to a number are not needed any more."""
        assert number <= self.durable, f"record {number} is forgotten, but the last on the disk is {self.durable}"
        while self._first <= self._forgotten:
            self._records.popleft()
            self._first += 1
        self._forgotten = max(self._forgotten, number)

    def crash(self, stream: ChoiceStream) -> int:
        """Lose what did not get to the disk; return how many records that was."""
        pending = self.written - self.durable
        if not pending:
            return 0
        lost = pending - stream.below(pending + 1)
        for _ in range(lost):
            self._records.pop()
        self.durable = self.written
        return lost

    def recovered(self, stream: ChoiceStream) -> Recovered:
        """Return what a new life is told about the log."""
        first = self._first if self._forgotten >= self._first and stream.below(2) else self._forgotten + 1
        first = max(first, self._first)
        return Recovered(first, tuple(islice(self._records, first - self._first, None)))
