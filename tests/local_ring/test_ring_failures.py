"""A ring whose nodes stop, hang and die: each query is right or failed with a reason, and the others go on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import (
    CumulusError,
    InputError,
    LockedError,
    NodeLostError,
    NotRunningError,
    ProcessError,
    RingError,
    StoreError,
    UsageError,
)
from cumulus.transport.greeting import Credentials
from cumulus.workloads import tpch
from cumulus_ring.chunks.rendezvous import owner
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.process import ring_supervisor
from cumulus_ring.process.client import CLIENT, RingClient
from cumulus_ring.process.home import LOG, read_address
from cumulus_ring.process.settings import RingOptions, Transport
from cumulus_ring.process.wire import receive_said, send_said
from support.ring_faults import (
    RingLoad,
    command_line,
    expect_quiet,
    is_alive,
    listening_ports,
    pid_of,
    processes_of,
    resident_bytes,
    standing_still,
    wait_until,
)
from support.running_ring import QUERIES, duckdb_over, expect_equal, running_ring, select
from support.told_versions import Told

pytestmark = pytest.mark.xdist_group("test_ring_failures")  # one ring for all of them

ROWS = 1000


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of 24 tables with one row group each; the sum of table 7 is 7 times that of 0 to 999."""
    folder = tmp_path_factory.mktemp("little")
    for number in range(24):
        pq.write_table(pa.table({"a": [number * each for each in range(ROWS)]}), folder / f"t{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tpch.generate(0.01, tmp_path_factory.mktemp("tpch"))


@pytest.fixture(scope="module")
def wanted(source: Path) -> dict[str, pa.Table]:
    with duckdb_over(source) as alone:
        return {query: alone.sql(select(query)).to_arrow_table() for query in QUERIES}


@pytest.fixture(scope="module")
def ring(little: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    with running_ring(little, tmp_path_factory.mktemp("ring") / "home", nodes=3) as client:
        yield client
        expect_quiet(client)


def tables_of(client: RingClient, node: str) -> list[int]:
    """The tables whose chunks a node owns."""
    nodes = client.nodes
    tables = Told(client.home).catalogue().tables
    return [int(each.name[1:]) for each in tables if owner(each.files[0].digest, 0, nodes) == node]


def sum_of(client: RingClient, table: int, node: str) -> None:
    """Ask a node for a sum, which is right."""
    answer = client.query(f"SELECT SUM(a) AS s FROM t{table}", node=node, timeout=30)
    assert answer.arrow().to_pylist() == [{"s": table * sum(range(ROWS))}]


def expect_all(client: RingClient, wanted: dict[str, pa.Table], node: str) -> None:
    for query in QUERIES:
        expect_equal(client.query(select(query), node=node, timeout=30).arrow(), wanted[query])


@pytest.mark.slow
def test_what_a_node_owns_waits_for_it_while_it_stands_still(ring: RingClient) -> None:
    first, second, _ = ring.nodes
    theirs, own = tables_of(ring, first)[0], tables_of(ring, second)[0]
    with ThreadPoolExecutor() as pool:
        with standing_still(pid_of(ring, first)):
            waiting = pool.submit(sum_of, ring, theirs, second)
            begun = time.monotonic()
            sum_of(ring, own, second)
            assert time.monotonic() - begun < 3, "what it owns itself comes at once"
            time.sleep(3)
            assert not waiting.done(), "nobody else reads the files"
        waiting.result(timeout=5)
    assert len(ring.nodes) == 3


def test_a_node_that_is_killed_is_done_without(source: Path, wanted: dict[str, pa.Table], tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "home", nodes=3) as ring:
        expect_all(ring, wanted, "node1")
        before = resident_bytes(pid_of(ring, "node1"))
        with RingLoad(ring, wanted) as load:
            wait_until(lambda: load.right > 10, 20)
            os.kill(pid_of(ring, "node2"), signal.SIGKILL)
            wait_until(lambda: ring.nodes == ("node1", "node3"), 10)
            right = load.right
            wait_until(lambda: load.right > right + 10, 20)
        load.check()
        with pytest.raises(NodeLostError, match="node2 is lost: ended by signal 9, Killed\nThe ring has: node1, node3"):
            ring.query("SELECT 1", node="node2")
        for node in ring.nodes:
            expect_all(ring, wanted, node)
        expect_quiet(ring)
        assert resident_bytes(pid_of(ring, "node1")) < before + 100e6


@pytest.mark.slow
def test_a_node_that_hangs_is_ended(little: Path, tmp_path: Path) -> None:
    with running_ring(little, tmp_path / "home", nodes=3, failure_s=2) as ring:
        hung = pid_of(ring, "node2")
        theirs = tables_of(ring, "node2")[0]
        with ThreadPoolExecutor() as pool, standing_still(hung):
            waiting = pool.submit(sum_of, ring, theirs, "node3")
            assert wait_until(lambda: ring.nodes == ("node1", "node3"), 2 + 3) >= 2
            waiting.result(timeout=3)
        assert not is_alive(hung)
        assert ring.status()["lost"] == {"node2": "it has not answered for 2 s"}
        for table in range(24):
            sum_of(ring, table, "node1")
        expect_quiet(ring)


@pytest.mark.slow
def test_a_ring_stops_with_a_node_that_hangs_and_queries_that_wait_for_it(little: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_ring(little, home, nodes=3) as ring:
        pids = read_address(home).pids
        with ThreadPoolExecutor() as pool, standing_still(pids["node1"]):
            theirs = tables_of(ring, "node1")
            waiting = [pool.submit(sum_of, ring, table, node) for table in theirs for node in ("node2", "node3")]
            time.sleep(3)
            begun = time.monotonic()
            ring_supervisor.stop(home)
            assert time.monotonic() - begun < 5
            assert not any(map(is_alive, pids.values()))
            for each in waiting:
                with pytest.raises(CumulusError, match=r"the node stops|has gone before|not running"):
                    each.result(timeout=1)
        assert not processes_of(home)


@pytest.mark.slow
def test_nothing_outlives_the_keeper(little: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_ring(little, home, nodes=3) as ring:
        address = read_address(home)
        with ThreadPoolExecutor() as pool, standing_still(address.pids["node1"]):
            waiting = pool.submit(sum_of, ring, tables_of(ring, "node1")[1], "node2")
            time.sleep(0.5)
            os.kill(address.pid, signal.SIGKILL)
            with pytest.raises(CumulusError, match="node2 has gone before it has answered"):
                waiting.result(timeout=5)
            wait_until(lambda: not any(is_alive(address.pids[name]) for name in ("node2", "node3")), 3)
            with pytest.raises(NotRunningError, match=r"the ring is not running\nStart it: cumulus ring start"):
                ring.query("SELECT 1")
        wait_until(lambda: not is_alive(address.pids["node1"]), 3)
    with running_ring(little, home, nodes=3) as ring:
        sum_of(ring, 5, "any")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_keeper_that_ends_while_nodes_adopt_leaves_none(little: Path, tmp_path: Path, number: signal.Signals) -> None:
    home = tmp_path / "home"
    slowly = RingOptions(str(little), str(home), nodes=2, adopt=True, disk_mb_s=0.001)
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(ring_supervisor.start, slowly)
        wait_until(lambda: len(processes_of(home)) == 3, 20)
        os.kill(
            next(pid for pid in processes_of(home) if b"cumulus_ring.process.ring_supervisor" in command_line(pid)),
            number,
        )
        with pytest.raises(ProcessError, match="the ring cannot start"):
            starting.result(timeout=10)
    wait_until(lambda: not processes_of(home), 3)
    with running_ring(little, home, nodes=2) as ring:
        sum_of(ring, 5, "any")


@pytest.mark.slow
def test_a_keeper_that_was_killed_is_followed_at_once(little: Path, tmp_path: Path) -> None:
    with running_ring(little, tmp_path / "home", nodes=1):
        os.kill(read_address(tmp_path / "home").pid, signal.SIGKILL)
        with running_ring(little, tmp_path / "home", nodes=1) as ring:
            sum_of(ring, 3, "any")


@pytest.mark.slow
def test_a_damaged_chunk_fails_who_reads_it_until_its_file_is_back(little: Path, tmp_path: Path) -> None:
    source, away, home = tmp_path / "source", tmp_path / "away", tmp_path / "home"
    shutil.copytree(little, source)
    with running_ring(source, home, nodes=3, adopt=True) as ring:
        log = home / LOG
        wait_until(lambda: "needs its files no more" in log.read_text(), 10)
        source.rename(away)
        damaged = next(each for each in Told(home).chunks().values() if each.table == "t7")
        (stored,) = home.glob(f"node*/store/{damaged.id:016x}")
        data = bytearray(stored.read_bytes())
        data[len(data) // 2] ^= 1
        stored.write_bytes(data)
        node = stored.parent.parent.name
        reason = (
            rf"chunk {damaged.id:016x}: table t7, column a, rows 0 to 999 of row group 0 of t7.parquet is damaged at "
            rf"node {node}, and so is its file\nBring {source}/t7.parquet back"
        )
        for asked in ring.nodes:
            with pytest.raises(RingError, match=reason):
                sum_of(ring, 7, asked)
            for table in (0, 1, 2, 8):
                sum_of(ring, table, asked)
        away.rename(source)
        for asked in ring.nodes:
            sum_of(ring, 7, asked)
        source.rename(away)
    stored.write_bytes(data)
    with pytest.raises(ProcessError, match=f"the ring cannot start: {node} cannot start: chunk .*: table t7"):
        ring_supervisor.start(RingOptions(str(source), str(home), nodes=3, adopt=True))
    away.rename(source)
    with running_ring(source, home, nodes=3, adopt=True) as ring:
        sum_of(ring, 7, "any")
    assert stored.read_bytes() != data


@pytest.mark.slow
def test_a_file_that_is_cut_off_fails_who_reads_it(little: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(little, source)
    with running_ring(source, tmp_path / "home", nodes=2) as ring:
        os.truncate(source / "t3.parquet", 100)  # its link is cut off, too
        for asked in ring.nodes:
            with pytest.raises(CumulusError, match=r"table t3|t3\.parquet"):
                sum_of(ring, 3, asked)
            sum_of(ring, 4, asked)
        os.unlink(source / "t5.parquet")
        for asked in ring.nodes:
            sum_of(ring, 5, asked)


# --- who is in the way ----------------------------------------------------------------------------------------------


def start(source: Path, home: Path) -> None:
    ring_supervisor.start(RingOptions(str(source), str(home), nodes=2))


@pytest.mark.slow
def test_homes_that_are_none(ring: RingClient, little: Path, tmp_path: Path) -> None:
    with pytest.raises(LockedError, match="the ring of this home runs already\nUse it, stop it"):
        start(little, ring.home)
    sum_of(ring, 9, "any")
    file = tmp_path / "file"
    file.touch()
    for home in (file, file / "below"):
        with pytest.raises(UsageError, match=f"{file} is a file\nGive a folder"):
            start(little, home)
    others = tmp_path / "others"
    (others / "epochs").mkdir(parents=True)
    (others / ".lock").touch()
    with pytest.raises(InputError, match="is a folder with other things in it\nGive one that is empty, or new"):
        start(little, others)
    assert sorted(each.name for each in others.iterdir()) == [".lock", "epochs"]
    with pytest.raises(InputError, match="is a folder with other things in it"):
        start(little, little)
    with pytest.raises(StoreError, match="--home /proc/self/ring cannot be written: No such file or directory"):
        start(little, Path("/proc/self/ring"))


@pytest.mark.slow
def test_of_several_that_start_at_once_one_does(little: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"

    def outcome(_: int) -> str:
        try:
            start(little, home)
        except CumulusError as problem:
            return str(problem)
        return ""

    with ThreadPoolExecutor(4) as pool:
        outcomes = Counter(pool.map(outcome, range(4)))
    try:
        assert outcomes.pop("") == 1
        assert all("the ring of this home runs already" in each for each in outcomes), outcomes
        sum_of(RingClient(home), 4, "any")
    finally:
        ring_supervisor.stop(home)


@pytest.mark.slow
def test_a_node_that_cannot_start(little: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_ring(little, home, nodes=2):
        pass
    shutil.rmtree(home / "node2" / "store")
    (home / "node2" / "store").touch()
    with pytest.raises(ProcessError, match=r"node2 cannot start: .*/node2/store: the store of node node2 cannot be"):
        start(little, home)
    assert not processes_of(home)
    with pytest.raises(NotRunningError, match="the ring has ended: node2 cannot start"):
        RingClient(home)
    (home / "node2" / "store").unlink()
    with running_ring(little, home, nodes=2) as ring:
        sum_of(ring, 4, "any")
    assert not processes_of(home)


# --- a full disk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of few kilobytes."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], check=False).returncode
    ):
        pytest.skip("only root may mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


@pytest.mark.slow
def test_a_full_disk_fails_what_needs_it_until_there_is_room(little: Path, small_disk: Path) -> None:
    home, filler = small_disk / "home", small_disk / "filler"
    fill(filler)
    with pytest.raises((StoreError, ProcessError), match=r"written: No space left on device\n.*[Mm]ake room"):
        start(little, home)
    filler.unlink()
    with running_ring(little, home, nodes=3) as ring:
        sum_of(ring, 1, "node1")
        fill(filler)
        for table in range(2, 24):
            with pytest.raises(RingError, match=r"store of node .* cannot be written: No space left on device\nMake"):
                sum_of(ring, table, "node1")
        sum_of(ring, 1, "node1")
        killed = pid_of(ring, "node2")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not is_alive(killed), 5)
        time.sleep(1)
        filler.unlink()
        wait_until(lambda: ring.nodes == ("node1", "node3"), 5)
        for table in range(24):
            for node in ring.nodes:
                sum_of(ring, table, node)
        expect_quiet(ring)


# --- clients that are in the way ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stuck_clients_disturb_nobody(little: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with running_ring(little, home, nodes=2, transport="tcp") as ring, ExitStack() as open_links:
        address = read_address(home)

        def connected() -> OpenLink:
            me = Credentials("stuck", secret=bytes.fromhex(address.secret))
            link = Dial(me, address.nodes["node1"], "node1", CLIENT, address.ring_epoch, 5.0).open()
            open_links.callback(link.close)
            return link

        for _ in range(200):
            open_links.enter_context(socket.create_connection(address.nodes["node1"]))
        for _ in range(200):
            connected()
        large = "SELECT a.a, b.a AS b FROM t1 a, t2 b"  # 16 MB
        for _ in range(4):
            send_said(connected(), {"ask": "query", "sql": large, "epoch": 0, "timeout_s": None})
        for sql in (large, "SELECT 1"):  # the second is not looked at before the first has its answer
            twice = connected()
            for _ in range(2):
                send_said(twice, {"ask": "query", "sql": sql, "epoch": 0, "timeout_s": None})
        rng = random.Random(5)
        for port in listening_ports(address.pids["node1"]):
            for size in (1, 20, 3000):
                garbage = open_links.enter_context(socket.create_connection(("127.0.0.1", port)))
                garbage.sendall(rng.randbytes(size))
        for said in ({}, {"ask": "query", "sql": 1}, {"ask": "query", "sql": "SELECT 1", "epoch": 0, "timeout_s": "x"}):
            link = connected()
            send_said(link, said)
            answer, _ = receive_said(link)
            assert answer["error"]["text"].startswith("node1 does not understand"), answer
        begun = time.monotonic()
        for table in range(24):
            for node in ring.nodes:
                sum_of(ring, table, node)
        assert time.monotonic() - begun < 10
        assert all(ring.status()["nodes"].values())
        begun = time.monotonic()
        ring_supervisor.stop(home)
        assert time.monotonic() - begun < 5
        assert not any(map(is_alive, address.pids.values()))


def kill_one(ring: Any, rng: random.Random) -> None:
    """Kill a node; the one before, of which the others have not heard yet, is none any more."""
    while True:
        try:
            os.kill(pid_of(ring, rng.choice(ring.nodes)), signal.SIGKILL)
        except ProcessLookupError:
            time.sleep(0.05)
        else:
            return


@pytest.mark.kill
@pytest.mark.parametrize("transport", ["local", "tcp"])
def test_many_kills_under_load(source: Path, wanted: dict[str, pa.Table], tmp_path: Path, transport: Transport) -> None:
    kills = int(os.environ.get("CUMULUS_KILLS", "50")) // 2
    rng = random.Random(kills)
    killed, right, failed, slowest = 0, 0, Counter[str](), 0.0
    while killed < kills:
        with running_ring(source, tmp_path / "home", nodes=4, transport=transport) as ring:
            expect_all(ring, wanted, "node1")
            before_all = resident_bytes(pid_of(ring, "node1"))
            with RingLoad(ring, wanted) as load:
                for left in (3, 2, 1)[: kills - killed]:
                    time.sleep(rng.random())
                    kill_one(ring, rng)
                    killed += 1
                    if rng.random() < 0.7:  # otherwise the next one comes while they meet
                        wait_until(lambda: len(ring.nodes) <= left, 30)  # noqa: B023  # waited for here
                before = load.right
                wait_until(lambda: load.right > before + 5, 30)  # noqa: B023
            load.check()
            right, failed, slowest = right + load.right, failed + load.failed, max(slowest, load.slowest)
            for node in ring.nodes:
                expect_all(ring, wanted, node)
            expect_quiet(ring)
            for node in ring.nodes:
                assert resident_bytes(pid_of(ring, node)) < before_all + 150e6
    reasons = Counter(each.partition(":")[0] for each in failed.elements())
    print(f"{killed} kills: {right} queries right, {failed.total()} failed {dict(reasons)}, slowest {slowest:.1f} s")
    for reason, count in failed.most_common(8):
        print(f"{count:5} {reason}")
