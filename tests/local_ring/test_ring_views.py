"""A ring over the output folder of a run: its views at committed epochs, as `cumulus query` shows them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from cumulus.epochs.committed.manifest import committed_epochs
from cumulus.epochs.output.query import query
from cumulus.errors import EpochMissingError
from cumulus_ring.chunks.kept_versions import numbers_of_versions
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import LOG, read_address
from support.command_line import cumulus
from support.ring_epochs import SOON, wait_for_epoch
from support.running_ring import expect_equal, running_ring

pytestmark = pytest.mark.xdist_group("test_ring_views")  # one ring for all of them

PROGRAM = """
CREATE TABLE sales (id INT PRIMARY KEY, shop INT, amount DECIMAL(12, 2), note VARCHAR);
CREATE TABLE visits (id INT PRIMARY KEY, shop INT);
CREATE VIEW totals AS SELECT shop, SUM(amount) AS total, COUNT(*) AS n, MAX(note) AS last FROM sales GROUP BY shop;
CREATE VIEW visitors AS SELECT shop, COUNT(*) AS n FROM visits GROUP BY shop;
"""
SHOPS = 500
SELECTS = (
    "SELECT * FROM totals",
    "SELECT * FROM visitors",
    "SELECT sum(total), count(last), min(n) FROM totals",
    "SELECT shop, total / visitors.n AS each FROM totals JOIN visitors USING (shop) WHERE total > 100",
)


class Shop:
    """A run over files that come, in a folder of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.out = folder / "out"
        self._folder, self._options = folder, options
        self._rng = random.Random(1)
        self._next = 1
        for table in ("sales", "visits"):
            (folder / "in" / table).mkdir(parents=True)
        (folder / "views.sql").write_text(PROGRAM)

    def write(self, table: str, count: int = 1000) -> None:
        """Let a file come."""
        rows = []
        for number in range(self._next, self._next + count):
            row = {"id": number, "shop": self._rng.randrange(SHOPS)}
            if table == "sales":
                row |= {"amount": self._rng.randrange(10**6) / 100, "note": f"{number:07}"}
            rows.append(json.dumps(row))
        place = self._folder / "in" / table / f"{self._next:07}.json"
        aside = self._folder / f"{self._next}.tmp"
        aside.write_text("\n".join(rows) + "\n")
        aside.rename(place)
        self._next += count

    def arguments(self, out: Path | None = None) -> list[str]:
        given = ["run", self._folder / "views.sql", "--from", self._folder / "in", "--out", out or self.out]
        return list(map(str, [*given, "--host", "embedded", "--engine", "interpreter", *self._options]))

    def run(self, *tables: str, out: Path | None = None) -> int:
        """Let a file of each table come, and run until they are in; return the last epoch."""
        for table in tables:
            self.write(table)
        ended = cumulus(*self.arguments(out))
        assert ended.returncode == 0, ended.stderr
        return committed_epochs(out or self.out)[-1]

    def going_on(self) -> subprocess.Popen[bytes]:
        """Run on in a process."""
        command = [
            sys.executable,
            "-c",
            "from cumulus.cli.main import main; main()",
            *self.arguments(),
            "--trigger",
            "100ms",
        ]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def expect_views(ring: RingClient, out: Path, epoch: int, asked: int = 0) -> None:
    """Each node alone answers what `cumulus query` does."""
    for node in ring.nodes:
        for sql in SELECTS:
            answer = ring.query(sql, node=node, epoch=asked, timeout=30, split=False)
            assert answer.epoch == epoch
            expect_equal(answer.arrow(), query(out, sql, epoch))


