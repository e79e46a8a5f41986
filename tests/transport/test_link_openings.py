"""Who is let in, who is not, how long somebody tries, and how a link ends."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

import pytest

from cumulus.errors import RemoteProtocolError, UsageError
from cumulus.transport.framing import FrameKind, FrameReader, header
from cumulus.transport.greeting import Credentials, Greeting
from cumulus_ring.links.chunk_links import CHUNKS, ChunkOutlet
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.link_faults import LinkFaults, link_faults
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.message_links import REQUESTS, MessageLink
from cumulus_ring.links.open_link import LinkAddress, LinkClosedError, OpenLink
from cumulus_ring.links.slots import BufferPool, DescriptorPool, Slot, SlotPool
from support.neighbours import SECONDS, SECRET, Neighbours

KINDS = ("tcp", "local")
HELLO = json.dumps({"name": "a", "program": "", "incarnation": 1, "nonce": "", "purpose": CHUNKS}).encode()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()  # what earlier tests have left is not theirs
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    yield
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before


class Host:
    """A listener that expects "a" for chunks in epoch 1."""

    def __init__(self, *, is_local: bool = False, epoch: int = 1) -> None:
        self.links: SimpleQueue[OpenLink] = SimpleQueue()
        self.refused: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self.listener = LinkListener(
            Credentials("b", secret=SECRET), is_local=is_local, refused=lambda *told: self.refused.put(told)
        )
        self.listener.expect(epoch, {CHUNKS: "a"}, self.links.put)

    def dial(self, name: str = "a", *, secret: bytes | None = SECRET, epoch: int = 1, seconds: float = 5.0) -> Dial:
        return Dial(Credentials(name, secret=secret), self.listener.address, "b", CHUNKS, epoch, seconds)

    def connected(self) -> socket.socket:
        address = self.listener.address
        found = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        found.settimeout(SECONDS)
        found.connect(f"\0{address}" if isinstance(address, str) else address)
        return found

    def let_in(self, dial: Dial) -> None:
        """See that this one gets through, in little time."""
        begun = time.monotonic()
        with_it = dial.open()
        link = self.links.get(timeout=SECONDS)
        assert link.peer == "a"
        assert time.monotonic() - begun < 1
        with_it.close()
        link.close()

    def close(self) -> None:
        self.listener.close()
        assert self.listener.join(0.5)


@pytest.fixture(params=KINDS)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    found = Host(is_local=request.param == "local")
    yield found
    found.close()


STRANGERS = {
    "garbage": (os.urandom(5000).replace(b"cu", b"no"), "does not begin as a frame does"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "does not begin as a frame does, but with b'GE'"),
    "no proof": (
        header(FrameKind.HELLO, len(HELLO), 1) + HELLO + header(FrameKind.PROOF, 32, 1) + bytes(32),
        "a does not know the secret",
    ),
    "a chunk at once": (header(FrameKind.CHUNK, 12, 1) + bytes(12), "a frame of kind 16 has come before both"),
    "a great greeting": (header(FrameKind.HELLO, 1 << 20, 1), "a frame of 1,048,576 bytes is announced; 4,096 are"),
}


@pytest.mark.parametrize(("data", "reason"), STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_sent_away_and_disturbs_nobody(host: Host, data: bytes, reason: str) -> None:
    with host.connected() as stranger:
        stranger.sendall(data)
        assert reason in host.refused.get(timeout=SECONDS)[1]
        host.let_in(host.dial())


def test_two_hundred_idle_strangers_keep_nobody_out(host: Host) -> None:
    strangers = [host.connected() for _ in range(200)]
    host.let_in(host.dial())
    assert "too many others have not said who they are" in host.refused.get(timeout=SECONDS)[1]
    for each in strangers:
        each.close()


@pytest.mark.slow
def test_a_neighbour_may_take_seconds_to_say_who_it_is(host: Host) -> None:
    """On a busy machine it does."""
    with host.connected() as stranger:
        time.sleep(5.5)
        stranger.sendall(header(FrameKind.HELLO, len(HELLO), 1) + HELLO)
        assert stranger.recv(2)
        assert host.refused.empty()


def test_a_slow_stranger_has_so_much_time(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cumulus_ring.links.listener.GREETING_SECONDS", 0.1)
    begun = time.monotonic()
    with host.connected() as stranger, suppress(BrokenPipeError, ConnectionResetError):
        for byte in header(FrameKind.HELLO, 4000, 1) + bytes(4000):
            stranger.send(bytes([byte]))
            time.sleep(0.01)
        pytest.fail("it has had all the time")
    assert 0.1 <= time.monotonic() - begun < SECONDS
    assert "it has not said within 0.1 s who it is" in host.refused.get(timeout=SECONDS)[1]


def test_a_wrong_secret_is_not_tried_again(host: Host) -> None:
    with pytest.raises(RemoteProtocolError, match="b refuses: a does not know the secret"):
        host.dial(secret=b"another").open()
    host.let_in(host.dial())


@pytest.mark.parametrize(
    ("name", "epoch", "reason"),
    [
        ("a", 7, "b refuses: a is in incarnation 7, b in 1"),
        ("c", 1, "b refuses: b expects no link of 'c' for 'chunks' now"),
    ],
)
def test_another_epoch_or_neighbour_is_turned_away_until_it_is_expected(name: str, epoch: int, reason: str) -> None:
    host = Host()
    with pytest.raises(RemoteProtocolError, match=f"cannot connect to b within 0.05 s: {reason}"):
        host.dial(name, epoch=epoch, seconds=0.05).open()
    opened: SimpleQueue[OpenLink] = SimpleQueue()
    dial = host.dial(name, epoch=epoch)
    waiting = threading.Thread(target=lambda: opened.put(dial.open()))
    waiting.start()
    host.refused.get(timeout=SECONDS)
    host.listener.expect(epoch, {CHUNKS: name}, host.links.put)
    for queue in (opened, host.links):
        queue.get(timeout=SECONDS).close()
    waiting.join()
    host.close()


def test_a_greeting_that_an_epoch_ends_is_refused_and_the_listener_goes_on(host: Host) -> None:
    def nobody(name: str) -> None:
        raise AssertionError(name)

    greeting, reader = Greeting(Credentials("a", secret=SECRET), 1, "b", nobody, CHUNKS), FrameReader()
    connection = host.connected()
    frames = greeting.begin()
    said: list[tuple[int, bytes]] = []
    while not said:
        connection.sendall(b"".join(header(kind, len(payload), 1) + bytes(payload) for kind, payload in frames))
        said = [(kind, bytes(payload)) for kind, _, payload in reader.filled(connection.recv_into(reader.room()))]
        if said[0][0] == FrameKind.HELLO:  # it is let in as far as the listener knows; now come its last words
            host.listener.expect(2, {CHUNKS: "a"}, host.links.put)
            frames, said = greeting.take(*said[0]), []
    kind, payload = said[0]
    assert (kind, json.loads(payload)["outlook"]) == (FrameKind.REFUSAL, "again")
    connection.close()
    host.let_in(host.dial(epoch=2))


def test_a_neighbour_is_let_in_once_in_an_epoch(host: Host) -> None:
    host.let_in(host.dial())
    with pytest.raises(RemoteProtocolError, match="expects no link of 'a' for 'chunks' now"):
        host.dial(seconds=0.05).open()


def test_a_link_that_is_closed_as_soon_as_it_is_up_is_lost_and_not_tried_again(host: Host) -> None:
    host.listener.expect(1, {CHUNKS: "a"}, lambda link: link.close())
    lost: SimpleQueue[str] = SimpleQueue()
    link = MessageLink(host.dial(), came=print, lost=lost.put)
    link.start()
    assert lost.get(timeout=1) in ("closed by the other side", "Connection reset by peer")
    link.close()
    assert link.join(0.5)


def silent() -> tuple[socket.socket, LinkAddress]:
    """Somebody who listens, and takes nobody in."""
    found = socket.create_server(("127.0.0.1", 0), backlog=1)
    return found, found.getsockname()


def full() -> tuple[socket.socket, LinkAddress]:
    """Somebody with whom no connection comes about: his line is full."""
    found = socket.socket(socket.AF_UNIX)
    name = f"cumulus-test-{os.getpid()}"
    found.bind(f"\0{name}")
    found.listen(0)
    return found, name


@pytest.mark.parametrize("somebody", [silent, full])
def test_who_tries_to_connect_can_be_stopped(somebody: Callable[[], tuple[socket.socket, LinkAddress]]) -> None:
    listening, address = somebody()
    dials = [Dial(Credentials("a"), address, "b", CHUNKS, 1, 60) for _ in range(3)]
    sent: SimpleQueue[Slot] = SimpleQueue()
    pool = BufferPool()
    outlets = [ChunkOutlet(each, sent=sent.put, credit_came=print, lost=print) for each in dials]
    for each in outlets:
        each.start()
        each.send(b"", pool.fill(1, b"x"))
    time.sleep(0.05)
    for each in outlets:
        each.close()
    assert all(each.join(0.5) for each in outlets)
    for _ in outlets:
        pool.free(sent.get(timeout=SECONDS))
    pool.close()
    listening.close()


def test_nobody_there_ends_with_a_reason() -> None:
    listening, address = silent()
    listening.close()
    lost: SimpleQueue[str] = SimpleQueue()
    link = MessageLink(Dial(Credentials("a"), address, "b", REQUESTS, 1, 0.05), came=print, lost=lost.put)
    link.start()
    assert lost.get(timeout=SECONDS) == "a cannot connect to b within 0.05 s: Connection refused"
    link.close()
    assert link.join(0.5)
    dial = Dial(Credentials("a"), address, "b", REQUESTS, 1)
    dial.close()
    with pytest.raises(LinkClosedError, match="closed by this side"):
        dial.open()


def test_a_port_that_is_taken_or_open_to_all_is_refused() -> None:
    host = Host()
    port = host.listener.address[1]
    assert isinstance(port, int)
    with pytest.raises(UsageError, match=f"c: port {port} of 127.0.0.1 is taken"):
        LinkListener(Credentials("c"), port=port)
    with pytest.raises(UsageError, match=r"c: 0.0.0.0 can be reached from other machines, and there is no secret"):
        LinkListener(Credentials("c"), host="0.0.0.0")
    host.close()


# --- ends ---

STOPPED = """
import os, signal, sys
from contextlib import suppress
from queue import SimpleQueue
from cumulus.transport.greeting import Credentials
from cumulus_ring.links.chunk_links import CHUNKS, ChunkInlet
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.slots import BufferPool, DescriptorPool

