"""A bucket in Spark's state store: snapshot pages, and a log of the packed payloads since.

What is stored is small and sequential: one log entry per epoch, never an entry per key. The live bucket stays in a
process of its own (`cumulus.spark.bucket_server`), stamped with the epoch and a nonce of the attempt that made it. It
is used only if the store has the same stamp; a bucket that is merely behind catches up from the log, any other is
rebuilt from the pages and the log.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from cumulus.durable import faults
from cumulus.spark.bucket_client import BucketClient
from cumulus.spark.messages import Pending, Seed

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


def _schema(**columns: DataType) -> StructType:
    """Return a schema as an object: Spark's workers ask Java, in each task, to parse one that is given as text."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_KEY = _schema(kind=LongType(), number=LongType())
_ENTRY = _schema(nonce=StringType(), data=BinaryType())
HEAD, LOG = -1, 0
"""Kinds of entries; the pages of a snapshot have its generation, from 1, as theirs."""


class _Entries:
    """The entries of a bucket, in one map: Spark makes each state variable anew in each task, for 5 to 15 ms."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._map = handle.getMapState("entries", _KEY, _ENTRY)

    def get(self, kind: int, number: int) -> tuple[str, bytes] | None:
        found = self._map.getValue((kind, number))
        return None if found is None else (found[0], bytes(found[1]))

    def put(self, kind: int, number: int, entry: tuple[str, bytes]) -> None:
        self._map.updateValue((kind, number), entry)

    def remove(self, kind: int, number: int) -> None:
        self._map.removeKey((kind, number))

    def all_keys(self) -> list[tuple[int, int]]:
        """Return kind and number of each entry."""
        return [(int(kind), int(number)) for kind, number in self._map.keys()]  # noqa: SIM118 (no dict)


class BucketState:
    """The state of one bucket: of the grouping key that Spark's `handle` is about.

    The log may grow to `compact_bytes` at least. `seed` is what the bucket begins with, if not empty.
    """

    def __init__(
        self, handle: StatefulProcessorHandle, compact_bytes: int = COMPACT_BYTES, seed: Seed | None = None
    ) -> None:
        self._compact_bytes = compact_bytes
        self._seed = seed
        self._first = seed.epoch if seed else 0
        self._entries = _Entries(handle)

    def head(self) -> StateHead | None:
        """Return what the store says, None before the first epoch."""
        found = self._entries.get(HEAD, 0)
        return None if found is None else StateHead(*json.loads(found[1]))

    def revive(self, head: StateHead | None, bucket: BucketClient, index: int, work: bytes) -> str:
        """Make a bucket exactly what the store says; return how it came: "kept", "caught up", "rebuilt" or "new".

        Parameters
        ----------
        work
            What a bucket must know, pickled, if it must be made anew.
        """
        if head is None:
            bucket.call("start", work, index, self._begun_with(index), self._first, "")
            return "rebuilt" if self._first else "new"
        if bucket.stamp == (head.epoch, head.nonce):
            return "kept"
        if bucket.stamp is not None and head.base <= bucket.stamp[0] < head.epoch:
            epoch, nonce = bucket.stamp
            entry = self._entries.get(LOG, epoch)
            if entry is not None and entry[0] == nonce:
                self._replay(bucket, epoch, head)
                return "caught up"
        pages = [self._entries.get(head.generation, page) for page in range(head.pages)]
        assert all(page is not None for page in pages), f"a page of generation {head.generation} is missing"
        snapshot = b"".join(page[1] for page in pages if page is not None) or self._begun_with(index)
        bucket.call("start", work, index, snapshot, head.base, "")
        self._replay(bucket, head.base, head)
        return "rebuilt"

    def clear(self) -> None:
        """Remove everything."""
        for kind, number in self._entries.all_keys():
            self._entries.remove(kind, number)

    def _begun_with(self, index: int) -> bytes:
        return self._seed.snapshot(index) if self._seed else b""

    def _replay(self, bucket: BucketClient, after: int, head: StateHead) -> None:
        for epoch in range(after + 1, head.epoch + 1):
            entry = self._entries.get(LOG, epoch)
            if entry is not None:  # an epoch without rows for this bucket
                bucket.call("replay", entry[1], epoch)
        bucket.call("restamp", head.epoch, head.nonce)

    def record(self, head: StateHead | None, bucket: BucketClient, epoch: int, nonce: str, payload: bytes) -> StateHead:
        """Write the epoch that a bucket has just applied, compact if it is time, and stamp the store."""
        before = head or StateHead(self._first, "", self._first)
        self._entries.put(LOG, epoch, (nonce, payload))
        after = replace(before, epoch=epoch, nonce=nonce, log_bytes=before.log_bytes + len(payload))
        pending = bucket.call("pending")
        if pending is None and after.log_bytes > max(self._compact_bytes, after.base_bytes):
            bucket.call("dump")
        if pending is not None:
            after = self._compact(after, bucket, Pending(*pending), len(payload))
        self._entries.put(HEAD, 0, (nonce, json.dumps(list(asdict(after).values())).encode()))
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
            self._entries.put(head.generation + 1, number, ("", page))
            spent, number = spent + len(page), number + 1
            faults.crash_point("in-compaction")
        if number < pending.pages:
            return head
        dropped = 0
        for kind, number in self._entries.all_keys():
            if kind == LOG and number <= pending.epoch:
                entry = self._entries.get(LOG, number)
                dropped += len(entry[1]) if entry is not None and number > head.base else 0
                if number < pending.epoch:  # the last one stays: its nonce lets other workers catch up
                    self._entries.remove(LOG, number)
            # Also pages of an attempt that was given up, should there be any.
            elif kind > LOG and (kind != head.generation + 1 or number >= pending.pages):
                self._entries.remove(kind, number)
        return replace(
            head,
            base=pending.epoch,
            generation=head.generation + 1,
            pages=pending.pages,
            base_bytes=pending.bytes,
            log_bytes=head.log_bytes - dropped,
        )
