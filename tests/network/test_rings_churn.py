"""Nodes of four hosts come, go, die and come back at random while clients ask; what stayed is as it was before.

The ring keeps two copies of each chunk, and its source is taken away: what is lost would be missed. The long run has
CUMULUS_CHURN_STEPS=200 and CUMULUS_CHURN_CLIENTS=8.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from cumulus.workloads import tpch
from support.network_hosts import Host, missing
from support.ring_hosts import ask, begin_to_join, join, log_of, ring_hosts, start, wait_for

pytestmark = [
    pytest.mark.net,
    pytest.mark.slow,
    pytest.mark.xdist_group("network"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
STEPS, CLIENTS = (
    int(os.environ.get(f"CUMULUS_CHURN_{what}", usual)) for what, usual in (("STEPS", 40), ("CLIENTS", 4))
)
CLIENT = """
import json, signal, sys, threading
from pathlib import Path
import cumulus
from cumulus.errors import CumulusError
from support.running_ring import duckdb_over, expect_equal, select
place, tables = sys.argv[1:]
over = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: over.set())
right, failed = 0, {}
with duckdb_over(Path(tables)) as alone:
    wanted = {name: alone.execute(select(name)).to_arrow_table() for name in ("q1", "q3", "q6", "q12", "q14")}
print("ready", flush=True)
while not over.wait(0.05):
    for name, table in wanted.items():
        try:
            ring = cumulus.connect(place, secret_file="ring.secret")
            found = ring.query(select(name), timeout=60).arrow()
        except CumulusError as problem:
            failed.setdefault(type(problem).__name__, []).append(str(problem))
        else:
            expect_equal(found, table)
            right += 1
print(json.dumps({"right": right, "failed": failed}))
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


class Churn:
    """What happens to the members of a ring on hosts, chosen by a seed."""

    def __init__(self, hosts: list[Host], place: str, seed: int) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.hosts = {name: hosts[1 + number % (len(hosts) - 1)] for number, name in enumerate("abcdef")}
        self.first = hosts[0]
        self.nodes: dict[str, subprocess.Popen[str]] = {}
        self.steps: list[str] = []

    def step(self) -> None:
        """Let one node come, go or die; at least one stays beside that of the keeper."""
        absent = [name for name in self.hosts if name not in self.nodes]
        choices = ["join", "join"] * bool(absent) + ["remove", "kill", "return"] * (len(self.nodes) > 1)
        does = self.chance.choice(choices)
        name = self.chance.choice(absent if does == "join" else sorted(self.nodes))
        self.steps.append(f"{does} {name}")
        print(f"{time.monotonic():.1f} {self.steps[-1]}", flush=True)
        getattr(self, f"_{does}")(name)

    def _join(self, name: str) -> None:
        self.nodes[name] = join(self.hosts[name], self.place, name, "--home", f"of-{name}")

    def _remove(self, name: str) -> None:
        assert f"{name} has left the ring" in self.first.cumulus("ring", "remove", name, "--wait", "0.5")
        node = self.nodes.pop(name)
        told, _ = node.communicate(timeout=30)
        assert node.returncode == 0, told

    def _kill(self, name: str) -> None:
        self._end(name)
        wait_for(lambda: f"{name} is lost" in log_of(self.first).rpartition(f"{name} is in the ring")[2], 10)
        if self.chance.random() < 0.5:
            self.hosts[name].run("rm", "-rf", f"of-{name}")

    def _return(self, name: str) -> None:
        """Die, and come back at once."""
        self._end(name)
        for _ in range(100):
            node = begin_to_join(self.hosts[name], self.place, name, "--home", f"of-{name}")
            assert node.stdout is not None
            line = node.stdout.readline()
            if line.startswith(f"{name} of the ring at"):
                self.nodes[name] = node
                return
            # Its former life has not been noticed yet.
            assert "already" in line or "another node uses this home" in line, line + node.stdout.read()
            node.wait(timeout=20)
        raise AssertionError(f"{name} cannot come back")

    def _end(self, name: str) -> None:
        node = self.nodes.pop(name)
        node.kill()
        node.wait(timeout=20)

    def copies(self) -> int:
        """Return how many copies there are of the chunk of which there are fewest."""
        found: dict[str, int] = {}
        folders = [(self.first, "ring/node1"), *((self.hosts[name], f"of-{name}") for name in self.nodes)]
        for host, folder in folders:
            for file in host.run("ls", f"{folder}/store").split():
                found[file] = found.get(file, 0) + 1
        return min(found.values(), default=0)


