"""What cannot be a ring, or of a ring, by the command: one sentence and a way out, and nothing is left running."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.transport.secret_file import write_secret
from cumulus_ring.process.client import RingClient
from cumulus_ring.process.home import SECRET, read_address
from cumulus_ring.process.ring_supervisor import stop
from support.command_line import cumulus
from support.joined_nodes import JoinedNode
from support.ring_faults import wait_until
from support.running_ring import running_ring

pytestmark = pytest.mark.xdist_group("test_ring_members")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tables(tmp_path / "source", 1)


def tables(folder: Path, factor: int) -> Path:
    folder.mkdir()
    for number in range(6):
        rows = pa.table({"n": [factor * each for each in range(1_000)]})
        pq.write_table(rows, folder / f"t{number}.parquet", row_group_size=100)
    return folder


def secret(folder: Path) -> Path:
    if not (folder / "s").exists():
        write_secret(folder / "s")
    return folder / "s"


def refused(folder: Path, *words: object) -> str:
    """Run `cumulus ring`, which must fail within seconds and leave no process; return what it has said."""
    begun = time.monotonic()
    ended = cumulus("ring", *map(str, words), folder=folder)
    assert ended.returncode in (1, 2), ended.stdout
    assert time.monotonic() - begun < 20
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 2, ended.stderr
    wait_until(lambda: not left_over(folder), 10)
    return str(ended.stderr)


def left_over(folder: Path) -> list[list[str]]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(folder) in word for word in words) and process.pid != os.getpid():
            found.append(words)
    return found


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None: ...


@contextmanager
def speaker(greeting: bytes) -> Iterator[str]:
    """A server that speaks first, as many do that are no web servers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def speak() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(greeting)
                connection.settimeout(10)
                connection.recv(1 << 16)

        thread = threading.Thread(target=speak)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@contextmanager
