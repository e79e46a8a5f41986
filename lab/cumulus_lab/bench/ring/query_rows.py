"""The 22 queries of TPC-H on rings of processes, beside DuckDB alone over the same batches in this process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.machine_facts import exact_cpu_seconds
from cumulus.views.duckdb_sql.functions import set_utc
from cumulus.workloads import tpch
from cumulus.workloads.checks import views
from cumulus_lab.bench.agreement import compare
from cumulus_ring.chunks.encoding import declared
from cumulus_ring.chunks.folders import read_source
from cumulus_ring.chunks.parquet_files import read_chunk
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import read_address
from cumulus_ring.process.ring_supervisor import start, stop
from cumulus_ring.process.settings import RingOptions, Transport

GOALS = {("held", "local"): 1.3, ("hot", "local"): 3.0}
"""Ring and transport → how many times the CPU time of DuckDB alone the queries may take together, at most."""
QUERIES = {name: views(tpch.sql(name))[name] for name in tpch.QUERIES}
_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """What one answer took: of all nodes, or of DuckDB alone.

    Parameters
    ----------
    hops, hopped_bytes
        Chunks that went from node to node meanwhile.
    loads
        Chunks that were read from a disk, or encoded.
    """

    cpu_s: float
    wall_s: float
    hops: int = 0
    hopped_bytes: int = 0
    loads: int = 0


class DuckdbAlone:
    """DuckDB on registered Arrow: the batches that nodes would be given, all in this process.

    Parameters
    ----------
    source
        The folder with the tables.
    """

    def __init__(self, source: Path, threads: int) -> None:
        self._connection = duckdb.connect(config={"threads": str(threads)})
        set_utc(self._connection)
        for table in read_source(source).tables:
            batches = [
                declared([read_chunk(chunk) for chunk in group.chunks], table.schema)
                for group in table.groups(table.schema.names)
            ]
            self._connection.register(table.name, pa.Table.from_batches(batches, table.schema))

    def answer(self, sql: str) -> tuple[pa.Table, AnswerCost]:
        """Return the rows of a query, and what it took."""
        cpu, began = time.process_time(), time.perf_counter()
        rows = self._connection.sql(sql).to_arrow_table()
        return rows, AnswerCost(time.process_time() - cpu, time.perf_counter() - began)


class MeasuredRing:
    """A ring of processes of its own, and what its answers take."""

    def __init__(self, home: Path) -> None:
        self._client = RingClient(home)
        address = read_address(home)
        self._nodes = list(address.nodes)
        self._pids = list(address.pids.values())

    def answer(self, place: int, sql: str, *, is_split: bool = False) -> tuple[pa.Table, AnswerCost]:
        """Return the rows of the query at a place in the round, by each node in its turn, and what it took."""
        node = self._nodes[place % len(self._nodes)]
        before = self._moved()
        cpu, began = exact_cpu_seconds(self._pids), time.perf_counter()
        rows = self._client.query(sql, node=node, timeout=_TIMEOUT_SECONDS, split=is_split).arrow()
        wall, cpu = time.perf_counter() - began, exact_cpu_seconds(self._pids) - cpu
        hops, size, loads = (after - count for count, after in zip(before, self._moved(), strict=True))
        return rows, AnswerCost(cpu, wall, hops, size, loads)

    def _moved(self) -> tuple[int, int, int]:
        """Return chunks and bytes that have hopped so far, and loads; asking for it is in nobody's CPU time."""
        states = self._client.status()["nodes"].values()
        sent = [state["links"]["chunks_out"] for state in states if state["links"]]
        loads = sum(state["store"]["read"] + state["store"]["encoded"] for state in states)
        return sum(each["messages_out"] for each in sent), sum(each["payload_out"] for each in sent), loads


