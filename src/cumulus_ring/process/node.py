"""One node of a ring in its process: the host of its machine, its tables, its store, its DuckDB and its queries."""

from __future__ import annotations

import resource
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.catalog.names import folded
from cumulus.errors import ChunkDamagedError, ChunkMissingError, CumulusError, EpochMissingError
from cumulus.machine import Name
from cumulus_ring.chunks.catalogue import Catalogue, Chunk
from cumulus_ring.chunks.disk_rate import DiskRate
from cumulus_ring.chunks.store import ChunkStore
from cumulus_ring.chunks.versions import SourceVersions
from cumulus_ring.links.slots import SlotPool
from cumulus_ring.machine.messages import ChunkId, Reconfigured, Refreshed, RefreshFailed
from cumulus_ring.nodes import EngineLimits, NodeQueries, NodeQuery, QueryPlan, open_engine, plan_query
from cumulus_ring.nodes.explain import explain_json, explain_text, scan_requests
from cumulus_ring.nodes.query_pace import QueryPace
from cumulus_ring.process.host import NodeLinks, RingHost
from cumulus_ring.process.query_scans import OwnRows, QueryScans
from cumulus_ring.process.recording import RECORD
from cumulus_ring.process.settings import NodePlace, RingOptions

Fetch = Callable[[Chunk], "pa.Buffer | None"]
"""Brings a chunk from another node."""
Adopted = Callable[[int, int, Sequence[Name]], None]
"""Is told of an epoch that all chunks of this node's share are adopted, how many these are, and among which members."""

_CATCH_UP_S, _LOOK_S = 5.0, 0.02


