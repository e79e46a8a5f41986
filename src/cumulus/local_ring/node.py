"""One node of a ring in its process: the host of its machine, its tables, its store, its DuckDB and its queries."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.catalog.names import folded
from cumulus.chunks.catalogue import Catalogue, Chunk
from cumulus.chunks.folders import read_source
from cumulus.chunks.owners import owner
from cumulus.chunks.store import ChunkStore
from cumulus.errors import ChunkMissingError, UsageError
from cumulus.local_ring.host import NodeLinks, RingHost
from cumulus.local_ring.query_scans import QueryScans
from cumulus.local_ring.settings import RingOptions
from cumulus.machine import Name
from cumulus.nodes import EngineLimits, NodeQueries, NodeQuery, QueryPlan, open_engine
from cumulus.ring.messages import ChunkId, Reconfigured
from cumulus.transport.neighbours.slots import SlotPool


class RunningNode:
    """A node, from its start to `close`.

    Parameters
    ----------
    pool
        Where the memory of chunks comes from.

    Raises
    ------
    CumulusError
        If its tables cannot be read, or its store not be opened.
    """

    def __init__(self, name: Name, options: RingOptions, pool: SlotPool) -> None:
        self.name = name
        self._folder = Path(options.home) / name
        self._catalogues: dict[int, Catalogue] = {}
        self._chunks: dict[ChunkId, Chunk] = {}
        self._members: Sequence[Name] = (name,)
        self._pool = pool
        self._know(read_source(options.source))
        self._store = ChunkStore(self._folder / "store", name, options.disk)
        self._reading = threading.Lock()
        self._engine = open_engine(EngineLimits(self._folder / "spill", options.memory, options.threads))
        self.queries = NodeQueries(self._engine, options.queries)
        self.host = RingHost(name, options.machine(), pool, self._load, zlib.crc32(name.encode()))
        self.host.start()

    def close(self) -> None:
        """End all queries and all threads."""
        self.queries.close()
        self.host.close()
        self._engine.close()
        self._store.close()

    def meet(self, ring_epoch: int, members: Sequence[Name], make: Callable[[], NodeLinks | None]) -> None:
        """Be one of these from now on; `make` makes the links, which say the ring epoch with all that they tell."""
        self._members = members
        owned = {chunk.id: chunk.size for chunk in self._chunks.values() if self._owner(chunk) == self.name}
        self.host.relink(make, Reconfigured(ring_epoch, len(members), owned, max(self._catalogues)))

    # --- queries ----------------------------------------------------------------------------------------------------

    def prepare(self, sql: str, version: int = 0) -> tuple[NodeQuery, int]:
        """Return a query that can be run or cancelled, and the version of the tables that it is about.

        Parameters
        ----------
        version
            An epoch of an output folder; 0 for the last one.

        Raises
        ------
        UsageError
            If the node does not have that version.
        """
        catalogue = self._catalogues.get(version or max(self._catalogues))
        if catalogue is None:
            known = ", ".join(map(str, sorted(self._catalogues)))
            raise UsageError(f"the ring does not have epoch {version}", hint=f"It has: {known}.")
        tables = {folded(table.name): table for table in catalogue.tables}

        def ask_for(plan: QueryPlan) -> QueryScans:
            return QueryScans(self.host, catalogue, plan)

        return self.queries.prepare(sql, tables, ask_for), catalogue.version

    def explain(self, sql: str, version: int = 0) -> tuple[str, dict[str, Any]]:
        """Return what a query would ask for and how it would run, as text and as JSON."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return how the node is, for JSON."""
        status = self.host.status()
        machine = asdict(status.machine)
        return {
            **machine,
            "members": list(self._members),
            "epochs": sorted(self._catalogues),
            "queries": [query.sql for query in self.queries.queries],
            "store": {"bytes": self._store.bytes, **asdict(self._store.counts)},
            "slots_held": asdict(self._pool.counts()),
            "links": self.host.link_counts(),
            "steps": status.steps,
            "loads_waiting": status.loads_waiting,
        }

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _know(self, catalogue: Catalogue) -> None:
        self._catalogues[catalogue.version] = catalogue
        self._chunks.update(catalogue.chunks)

    def _owner(self, chunk: Chunk) -> Name:
        return owner(chunk.file.digest, chunk.row_group.number, self._members)

    def _load(self, chunk: ChunkId) -> pa.Buffer:
        found = self._chunks.get(chunk)
        if found is None:
            raise ChunkMissingError(
                f"chunk {chunk:016x} is of a version that the ring has let go of", chunk=chunk, table="", node=self.name
            )
        with self._reading:
            return self._store.load(found)