def query_rows(
    source: Path, transports: list[str], *, nodes: int, threads: int, storage: int, repetitions: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each query and ring, and one with their sums: held by one node, then in a ring of several.

    A ring of one node keeps all that its queries have used, in its neutral zone; its first round does not count. In a
    ring of several, all tables are in the ring, and a node keeps no more than its share, so that the rest has to come
    by. There the first round is cold: no chunk was ever read. Those that follow are hot, and then those in which nodes
    compute parts of queries, and keep no results. Between two rounds of a ring, DuckDB alone answers the same queries,
    so both have the same noise.

    Parameters
    ----------
    storage
        Bytes of each node of a ring of several; 0 for as many as are said above.

    Raises
    ------
    CumulusError
        If an answer is not DuckDB's.
    """
    alone = DuckdbAlone(source, threads)
    wanted = {name: alone.answer(sql)[0] for name, sql in QUERIES.items()}
    tables = sum(chunk.size for chunk in read_source(source).chunks.values())
    for count, transport in [(1, "local"), *((nodes, each) for each in transports)]:
        room = (storage if count > 1 else 0) or 4 * tables // count  # a quarter of it is the queue, another kept
        with _ring(source, count, transport, threads, room) as ring:
            first, later, local = _rounds(ring, alone, wanted, repetitions)
            in_parts = _rounds(ring, alone, wanted, repetitions, is_split=True) if count > 1 else None
        if count > 1:
            yield from _rows("cold", transport, first, local)
        yield from _rows("held" if count == 1 else "hot", transport, later, local)
        if in_parts is not None:
            yield from _rows("split", transport, *in_parts[1:])


@contextmanager
def _ring(source: Path, nodes: int, transport: str, threads: int, storage: int) -> Iterator[MeasuredRing]:
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        home = Path(scratch) / "ring"
        kind: Transport = "tcp" if transport == "tcp" else "local"
        start(RingOptions(str(source), str(home), nodes, kind, storage, threads=threads, results=0))
        try:
            yield MeasuredRing(home)
        finally:
            stop(home)


Costs = dict[str, list[AnswerCost]]
"""Query → what its answers took."""


def _rounds(
    ring: MeasuredRing, alone: DuckdbAlone, wanted: Mapping[str, pa.Table], repetitions: int, *, is_split: bool = False
) -> tuple[Costs, Costs, Costs]:
    """Return what the first round took, those after it, and DuckDB alone."""
    first: Costs = {}
    later: Costs = {name: [] for name in QUERIES}
    local: Costs = {name: [] for name in QUERIES}
    for place, (name, sql) in enumerate(QUERIES.items()):
        rows, cost = ring.answer(place, sql, is_split=is_split)
        compare(wanted[name], rows, name)
        first[name] = [cost]
    for _ in range(repetitions):
        for name, sql in QUERIES.items():
            local[name].append(alone.answer(sql)[1])
        for place, (name, sql) in enumerate(QUERIES.items()):
            later[name].append(ring.answer(place, sql, is_split=is_split)[1])
    return first, later, local


def _rows(ring: str, transport: str, costs: Costs, local: Costs) -> Iterator[dict[str, Any]]:
    """Yield a row for each query, of medians, and one for their sums."""
    ours = {name: _median(each) for name, each in costs.items()}
    theirs = {name: _median(each) for name, each in local.items()}
    goal = GOALS.get((ring, transport))
    for name in QUERIES:
        yield {**_row(ring, transport, name, ours[name], theirs[name]), "goal": None, "within": None}
    row = _row(ring, transport, "total", _total(ours), _total(theirs))
    yield {**row, "goal": goal, "within": None if goal is None else row["cpu_by_local"] <= goal}


def _row(ring: str, transport: str, query: str, ours: AnswerCost, theirs: AnswerCost) -> dict[str, Any]:
    return {
        "measure": "queries",
        "ring": ring,
        "transport": transport,
        "query": query,
        "cpu_ms": round(ours.cpu_s * 1e3, 1),
        "wall_ms": round(ours.wall_s * 1e3, 1),
        "local_cpu_ms": round(theirs.cpu_s * 1e3, 1),
        "local_wall_ms": round(theirs.wall_s * 1e3, 1),
        "cpu_by_local": round(ours.cpu_s / theirs.cpu_s, 2),
        "wall_by_local": round(ours.wall_s / theirs.wall_s, 2),
        "hops": round(ours.hops),
        "mb_hopped": round(ours.hopped_bytes / 1e6, 1),
        "loads": round(ours.loads),
    }


def _median(costs: list[AnswerCost]) -> AnswerCost:
    return AnswerCost(**{each.name: median(getattr(cost, each.name) for cost in costs) for each in fields(AnswerCost)})


def _total(costs: Mapping[str, AnswerCost]) -> AnswerCost:
    return AnswerCost(
        **{each.name: sum(getattr(cost, each.name) for cost in costs.values()) for each in fields(AnswerCost)}
    )
