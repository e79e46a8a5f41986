"""Strangers at the ports of a live cluster, beside clients of its shop: nothing ends, no row is lost.

A stranger knows the machines, the program and the protocol; what it does not know is the secret. Whoever knows the
clients' secret is a client, and no machine.
"""

from __future__ import annotations

import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

import cumulus
from cumulus.cluster import codec
from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import LOG, STATE, ClusterAddress, read_address
from cumulus.cluster.messages import ClientRows, Deltas, EpochCommit, RequestRefused
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.errors import RemoteProtocolError
from cumulus.transport.client_connection import ClientConnection
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.greeting import Credentials, Greeting
from support.attacks import GARBAGE, Address, Steady, Trickle, held_open, resident_bytes, send_raw
from support.live_load import PEOPLE, LiveLoad, begin, settings_of

pytestmark = pytest.mark.xdist_group("attacks on a cluster")
STILL_S = 1.0
"""For so long a call of an honest client may take under attack; asserted in the slow tier only."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("attacked") / "home"
    daemon.start(settings_of(home))
    begin(home)
    yield home
    daemon.stop(home)


@contextmanager
def untouched(home: Path, calls: int = 10) -> Iterator[Steady]:
    """Let an honest client go on in the block, and for so many calls; at the end no machine has started anew."""
    before = read_address(home)
    with cumulus.connect(home, timeout_s=60) as client, Steady(lambda number: call(client, number)) as steady:
        steady.wait_for(1)
        yield steady
        steady.wait_for(calls)
    assert read_address(home) == before, "machines have started anew"


def call(client: cumulus.cluster.live.client.ClusterClient, number: int) -> None:
    """Change a person and look at a node, by turns."""
    if number % 2:
        client.upsert("people", [PEOPLE[number % len(PEOPLE)]])
    else:
        client.get("by_town", "town1", read="tentative")


def frame(kind: int, payload: bytes, incarnation: int = 0) -> bytes:
    return header(kind, len(payload), incarnation) + payload


def credentials(home: Path, name: str, secret: bytes | None) -> Credentials:
    settings = read_settings(home / STATE)
    assert settings is not None
    return Credentials(name, settings.program.encode(), secret)


def hello(home: Path, name: str, machine: str) -> bytes:
    """Return a HELLO with all in it that is right."""
    me = credentials(home, name, None)
    ((_, payload),) = Greeting(me, read_address(home).incarnation, machine, lambda _: None).begin()
    return frame(FrameKind.HELLO, payload)


def others(address: ClusterAddress, machine: str) -> list[str]:
    return [name for name in address.machines if name != machine]


@pytest.mark.slow
def test_a_greeting_with_the_name_of_a_machine_breaks_no_link(home: Path) -> None:
    address = read_address(home)
    with untouched(home) as steady:
        for machine, place in address.machines.items():
            for name in others(address, machine):
                for _ in range(5):
                    told = send_raw(place, hello(home, name, machine) + frame(FrameKind.PROOF, bytes(32)))
                    assert b"does not know the secret" in told
                    assert b"program" not in told
                    assert b"incarnation" not in told
            steady.wait_for(2)


def test_who_knows_the_secret_of_clients_is_no_machine(home: Path) -> None:
    address = read_address(home)
    with untouched(home):
        for machine, place in address.machines.items():
            for name in others(address, machine):
                me = credentials(home, name, address.read_secret())
                with pytest.raises(RemoteProtocolError, match=f"{name} does not know the secret"):
                    ClientConnection(me, machine, place, address.incarnation, time.monotonic() + 30)
            for message in (Deltas(()), EpochCommit(7)):  # only machines say these
                me = credentials(home, f"client-{secrets.token_hex(6)}", address.read_secret())
                link = ClientConnection(me, machine, place, address.incarnation, time.monotonic() + 30)
                link.send(codec.encode(message), time.monotonic() + 30)
                with pytest.raises(ConnectionResetError):
                    link.receive(time.monotonic() + 30)
                link.close()


def test_what_a_client_has_said_is_no_proof_again(home: Path) -> None:
    """All that a client sends is sent once more over another connection."""
    address = read_address(home)
    with untouched(home), socket.create_connection(address.machines["node0"], 30) as connection:
        greeting = Greeting(
            credentials(home, "client-heard", address.read_secret()), address.incarnation, "node0", lambda _: None
        )
        reader, said, frames = FrameReader(), b"", greeting.begin()
        while True:
            data = b"".join(frame(kind, payload) for kind, payload in frames)
            said += data
            connection.sendall(data)
            if greeting.is_over:
                break
            frames = []
            while not frames and not greeting.is_over:
                for kind, _, payload in reader.filled(connection.recv_into(reader.room())):
                    frames += greeting.take(kind, payload)
        assert b"client-heard does not know the secret" in send_raw(address.machines["node0"], said)


HALVES: dict[str, Callable[[Path, str], bytes]] = {
    "half a header": lambda *_: b"cu\x01",
    "half a greeting": lambda home, machine: hello(home, "node0", machine)[:40],
    "a greeting of 4 GB": lambda *_: struct.pack("<2sBBIQ", b"cu", 1, 1, 2**32 - 1, 1),
    "a message of 4 GB": lambda *_: struct.pack("<2sBBIQ", b"cu", 1, 0, 2**32 - 1, 1),
    "a part of a message": lambda *_: frame(FrameKind.PART, b"x" * 4000),
    "deep brackets": lambda *_: frame(FrameKind.HELLO, b"[" * 4000),
    "a long number": lambda *_: frame(FrameKind.HELLO, b'{"incarnation": ' + b"9" * 4000 + b"}"),
    "a refusal": lambda *_: frame(FrameKind.REFUSAL, b'{"reason": "x", "outlook": "never"}'),
    "orders of a supervisor": lambda *_: b"".join(frame(kind, b"{}") for kind in (8, 10, 12, 15)),
}


@pytest.mark.slow
def test_garbage_and_halves_disturb_nobody(home: Path) -> None:
    address = read_address(home)
    log = home / STATE / LOG
    before = log.stat().st_size
    with untouched(home) as steady:
        for machine, place in address.machines.items():
            for data in (*GARBAGE.values(), *(make(home, machine) for make in HALVES.values())):
                assert b'"program"' not in send_raw(place, data, 0.2)
                send_raw(place, data, is_half=True)
        steady.wait_for(5)
    assert log.stat().st_size - before < 20_000, "a line for each of them is too much"


def test_slow_strangers_disturb_nobody(home: Path) -> None:
    address = read_address(home)
    with untouched(home) as steady, ExitStack() as stack:
        for machine, place in address.machines.items():
            stack.enter_context(Trickle(place, hello(home, "node0", machine)[:20]))
        steady.wait_for(20)


class Renewing:
    """Holds connections open at each of some ports, as a context, and makes new ones in place of those that go."""

    def __init__(self, places: list[Address], count: int, every_s: float = 0.2) -> None:
        self._places, self._count, self._every_s = places, count, every_s
        self._is_over = Event()
        self._threads = [Thread(target=self._hold, args=(place,), daemon=True) for place in places]

    def _hold(self, place: Address) -> None:
        while not self._is_over.is_set():
            with suppress(OSError), held_open(place, self._count):
                self._is_over.wait(self._every_s)

    def __enter__(self) -> None:
        for each in self._threads:
            each.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join(30)


def test_silent_connections_keep_nobody_out(home: Path) -> None:
    """More of them than are let be, at each machine; new clients get in all the same."""
    places = list(read_address(home).machines.values())
    with untouched(home), ExitStack() as stack:
        for place in places:
            stack.enter_context(held_open(place, 130))
        for _ in range(5):
            with cumulus.connect(home, timeout_s=60) as client:
                client.upsert("people", PEOPLE[:1])


@pytest.mark.slow
def test_silent_connections_that_are_renewed_keep_nobody_out_and_a_killed_node_comes_back(home: Path) -> None:
    import psutil

    places = list(read_address(home).machines.values())
    with untouched(home), Renewing(places, 130):
        for _ in range(20):
            begun = time.monotonic()
            with cumulus.connect(home, timeout_s=60) as client:
                client.upsert("people", PEOPLE[:1])
            assert time.monotonic() - begun < 5 * STILL_S
    before = read_address(home)
    with LiveLoad(home, timeout_s=60) as load:
        load.wait_for_rows(5)
        psutil.Process(before.pids["node1"]).kill()
        until = time.monotonic() + 120
        while read_address(home).incarnation == before.incarnation:
            assert time.monotonic() < until
            with Renewing(places, 130):
                time.sleep(0.2)
        with Renewing(list(read_address(home).machines.values()), 130):
            load.wait_for_rows(20)
    load.settle()
    load.check()


def bombs() -> dict[str, bytes]:
    """Return Arrow streams of few bytes that are 160 MB when they are unpacked."""
    found = {}
    for kind in ("zstd", "lz4"):
        sink = pa.BufferOutputStream()
        table = pa.table({"p": pa.repeat(pa.scalar(0, pa.int64()), 20_000_000)})
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=kind)) as writer:
            writer.write_table(table)
        found[kind] = sink.getvalue().to_pybytes()
    return found


def test_compressed_bombs_of_a_client_are_refused_and_take_no_memory(home: Path) -> None:
    address = read_address(home)
    switches = {name: place for name, place in address.machines.items() if name.startswith("switch")}
    data = bombs()
    before = {name: resident_bytes(address.pids[name]) for name in switches}
    with untouched(home):
        for name, place in switches.items():
            me = credentials(home, f"client-{secrets.token_hex(6)}", address.read_secret())
            link = ClientConnection(me, name, place, address.incarnation, time.monotonic() + 30)
            for number, (table, bomb) in enumerate(((t, b) for t in ("people", "sales") for b in data.values()), 1):
                link.send(codec.encode(ClientRows(number, table, bomb)), time.monotonic() + 30)
                payload = link.receive(time.monotonic() + 60)
                assert payload is not None
                assert isinstance(codec.decode(payload), RequestRefused)
            link.close()
    for name, size in before.items():
        assert resident_bytes(address.pids[name]) - size < 100_000_000


@pytest.mark.slow
def test_all_at_once_for_a_while_lets_no_client_stand_still(home: Path) -> None:
    """The shop goes on: 99 of 100 calls take no second, no row is lost, no machine starts anew."""
    address = read_address(home)
    places, is_over = address.machines, Event()

    def attack(machine: str, place: Address) -> None:
        while not is_over.is_set():
            for data in (*GARBAGE.values(), *(make(home, machine) for make in HALVES.values())):
                send_raw(place, data, is_half=True)
                if is_over.wait(0.01):
                    return

    threads = [Thread(target=attack, args=each) for each in places.items()]
    with untouched(home) as steady, Renewing(list(places.values()), 130, every_s=3.0):
        for each in threads:
            each.start()
        time.sleep(20)
        is_over.set()
        for each in threads:
            each.join(30)
    assert steady.p99() < STILL_S
