"""Queries of a real ring that are cancelled, whatever they are at: their asker is back at once, and nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import NotRunningError, QueryTimeoutError, RingError, UsageError
from cumulus.workloads import tpch
from cumulus_ring.process import ring_supervisor
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import read_address
from support.running_ring import running_ring
from support.tiers import one_mode_each

pytestmark = pytest.mark.xdist_group("test_ring_cancelling")  # one ring for all of them

WAYS = ("ctrl-c", "kill", "timeout")
SOON = 2.0
"""Seconds: half of it is for a machine that is busy with other tests, too."""
NODE, PREDECESSOR = "node1", "node3"
LARGE = "SELECT a.* FROM lineitem a, region, region r"
CROSS = "SELECT count(*) FROM lineitem a, lineitem b, lineitem c WHERE a.l_tax + b.l_tax + c.l_tax = 7"
UNIONS = " UNION ALL ".join(f"SELECT n_name FROM nation WHERE n_nationkey = {place}" for place in range(2_000))
"""What takes a minute to plan."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))
    for way in WAYS:  # a chunk that came by is kept: the next query may not wait for it
        pq.write_table(pa.table({"a": range(12_000)}), folder / f"only {way}.parquet", row_group_size=1_000)
    return folder


@pytest.fixture(scope="module")
def ring(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    """Three nodes that run one query at a time each."""
    home = tmp_path_factory.mktemp("ring") / "home"
    with running_ring(source, home, nodes=3, queries=1, failure_s=60.0) as client:
        yield client


def started(ring: RingClient, sql: str, *options: str) -> subprocess.Popen[str]:
    """`cumulus ring query` in a process of its own."""
    command = [sys.executable, "-c", "from cumulus.cli.main import main; main()", "ring", "query", sql]
    return subprocess.Popen(
        [*command, "--home", str(ring.home), "--node", NODE, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def state(ring: RingClient, node: str = NODE) -> dict[str, Any]:
    """How a node is, whatever the others do."""
    said: dict[str, Any] = ring._ask(node, {"ask": "status"})[0]["status"]
    return said


def wait_until(what: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def is_quiet(ring: RingClient) -> bool:
    """Whether no query has left anything at the node."""
    found = state(ring)
    return not any(found[name] for name in ("leases", "outstanding", "blocked", "queries", "used_bytes"))


def open_count(ring: RingClient) -> tuple[int, int]:
    """Threads and descriptors of the node, without those of chunks."""
    process = Path("/proc") / str(read_address(ring.home).pids[NODE])
    names = []
    for each in (process / "fd").iterdir():
        with suppress(OSError):
            names.append(str(each.readlink()))
    return len(list((process / "task").iterdir())), sum("memfd" not in name for name in names)


@contextmanager
def stopped(ring: RingClient, name: str) -> Iterator[None]:
    """A node whose process stands still."""
    number = read_address(ring.home).pids[name]
    os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(number, signal.SIGCONT)


@contextmanager
def blocked(ring: RingClient, way: str) -> Iterator[str]:
    with stopped(ring, PREDECESSOR):
        yield f'SELECT sum(a) FROM "only {way}"'


@contextmanager
def in_parts(ring: RingClient, way: str) -> Iterator[str]:
    with stopped(ring, PREDECESSOR):  # which does not give its part
        yield f'SELECT max(a) FROM "only {way}"'


@contextmanager
def planning(ring: RingClient, way: str) -> Iterator[str]:
    yield UNIONS


@contextmanager
def computing(ring: RingClient, way: str) -> Iterator[str]:
    yield CROSS


@contextmanager
def in_line(ring: RingClient, way: str) -> Iterator[str]:
    before = started(ring, CROSS)
    try:
        assert wait_until(lambda: len(state(ring)["queries"]) == 1, 15.0)
        yield "SELECT 1"
    finally:
        before.kill()
        before.communicate()


def doing(ring: RingClient, sql: str, what: str) -> bool:
    """Whether a query is where it is to be cancelled."""
    found = state(ring)
    if sql not in found["queries"]:
        return False
    if what == "blocked":
        return bool(found["blocked"])
    return what != "in_line" or len(found["queries"]) == 2


WHATS = {"blocked": blocked, "in_parts": in_parts, "planning": planning, "computing": computing, "in_line": in_line}


@pytest.mark.parametrize(("what", "way"), one_mode_each(WHATS, WAYS, of=2))
def test_a_query_that_is_cancelled_leaves_nothing(ring: RingClient, what: str, way: str) -> None:
    assert wait_until(lambda: is_quiet(ring), SOON)
    with WHATS[what](ring, way) as sql:
        asker = started(
            ring,
            sql,
            *(["--timeout", "1.5"] if way == "timeout" else []),
            *(["--no-split"] if what == "blocked" else []),
        )
        try:
            assert wait_until(lambda: doing(ring, sql, what), 15.0)
            begun = time.monotonic()
            if way != "timeout":
                time.sleep(0.2)
                begun = time.monotonic()
                asker.send_signal(signal.SIGINT if way == "ctrl-c" else signal.SIGKILL)
            _, said = asker.communicate(timeout=10)
        finally:
            asker.kill()
        took = time.monotonic() - begun
        if way == "timeout":
            assert took < 1.5 + SOON
            assert said.startswith("error: ")
            assert "1.5 s" in said
        else:
            assert took < SOON
            assert "Traceback" not in said
        assert asker.returncode == {"ctrl-c": 130, "kill": -signal.SIGKILL, "timeout": 1}[way]
        assert wait_until(lambda: sql not in state(ring)["queries"], SOON)
        assert what == "in_line" or wait_until(lambda: is_quiet(ring), SOON)
    assert wait_until(lambda: is_quiet(ring), 5.0)
    assert ring.query("SELECT count(*) AS c FROM nation", node=NODE).arrow().to_pylist() == [{"c": 25}]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ctrl-c", "kill"])
def test_an_asker_who_does_not_read_and_goes_leaves_nothing(ring: RingClient, way: str) -> None:
    assert wait_until(lambda: is_quiet(ring), SOON)
    time.sleep(0.2)  # the connections that were are closed
    before = open_count(ring)[1]
    asker = started(ring, LARGE)
    try:
        assert wait_until(lambda: LARGE in state(ring)["queries"], 15.0)
        asker.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: is_quiet(ring), 20.0)  # what is sent holds nothing of the ring
        time.sleep(0.3)
        threads, descriptors = open_count(ring)
        assert descriptors > before
        begun = time.monotonic()
        if way == "ctrl-c":
            asker.send_signal(signal.SIGINT)
            asker.send_signal(signal.SIGCONT)
        else:
            asker.send_signal(signal.SIGKILL)
        out, _ = asker.communicate(timeout=10)
        assert time.monotonic() - begun < SOON
        assert asker.returncode == (130 if way == "ctrl-c" else -signal.SIGKILL)
        assert out == ""
    finally:
        asker.kill()
    # One thread has read from the asker, and one has sent; the engine may have got some of its own.
    assert wait_until(lambda: open_count(ring)[0] <= threads - 2, SOON), (threads, open_count(ring))
    assert open_count(ring)[1] <= before


def test_a_node_that_hangs_is_not_waited_for_longer_than_the_timeout(ring: RingClient) -> None:
    with stopped(ring, NODE):
        begun = time.monotonic()
        with pytest.raises(RingError, match=NODE):
            ring.query("SELECT 1", node=NODE, timeout=0.5)
        assert time.monotonic() - begun < 0.5 + SOON
    assert ring.query("SELECT 1 AS one", node=NODE).arrow().to_pylist() == [{"one": 1}]


@pytest.mark.slow
def test_a_node_that_hangs_while_it_works_is_not_waited_for_longer_than_the_timeout(ring: RingClient) -> None:
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        asked = pool.submit(ring.query, CROSS, node=NODE, timeout=1.0)
        assert wait_until(lambda: bool(state(ring)["queries"]), 0.9)
        with stopped(ring, NODE):
            assert isinstance(asked.exception(timeout=5), QueryTimeoutError)
            assert time.monotonic() - begun < 1.0 + SOON
    assert wait_until(lambda: is_quiet(ring), SOON)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf"), 1e20])
def test_what_is_no_timeout_is_refused(ring: RingClient, timeout: float) -> None:
    with pytest.raises(UsageError, match="a timeout of"):
        ring.query("SELECT 1", node=NODE, timeout=timeout)
    with pytest.raises(UsageError, match="does not understand a timeout of"):
        ring._ask(NODE, {"ask": "query", "sql": "SELECT 1", "epoch": 0, "timeout_s": timeout})
    assert state(ring)["queries"] == []


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_a_ring_that_is_stopped_with_queries_running_leaves_nothing(
    source: Path, tmp_path: Path, transport: str
) -> None:
    with running_ring(source, tmp_path / "home", nodes=3, queries=2, transport=transport) as ring:
        address = read_address(ring.home)
        processes = [address.pid, *address.pids.values()]
        asked = [(sql, node) for node in ring.nodes for sql in (CROSS, UNIONS, LARGE, "SELECT count(*) FROM lineitem")]
        with ThreadPoolExecutor(len(asked)) as pool:
            answers = [pool.submit(ring.query, sql, node=node) for sql, node in asked]
            assert wait_until(lambda: all(len(state(ring, node)["queries"]) >= 2 for node in ring.nodes), 10.0)
            sockets = {number for each in processes for number in sockets_of(each)}
            begun = time.monotonic()
            ring_supervisor.stop(ring.home)
            assert time.monotonic() - begun < 5.0
            for answer in answers:
                problem = answer.exception(timeout=5)
                assert problem is None or isinstance(problem, RingError | NotRunningError), problem
        assert not [each for each in processes if Path(f"/proc/{each}").exists() and not is_zombie(each)]
        left = " ".join(Path(f"/proc/net/{kind}").read_text(encoding="utf-8") for kind in ("unix", "tcp")).split()
        assert sockets
        assert not sockets.intersection(left)
        with pytest.raises(NotRunningError):
            ring.status()


def sockets_of(process: int) -> Iterator[str]:
    """Numbers of the sockets of a process, as the system lists them."""
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            kind, _, number = str(each.readlink()).partition(":[")
            if kind == "socket":
                yield number.rstrip("]")


def is_zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
