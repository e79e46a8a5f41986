"""A ring on several hosts: namespaces of this machine that share neither addresses nor folders."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cumulus.workloads import tpch
from support.network_hosts import Host, Hosts, missing

pytestmark = [
    pytest.mark.net,
    pytest.mark.xdist_group("network"),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
SECRET = "of the ring, and of nobody else"
QUERIES = """
import json, sys
from pathlib import Path
import cumulus
from support.running_ring import QUERIES, duckdb_over, expect_equal, select
place, tables, *chosen = sys.argv[1:]
ring = cumulus.connect(place, secret_file="ring.secret")
with duckdb_over(Path(tables)) as alone:
    for name in chosen or QUERIES:
        wanted = alone.execute(select(name)).to_arrow_table()
        for node in ring.nodes:
            expect_equal(ring.query(select(name), node=node).arrow(), wanted)
print(json.dumps({"nodes": ring.nodes, "status": ring.status()}))
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Sequence[Host]]:
    with Hosts(tmp_path, 3) as found:
        for host in found:
            host.write("ring.secret", SECRET, is_secret=True)
        yield found


def start(host: Host, tables: Path, *more: object) -> str:
    place = f"{host.address}:7300"
    words = ("--from", tables, "--listen", place, "--secret-file", "ring.secret", "--failure", 3)
    host.cumulus("ring", "start", *words, *more)
    return place


def join(host: Host, place: str, tables: Path, name: str, *more: str) -> Any:
    words = ["ring", "join", place, "--secret-file", "ring.secret", "--source", str(tables), "--name", name, *more]
    node = host.start(sys.executable, "-m", "cumulus", *words)
    assert node.stdout is not None
    assert node.stdout.readline().startswith(f"{name} of the ring at {place}")
    return node


def ask(host: Host, place: str, tables: Path, *queries: str) -> dict[str, Any]:
    told = host.run(sys.executable, "-c", QUERIES, f"ring://{place}", str(tables), *queries)
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def wait_for(is_so: Callable[[], bool], seconds: float) -> float:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() < begun + seconds, "it has not come to be so"
        time.sleep(0.1)
    return time.monotonic() - begun


def log_of(host: Host) -> str:
    return host.run("cat", "ring/ring.log")


def test_nodes_of_three_hosts_are_one_ring_until_a_cable_is_cut(
    hosts: Sequence[Host], tables: Path, tmp_path: Path
) -> None:
    first, second, third = hosts
    place = start(first, tables, "--nodes", 1)
    nodes = [join(second, place, tables, "b"), join(third, place, tables, "c")]
    found = ask(second, place, tables, "q1", "q3", "q12", "q18")
    assert found["nodes"] == ["node1", "b", "c"]
    links = [link for status in found["status"]["nodes"].values() for link in status["links"].values()]
    assert sum(each["kernel"]["received"] for each in links) > 100_000, "chunks go over the network"
    third.cut()
    wait_for(lambda: "c is lost" in log_of(first), 10)
    assert "timed out" in log_of(first)
    assert nodes[1].wait(timeout=20) == 1
    assert nodes[1].stdout.read().startswith(f"error: c: the keeper of the ring at {place} is gone")
    found = ask(second, place, tables, "q1", "q12")
    assert found["nodes"] == ["node1", "b"]
    third.mend()
    join(third, place, tables, "c")
    found = ask(third, place, tables, "q12")
    assert (found["nodes"], found["status"]["lost"]) == (["node1", "b", "c"], {})
    assert "b has left the ring" in first.cumulus("ring", "remove", "b")
    assert nodes[0].wait(timeout=20) == 0
    assert ask(third, place, tables, "q12")["nodes"] == ["node1", "c"]
    first.cumulus("ring", "stop")