def loads(ring: RingClient) -> int:
    """How often chunks were read, from the disk or from memory."""
    states = ring.status()["nodes"].values()
    return sum(state["counts"].get(what, 0) for state in states for what in ("cold load", "warm load"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "run", "--keep", "2")


@pytest.fixture
def ring(shop: Shop, tmp_path: Path) -> Iterator[RingClient]:
    shop.run("sales", "visits")
    with running_ring(shop.out, tmp_path / "home", nodes=2) as client:
        yield client


def test_epochs_come_and_go(shop: Shop, ring: RingClient) -> None:
    first = committed_epochs(shop.out)[-1]
    expect_views(ring, shop.out, first)
    before = loads(ring)
    expect_views(ring, shop.out, first)
    assert loads(ring) == before, "what is kept was read again"

    # Another epoch is seen without a restart; the file of the view that has not changed stays hot.
    second = shop.run("visits")
    assert second == first + 1
    wait_for_epoch(ring, second)
    for node in ring.nodes:
        ring.query("SELECT sum(total) FROM totals", node=node, split=False)
    assert loads(ring) == before, "the file of a view that has not changed was read again"
    expect_views(ring, shop.out, second)
    assert loads(ring) > before
    expect_views(ring, shop.out, first, asked=first)

    # The ring has epochs that the run has not any more: it keeps three, the run two.
    third = shop.run("sales")
    assert first not in committed_epochs(shop.out)
    wait_for_epoch(ring, third)
    expect_views(ring, shop.out, third)
    for node in ring.nodes:
        kept = ring.query("SELECT sum(n) AS n FROM visitors", node=node, epoch=first)
        assert (kept.epoch, kept.rows()) == (first, [(1000,)])
        kept = ring.query("SELECT max(last), sum(n) FROM totals", node=node, epoch=first)
        assert kept.rows() == [("0001000", 1000)]

    fourth = shop.run("visits")
    wait_for_epoch(ring, fourth)
    with pytest.raises(EpochMissingError, match=f"the ring has no epoch {first}, or not any more") as problem:
        ring.query(SELECTS[0], epoch=first)
    assert problem.value.epochs == (second, third, fourth)
    told = cumulus("ring", "query", "SELECT 1", "--epoch", first, "--home", ring.home)
    assert told.returncode != 0
    assert f"It has {second}, {third} and {fourth}" in " ".join(told.stderr.split())
    told = cumulus("ring", "query", "SELECT count(*) FROM totals", "--home", ring.home)
    assert f"epoch {fourth}, by node" in told.stderr


@pytest.mark.slow
def test_an_epoch_that_goes_while_a_query_waits_for_it(shop: Shop, tmp_path: Path) -> None:
    first = shop.run("sales", "visits")
    with running_ring(shop.out, tmp_path / "home", nodes=2, keep=1) as ring, ThreadPoolExecutor(1) as pool:
        pids = read_address(ring.home).pids
        for asked, other in (("node1", "node2"), ("node2", "node1")):
            os.kill(pids[other], signal.SIGSTOP)
            answer = pool.submit(ring.query, SELECTS[0], node=asked, timeout=60)
            if not wait([answer], 1).done:  # the other one has the only chunk
                break
            os.kill(pids[other], signal.SIGCONT)
        second = shop.run("sales")
        until = time.monotonic() + SOON
        while numbers_of_versions(ring.home) != [second]:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(pids[other], signal.SIGCONT)
        problem = answer.exception(timeout=20)
        wait_for_epoch(ring, second)
        expect_views(ring, shop.out, second)
    assert isinstance(problem, EpochMissingError)
    assert problem.epochs == (second,)
    assert f"the ring has let go of epoch {first} while the query read it" in str(problem)
    assert "Ask again" in str(problem)


@pytest.mark.slow
def test_a_run_that_goes_on_is_killed_and_goes_on(shop: Shop, ring: RingClient) -> None:
    process = shop.going_on()
    try:
        for turn in range(6):
            shop.write("sales" if turn % 2 else "visits")
            known = committed_epochs(shop.out)[-1]
            until = time.monotonic() + 30
            while committed_epochs(shop.out)[-1] == known:
                assert time.monotonic() < until
                time.sleep(0.02)
            newest = committed_epochs(shop.out)[-1]
            wait_for_epoch(ring, newest)
            answer = ring.query("SELECT sum(n) AS n FROM visitors")
            assert answer.epoch >= newest
            if turn in (1, 3):
                shop.write("sales")
                time.sleep(0.05 * turn)
                process.send_signal(signal.SIGKILL)
                process.wait()
                process = shop.going_on()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    last = committed_epochs(shop.out)[-1]
    wait_for_epoch(ring, last)
    expect_views(ring, shop.out, last)


@pytest.mark.slow
def test_a_run_that_goes_on_elsewhere_and_comes_back(shop: Shop, ring: RingClient) -> None:
    first = committed_epochs(shop.out)[-1]
    elsewhere = shop.out.with_name("elsewhere")
    os.rename(shop.out, elsewhere)
    second = shop.run("sales", out=elsewhere)
    assert second == first + 1
    time.sleep(2.5)
    expect_views(ring, elsewhere, first)  # by its links: the run has its last two epochs
    log = (ring.home / LOG).read_text()
    assert log.count(f"the epochs that are there stay: {shop.out} is not a folder") == 1, log
    os.rename(elsewhere, shop.out)
    wait_for_epoch(ring, second)
    expect_views(ring, shop.out, second)


@pytest.mark.slow
def test_another_run_in_the_same_folder_is_another_source(shop: Shop, ring: RingClient, tmp_path: Path) -> None:
    shop.run("sales")
    wait_for_epoch(ring, committed_epochs(shop.out)[-1])
    other = Shop(tmp_path / "other")
    last = other.run("visits")
    os.rename(shop.out, tmp_path / "gone")
    os.rename(other.out, shop.out)
    until = time.monotonic() + 10
    while ring.query("SELECT 1").epoch != last or ring.status()["nodes"]["node1"]["epochs"] != [last]:
        assert time.monotonic() < until
        time.sleep(0.05)
    for node in ring.nodes:
        answer = ring.query("SELECT * FROM visitors", node=node)
        expect_equal(answer.arrow(), query(shop.out, "SELECT * FROM visitors"))
