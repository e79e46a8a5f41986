"""Nodes that join a ring, leave it, are lost and come back: answers stay right, and what can be kept is."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import CumulusError, NodeLostError, NotRunningError, UsageError
from cumulus.transport.framing import FrameKind
from cumulus.transport.greeting import Credentials
from cumulus_ring.hosted.joining import join
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import LOG, SECRET, read_address
from cumulus_ring.process.membership.keeper_door import ASK, JOIN, KEEPER, KEEPER_EPOCH, releases
from cumulus_ring.process.ring_places import RingByAddress
from cumulus_ring.process.settings import NodePlace
from cumulus_ring.process.wire import error_of, receive_said, send_said
from support.attacks import GARBAGE, held_open, send_raw
from support.joined_nodes import JoinedNode
from support.ring_faults import wait_until
from support.running_ring import running_ring

pytestmark = pytest.mark.xdist_group("test_ring_members")
ROWS, TABLES = 1_000, 12
TOTAL = ROWS * (ROWS - 1) // 2


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for number in range(TABLES):
        rows = pa.table({"a": [number * each for each in range(ROWS)]})
        pq.write_table(rows, folder / f"t{number}.parquet", row_group_size=100)
    return folder


@contextmanager
def ring_with_door(source: Path, home: Path, **options: object) -> Iterator[RingClient]:
    with running_ring(source, home, listen="127.0.0.1:0", failure_s=3.0, **options) as ring:
        yield ring


def sums(ring: RingClient, node: str) -> list[int]:
    """Ask a node for the sum of each table."""
    query = " UNION ALL ".join(f"SELECT {number}, sum(a) FROM t{number}" for number in range(TABLES))
    return [total for _, total in sorted(ring.query(query, node=node, timeout=60).rows())]


def expect_right(ring: RingClient) -> None:
    for node in ring.nodes:
        assert sums(ring, node) == [number * TOTAL for number in range(TABLES)], node


def test_nodes_come_and_go_beside_queries(source: Path, tmp_path: Path) -> None:
    with ring_with_door(source, tmp_path / "ring", nodes=1) as ring, ExitStack() as opened:
        first = opened.enter_context(JoinedNode(ring, tmp_path / "a", "--source", source, "--name", "a")).ready()
        without = opened.enter_context(JoinedNode(ring, tmp_path / "b")).ready()  # others bring what it needs
        assert ring.nodes == ("node1", "a", "node2")
        expect_right(ring)
        assert ring.status()["nodes"]["node2"]["store"]["encoded"] == 0
        by_address = RingClient(RingByAddress(read_address(ring.home).door, ring.home / SECRET))
        assert by_address.nodes == ring.nodes
        expect_right(by_address)
        by_address.remove("a", wait_s=0.0)
        assert first.said(0).endswith("a has left the ring\n")
        assert ring.nodes == ("node1", "node2")
        with pytest.raises(UsageError, match="there is no node 'a'"):
            ring.query("SELECT 1", node="a")
        os.killpg(without.process.pid, signal.SIGINT)
        assert without.said(0).endswith("node2 has left the ring\n")
        assert (ring.nodes, ring.status()["lost"]) == (("node1",), {})
        expect_right(ring)
        again = opened.enter_context(JoinedNode(ring, tmp_path / "a", "--source", source, "--name", "a")).ready()
        os.kill(again.process.pid, signal.SIGKILL)
        wait_until(lambda: "a" in ring.status()["lost"], 20)
        assert "the connection to it is gone" in ring.status()["lost"]["a"]
        with pytest.raises(NodeLostError, match="a is lost"):
            ring.query("SELECT 1", node="a")
        opened.enter_context(JoinedNode(ring, tmp_path / "a", "--source", source, "--name", "a")).ready()
        assert (ring.nodes, ring.status()["lost"]) == (("node1", "a"), {})
        expect_right(ring)
        ring.remove("node1", wait_s=0.0)
        assert ring.nodes == ("a",)
        expect_right(ring)


def test_a_node_that_hangs_is_lost_and_no_query_waits_for_it(source: Path, tmp_path: Path) -> None:
    with ring_with_door(source, tmp_path / "ring", nodes=2) as ring, JoinedNode(ring, tmp_path / "a") as node:
        node.ready()
        os.kill(node.process.pid, signal.SIGSTOP)
        wait_until(lambda: ring.status()["lost"].get("node3", "") == "it has not answered for 3 s", 20)
        expect_right(ring)
        os.kill(node.process.pid, signal.SIGCONT)
        assert "the keeper of the ring at 127.0.0.1:" in node.said(1)


@contextmanager
def ring_without_source(source: Path, tmp_path: Path, **options: Any) -> Iterator[RingClient]:
    """A ring that has adopted its tables, and whose source is gone."""
    mine = shutil.copytree(source, tmp_path / "source")
    with ring_with_door(mine, tmp_path / "ring", adopt=True, **options) as ring:
        wait_until(lambda: "epoch 1 needs its files no more" in (ring.home / LOG).read_text(), 30)
        shutil.rmtree(mine)
        yield ring


def lose(ring: RingClient, node: str) -> None:
    """Kill a node, and wait until the others know."""
    os.kill(read_address(ring.home).pids[node], signal.SIGKILL)
    wait_until(lambda: node in ring.status()["lost"], 20)


def test_what_nodes_have_adopted_is_handed_on(source: Path, tmp_path: Path) -> None:
    with ring_without_source(source, tmp_path, nodes=3) as ring, ExitStack() as opened:
        opened.enter_context(JoinedNode(ring, tmp_path / "a", "--name", "a")).ready()
        wait_until(lambda: ring.status()["nodes"]["a"]["store"]["bytes"] > 0, 30)
        for node in ("node2", "node1"):
            ring.remove(node, wait_s=0.0)
        expect_right(ring)
        assert ring.nodes == ("node3", "a")


def test_of_two_replicas_one_may_be_lost_for_good(source: Path, tmp_path: Path) -> None:
    with ring_without_source(source, tmp_path, nodes=4, replicas=2) as ring:
        for lost in ("node2", "node3"):
            lose(ring, lost)
            shutil.rmtree(ring.home / lost)
            expect_right(ring)
            wait_until(lambda: copies_of_all(ring), 30)


def test_a_ring_of_nodes_that_have_joined_needs_its_files_until_all_have_adopted_them(
    source: Path, tmp_path: Path
) -> None:
    mine = shutil.copytree(source, tmp_path / "source")
    with ring_with_door(mine, tmp_path / "ring", nodes=0, adopt=True) as ring, ExitStack() as opened:
        for name in "ab":
            opened.enter_context(JoinedNode(ring, tmp_path / name, "--source", mine, "--name", name)).ready()
        wait_until(lambda: "epoch 1 needs its files no more" in (ring.home / LOG).read_text(), 30)
        shutil.rmtree(mine)
        expect_right(ring)


def copies_of_all(ring: RingClient) -> bool:
    """Whether each chunk is on the disks of two nodes."""
    names = [file.name for node in ring.nodes for file in (ring.home / node / "store").glob("[0-9a-f]*")]
    return len(set(names)) == 10 * TABLES and all(names.count(name) >= 2 for name in names)


def test_without_replicas_what_a_lost_node_had_alone_is_missed_by_name(source: Path, tmp_path: Path) -> None:
    with ring_without_source(source, tmp_path, nodes=2) as ring:
        lose(ring, "node2")
        with pytest.raises(CumulusError, match=r"table t\d+, .* is gone at node node1, and so is its file"):
            sums(ring, "node1")


def test_what_is_lost_already_keeps_no_node_in_the_ring(source: Path, tmp_path: Path) -> None:
    with ring_without_source(source, tmp_path, nodes=3) as ring:
        lose(ring, "node3")
        ring.remove("node2", wait_s=0.0)
        assert ring.nodes == ("node1",)
        assert "is at none of the nodes; node2 may go without it" in (ring.home / LOG).read_text()


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def standing(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingClient]:
    with ring_with_door(source, tmp_path_factory.mktemp("standing") / "ring", nodes=1) as ring:
        yield ring
        expect_right(ring)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("node1", "the ring has a node node1 already"),
        ("any", "cannot be a node's"),
        ("../x", "cannot be a node's"),
        ("a" * 200, "cannot be a node's"),
        ("-x", "cannot be a node's"),
    ],
)
def test_a_name_that_cannot_be(standing: RingClient, tmp_path: Path, name: str, why: str) -> None:
    place = NodePlace(str(tmp_path / "node"), "")
    with pytest.raises(UsageError, match=why):
        join(read_address(standing.home).door, standing.home / SECRET, place, name=name)


def test_a_home_and_a_source_that_cannot_be(standing: RingClient, source: Path, tmp_path: Path) -> None:
    door, secret = read_address(standing.home).door, standing.home / SECRET
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters").write_text("mine")
    for place, why in (
        (NodePlace(str(tmp_path / "other"), ""), "is a folder with other things in it"),
        (NodePlace(str(tmp_path / "node"), str(tmp_path / "nowhere")), "is not a folder"),
        (NodePlace(str(tmp_path / "other" / "letters"), ""), "letters"),
    ):
        with pytest.raises(CumulusError, match=why) as told:
            join(door, secret, place)
        assert told.value.hint
    assert (tmp_path / "other" / "letters").read_text() == "mine"


def test_a_secret_that_is_another_or_not_ones_own(standing: RingClient, tmp_path: Path) -> None:
    door = read_address(standing.home).door
    (tmp_path / "secret").write_text("another")
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(NotRunningError, match="has another secret"):
        join(door, tmp_path / "secret", NodePlace(str(tmp_path / "node"), ""))
    with pytest.raises(NotRunningError, match="has another secret"):
        RingClient(RingByAddress(door, tmp_path / "secret"))
    (tmp_path / "secret").chmod(0o644)
    with pytest.raises(CumulusError, match="the secret is not yours alone"):
        RingClient(RingByAddress(door, tmp_path / "secret"))
    with pytest.raises(UsageError, match="the ring's secret is needed"):
        RingClient(RingByAddress(door, ""))


@pytest.mark.parametrize("address", ["", "h1", "h1:", ":7", "h1:seven", "h1:70000", "ring://"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(UsageError, match="is no address of a ring"):
        RingByAddress(address, b"secret")


def test_nobody_listens_or_somebody_else(standing: RingClient) -> None:
    with pytest.raises(NotRunningError, match=r"no ring answers at 127\.0\.0\.1:1: Connection refused"):
        RingClient(RingByAddress("127.0.0.1:1", b"secret"))
    node = "{}:{}".format(*read_address(standing.home).nodes["node1"])
    with pytest.raises(NotRunningError, match="no ring answers at"):
        RingClient(RingByAddress(node, standing.home / SECRET))


def test_another_release_is_told_by_name(standing: RingClient) -> None:
    said = {"ask": "join", "name": "", "pid": 1, "address": "", "machine": "", "rack": ""}
    found = asked(standing, JOIN, {**said, "releases": {"Cumulus": "0.0", "DuckDB": "1.0", "Arrow": "1"}})
    with pytest.raises(UsageError, match=r"the node has Cumulus 0\.0, DuckDB 1\.0, Arrow 1, and the ring Cumulus"):
        raise error_of(found["error"])


@pytest.mark.parametrize("said", [{}, {"ask": "join"}, {"ask": "remove", "name": 1, "wait_s": 0}, {"ask": [1]}])
@pytest.mark.parametrize("purpose", [JOIN, ASK])
def test_what_nobody_understands(standing: RingClient, purpose: str, said: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="does not understand"):
        raise error_of(asked(standing, purpose, said)["error"])


@pytest.mark.parametrize(("node", "why"), [("node1", "is the last node of the ring"), ("x", "there is no node 'x'")])
def test_a_node_that_cannot_be_removed(standing: RingClient, node: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        standing.remove(node)


def test_strangers_at_the_door_hold_up_nobody(standing: RingClient) -> None:
    host, port = read_address(standing.home).door.split(":")
    door = (host, int(port))
    with held_open(door, 100):
        for garbage in GARBAGE.values():
            send_raw(door, garbage)
        expect_right(standing)
        assert RingClient(RingByAddress(f"{host}:{port}", standing.home / SECRET)).nodes == ("node1",)


@pytest.mark.parametrize(
    "frame",
    [
        (FrameKind.MESSAGE, b"{"),
        (FrameKind.MESSAGE, b"[1]"),
        (FrameKind.READY, b"{}"),
        (FrameKind.READY, b'["127.0.0.1", "x"]'),
        (FrameKind.READY, b'["127.0.0.1", 7, {"machine": "x"}]'),
        (FrameKind.READY, b'["127.0.0.1", 7, {"machine": "x", "tcp": ["h", 99999999]}]'),
        (FrameKind.LOST, b'["node1"]'),
        (FrameKind.STOP, b""),
        (FrameKind.CHUNK, b"x" * 1000),
        (FrameKind.HEALTH, b"x"),
    ],
)
def test_a_node_that_says_nonsense_is_no_member(standing: RingClient, frame: tuple[int, bytes]) -> None:
    said = {"ask": "join", "name": "odd", "pid": 1, "address": "", "machine": "", "rack": "", "releases": releases()}
    with at_the_door(standing, JOIN) as link:
        send_said(link, said)
        assert receive_said(link)[0]["joined"] == "odd"
        link.send(frame[0], [frame[1]])
        wait_until(lambda: "odd" in standing.status()["lost"], 20)
    assert standing.nodes == ("node1",)
    expect_right(standing)


def test_a_ring_without_a_door_keeps_its_nodes(source: Path, tmp_path: Path) -> None:
    told = pytest.raises(UsageError, match="nodes of this ring stay as long as it runs")
    with running_ring(source, tmp_path / "ring", nodes=2) as ring, told:
        ring.remove("node1")


def asked(ring: RingClient, purpose: str, said: dict[str, object]) -> dict[str, object]:
    """Ask the keeper something, with the right secret."""
    with at_the_door(ring, purpose) as link:
        send_said(link, said)
        return receive_said(link)[0]


@contextmanager
def at_the_door(ring: RingClient, purpose: str) -> Iterator[OpenLink]:
    """A connection to the keeper, behind its greeting."""
    address = read_address(ring.home)
    host, port = address.door.split(":")
    me = Credentials("somebody", secret=bytes.fromhex(address.secret))
    link = Dial(me, (host, int(port)), KEEPER, purpose, KEEPER_EPOCH).open()
    link.limit_waiting(10)
    try:
        yield link
    finally:
        link.close()