class RunningNode:
    """A node, from its start to `close`.

    Parameters
    ----------
    place
        What is its own here.
    members
        Of the ring, as it is begun.
    versions
        What it was told of the source; it hears of later ones by `refresh`.
    pool
        Where the memory of chunks comes from.
    fetch
        Brings a chunk from a node that has it; None if there is none.
    adopted
        What is told when the node has adopted its share, if it does.

    Raises
    ------
    CumulusError
        If its tables cannot be read, or its store not be opened.
    """

    def __init__(
        self,
        name: Name,
        options: RingOptions,
        place: NodePlace,
        members: Sequence[Name],
        versions: SourceVersions,
        pool: SlotPool,
        fetch: Fetch,
        adopted: Adopted,
    ) -> None:
        self.name = name
        self.options = options
        self._versions = versions
        self._members = members
        self._ring_epoch = 0
        self._pool = pool
        self._fetch, self._adopted, self._has_source = fetch, adopted, bool(place.source)
        self._is_ending = threading.Event()
        rate = options.disk_mb_s * 1e6
        folder = Path(place.folder)
        disk = DiskRate(rate, time.monotonic, self._is_ending.wait) if rate else None
        settings = options.machine()
        self._store = ChunkStore(folder / "store", name, options.disk, disk, settings.largest_chunk)
        self._reading = threading.Lock()  # a store is for one thread at a time
        shutil.rmtree(folder / "spill", ignore_errors=True)  # of a process that was killed
        if place.links:  # others bring what one that has joined does not find
            self._adopt(is_first=True)
        self._engine = open_engine(EngineLimits(folder / "spill", options.memory, place.threads))
        self.pace = QueryPace()
        self.queries = NodeQueries(self._engine, options.queries)
        self.fragments = NodeQueries(self._engine, options.queries)
        """Parts of queries; none of them waits for another node's query."""
        self.host = RingHost(
            name,
            settings,
            pool,
            self._load,
            self._refreshed,
            seed=zlib.crc32(name.encode()),
            record=folder / RECORD if options.record else None,
        )
        self.host.start()

    def close(self) -> None:
        """End all queries and all threads."""
        self._is_ending.set()
        self.queries.close()
        self.fragments.close()
        self.host.close()
        self._engine.close()
        self._store.close()

    def reconnect_all(self, ring_epoch: int, members: Sequence[Name], links: NodeLinks | None) -> None:
        """Be one of these from now on; links say the ring epoch with all that they tell, and are opened after it."""
        self._members = members
        self._ring_epoch = ring_epoch  # behind the members, see `_refreshed`
        event = Reconfigured(ring_epoch, len(members), self._owned(), self._versions.catalogue().version)
        self.host.relink(links, event)

    # --- queries ----------------------------------------------------------------------------------------------------

    def prepare(self, sql: str, epoch: int) -> tuple[NodeQuery, int]:
        """Return a query that can be run or cancelled, and the epoch of the tables that it is about.

        Parameters
        ----------
        epoch
            0 for the last one.

        Raises
        ------
        EpochMissingError
            If the ring does not have that epoch.
        """
        catalogue = self.catalogue(epoch)
        return self.reading(sql, catalogue), catalogue.version

    def reading(self, sql: str, catalogue: Catalogue, own: OwnRows | None = None) -> NodeQuery:
        """Return a query over tables of the ring, of one of which it may read the node's own rows alone."""

        def ask_for(plan: QueryPlan) -> QueryScans:
            return QueryScans(self.host, self._versions, catalogue, plan, self.options.largest_batch, self.pace, own)

        parts = {} if own is None else {folded(table.name): table for table in catalogue.tables}  # a split names these
        return self.queries.prepare(sql, {**catalogue.by_name, **parts}, ask_for)

    @property
    def engine(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB of the node; work takes cursors of it."""
        return self._engine

    @property
    def query_count(self) -> int:
        """How many queries and parts of queries the node has, running or in line."""
        return len(self.queries.queries) + len(self.fragments.queries)

    def explain(self, sql: str, epoch: int) -> tuple[str, dict[str, Any]]:
        """Return what a query would ask for and how it would run, as text and as JSON."""
        catalogue = self.catalogue(epoch)
        with self._engine.cursor() as cursor:
            plan = plan_query(cursor, sql, catalogue.by_name)
        requests = scan_requests(plan, catalogue, self._members)
        return explain_text(plan, requests), explain_json(plan, requests)

    def tables(self, epoch: int) -> dict[str, dict[str, int]]:
        """Return the tables of an epoch by name, in the order of names, each with its numbers of rows and columns."""
        found = sorted(self.catalogue(epoch).by_name.values(), key=lambda table: table.name)
        return {table.name: {"rows": table.rows, "columns": len(table.schema)} for table in found}

    def status(self) -> dict[str, Any]:
        """Return how the node is, for JSON."""
        status = self.host.status()
        return {
            **asdict(status.machine),
            "members": list(self._members),
            "epochs": list(self._versions.epochs),
            "queries": [query.sql for query in (*self.queries.queries, *self.fragments.queries)],
            "store": {"bytes": self._store.bytes, **asdict(self._store.counts)},
            "memory": asdict(self._pool.counts()),
            "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "cpu_s": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
            "links": self.host.link_counts(),
            "steps": status.steps,
            "reads_waiting": status.reads_waiting,
        }

    def catalogue(self, epoch: int) -> Catalogue:
        """Return the tables of an epoch that the machine has been told of: nobody knows the chunks of a newer one."""
        until = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < until:
            known = self.host.version
            wanted = epoch or known
            if wanted <= known or wanted not in self._versions.epochs:
                try:
                    return self._versions.catalogue(wanted)
                except EpochMissingError:
                    if epoch:
                        raise
            # It was retired, or has just come, and the machine has not heard of that.
            self.host.refresh()
            time.sleep(_LOOK_S)
        raise EpochMissingError(f"{self.name} has not read epoch {epoch or 'of its tables'} yet", hint="Ask again.")

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _share(self) -> list[Chunk]:
        return self._versions.share(self.name, self._members)

    def _owned(self) -> dict[ChunkId, int]:
        return {chunk.id: chunk.size for chunk in self._share()}

    def _refreshed(self) -> Refreshed | RefreshFailed:
        """Look what versions there are, by the thread that reads the disk."""
        ring_epoch = self._ring_epoch  # before the members: if they change meanwhile, the machine asks once more
        try:
            version = self._versions.catalogue().version
            self._adopt()
            with self._reading:
                self._store.retain(self._versions.chunks())
        except CumulusError as problem:
            print(f"the last epoch cannot be had: {problem}", flush=True)
            return RefreshFailed()
        return Refreshed(version, self._owned(), ring_epoch)

    def prepare_for(self, members: Sequence[Name]) -> list[Chunk]:
        """Adopt what is this node's share among other members, too: one is about to go.

        Returns the chunks of it that no node has, nor the source: they are lost whoever stays.

        Raises
        ------
        CumulusError
            If the others cannot be had.
        """
        share = self._versions.share(self.name, members, self.options.replicas)
        return list(self._lost_of(share))

    def give(self, number: ChunkId) -> pa.Buffer:
        """Return a chunk for another node, as the store has it.

        Raises
        ------
        ChunkError
            If neither the store nor the source has it.
        """
        found = self._versions.chunk(number)
        if found is None:
            raise ChunkMissingError(f"chunk {number:016x} is of no epoch here", chunk=number, node=self.name)
        with self._reading:
            return self._store.load(found)

    def _adopt(self, *, is_first: bool = False) -> None:
        """Keep this node's share; at the start of a ring there is nobody who could bring what it lacks."""
        if not self.options.adopt:
            return
        epoch, members = self._versions.catalogue().version, self._members
        share = self._versions.share(self.name, members, self.options.replicas)
        if is_first:
            with self._reading:
                self._store.adopt(share)
        else:
            for chunk in self._lost_of(share):
                raise self._nowhere(chunk)
        self._adopted(epoch, len(share), members)

    def _lost_of(self, share: Sequence[Chunk]) -> Iterator[Chunk]:
        """Adopt chunks, from the source or from other nodes; yield those that neither has, when it gets there."""
        lacking: list[Chunk] = []
        with self._reading:
            self._store.adopt(share, lacking=lacking)
        for chunk in lacking:  # the store is free meanwhile: others may ask for what it has
            stream = self._fetch(chunk)
            if stream is None:
                yield chunk
                continue
            with self._reading:
                self._store.take(chunk, stream, is_adopted=True)

    def _nowhere(self, chunk: Chunk) -> ChunkMissingError:
        file = chunk.file.name
        if self._has_source:
            why, hint = f"its file is gone at node {self.name}", f"Bring {file} back, or ask about a later epoch."
        else:
            why, hint = f"node {self.name} has no source", f"Join a node with --source, where {file} is."
        problem = f"{chunk} is at none of the nodes, and {why}"
        return ChunkMissingError(problem, chunk=chunk.id, table=chunk.table, node=self.name, hint=hint)

    def _load(self, chunk: ChunkId) -> pa.Buffer:
        found = self._versions.chunk(chunk)
        if found is None:
            raise ChunkMissingError(
                f"chunk {chunk:016x} is of an epoch that the ring does not have any more", chunk=chunk, node=self.name
            )
        try:
            with self._reading:
                return self._store.load(found)
        except (ChunkMissingError, ChunkDamagedError):
            stream = self._fetch(found)
            if stream is None and self._has_source:
                raise
            if stream is None:
                raise self._nowhere(found) from None
        with self._reading:
            self._store.take(found, stream, is_adopted=False)
        return stream
