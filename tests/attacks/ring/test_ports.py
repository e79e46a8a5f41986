"""Strangers at the ports of a ring, beside queries of honest clients: no node is lost, no answer is wrong or late.

A stranger knows the nodes and the protocol; what it does not know is the secret.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cumulus.errors import RemoteProtocolError
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.greeting import Credentials, Greeting
from cumulus_ring.links.dialling import Dial
from cumulus_ring.process.client import CLIENT, RingClient
from cumulus_ring.process.home import LOG, RingAddress, read_address
from support.attacks import GARBAGE, Steady, Trickle, held_open, resident_bytes, send_raw
from support.running_ring import running_ring

pytestmark = pytest.mark.xdist_group("attacks on a ring")
ROWS = 20_000
WANTED = (ROWS, ROWS * (ROWS - 1) // 2)
PURPOSES = ("chunks", "requests", CLIENT)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    source = tmp_path_factory.mktemp("files")
    table = pa.table({"n": range(ROWS), "t": [f"text {n % 100}" for n in range(ROWS)]})
    pq.write_table(table, source / "numbers.parquet", row_group_size=1_000)
    home = tmp_path_factory.mktemp("attacked") / "home"
    with running_ring(source, home, nodes=3, transport="tcp"):
        yield home


@contextmanager
def untouched(home: Path, calls: int = 4) -> Iterator[Steady]:
    """Let an honest client ask in the block, and so many times more; at the end all nodes are those of the start."""
    before = read_address(home)
    client = RingClient(home)

    def ask(number: int) -> None:
        node = list(before.nodes)[number % len(before.nodes)]
        assert client.query("SELECT count(*), sum(n) FROM numbers", node=node).rows() == [WANTED]

    with Steady(ask) as steady:
        steady.wait_for(1)
        yield steady
        steady.wait_for(calls)
    after = read_address(home)
    assert (after.pids, after.ring_epoch, after.lost) == (before.pids, before.ring_epoch, before.lost)


def frame(kind: int, payload: bytes, incarnation: int = 0) -> bytes:
    return header(kind, len(payload), incarnation) + payload


def hello(address: RingAddress, name: str, node: str, purpose: str) -> bytes:
    """Return a HELLO with all in it that is right."""
    greeting = Greeting(Credentials(name), address.ring_epoch, node, lambda _: None, purpose)
    ((_, payload),) = greeting.begin()
    return frame(FrameKind.HELLO, payload, address.ring_epoch)


def greetings(address: RingAddress) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Give a greeting of each neighbour, for each purpose, at each node."""
    for node, place in address.nodes.items():
        for name in address.nodes:
            if name != node:
                for purpose in PURPOSES:
                    yield place, hello(address, name, node, purpose)


def test_a_greeting_with_the_name_of_a_neighbour_breaks_no_link(home: Path) -> None:
    with untouched(home) as steady:
        for place, said in greetings(read_address(home)):
            for proof in (b"", bytes(32), b"x" * 4000):
                told = send_raw(place, said + frame(FrameKind.PROOF, proof), 0.2)
                assert read_address(home).secret.encode() not in told
        steady.wait_for(2)


def test_a_wrong_secret_lets_nobody_in(home: Path) -> None:
    address = read_address(home)
    with untouched(home):
        for secret in (b"", b"x", bytes(32)):
            for node, place in address.nodes.items():
                dial = Dial(Credentials("client-x", secret=secret), place, node, CLIENT, address.ring_epoch, 5.0)
                with pytest.raises(RemoteProtocolError, match="does not know the secret"):
                    dial.open().close()


@contextmanager
def let_in(address: RingAddress, node: str) -> Iterator[tuple[socket.socket, bytes]]:
    """Give the connection of a client after its greeting, and all that the client has sent to be let in."""
    me = Credentials("client-heard", secret=bytes.fromhex(address.secret))
    greeting = Greeting(me, address.ring_epoch, node, lambda _: None, CLIENT)
    reader, said = FrameReader(), b""
    with socket.create_connection(address.nodes[node], 30) as connection:
        frames = greeting.begin()
        while True:
            data = b"".join(frame(kind, payload, address.ring_epoch) for kind, payload in frames)
            said += data
            connection.sendall(data)
            if greeting.is_over:
                break
            frames = []
            while not frames and not greeting.is_over:
                count = connection.recv_into(reader.room())
                assert count, "the node has ended the greeting"
                for kind, _, payload in reader.filled(count):
                    frames += greeting.take(kind, payload)
        yield connection, said


def test_what_a_client_has_said_is_no_proof_again(home: Path) -> None:
    address = read_address(home)
    with untouched(home):
        for node, place in address.nodes.items():
            with let_in(address, node) as (_, said):
                assert b"does not know the secret" in send_raw(place, said, 2.0)


