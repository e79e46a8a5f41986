"""Links and disks that take time for each byte: what is sent or read queues up, and arrives in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from cumulus_lab.simulation.agenda import Agenda

T = TypeVar("T")


class ByteQueue:
    """Bytes that pass one after the other, such as those that a link sends or a disk reads.

    Parameters
    ----------
    agenda
        Whose time it is.
    bytes_per_us
        How fast they pass; infinity if that takes no time.
    """

    def __init__(self, agenda: Agenda, bytes_per_us: float) -> None:
        self._agenda = agenda
        self._bytes_per_us = bytes_per_us
        self._free = 0.0

    def add(self, size: int) -> int:
        """Return in how many microseconds so many bytes have passed, behind all that were added before."""
        # In fractions of a microsecond, so that rounding does not change the bandwidth.
        self._free = max(self._free, self._agenda.now) + size / self._bytes_per_us
        return round(self._free) - self._agenda.now


class BandwidthLink(Generic[T]):
    """One direction of a link.

    Parameters
    ----------
    agenda
        When what happens.
    bytes_per_us
        How fast bytes leave.
    latency_us
        How long they travel.
    sent
        Is called when the last byte of something has left.
    arrived
        Is called when it has come.
    """

    def __init__(
        self,
        agenda: Agenda,
        bytes_per_us: float,
        latency_us: int,
        sent: Callable[[T], None],
        arrived: Callable[[T], None],
    ) -> None:
        self._agenda = agenda
        self._bytes = ByteQueue(agenda, bytes_per_us)
        self._latency_us = latency_us
        self._sent = sent
        self._arrived = arrived
        self.messages = 0
        self.bytes = 0

    def send(self, what: T, size: int) -> None:
        """Send something of so many bytes, after all that was sent before."""
        left = self._bytes.add(size)
        self.messages += 1
        self.bytes += size
        self._agenda.after(left, self._sent, what)
        self._agenda.after(left + self._latency_us, self._arrived, what)