def http_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_port_that_is_taken(source: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = refused(tmp_path, "start", "--from", source, "--listen", f"127.0.0.1:{port}", "--nodes", 1)
    assert told == (
        f"error: the ring cannot start: keeper: port {port} of 127.0.0.1 is taken\n"
        "Give another one, or 0 for any that is free.\n"
    )


def test_an_address_of_another_computer(source: Path, tmp_path: Path) -> None:
    told = refused(tmp_path, "start", "--from", source, "--listen", "203.0.113.1:7300", "--nodes", 1)
    assert told.startswith("error: the ring cannot start: keeper: port 7300 of 203.0.113.1 cannot be used: ")


@pytest.mark.parametrize("words", [("join",), ("query", "SELECT 1", "--ring"), ("remove", "a", "--ring")])
def test_a_server_of_something_else(words: tuple[str, ...], tmp_path: Path) -> None:
    with http_server() as place:
        told = refused(tmp_path, *words, place, "--secret-file", secret(tmp_path))
    assert told == (
        f"error: no ring answers at {place}: who listens there does not say who it is\n"
        "Look whether `cumulus ring start --listen` runs there, and whether its port can be reached.\n"
    )


def test_a_server_that_speaks_first(tmp_path: Path) -> None:
    with speaker(b"SSH-2.0-OpenSSH_9.6 and something more\r\n") as place:
        told = refused(tmp_path, "join", place, "--secret-file", secret(tmp_path))
    assert told.startswith(f"error: no ring answers at {place}: something else listens there\n")


@pytest.mark.parametrize("words", [("join",), ("query", "SELECT 1", "--ring"), ("remove", "a", "--ring")])
def test_nobody_there(words: tuple[str, ...], tmp_path: Path) -> None:
    told = refused(tmp_path, *words, "127.0.0.1:1", "--secret-file", secret(tmp_path))
    assert told.startswith("error: no ring answers at 127.0.0.1:1: Connection refused\n")


def test_a_name_of_no_host(tmp_path: Path) -> None:
    told = refused(tmp_path, "join", "no.such.host.invalid:7300", "--secret-file", secret(tmp_path))
    assert told.startswith("error: no ring answers at no.such.host.invalid:7300: ")


def test_a_secret_that_others_can_read(source: Path, tmp_path: Path) -> None:
    (tmp_path / "open").write_text("secret")
    (tmp_path / "open").chmod(0o644)
    start = ("start", "--from", source, "--listen", "127.0.0.1:0")
    for words in (start, ("join", "127.0.0.1:1"), ("query", "SELECT 1", "--ring", "127.0.0.1:1")):
        told = refused(tmp_path, *words, "--secret-file", tmp_path / "open")
        assert "the secret is not yours alone\n" in told
        assert "chmod 600" in told


def test_more_replicas_than_nodes(source: Path, tmp_path: Path) -> None:
    told = refused(tmp_path, "start", "--from", source, "--nodes", 2, "--adopt", "--replicas", 3)
    assert told == "error: --replicas 3 on 2 nodes\nStart more --nodes, or keep fewer replicas.\n"


def test_a_node_whose_source_has_other_files_answers_from_those_of_the_others(source: Path, tmp_path: Path) -> None:
    other = tables(tmp_path / "other", 2)
    with (
        running_ring(source, tmp_path / "ring", nodes=1, listen="127.0.0.1:0") as ring,
        JoinedNode(ring, tmp_path / "a", "--name", "a", "--source", other) as node,
    ):
        node.ready()
        for name in ring.nodes:
            assert sums(ring, name) == [499_500] * 6


def test_a_ring_of_nodes_that_all_lack_the_files_names_them(source: Path, tmp_path: Path) -> None:
    with (
        running_ring(source, tmp_path / "ring", nodes=0, listen="127.0.0.1:0") as ring,
        JoinedNode(ring, tmp_path / "a", "--name", "a") as node,
    ):
        node.ready()
        for asked in ("a", "any"):
            ended = cumulus("ring", "query", "SELECT sum(n) FROM t1", "--home", ring.home, "--node", asked)
            assert ended.returncode == 1
            assert "is at none of the nodes, and node a has no source" in ended.stderr
            assert ended.stderr.endswith("Join a node with --source, where t1.parquet is.\n")
        with JoinedNode(ring, tmp_path / "b", "--name", "b", "--source", source) as second:
            second.ready()
            assert sums(ring, "a") == sums(ring, "b") == [499_500] * 6


def test_a_node_that_joins_while_the_ring_stops(source: Path, tmp_path: Path) -> None:
    with running_ring(source, tmp_path / "ring", nodes=1, listen="127.0.0.1:0") as ring:
        shutil.copy(ring.home / SECRET, tmp_path / "secret")
        place = read_address(ring.home).door
        stopping = threading.Timer(0.9, stop, [ring.home])
        stopping.start()
        joining = [
            JoinedNode(ring, tmp_path / f"n{number}", "--source", source, "--name", f"n{number}") for number in range(4)
        ]
        stopping.join()
    for number, node in enumerate(joining):
        told, _ = node.process.communicate(timeout=20)
        lines = told.splitlines()
        assert "Traceback" not in told
        if node.process.returncode:
            assert lines[-2].startswith("error: "), told
            assert place in lines[-2] or lines[-2] == "error: the ring stops"
        else:
            assert lines[-1] == f"n{number} has left the ring"


def test_a_node_that_is_removed_twice(source: Path, tmp_path: Path) -> None:
    with (
        running_ring(source, tmp_path / "ring", nodes=1, listen="127.0.0.1:0") as ring,
        JoinedNode(ring, tmp_path / "a", "--name", "a") as node,
        ThreadPoolExecutor() as threads,
    ):
        node.ready()
        both = [threads.submit(ring.remove, "a", wait_s=0.0) for _ in range(2)]
        for each in both:
            each.result(30)
        ended = cumulus("ring", "remove", "a", "--home", ring.home)
        assert ended.returncode == 2
        assert ended.stderr == "error: there is no node 'a'\nThe ring has: node1.\n"
        ended = cumulus("ring", "remove", "node1", "--home", ring.home)
        assert ended.stderr == "error: node1 is the last node of the ring\nStop the ring instead.\n"
        assert ring.nodes == ("node1",)


def sums(ring: RingClient, node: str) -> list[int]:
    query = " UNION ALL ".join(f"SELECT {number}, sum(n) FROM t{number}" for number in range(6))
    return [total for _, total in ring.query(query, node=node, timeout=60).rows()]
