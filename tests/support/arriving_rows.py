"""Chunks that come by in any order, as on a ring, without a ring: tables in memory, and threads that hand them over."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from cumulus.catalog.names import folded
from cumulus_ring.chunks.catalogue import ChunkedTable
from cumulus_ring.chunks.encoding import encode
from cumulus_ring.chunks.parquet_files import read_chunk
from cumulus_ring.nodes import ArrivalFeed, NodeQueries, QueryPlan, RingTable, ScanNeed, lend
from cumulus_ring.nodes.feed import copied
from cumulus_ring.nodes.queries import AskFor


@dataclass(frozen=True)
class TableInMemory:
    name: str
    content: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.content.schema

    @property
    def rows(self) -> int:
        return int(self.content.num_rows)


def tables_in_memory(rows: Mapping[str, pa.Table]) -> dict[str, TableInMemory]:
    return {folded(name): TableInMemory(name, table) for name, table in rows.items()}


def ask(
    runs: NodeQueries, sql: str, tables: Mapping[str, RingTable], ask_for: AskFor, timeout_s: float | None = None
) -> pa.Table:
    return runs.run(runs.prepare(sql, tables, ask_for), timeout_s)


class Carousel:
    """Hands columns of row groups over, in an order that a seed and the threads decide.

    `buffers` is how many chunks may be lent at once; beyond it a waiting scan gets copies, or nothing if not `copies`.
    """

    def __init__(
        self, group_rows: int, seed: int, *, buffers: int = 10**9, copies: bool = True, restless: bool = True
    ) -> None:
        self.scanned: list[tuple[int, tuple[str, ...]]] = []
        self.copied_count = 0
        self.opened_count = self.ended_count = self.query_count = 0
        self.is_paused = False
        self._kept: list[pa.Buffer] = []  # who lends keeps it
        self._group_rows = group_rows
        self._choose = random.Random(seed)
        self._buffers, self._copies, self._restless = buffers, copies, restless
        self._lent = 0
        self._released: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._feeds: dict[ArrivalFeed, dict[int, pa.Buffer]] = {}
        self._encoded: dict[tuple[str, str], list[pa.Buffer]] = {}
        self._lock = threading.Lock()
        self._called = threading.Event()
        self._stopped = False

    @property
    def lent(self) -> int:
        while not self._released.empty():
            self._released.get()
            self._lent -= 1
        return self._lent

    @property
    def waiting_count(self) -> int:
        with self._lock:
            return sum(feed.is_waiting for feed in self._feeds)

    @contextmanager
    def turning(self) -> Iterator[Carousel]:
        thread = threading.Thread(target=self._turn)
        thread.start()
        try:
            yield self
        finally:
            self._stopped = True
            self._called.set()
            thread.join()

    # what a query asks of it

    def ask_for(self, plan: QueryPlan) -> Carousel:
        self.query_count += 1
        return self

    def end(self) -> None:
        self.query_count -= 1

    def open(self, need: ScanNeed) -> ArrivalFeed:
        parts = [*self.parts(need)]
        places = iter(range(sum(map(len, parts))))
        groups = {group: [next(places) for _ in chunks] for group, chunks in enumerate(parts)}
        schema = need.occurrence.table.schema
        feed = ArrivalFeed(groups, pa.schema([schema.field(name) for name in need.columns]), self)
        with self._lock:
            self.scanned.append((need.occurrence.number, need.columns))
            self.opened_count += 1
            self._feeds[feed] = dict(enumerate(chunk for chunks in parts for chunk in chunks))
        self._called.set()
        return feed

    def parts(self, need: ScanNeed) -> Iterator[Sequence[pa.Buffer]]:
        """The chunks of each row group: one for each column."""
        rows = need.occurrence.table.content  # type: ignore[attr-defined]  # they are all in memory
        return zip(*[self._chunks(need.occurrence.table.name, name, rows) for name in need.columns], strict=True)

    def _chunks(self, table: str, column: str, rows: pa.Table) -> list[pa.Buffer]:
        with self._lock:
            key = (table, column)
            if key not in self._encoded:
                whole = rows.select([column]).combine_chunks()
                self._encoded[key] = [
                    _encode(batch) for batch in whole.to_batches(max_chunksize=self._group_rows) if batch.num_rows
                ]
            return self._encoded[key]

    # what a feed says to it

    def waits(self, feed: ArrivalFeed) -> None:
        self._called.set()

    def ended(self, feed: ArrivalFeed) -> None:
        with self._lock:
            self.ended_count += 1
            self._feeds.pop(feed, None)

    # its own thread

    def _turn(self) -> None:
        while not self._stopped:
            with self._lock:
                feeds = list(self._feeds.items())
            self._choose.shuffle(feeds)
            served = [self._serve(feed, chunks) for feed, chunks in feeds]
            if not any(served):
                self._called.wait(0.005)
                self._called.clear()

    def _serve(self, feed: ArrivalFeed, chunks: Mapping[int, pa.Buffer]) -> bool:
        missing = sorted(feed.missing)
        if self.is_paused or not missing:
            return False
        part = self._choose.choice(missing)
        if self.lent < self._buffers:
            if not feed.is_waiting and (not self._restless or self._choose.random() < 0.5):
                return False
            self._lent += 1
            self._kept.append(chunks[part])
            lent = lend(chunks[part], lambda: self._released.put(None))
            feed.offer(part, _decode(lent))
            return True
        if not feed.is_waiting or not self._copies:
            return False
        self.copied_count += 1
        return feed.offer(part, copied(_decode(chunks[part])))


def _encode(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decode(memory: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_stream(memory).read_next_batch()


class ChunksOfFiles(Carousel):
    """The chunks of Parquet files that the predicates of a scan do not rule out."""

    def __init__(self, seed: int) -> None:
        super().__init__(0, seed)
        self.group_count = 0

    def parts(self, need: ScanNeed) -> Iterator[Sequence[pa.Buffer]]:
        table = need.occurrence.table
        assert isinstance(table, ChunkedTable)
        for group in table.groups(need.columns, need.predicates):
            self.group_count += 1
            yield [encode(read_chunk(chunk)) for chunk in group.chunks]
