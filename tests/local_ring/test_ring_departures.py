"""Nodes that leave while others are lost, come back at once, or are not let go."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import NodeLeavingError, NodeLostError, RingError
from cumulus.transport.greeting import Credentials
from cumulus_ring.links.dialling import Dial
from cumulus_ring.process.client import RingAnswer, RingClient
from cumulus_ring.process.home import LOG, read_address
from cumulus_ring.process.membership.broken_links import BrokenLinks
from cumulus_ring.process.membership.departures import Departures
from cumulus_ring.process.membership.keeper_door import JOIN, KEEPER, KEEPER_EPOCH, RemoveWish, releases
from cumulus_ring.process.membership.ring_members import MemberPlace, RingMembers
from cumulus_ring.process.wire import send_said
from support.joined_nodes import JoinedNode
from support.ring_faults import wait_until
from support.running_ring import running_ring

pytestmark = pytest.mark.xdist_group("test_ring_members")


class Sent:
    """What nodes are sent, in place of their supervisor."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, Any]]] = []

    def send(self, name: str, payload: bytes) -> None:
        self.said.append((name, json.loads(payload)))

    def taken(self) -> list[tuple[str, dict[str, Any]]]:
        found, self.said = self.said, []
        return found


class Going:
    """Departures from a ring of some nodes."""

    def __init__(self, *names: str) -> None:
        self.members, self.nodes, self.notes = RingMembers(), Sent(), list[str]()
        self.members.begin(names, MemberPlace("here"))
        self.departures = Departures(self.members, True, self.notes.append)

    def remove(self, name: str) -> RemoveWish:
        wish = RemoveWish(name, 0.0)
        self.departures.begin(self.nodes, wish)  # type: ignore[arg-type]
        return wish

    def lose(self, name: str) -> None:
        self.members.lose(name, "gone")
        self.departures.heirs_changed(self.nodes)  # type: ignore[arg-type]

    def prepared(self, name: str, leaving: str, members: list[str], trouble: str = "") -> None:
        said = {"prepared": leaving, "members": members, "trouble": trouble, "lost": []}
        self.departures.prepared(self.nodes, name, said)  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    pq.write_table(pa.table({"n": range(1_000)}), folder / "numbers.parquet", row_group_size=100)
    return folder


def test_an_heir_that_is_lost_has_heirs_itself() -> None:
    going = Going("a", "b", "c", "d")
    wish = going.remove("a")
    asked = {"prepare": ["b", "c", "d"], "for": "a"}
    assert going.nodes.taken() == [("a", {"leave": True}), ("b", asked), ("c", asked), ("d", asked)]
    going.prepared("b", "a", ["b", "c", "d"])
    going.lose("c")
    again = {"prepare": ["b", "d"], "for": "a"}
    assert going.nodes.taken() == [("b", again), ("d", again)]
    going.prepared("b", "a", ["b", "d"])
    going.prepared("d", "a", ["b", "c", "d"])  # of what it was asked before
    assert going.departures.due({"a": 0}) == []
    going.prepared("d", "a", ["b", "d"])
    assert going.departures.due({"a": 0}) == ["a"]
    assert not wish.is_done.is_set()


def test_a_node_that_has_left_before_its_answer_keeps_nobody() -> None:
    going = Going("a", "b", "c")
    going.remove("a")
    going.remove("b")
    going.prepared("c", "a", ["b", "c"])
    going.lose("b")
    going.prepared("c", "a", ["c"])
    assert going.departures.due({}) == ["a"]


def test_the_last_holder_stays_when_its_heirs_are_lost() -> None:
    going = Going("a", "b", "c")
    first, second = going.remove("a"), going.remove("b")
    going.lose("c")
    assert str(second.problem) == "b stays: it is the last node of the ring"
    assert ("b", {"leave": False, "why": "b stays: it is the last node of the ring"}) in going.nodes.taken()
    going.prepared("b", "a", ["b"])
    assert (going.departures.due({"a": 0, "b": 0}), first.problem) == (["a"], None)


def test_a_link_that_breaks_now_and_then_is_no_link_that_never_holds() -> None:
    pair = frozenset("ab")
    links = BrokenLinks(failure_s=3.0)
    assert [links.broke(pair, epoch, 10.0 * epoch) for epoch in (1, 2, 3)] == [False, False, True]
    links = BrokenLinks(failure_s=3.0)
    assert [links.broke(pair, epoch, 60.0 * epoch) for epoch in range(1, 10)] == [False] * 9
    assert [links.broke(pair, epoch, 600.0 + epoch) for epoch in (11, 13, 15)] == [False] * 3, "not in a row"
    links.broke(pair, 16, 616.0)
    links.forget("b")
    assert not links.broke(pair, 17, 617.0)


