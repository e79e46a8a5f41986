"""A bucket in Spark's state store: snapshot pages, and a log of the packed payloads since.

What is stored is small and sequential: one log entry per epoch, never an entry per key. The live bucket stays in
the worker's memory,
stamped with the epoch and a nonce of the attempt that made it. It is used only if the store has the same stamp; a
bucket that is merely behind catches up from the log, any other is rebuilt from the pages and the log.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cumulus.epochs import faults
from cumulus.epochs.bucket import Bucket

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

PAGE_BYTES = 4 << 20
COMPACT_BYTES = 32 << 20
"""The log may grow to this, or to the size of the pages, before it is compacted: writing costs at most twice the input,
and machine code reads such a log again in a second or two."""

BUDGET_BYTES = 16 << 20
"""Pages written in one epoch, at most: compaction must not stop the stream."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the store says of itself.

    Parameters
    ----------
    epoch, nonce
        The last epoch applied, and the mark of the attempt that did it.
    base, generation, pages, base_bytes
        The epoch of the snapshot (0: none), its number, how many pages and bytes it has.
    log_bytes
        Of the log entries after `base`.
    """

    epoch: int
    nonce: str
    base: int = 0
    generation: int = 0
    pages: int = 0
    base_bytes: int = 0
    log_bytes: int = 0


HEAD = "epoch long, nonce string, base long, generation long, pages long, base_bytes long, log_bytes long"


@dataclass(slots=True)
class Live:
    """A bucket in memory, stamped; `pending` are the pages of a snapshot that is not all written yet."""

    bucket: Bucket
    epoch: int
    nonce: str
    pending: list[bytes] | None = None
    pending_epoch: int = 0
    written: int = 0


class Store:
    """The state variables of one bucket.

    Parameters
    ----------
    handle
        Spark's access to the state of the grouping key that is being handled.
    compact_bytes
        How long the log may grow at least.
    """

    def __init__(self, handle: StatefulProcessorHandle, compact_bytes: int = COMPACT_BYTES) -> None:
        self._compact_bytes = compact_bytes
        self._head = handle.getValueState("head", HEAD)
        self._log = handle.getMapState("log", "epoch long", "nonce string, payload binary")
        self._pages = handle.getMapState("pages", "generation long, page long", "data binary")

    def head(self) -> Head | None:
        """Return what the store says, None before the first epoch."""
        found = self._head.get()
        return None if found is None else Head(*found)

    def revive(self, head: Head | None, live: Live | None, fresh: Callable[[], Bucket]) -> tuple[Live, str]:
        """Return a live bucket that is exactly what the store says, and how it came: "kept", "caught up", "rebuilt"
        or "new".
        """
        if head is None:
            return Live(fresh(), 0, ""), "new"
        if live is not None and (live.epoch, live.nonce) == (head.epoch, head.nonce):
            return live, "kept"
        if live is not None and head.base <= live.epoch < head.epoch:
            entry = self._log.getValue((live.epoch,))
            if entry is not None and entry[0] == live.nonce:
                live.pending = None
                self._replay(live.bucket, live.epoch, head.epoch)
                return Live(live.bucket, head.epoch, head.nonce), "caught up"
        bucket = fresh()
        if head.base:
            pages = [self._pages.getValue((head.generation, page)) for page in range(head.pages)]
            assert all(page is not None for page in pages), f"a page of generation {head.generation} is missing"
            bucket.load(b"".join(bytes(page[0]) for page in pages if page is not None))
        self._replay(bucket, head.base, head.epoch)
        return Live(bucket, head.epoch, head.nonce), "rebuilt"

    def _replay(self, bucket: Bucket, after: int, until: int) -> None:
        for epoch in range(after + 1, until + 1):
            entry = self._log.getValue((epoch,))
            if entry is not None:  # an epoch without rows for this bucket
                bucket.apply(epoch, [bytes(entry[1])])

    def record(self, head: Head | None, live: Live, epoch: int, payload: bytes) -> Head:
        """Write the epoch that `live` has just applied, compact if it is time, and stamp both."""
        live.epoch, live.nonce = epoch, secrets.token_hex(8)
        before = head or Head(0, "")
        self._log.updateValue((epoch,), (live.nonce, payload))
        after = Head(
            **{**asdict(before), "epoch": epoch, "nonce": live.nonce, "log_bytes": before.log_bytes + len(payload)}
        )
        if live.pending is None and after.log_bytes > max(self._compact_bytes, after.base_bytes):
            data = live.bucket.dump()
            live.pending = [data[at : at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]
            live.pending_epoch, live.written = epoch, 0
        if live.pending is not None:
            after = self._compact(after, live)
        self._head.update(tuple(asdict(after).values()))
        faults.reach("after-state-write")
        return after

    def _compact(self, head: Head, live: Live) -> Head:
        """Write some pages; when all are there, switch to them and drop the old ones and the log that they contain."""
        pages = live.pending
        assert pages is not None
        spent = 0
        while live.written < len(pages) and spent < BUDGET_BYTES:
            self._pages.updateValue((head.generation + 1, live.written), (pages[live.written],))
            spent += len(pages[live.written])
            live.written += 1
            faults.reach("in-compaction")
        if live.written < len(pages):
            return head
        # Also pages of an attempt that was given up, should there be any.
        for generation, page in [(int(key[0]), int(key[1])) for key in self._pages.keys()]:  # noqa: SIM118 (no dict)
            if generation != head.generation + 1 or page >= len(pages):
                self._pages.removeKey((generation, page))
        dropped = 0
        for epoch in [int(key[0]) for key in self._log.keys()]:  # noqa: SIM118
            if epoch <= live.pending_epoch:
                entry = self._log.getValue((epoch,))
                dropped += len(entry[1]) if entry is not None and epoch > head.base else 0
                if epoch < live.pending_epoch:  # the last one stays: its nonce lets other workers catch up
                    self._log.removeKey((epoch,))
        live.pending = None
        return Head(
            head.epoch,
            head.nonce,
            live.pending_epoch,
            head.generation + 1,
            len(pages),
            sum(map(len, pages)),
            head.log_bytes - dropped,
        )