HALVES: dict[str, Callable[[RingAddress], bytes]] = {
    "half a header": lambda _: b"cu\x01",
    "half a greeting": lambda address: hello(address, "node0", "node1", "chunks")[:40],
    "a greeting of 4 GB": lambda _: struct.pack("<2sBBIQ", b"cu", 1, 1, 2**32 - 1, 1),
    "a chunk of 4 GB": lambda _: struct.pack("<2sBBIQ", b"cu", 1, FrameKind.CHUNK, 2**32 - 1, 1),
    "a chunk": lambda _: frame(FrameKind.CHUNK, b"x" * 4000, 1),
    "a descriptor": lambda _: frame(FrameKind.CHUNK_DESCRIPTOR, b"x" * 40, 1),
    "credit": lambda _: frame(FrameKind.CREDIT, b"\xff" * 8, 1),
    "a part of a message": lambda _: frame(FrameKind.PART, b"x" * 4000),
    "deep brackets": lambda _: frame(FrameKind.HELLO, b"[" * 4000),
    "a long number": lambda _: frame(FrameKind.HELLO, b'{"incarnation": ' + b"9" * 4000 + b"}"),
    "no text": lambda _: frame(FrameKind.HELLO, b"\xff\xfe" * 1000),
    "a refusal": lambda _: frame(FrameKind.REFUSAL, b'{"reason": "x", "outlook": "never"}'),
    "orders of a supervisor": lambda _: b"".join(frame(kind, b"{}") for kind in (8, 10, 12, 15)),
}


def test_garbage_and_halves_disturb_nobody(home: Path) -> None:
    address = read_address(home)
    with untouched(home) as steady:
        for place in address.nodes.values():
            for data in (*GARBAGE.values(), *(make(address) for make in HALVES.values())):
                assert address.secret.encode() not in send_raw(place, data, 0.05)
                send_raw(place, data, is_half=True)
        steady.wait_for(2)
    assert "Traceback" not in (home / LOG).read_text(errors="replace")


def bomb() -> bytes:
    """Return a question with rows that take 400 MB when they are unpacked."""
    sink = pa.BufferOutputStream()
    zeros = pa.table({"n": pa.array([0]).take(pa.array([0] * 1_000_000))})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, zeros.schema, options=options) as writer:
        for _ in range(50):
            writer.write_table(zeros)
    return asked(b'{"ask": "queries", "parts": 1}') + asked(sink.getvalue().to_pybytes())


def asked(text: bytes) -> bytes:
    return frame(FrameKind.MESSAGE, text, 1)


CLAIMS: dict[str, bytes] = {
    "a million parts": asked(b'{"ask": "queries", "parts": 1000000}') + asked(b"x" * 100_000),
    "parts that are no number": asked(b'{"ask": "queries", "parts": "x"}'),
    "less than no parts": asked(b'{"ask": "queries", "parts": -1}'),
    "a list": asked(b"[1]"),
    "a number": asked(b"1"),
    "nothing asked": asked(b'{"parts": 0}'),
    "an unknown question": asked(b'{"ask": {"a": [1]}, "parts": 0}'),
    "rows that are a bomb": bomb(),
    "an unknown frame": frame(200, b"x" * 100),
    "no JSON": frame(FrameKind.MESSAGE, b"\xff" * 1000),
    "a chunk from a client": frame(FrameKind.CHUNK, b"\xff" * 1000),
    "4 GB to come": struct.pack("<2sBBIQ", b"cu", 1, 0, 2**32 - 1, 1),
    "deep brackets": frame(FrameKind.MESSAGE, b"[" * 200_000),
    "zeros": bytes(100_000),
}


def test_clients_who_send_what_no_client_says_are_sent_away_alone(home: Path) -> None:
    address = read_address(home)
    with untouched(home) as steady:
        before = {pid: resident_bytes(pid) for pid in address.pids.values()}
        for data in CLAIMS.values():
            for node in address.nodes:
                with let_in(address, node) as (connection, _), suppress(OSError):
                    connection.sendall(data)
                    connection.settimeout(0.2)
                    assert address.secret.encode() not in connection.recv(65_536)
        steady.wait_for(2)
        for pid, bytes_before in before.items():
            assert resident_bytes(pid) - bytes_before < 200_000_000
    assert "Traceback" not in (home / LOG).read_text(errors="replace")


def test_slow_strangers_disturb_nobody(home: Path) -> None:
    address = read_address(home)
    with untouched(home) as steady, ExitStack() as stack:
        for node, place in address.nodes.items():
            stack.enter_context(Trickle(place, hello(address, "node0", node, "chunks")[:20]))
        steady.wait_for(4)


def test_silent_connections_keep_nobody_out(home: Path) -> None:
    """More strangers than a port lets be: clients get in all the same."""
    with untouched(home) as steady, ExitStack() as stack:
        for place in read_address(home).nodes.values():
            stack.enter_context(held_open(place, 100))
        steady.wait_for(4)


@pytest.mark.slow
def test_no_query_stands_still_while_all_of_it_goes_on(home: Path) -> None:
    """All at once, again and again: half a thousand connections a round, and no query takes a second more."""
    address = read_address(home)
    with untouched(home, calls=20) as quiet:
        quiet.wait_for(20)
    with untouched(home, calls=20) as steady:
        for _ in range(5):
            with ExitStack() as stack:
                for node, place in address.nodes.items():
                    stack.enter_context(held_open(place, 100, b"cu"))
                    stack.enter_context(Trickle(place, hello(address, "node0", node, "requests")[:20]))
                for place, said in greetings(address):
                    send_raw(place, said + frame(FrameKind.PROOF, bytes(32)), 0.1)
                for place in address.nodes.values():
                    for data in GARBAGE.values():
                        send_raw(place, data, is_half=True)
                steady.wait_for(4)
    assert steady.p99() < quiet.p99() + 1.0