links, is_local = SimpleQueue(), sys.argv[1] == "local"
listener = LinkListener(Credentials("b"), is_local=is_local)
listener.expect(1, {CHUNKS: "a"}, links.put)
address = listener.address
print(address if is_local else address[1], flush=True)
inlet = ChunkInlet(links.get(), DescriptorPool() if is_local else BufferPool(), chunk_came=print, lost=print)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_all_threads_although_the_other_side_is_stopped_and_the_socket_full(kind: str) -> None:
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPED, kind],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert stopped.stdout is not None
    told = stopped.stdout.readline().strip()
    sent: list[Slot] = []
    pool: SlotPool = DescriptorPool() if kind == "local" else BufferPool()
    outlet = ChunkOutlet(
        Dial(Credentials("a"), told if kind == "local" else ("127.0.0.1", int(told)), "b", CHUNKS, 1),
        sent=sent.append,
        credit_came=print,
        lost=print,
    )
    outlet.start()
    assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
    slot = pool.fill(1 << 20, bytes(1 << 20))
    most = 50 if kind == "tcp" else 5000
    for _ in range(most):
        outlet.send(bytes(200), slot)
    seen = -1
    while seen != len(sent):  # until no more goes in
        seen = len(sent)
        time.sleep(0.05)
    assert seen < most
    begun = time.monotonic()
    outlet.close()
    assert outlet.join(0.5)
    assert time.monotonic() - begun < 0.5
    assert len(sent) == most
    pool.free(slot)
    pool.close()
    os.kill(stopped.pid, signal.SIGKILL)
    stopped.communicate()


