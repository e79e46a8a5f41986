"""A bucket in Spark's state store: snapshot pages, and a log of the packed payloads since.

What is stored is small and sequential: one log entry per epoch, never an entry per key. The live bucket stays in a
process of its own (`cumulus.spark.bucket_server`), stamped with the epoch and a nonce of the attempt that made it. It
is used only if the store has the same stamp; a bucket that is merely behind catches up from the log, any other is
rebuilt from the pages and the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cumulus.durable import faults
from cumulus.spark.bucket_client import BucketClient
from cumulus.spark.messages import Pending

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

COMPACT_BYTES = 32 << 20
"""The log may grow to this, or to the size of the pages, before it is compacted: writing costs at most twice the input,
and machine code reads such a log again in a second or two."""


@dataclass(frozen=True, slots=True)
class StateHead:
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


class BucketState:
    """The state variables of one bucket: the grouping key that Spark's `handle` is about.

    The log may grow to `compact_bytes` at least.
    """

    def __init__(self, handle: StatefulProcessorHandle, compact_bytes: int = COMPACT_BYTES) -> None:
        self._compact_bytes = compact_bytes
        self._head = handle.getValueState("head", HEAD)
        self._log = handle.getMapState("log", "epoch long", "nonce string, payload binary")
        self._pages = handle.getMapState("pages", "generation long, page long", "data binary")

    def head(self) -> StateHead | None:
        """Return what the store says, None before the first epoch."""
        found = self._head.get()
        return None if found is None else StateHead(*found)

    def revive(self, head: StateHead | None, bucket: BucketClient, index: int, work: Callable[[], bytes]) -> str:
        """Make a bucket exactly what the store says; return how it came: "kept", "caught up", "rebuilt" or "new".

        Parameters
        ----------
        work
            Gives what a bucket must know, pickled, if it must be made anew.
        """
        if head is None:
            bucket.call("start", work(), index, b"", 0, "")
            return "new"
        if bucket.stamp == (head.epoch, head.nonce):
            return "kept"
        if bucket.stamp is not None and head.base <= bucket.stamp[0] < head.epoch:
            epoch, nonce = bucket.stamp
            entry = self._log.getValue((epoch,))
            if entry is not None and entry[0] == nonce:
                self._replay(bucket, epoch, head)
                return "caught up"
        pages = [self._pages.getValue((head.generation, page)) for page in range(head.pages)]
        assert all(page is not None for page in pages), f"a page of generation {head.generation} is missing"
        snapshot = b"".join(bytes(page[0]) for page in pages if page is not None)
        bucket.call("start", work(), index, snapshot, head.base, "")
        self._replay(bucket, head.base, head)
        return "rebuilt"

    def _replay(self, bucket: BucketClient, after: int, head: StateHead) -> None:
        for epoch in range(after + 1, head.epoch + 1):
            entry = self._log.getValue((epoch,))
            if entry is not None:  # an epoch without rows for this bucket
                bucket.call("replay", bytes(entry[1]), epoch)
        bucket.call("restamp", head.epoch, head.nonce)

    def record(self, head: StateHead | None, bucket: BucketClient, epoch: int, nonce: str, payload: bytes) -> StateHead:
        """Write the epoch that a bucket has just applied, compact if it is time, and stamp the store."""
        before = head or StateHead(0, "")
        self._log.updateValue((epoch,), (nonce, payload))
        after = replace(before, epoch=epoch, nonce=nonce, log_bytes=before.log_bytes + len(payload))
        pending = bucket.call("pending")
        if pending is None and after.log_bytes > max(self._compact_bytes, after.base_bytes):
            bucket.call("dump")
        if pending is not None:
            after = self._compact(after, bucket, Pending(*pending), len(payload))
        self._head.update(tuple(asdict(after).values()))
        faults.crash_point("after-state-write")
        return after

    def _compact(self, head: StateHead, bucket: BucketClient, pending: Pending, budget: int) -> StateHead:
        """Write a page, and more within a budget of bytes; when all are there, switch to them and drop the old ones and
        the log that they contain.

        The budget is what the log takes: compaction must not stop the stream.
        """
        spent, number = 0, pending.next
        while number < pending.pages and (spent < budget or number == pending.next):
            page = bucket.call("page", number)
            self._pages.updateValue((head.generation + 1, number), (page,))
            spent, number = spent + len(page), number + 1
            faults.crash_point("in-compaction")
        if number < pending.pages:
            return head
        # Also pages of an attempt that was given up, should there be any.
        for generation, page in [(int(key[0]), int(key[1])) for key in self._pages.keys()]:  # noqa: SIM118 (no dict)
            if generation != head.generation + 1 or page >= pending.pages:
                self._pages.removeKey((generation, page))
        dropped = 0
        for epoch in [int(key[0]) for key in self._log.keys()]:  # noqa: SIM118
            if epoch <= pending.epoch:
                entry = self._log.getValue((epoch,))
                dropped += len(entry[1]) if entry is not None and epoch > head.base else 0
                if epoch < pending.epoch:  # the last one stays: its nonce lets other workers catch up
                    self._log.removeKey((epoch,))
        return replace(
            head,
            base=pending.epoch,
            generation=head.generation + 1,
            pages=pending.pages,
            base_bytes=pending.bytes,
            log_bytes=head.log_bytes - dropped,
        )