class Clients:
    """Processes that ask without a pause, as a context."""

    def __init__(self, hosts: list[Host], place: str, tables: Path) -> None:
        words = (sys.executable, "-W", "ignore", "-c", CLIENT, f"ring://{place}", str(tables))
        self._processes = [hosts[number % len(hosts)].start(*words) for number in range(CLIENTS)]
        self.answers: list[dict[str, object]] = []

    def __enter__(self) -> Clients:
        for each in self._processes:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._processes:
            each.terminate()
        for each in self._processes:
            told, _ = each.communicate(timeout=120)
            assert each.returncode == 0, told
            self.answers.append(json.loads(told.splitlines()[-1]))


def facts_of(process: psutil.Process) -> Mapping[str, int]:
    """Return descriptors by kind, threads and bytes of a process; files in memory hold the chunks that it keeps."""
    places = [os.readlink(file) for file in Path(f"/proc/{process.pid}/fd").iterdir() if file.is_symlink()]
    in_memory = sum(place.startswith("/memfd:") for place in places)
    counts = {"files": len(places) - in_memory, "files in memory": in_memory}
    return {**counts, "threads": process.num_threads(), "bytes": process.memory_info().rss}


def kept(host: Host) -> Iterator[psutil.Process]:
    """The keeper, and the node that is started with it."""
    for pid, line in host.command_lines().items():
        if "cumulus_ring.process" in line or "fork" in line:
            yield psutil.Process(pid)


@pytest.mark.parametrize("seed", [1])
def test_random_changes_of_members_lose_nothing(seed: int, tables: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("CUMULUS_SEED", seed))
    print(f"CUMULUS_SEED={seed}")
    source = shutil.copytree(tables, tmp_path.parent / f"source{seed}")
    with ring_hosts(tmp_path, 4) as hosts:
        place = start(hosts[0], source, "--nodes", 1, "--adopt", "--replicas", 2)
        wait_for(lambda: "epoch 1 needs its files no more" in log_of(hosts[0]), 60)
        shutil.rmtree(source)
        churn = Churn(hosts, place, seed)
        churn._join("a")
        churn._join("b")
        ask(hosts[0], place, tables, "q1", "q3", "q6", "q12", "q14")
        before = {process.pid: facts_of(process) for process in kept(hosts[0])}
        with Clients(hosts, place, tables) as clients:
            for _ in range(STEPS):
                wait_for(lambda: churn.copies() >= 2, 60)
                churn.step()
        wait_for(lambda: churn.copies() >= 2, 60)
        told = {kind for each in clients.answers for kind in each["failed"]}  # type: ignore[attr-defined]
        print(clients.answers)
        assert told <= {"NodeLostError", "QueryCancelledError", "UsageError"}, clients.answers
        assert all(each["right"] > 5 for each in clients.answers), clients.answers  # type: ignore[operator]
        found = ask(hosts[2], place, tables, seconds=300)
        chunks = found["status"]["nodes"]["node1"]["memory"]["slots"]
        assert set(found["nodes"]) == {"node1", *churn.nodes}
        for name in list(churn.nodes)[2:]:
            churn._remove(name)
        after = {process.pid: facts_of(process) for process in kept(hosts[0])}
        print(before, after, sep="\n")
        assert before.keys() == after.keys()
        for pid, facts in after.items():
            assert facts["files"] <= before[pid]["files"] + 10, (before[pid], facts)
            assert facts["threads"] <= before[pid]["threads"] + 8, (before[pid], facts)
            assert facts["files in memory"] <= 2 * chunks, (before[pid], facts)  # two of one that is read in place
            assert facts["bytes"] <= before[pid]["bytes"] + 150e6, (before[pid], facts)
        hosts[0].cumulus("ring", "stop")