@pytest.mark.parametrize("is_local", [False, True], ids=KINDS)
def test_a_credit_never_waits_for_the_other_side(is_local: bool) -> None:
    """Who reads no credits gets them together when it does."""
    pair = Neighbours(is_local=is_local)
    busy = threading.Lock()
    heard: list[int] = []

    def hear(count: int) -> None:
        with busy:
            heard.append(count)

    pair.outlet._credit_came = hear
    with busy:
        pair.inlet.grant(1)
        pair.inlet._left = -(1 << 40)  # so little that each credit is sent at once
        begun = time.monotonic()
        granted = 1
        while not pair.inlet._unsent and granted < 500_000:
            pair.inlet.grant(1)
            granted += 1
        assert time.monotonic() - begun < SECONDS
        for _ in range(10):
            pair.inlet.grant(1)
    assert pair.inlet._unsent, "the socket never was full"
    until = time.monotonic() + SECONDS
    while sum(heard) < granted + 10 and time.monotonic() < until:
        time.sleep(0.001)
    assert sum(heard) == granted + 10
    pair.close()


def test_credits_are_told_together_while_there_is_enough_and_never_kept() -> None:
    pair = Neighbours()
    pair.inlet.grant(1_000_000)
    assert pair.credit(1_000_000) == 1_000_000
    for _ in range(300):
        pair.send(b"", bytes(100))
        pair.take()
        pair.inlet.grant(100)
    assert pair.credit(30_000) == 30_000
    assert pair.inlet.counts.wire_out < 300 * 24
    pair.send(b"", bytes(900_000))
    pair.take()
    pair.inlet.grant(900_000)
    assert not pair.inlet._owed, "little was left, so this is sent at once"
    assert pair.credit(900_000) == 900_000
    pair.send(b"", bytes(200_000))
    pair.take()
    pair.inlet.grant(1000)
    pair.send(b"", bytes(200_000))  # when this comes, too little is left
    pair.take()
    assert pair.credit(1000) == 1000
    pair.close()


