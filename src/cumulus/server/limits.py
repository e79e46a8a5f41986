"""How much one request, one user and all together may ask of a server."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cumulus.engine.limits import machine_memory
from cumulus.errors import BusyError

_LEAST_BYTES = 256 << 20


def memory_share(part: int) -> int:
    """Return so small a part of the machine's memory, in bytes, and no less than 256 MB."""
    return max((machine_memory() or 0) // part, _LEAST_BYTES)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server; each has a default, and docs/security.md says what happens beyond.

    Parameters
    ----------
    body_bytes, body_rows
        Of a request, as it comes and unpacked: bytes in the types of its tables.
    waiting_bytes
        Of all bodies that have come and are not answered, as they come and unpacked; the first megabyte of each as it
        comes does not count.
    result_rows, result_bytes
        Of an answer; None is without a limit.
    answer_bytes
        Of all answers under way, while they are written.
    query_bytes
        Of memory that all queries take which run in processes of their own.
    statement_s
        For a query and for writing its answer; then DuckDB is interrupted, or the answer is cut.
    wait_s
        For a read that waits (``after=``), and for a place among the concurrent reads.
    concurrent_reads
        That run at once; others wait.
    connections
        In all. When there are as many, the one that has waited longest without a request gives way to a new one.
    requests_per_user, streams_per_user
        At once. A stream of changes, and a WebSocket, counts as long as it is open; it costs little while it waits.
    header_s
        For the head of a request from the opening of the connection on.
    body_s
        For the next piece of a body.
    page_bytes, page_s
        Of the answers that are kept for their next pages, and for how long after they were last asked for.
    """

    body_bytes: int = 64 << 20
    body_rows: int = 100_000
    waiting_bytes: int = 256 << 20
    result_rows: int | None = None
    result_bytes: int | None = field(default_factory=lambda: memory_share(64))
    answer_bytes: int = field(default_factory=lambda: memory_share(64))
    query_bytes: int = field(default_factory=lambda: memory_share(32))
    statement_s: float = 30.0
    wait_s: float = 30.0
    concurrent_reads: int = 16
    connections: int = 4_000
    requests_per_user: int = 256
    streams_per_user: int = 1_000
    header_s: float = 10.0
    body_s: float = 30.0
    page_bytes: int = 256 << 20
    page_s: float = 60.0


class ByteBudget:
    """Bytes that all requests under way share; used in the loop alone.

    Parameters
    ----------
    most
        How many there are.
    what
        What they are of, for the error.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self.held = 0
        self._shared: Counter[int] = Counter()

    def take(self, size: int) -> None:
        """Take bytes, until `give` gives them back; BusyError if there are not as many left."""
        if size > self._most - self.held:
            raise BusyError(
                f"{self._what} under way take {self.held:,} bytes of {self._most:,}", hint="Send it again later."
            )
        self.held += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.held -= size

    def take_shared(self, key: int, size: int) -> None:
        """Take bytes that others with the same key may have taken already; `give_shared` gives them back."""
        if not self._shared[key]:
            self.take(size)
        self._shared[key] += 1

    def give_shared(self, key: int, size: int) -> None:
        """Give bytes back, if nobody else has them any more."""
        self._shared[key] -= 1
        if not self._shared[key]:
            del self._shared[key]
            self.give(size)
