"""Nodes come, go, die and come back at random while eight clients ask: each answer is right, or failed by name."""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import CumulusError, NodeLostError, RingError, UsageError
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import LOG, read_address
from support.joined_nodes import JoinedNode
from support.ring_faults import wait_until
from support.running_ring import running_ring

pytestmark = pytest.mark.xdist_group("test_ring_members")
ROWS, MOST, CLIENTS = 2_000, 5, 8
WANTED = [(ROWS, ROWS * (ROWS - 1) // 2)]


class Clients:
    """Clients that ask without a pause, as a context."""

    def __init__(self, ring: RingClient) -> None:
        self.right, self.failed = 0, list[CumulusError]()
        self.wrong: list[object] = []
        self._ring, self._is_over = ring, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def _ask(self) -> None:
        while not self._is_over.is_set():
            try:
                found = self._ring.query("SELECT count(*), sum(n) FROM numbers", timeout=60).rows()
            except (NodeLostError, RingError, UsageError) as problem:
                self.failed.append(problem)
                continue
            except Exception as problem:  # noqa: BLE001  # told at the end
                self.wrong.append(problem)
                return
            if found == WANTED:
                self.right += 1
            else:
                self.wrong.append(found)

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join(120)
        assert not any(each.is_alive() for each in self._threads)


@pytest.mark.parametrize("steps", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_members_change_at_random_under_clients(tmp_path: Path, steps: int) -> None:
    """With two replicas and without the source; a kill waits until there are two again."""
    source = tmp_path / "source"
    source.mkdir()
    pq.write_table(pa.table({"n": range(ROWS)}), source / "numbers.parquet", row_group_size=50)
    chance = random.Random(steps)
    options = {"nodes": 2, "listen": "127.0.0.1:0", "failure_s": 5.0, "adopt": True, "replicas": 2}
    with running_ring(source, tmp_path / "ring", **options) as ring, ExitStack() as opened:
        wait_until(lambda: "epoch 1 needs its files no more" in (ring.home / LOG).read_text(), 30)
        shutil.rmtree(source)
        joined: dict[str, JoinedNode] = {}
        homes = {name: tmp_path / name for name in "abcde"}
        with Clients(ring) as clients:
            for _ in range(steps):
                wait_until(lambda: has_copies(ring, homes), 60)
                absent = [name for name in homes if name not in joined]
                does = chance.choice(["join", "join", "remove", "kill"])
                if does == "join" and absent:
                    name = chance.choice(absent)
                    joined[name] = opened.enter_context(JoinedNode(ring, homes[name], "--name", name)).ready()
                elif does == "remove" and joined:
                    name = chance.choice(list(joined))
                    ring.remove(name, wait_s=0.2)
                    joined.pop(name).said(0)
                elif does == "kill" and joined:
                    name = chance.choice(list(joined))
                    os.kill(joined.pop(name).process.pid, signal.SIGKILL)
                    wait_until(lambda name=name: name in ring.status()["lost"], 30)  # type: ignore[misc]
                    shutil.rmtree(homes[name])
        assert not clients.wrong, clients.wrong[:3]
        assert clients.right > steps
        for node in ring.nodes:
            assert ring.query("SELECT count(*), sum(n) FROM numbers", node=node).rows() == WANTED
        told = {type(each).__name__ for each in clients.failed}
        assert told <= {"NodeLostError", "UsageError", "QueryCancelledError", "ChunkMissingError"}, told
        quiet = [psutil.Process(pid) for pid in read_address(ring.home).pids.values()]
        wait_until(lambda: all(each.num_threads() < 40 and each.num_fds() < 120 for each in quiet), 20)


def has_copies(ring: RingClient, homes: dict[str, Path]) -> bool:
    """Whether each chunk is at two of the nodes, or at all if there are fewer."""
    nodes = ring.nodes
    folders = [homes.get(node, ring.home / node) / "store" for node in nodes]
    names = [file.name for folder in folders for file in folder.glob("[0-9a-f]*")]
    return len(set(names)) == ROWS // 50 and all(names.count(name) >= min(2, len(nodes)) for name in set(names))
