"""Table II and figure 17 of the ring's paper, small and with real processes: rings beside DuckDB on throttled disks.

Each way answers the 22 queries of TPC-H in turn at one node, then a shuffled mix of them with all nodes busy: a client
for each node asks one query after the other. All nodes have a disk of the same byte rate, memory for chunks of the same
size (for DuckDB: a page cache), and a DuckDB of the same threads and memory.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.errors import CumulusError
from cumulus.machine_facts import exact_cpu_seconds, load_average
from cumulus_lab.bench.agreement import compare
from cumulus_lab.bench.ring.query_rows import QUERIES
from cumulus_lab.bench.ring.throttled_duckdb import run_processes
from cumulus_ring.machine.settings import RingMode
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import read_address
from cumulus_ring.process.ring_supervisor import start, stop
from cumulus_ring.process.settings import RingOptions

ROW_GROUP = 20_480
"""Rows of a row group: small, so that a few nodes own about the same number of them."""
TIMEOUT_SECONDS = 600.0
WAYS: tuple[tuple[str, RingMode, bool], ...] = (
    ("ring whole", "ring", False),
    ("ring split", "ring", True),
    ("pull", "pull", False),
    ("auto", "auto", False),
)


@dataclass(frozen=True, slots=True)
class MixShape:
    """What all ways have in common.

    Parameters
    ----------
    disk_mb_s, link_mb_s
        Of each node's disk, and of all that leaves a node for others.
    storage
        Bytes of each node's memory for chunks, or of DuckDB's page cache.
    queries, seed
        How many the mix has, and what shuffles it.
    """

    disk_mb_s: float
    link_mb_s: float
    storage: int
    queries: int
    seed: int
    threads: int

    def shares(self, nodes: int) -> list[list[str]]:
        """Return the names of the queries of each node."""
        names = [name for _ in range(-(-self.queries // len(QUERIES))) for name in QUERIES][: self.queries]
        random.Random(self.seed).shuffle(names)
        return [names[at::nodes] for at in range(nodes)]


def mix_rows(tables: Path, nodes: Sequence[int], shape: MixShape) -> Iterator[dict[str, Any]]:
    """Yield two rows for each way and number of nodes: the queries in turn, and the mix.

    Raises
    ------
    CumulusError
        If an answer of the queries in turn is not DuckDB's.
    """
    with tempfile.TemporaryDirectory(prefix="cumulus-mix-") as scratch:
        source = Path(scratch) / "tables"
        source.mkdir()
        for path in sorted(tables.glob("*.parquet")):
            pq.write_table(pq.read_table(path), source / path.name, row_group_size=ROW_GROUP)
        row, wanted = _duckdb_in_turn(source, shape)
        yield row
        for count in nodes:
            yield _duckdb_mix(source, count, shape)
        for count in nodes:
            for way, mode, is_split in WAYS:
                if count > 1 or way == "ring whole":
                    yield from _ring_rows(source, Path(scratch), way, mode, is_split, count, shape, wanted)


def _duckdb_in_turn(source: Path, shape: MixShape) -> tuple[dict[str, Any], list[pa.Table]]:
    load = load_average()
    seconds, (run,) = run_processes(
        source,
        [list(QUERIES.values())],
        mb_s=shape.disk_mb_s,
        cache_bytes=shape.storage,
        threads=shape.threads,
        keeps=True,
    )
    return _row("DuckDB", 1, "in turn", seconds, run.cpu_s, run.disk_bytes, [], load), list(run.answers)


def _duckdb_mix(source: Path, nodes: int, shape: MixShape) -> dict[str, Any]:
    load = load_average()
    shares = [[QUERIES[name] for name in share] for share in shape.shares(nodes)]
    seconds, runs = run_processes(
        source, shares, mb_s=shape.disk_mb_s, cache_bytes=shape.storage, threads=shape.threads, keeps=False
    )
    cpu, size = sum(run.cpu_s for run in runs), sum(run.disk_bytes for run in runs)
    return _row("DuckDB", nodes, "mix", seconds, cpu, size, [], load)


def _ring_rows(
    source: Path,
    scratch: Path,
    way: str,
    mode: RingMode,
    is_split: bool,
    nodes: int,
    shape: MixShape,
    wanted: Sequence[pa.Table],
) -> Iterator[dict[str, Any]]:
    home = scratch / f"{way} {nodes}".replace(" ", "-")
    options = RingOptions(
        str(source),
        str(home),
        nodes,
        transport="tcp",
        mode=mode,
        storage=shape.storage,
        threads=shape.threads,
        disk_mb_s=shape.disk_mb_s,
        faults=f"bandwidth-mb-s={shape.link_mb_s:g}",
        results=0,
        adopt=True,
    )
    start(options)
    try:
        ring = _Ring(home)
        client, names = RingClient(home), list(QUERIES)

        def in_turn() -> None:
            for name, rows in zip(names, wanted, strict=True):
                found = client.query(QUERIES[name], node=ring.nodes[0], timeout=TIMEOUT_SECONDS, split=is_split)
                compare(rows, found.arrow(), f"{name} by {way}")

        yield ring.measured(way, "in turn", in_turn)
        yield ring.measured(way, "mix", lambda: _ask_all(home, ring.nodes, shape.shares(nodes), is_split))
    finally:
        stop(home)


def _ask_all(home: Path, nodes: Sequence[str], shares: Sequence[Sequence[str]], is_split: bool) -> None:
    """Ask each node its share, one query after the other, all nodes at the same time."""
    problems: list[CumulusError] = []

    def ask(node: str, share: Sequence[str]) -> None:
        client = RingClient(home)
        try:
            for name in share:
                client.query(QUERIES[name], node=node, timeout=TIMEOUT_SECONDS, split=is_split).arrow()
        except CumulusError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=each) for each in zip(nodes, shares, strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if problems:
        raise problems[0]


class _Ring:
    """What the nodes of a ring count."""

    def __init__(self, home: Path) -> None:
        address = read_address(home)
        self.nodes = list(address.nodes)
        self._pids = list(address.pids.values())
        self._client = RingClient(home)

    def measured(self, way: str, what: str, work: Any) -> dict[str, Any]:
        """Do some work; return the row about it."""
        load = load_average()
        disk, links = self._moved()
        cpu, began = exact_cpu_seconds(self._pids), time.perf_counter()
        work()
        seconds, cpu = time.perf_counter() - began, exact_cpu_seconds(self._pids) - cpu
        disk_after, links_after = self._moved()
        moved = [count - links.get(link, 0) for link, count in links_after.items()]
        return _row(way, len(self.nodes), what, seconds, cpu, disk_after - disk, moved, load)

    def _moved(self) -> tuple[int, dict[tuple[str, str], int]]:
        """Return bytes from all disks, and those over each link: to the successor, or straight to a node."""
        states = self._client.status()["nodes"]
        links = {
            (node, name): counts["payload_out"]
            for node, state in states.items()
            for name, counts in state["links"].items()
            if name == "chunks_out" or name.startswith("straight to")
        }
        return sum(state["store"]["loaded_bytes"] for state in states.values()), links


def _row(
    way: str,
    nodes: int,
    what: str,
    seconds: float,
    cpu_s: float,
    disk: int,
    links: Sequence[int],
    load: Sequence[float],
) -> dict[str, Any]:
    return {
        "measure": "mix",
        "way": way,
        "nodes": nodes,
        "queries": what,
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "disk_mb": round(disk / 1e6, 1),
        "links_mb": round(sum(links) / 1e6, 1),
        "hottest_link_mb": round(max(links, default=0) / 1e6, 1),
        "load": load[0],
    }