# --- faults, as the command line has them ---


def test_faults_are_read_as_they_are_written() -> None:
    assert link_faults("drop=0.01,delay-ms=5, duplicate=0.02,bandwidth-mb-s=100,seed=7") == LinkFaults(
        drop=0.01, duplicate=0.02, delay_ms=5, bandwidth_mb_s=100, seed=7
    )
    assert link_faults("") == LinkFaults()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss=0.1", "'loss=0.1' is no fault of a link\nKnown are drop, duplicate, delay-ms, bandwidth-mb-s, seed"),
        ("drop", "'drop' is no fault of a link"),
        ("drop=much", "'drop=much': 'much' is no number"),
        ("drop=0.1,drop=0.2", "drop is given twice"),
        ("drop=0.6,duplicate=0.6", "together at most 1"),
        ("delay-ms=-1", "no number may be negative"),
        ("drop=nan", "no number may be negative"),
        ("delay-ms=inf", "no number may be negative"),
        ("seed=1.5", "the seed 1.5 is no whole number"),
        ("seed=nan", "the seed nan is no whole number"),
    ],
)
def test_other_faults_are_refused_with_a_way_out(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        link_faults(text)
    assert message in str(raised.value)
    assert "drop=0.01,delay-ms=5,seed=7" in str(raised.value)
