"""A ring on hosts that share neither addresses nor folders: its keeper, its nodes and its clients by the command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.network_hosts import Host, Hosts

SECRET = "of the ring, and of nobody else"
SECRET_FILE = "ring.secret"
FAILURE_S, GRACE_S = 3.0, 2.0
"""After how long without an answer a node is lost, and how much longer it may take until it is said."""
_QUERIES = """
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


@contextmanager
def ring_hosts(own: Path, count: int) -> Iterator[list[Host]]:
    """Hosts that know the secret of a ring."""
    with Hosts(own, count) as found:
        for host in found:
            host.write(SECRET_FILE, SECRET, is_secret=True)
        yield list(found)


def start(host: Host, tables: Path, *more: object) -> str:
    """Start a ring; return where its keeper is."""
    place = f"{host.address}:7300"
    words = ("--from", tables, "--listen", place, "--secret-file", SECRET_FILE, "--failure", FAILURE_S)
    host.cumulus("ring", "start", *words, *more)
    return place


def join(host: Host, place: str, name: str, *more: object) -> subprocess.Popen[str]:
    """Start a node, and wait until it is in the ring."""
    node = begin_to_join(host, place, name, *more)
    assert node.stdout is not None
    line = node.stdout.readline()
    assert line.startswith(f"{name} of the ring at {place}"), line + node.stdout.read()
    return node


def begin_to_join(host: Host, place: str, name: str, *more: object) -> subprocess.Popen[str]:
    """Start a node."""
    words = ["ring", "join", place, "--secret-file", SECRET_FILE, "--name", name, *map(str, more)]
    return host.start(sys.executable, "-m", "cumulus", *words)


def ask(host: Host, place: str, tables: Path, *queries: str, seconds: float = 120.0) -> dict[str, Any]:
    """Compare queries of TPC-H, or all 22, at each node with DuckDB's answers; return the nodes and their status."""
    words = [sys.executable, "-c", _QUERIES, f"ring://{place}", str(tables), *queries]
    told = host.run(*words, seconds=seconds)
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def failed(host: Host, *words: object, seconds: float = 60.0) -> str:
    """Run a command that cannot be done; return what it has said, a sentence and a way out, without a traceback."""
    process = host.start(sys.executable, "-m", "cumulus", *map(str, words))
    told, _ = process.communicate(timeout=seconds)
    assert process.returncode in (1, 2), told
    assert told.startswith("error: "), told
    assert "Traceback" not in told
    return told


def wait_for(is_so: Callable[[], bool], seconds: float) -> float:
    """Wait until something is so; return how long that took."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() < begun + seconds, "it has not come to be so"
        time.sleep(0.1)
    return time.monotonic() - begun


def log_of(host: Host) -> str:
    """Return what the keeper has said."""
    return host.run("cat", "ring/ring.log")


def sent_bytes(host: Host) -> int:
    """Return how many bytes the kernel has sent by the cable of a host."""
    return int(host.run("cat", "/sys/class/net/eth0/statistics/tx_bytes"))
