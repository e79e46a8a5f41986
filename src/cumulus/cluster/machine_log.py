"""A machine's log as the machine sees it: which record is of which epoch, and when a snapshot takes its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from cumulus.cluster.codec import decode, encode
from cumulus.cluster.machine_tasks import SaveState
from cumulus.errors import StoreError
from cumulus.machine import Append, Effect, Forget, Name, Perform

LEAST_LOG_BYTES = 32 << 20
"""A log is replaced by a snapshot when it has outgrown this and the last snapshot, if nothing else is said."""


class MachineLog:
    """The records of a machine, by their numbers.

    Parameters
    ----------
    machine
        Whose log it is.
    least_bytes
        A log that is larger, and larger than the last snapshot, is replaced by a new one.

    Attributes
    ----------
    records
        Epoch → the last record that it needs.
    next
        The number of the next record.
    saved
        The epoch of the last snapshot that is on the disk.
    bytes
        Of all records since the last snapshot.
    """

    def __init__(self, machine: Name, least_bytes: int = LEAST_LOG_BYTES) -> None:
        self._machine, self.least_bytes = machine, least_bytes
        self.records: dict[int, int] = {}
        self.next, self.saved, self.bytes = 1, 0, 0
        self._state_bytes = 0

    def load(self, state: bytes) -> Any:
        """Return what a snapshot says; the log begins behind it."""
        found = decode(state)
        self.saved, self._state_bytes = found.epoch, len(state)
        return found

    def recover(self, first: int, records: Sequence[bytes]) -> Iterator[tuple[int, Any]]:
        """Yield the records of lives before, with their numbers; the next one comes behind them."""
        self.next = first + len(records)
        for number, record in enumerate(records, first):
            self.bytes += len(record)
            yield number, decode(record)

    def require_epochs(self, logged: Collection[int], committed: int) -> None:
        """Raise StoreError unless all epochs behind the snapshot up to the last committed one were logged."""
        missing = [epoch for epoch in range(self.saved + 1, committed + 1) if epoch not in logged]
        if missing:
            raise StoreError(
                f"{self._machine}: epoch {missing[0]} is committed, and not in the log, nor in a snapshot",
                hint=f"Bring the files of {self._machine} back from a copy, or start with new folders.",
            )

    def append(self, logged: object, effects: list[Effect]) -> int:
        """Append a record; return its number."""
        number, record = self.next, b"".join(encode(logged))
        effects.append(Append(number, record))
        self.next += 1
        self.bytes += len(record)
        return number

    def save_if_due(self, epoch: int, committed: int, state: Callable[[], object], effects: list[Effect]) -> None:
        """Let a snapshot be kept of what is there after an epoch, if the log has outgrown the last one.

        Parameters
        ----------
        epoch, committed
            That epoch, and the last committed one.
        state
            Makes the snapshot.
        effects
            Where the task goes.
        """
        if self.bytes > max(self.least_bytes, self._state_bytes):
            saved = b"".join(encode(state()))
            self.bytes, self._state_bytes = 0, len(saved)
            effects.append(Perform(SaveState(epoch, committed, saved)))

    def forget(self, committed: int, effects: list[Effect], needed: Collection[int] = ()) -> None:
        """Give up the records of epochs that are in a snapshot, and are committed, as it may be used only then.

        Parameters
        ----------
        needed
            Records that must stay, with all behind them.
        """
        done = [each for each in self.records if each <= self.saved]
        if done and self.saved <= committed:
            last = max(self.records.pop(each) for each in done)
            effects.append(Forget(min([last, *(first - 1 for first in needed)])))