def test_a_node_that_wants_to_go_and_is_the_last_hears_why_it_stays(source: Path, tmp_path: Path) -> None:
    with (
        running_ring(source, tmp_path / "ring", nodes=0, listen="127.0.0.1:0", failure_s=3.0) as ring,
        JoinedNode(ring, tmp_path / "a", "--source", source, "--name", "a") as node,
    ):
        node.ready()
        os.kill(node.process.pid, signal.SIGINT)
        assert node.process.stdout is not None
        assert node.process.stdout.readline() == "a cannot leave: a is the last node of the ring\n"
        assert ring.query("SELECT count(*) FROM numbers", timeout=30).rows() == [(1_000,)]
        os.kill(node.process.pid, signal.SIGINT)
        node.said(130)
        wait_until(lambda: "a" in ring.status()["lost"], 10)


def test_queries_that_name_no_node_go_to_others_than_one_that_is_to_go(source: Path, tmp_path: Path) -> None:
    with (
        running_ring(source, tmp_path / "ring", nodes=1, listen="127.0.0.1:0", failure_s=3.0) as ring,
        JoinedNode(ring, tmp_path / "a", "--source", source, "--name", "a") as node,
        ThreadPoolExecutor() as threads,
    ):
        node.ready()
        asked = keep_busy(ring, threads)
        going = threads.submit(ring.remove, "a", wait_s=5.0)
        wait_until(lambda: "a is to go" in (ring.home / LOG).read_text(), 10)
        with pytest.raises(NodeLeavingError, match="a is about to leave the ring"):
            ring.query("SELECT 1", node="a")
        told = {ring.query(f"SELECT count(*) + {number} FROM numbers").node for number in range(8)}
        assert told == {"node1"}
        assert [*ring.hold("numbers")]
        going.result(20)
        assert isinstance(asked.exception(20), RingError)
        assert node.said(0).endswith("a has left the ring\n")


def test_a_node_that_dies_while_it_goes_has_not_left(source: Path, tmp_path: Path) -> None:
    with (
        running_ring(source, tmp_path / "ring", nodes=1, listen="127.0.0.1:0", failure_s=3.0) as ring,
        JoinedNode(ring, tmp_path / "a", "--name", "a") as node,
        ThreadPoolExecutor() as threads,
    ):
        node.ready()
        asked = keep_busy(ring, threads)
        going = threads.submit(ring.remove, "a")
        wait_until(lambda: "a is to go" in (ring.home / LOG).read_text(), 10)
        os.kill(node.process.pid, signal.SIGKILL)
        for each in (going, asked):
            with pytest.raises(NodeLostError, match=r"a is lost|a has gone"):
                each.result(20)
        wait_until(lambda: ring.nodes == ("node1",), 10)


def test_connections_that_break_while_they_ask_to_join_disturb_nobody(source: Path, tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "ring", nodes=1, listen="127.0.0.1:0") as ring:
        for number in range(20):
            ask_to_join_and_break(ring, f"odd{number}")
        said = "has gone before it has joined: Connection reset by peer"
        wait_until(lambda: said in (ring.home / LOG).read_text(), 10)
        assert ring.query("SELECT count(*) FROM numbers", timeout=30).rows() == [(1_000,)]


def keep_busy(ring: RingClient, threads: ThreadPoolExecutor) -> Future[RingAnswer]:
    """Ask a node something that takes very long, and wait until it has begun."""
    long = "SELECT count(*) FROM range(1000000) AS x(i), range(1000000) AS y(j) WHERE i * j % 7 = 3"
    asked = threads.submit(ring.query, long, node="a", timeout=100)
    wait_until(lambda: ring.status()["nodes"]["a"]["queries"] == [long], 10)
    return asked


def ask_to_join_and_break(ring: RingClient, name: str) -> None:
    """Ask to join, and reset the connection before the answer."""
    address = read_address(ring.home)
    host, port = address.door.split(":")
    me = Credentials("somebody", secret=bytes.fromhex(address.secret))
    link = Dial(me, (host, int(port)), KEEPER, JOIN, KEEPER_EPOCH).open()
    wish = {"ask": "join", "name": name, "pid": 1, "address": "", "machine": "", "rack": "", "releases": releases()}
    send_said(link, wish)
    time.sleep(0.01)  # it is read, and not answered yet
    connection = link.take_socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
