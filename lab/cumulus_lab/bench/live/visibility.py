"""How soon rows that a client sends are to be read: tentatively, and committed, while others send rows, too."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from threading import Thread
from typing import Any

import pyarrow as pa

from cumulus.cluster.live.client import ClusterClient
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.errors import DelayError
from cumulus_lab.bench.live.running_cluster import RunningCluster
from cumulus_lab.workloads.orders import Interleaved

_FIRST_PROBE = 1 << 40
"""No customer and no order of the stream has such a number."""
_PROBE_NATION = 1000
_PROBE_EVERY_S = 0.05
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Feeder:
    """Sends the events of a table at a rate, inserted rows before deleted ones in each batch."""

    client: ClusterClient
    table: str
    batches: list[tuple[pa.Table, pa.Table]]
    """Rows that are inserted, and rows that are deleted, for every turn."""
    every_s: float

    def run(self) -> int:
        """Send all of them; return how many there were."""
        began, sent = time.monotonic(), 0
        for turn, (inserted, deleted) in enumerate(self.batches):
            time.sleep(max(began + turn * self.every_s - time.monotonic(), 0))
            for send, rows in ((self.client.insert, inserted), (self.client.delete, deleted)):
                if rows.num_rows:
                    send(self.table, rows)
                    sent += rows.num_rows
        return sent


def feeders(connect: Callable[[], ClusterClient], stream: Interleaved, turns: int, every_s: float) -> list[Feeder]:
    """Return a feeder for each table of a stream, each with a client of its own; together they send all of it."""
    step = -(-len(stream.kinds) // turns)
    parts = [stream.part(begin, begin + step) for begin in range(0, len(stream.kinds), step)]
    found = []
    for place, name in enumerate(stream.tables):
        batches = []
        for part in parts:
            signs, rows = (part.kinds[part.kinds >> 1 == place] & 1).astype(bool), part.tables[name]
            batches.append((rows.filter(pa.array(signs)), rows.filter(pa.array(~signs))))
        found.append(Feeder(connect(), name, batches, every_s))
    return found


@dataclass(frozen=True, slots=True)
class Probe:
    """When a row that was sent alone was there, in seconds from before it was sent."""

    acknowledged_s: float
    visible_s: float
    sent_at: float
    epoch: int
    """The epoch that commits it."""


class Probes:
    """Rows of their own, each of which a client sends and reads until it is there.

    Parameters
    ----------
    most
        How many there can be.
    """

    def __init__(self, client: ClusterClient, most: int) -> None:
        self._client = client
        numbers = range(_FIRST_PROBE, _FIRST_PROBE + most)
        nations = range(_PROBE_NATION, _PROBE_NATION + most)
        client.insert("customers", pa.table({"cid": numbers, "nation": pa.array(nations, pa.int32())}))
        orders = {"cid": numbers, "oid": numbers, "rate": pa.array([1] * most, pa.int32())}
        client.view("revenue", after=client.insert("orders", pa.table(orders)))
        self._places = iter(range(most))

    def run(self) -> Iterator[Probe]:
        """Send the next row, and yield how it went, again and again.

        Raises
        ------
        DelayError
            If one does not come.
        """
        for place in self._places:
            began = time.perf_counter()
            token = self._client.insert("lineitem", [(_FIRST_PROBE + place, 1)])
            acknowledged = time.perf_counter()
            while not self._client.slice("revenue", read="tentative", nation=_PROBE_NATION + place).rows():
                if time.perf_counter() > began + _PATIENCE_S:
                    raise DelayError("a row that was sent is not to be read", hint="Please report it.")
            visible = time.perf_counter()
            yield Probe(acknowledged - began, visible - began, began, token.epoch)
            time.sleep(_PROBE_EVERY_S)


class CommitWatch:
    """A thread that notes when epochs are committed."""

    def __init__(self, home: Path) -> None:
        self._home, self._is_over = home, False
        self.times: dict[int, float] = {}
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> CommitWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            manifest = newest_manifest(self._home)
            if manifest is not None:
                self.times.setdefault(manifest.epoch, time.perf_counter())
            time.sleep(0.005)

    def committed_s(self, probe: Probe) -> float:
        """Return after how many seconds a row was committed; it has been."""
        return min(at for epoch, at in self.times.items() if epoch >= probe.epoch) - probe.sent_at


def measure(cluster: RunningCluster, stream: Interleaved, seconds: float, turns: int) -> dict[str, Any]:
    """Send a stream in so many seconds, if the cluster takes it, and probe it meanwhile; return the row of it."""
    with ExitStack() as stack:
        client = stack.enter_context(cluster.connect())
        probes = Probes(client, int(seconds / _PROBE_EVERY_S) * 20)
        running = feeders(lambda: stack.enter_context(cluster.connect()), stream, turns, seconds / turns)
        watch = stack.enter_context(CommitWatch(cluster.home))
        pool = stack.enter_context(ThreadPoolExecutor(len(running)))
        began, cpu = time.perf_counter(), cluster.cpu_seconds()
        feeding = [pool.submit(each.run) for each in running]
        found = []
        for probe in probes.run():
            found.append(probe)
            if all(each.done() for each in feeding):
                break
        took, cpu = time.perf_counter() - began, cluster.cpu_seconds() - cpu
        sent = sum(each.result() for each in feeding)
        client.view("revenue", after=client.insert("lineitem", [(0, 1)]))
        return {
            "events": sent,
            "events_per_s": round(sent / took),
            "cpu_us_per_event": round(cpu / sent * 1e6, 2),
            "probes": len(found),
            **_spread("acknowledged", [each.acknowledged_s for each in found]),
            **_spread("visible", [each.visible_s for each in found]),
            **_spread("committed", [watch.committed_s(each) for each in found]),
            **cluster.late_shares(client),
        }


def _spread(name: str, seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100, method="inclusive") if len(seconds) > 1 else seconds * 99
    return {f"{name}_p50_ms": round(cuts[49] * 1000, 1), f"{name}_p99_ms": round(cuts[98] * 1000, 1)}


def sync_s(folder: Path, size: int, times: int = 50) -> float:
    """Return how long it takes, in the median, to append so many bytes to a file and have them on the disk."""
    data, took = os.urandom(size), []
    with (folder / "sync").open("wb") as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(data)
            file.flush()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took)
