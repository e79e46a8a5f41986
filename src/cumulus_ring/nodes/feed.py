"""Feeds: the batches of one scan, in the order in which they arrive.

A scan wants all row groups of a table that can hold what its query asks for, in any order. A row group comes in parts,
one for each of its chunks; when all are there, it is ready, and the scan's next pull takes it (`ArrivalFeed`). Where
parts come from is a `ChunkSource`'s business: it is told which scans wait, and offers parts to them.

- Each pull is told to the source, and what comes in vain for a busy scan is the source's to keep, or not (E39).
- A part may lie in memory that is lent (`lend`): the owner of the memory hears when nothing refers to it any more, as
  the engine keeps batches for as long as it wants (E38). Or it is a copy; the source decides.
- A scan that waits does so outside of all locks but its own, and `fail` wakes it: nothing else would, since DuckDB's
  interrupt does not reach a pull that is blocked.

Locks: a feed calls its source only while it holds no lock; a source may call a feed under a lock of its own.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from cumulus_ring.chunks.encoding import declared


class Feed(Protocol):
    """The batches of one scan, as the engine sees them."""

    def pull(self) -> pa.RecordBatch | None:
        """Return the next batch; None after the last. Blocks until there is one.

        Raises
        ------
        CumulusError
            Whatever the feed was failed with.
        """

    def close(self) -> None:
        """The engine wants no more; may be called more than once, and while nothing is pulled."""


class ChunkSource(Protocol):
    """Who hands parts of row groups over, as a feed sees it. Called by any thread; must not block."""

    def waits(self, feed: ArrivalFeed) -> None:
        """A pull takes a row group: one that is whole already, or else any part of what it misses will do.

        Told once for each pull that is not beyond the last row group.
        """

    def ended(self, feed: ArrivalFeed) -> None:
        """A feed wants no more, for whatever reason; told once."""


class ArrivalFeed:
    """The row groups of a scan in the order in which they become whole.

    Parameters
    ----------
    groups
        Row group → the parts that it is made of; a part belongs to one row group.
    schema
        Of the batches; each column is in one part of every row group, which may have others, too.
    source
        Where parts come from.
    """

    def __init__(self, groups: Mapping[int, Sequence[int]], schema: pa.Schema, source: ChunkSource) -> None:
        self._schema = schema
        self._source = source
        self._parts = {group: frozenset(parts) for group, parts in groups.items()}
        self._group_of = {part: group for group, parts in self._parts.items() for part in parts}
        assert len(self._group_of) == sum(len(parts) for parts in groups.values()), "a part of two row groups"
        assert all(self._parts.values()), "a row group without parts"
        self._came: dict[int, dict[int, pa.RecordBatch]] = {}
        self._ready: deque[int] = deque()
        self._waiting = False
        self._closed = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    # --- the source's side ---------------------------------------------------------------------------------------

    @property
    def is_waiting(self) -> bool:
        """Whether a pull blocks, and no row group that is offered will end that."""
        with self._changed:
            return self._waiting and not self._ready

    @property
    def error(self) -> BaseException | None:
        """What it was failed with; None while it was not."""
        with self._changed:
            return self._error

    @property
    def missing(self) -> frozenset[int]:
        """Parts that the scan still wants and that are not offered."""
        with self._changed:
            return frozenset(part for part, group in self._group_of.items() if part not in self._came.get(group, {}))

    def offer(self, part: int, batch: pa.RecordBatch) -> bool:
        """Offer a part; whether the feed has taken it, which it does once, while it is open."""
        with self._changed:
            group = self._group_of.get(part)
            if group is None:
                return False
            came = self._came.setdefault(group, {})
            if part in came:
                return False
            came[part] = batch
            if len(came) == len(self._parts[group]):
                self._ready.append(group)
                self._changed.notify_all()
            return True

    def fail(self, error: BaseException) -> None:
        """Let this pull and all others raise an error; the first stands. All offers are dropped."""
        with self._changed:
            if self._error is None and not self._closed:
                self._error = error
                self._forget()
                self._changed.notify_all()

    # --- the engine's side ---------------------------------------------------------------------------------------

    def pull(self) -> pa.RecordBatch | None:
        """Return the row group that became whole first, of those that are there; block if there is none."""
        with self._changed:
            takes = self._error is None and bool(self._group_of)
            self._waiting = takes and not self._ready
        if takes:
            self._source.waits(self)
        with self._changed:
            while self._error is None and not self._ready and self._group_of:
                self._changed.wait()
            self._waiting = False
            if self._error is not None:
                raise self._error
            return self._take(self._ready.popleft()) if self._ready else None

    def close(self) -> None:
        """Drop what is offered, and tell the source."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._forget()
            self._changed.notify_all()
        self._source.ended(self)

    def _take(self, group: int) -> pa.RecordBatch:
        parts = self._came.pop(group)
        for part in parts:
            del self._group_of[part]
        del self._parts[group]
        return declared(list(parts.values()), self._schema)

    def _forget(self) -> None:
        self._group_of.clear()
        self._came.clear()
        self._ready.clear()


def lend(memory: pa.Buffer, released: Callable[[], None]) -> pa.Buffer:
    """Return a view of a buffer that tells when nothing refers to it any more: no array, no batch, no engine.

    The view does not keep the buffer: who lends does, until it is told, so that the memory is free then.

    Parameters
    ----------
    released
        Called once, by whichever thread was the last, in the midst of anything: it may neither block nor take locks.
        ``deque.append`` does neither.
    """
    lease = _Lease()
    weakref.finalize(lease, released).atexit = False  # at the end of the process nobody needs to hear it
    return pa.foreign_buffer(memory.address, memory.size, base=lease)


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in memory of its own: what is served when no buffer is free (E38)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


class _Lease:
    """What a view of lent memory keeps alive."""

    __slots__ = ("__weakref__",)
