"""Attacks on the page's WebSockets: Perspective's servers end the process at messages that they do not expect."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from support.attacked_server import AttackedServer, attacked_server
from support.attacks import GARBAGE
from support.tiers import sampled

pytest.importorskip("perspective", reason="the page needs the extra `server`")
pytestmark = pytest.mark.xdist_group("attacks on the page's sockets")

SOCKETS = ("cubes", "views")
TABLE, VIEW = "sales", "held"
MAKE_VIEW, DESCRIBE, SIZE, DIMENSIONS, TO_COLUMNS, ERROR = 6, 41, 8, 12, 24, 50


def number(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def field(place: int, value: bytes) -> bytes:
    return number(place << 3 | 2) + number(len(value)) + value


def request(kind: int, entity: str = "", body: bytes = b"") -> bytes:
    return b"\x08\x07" + field(2, entity.encode()) + field(kind, body)


def is_refused(answer: bytes | str) -> bool:
    assert isinstance(answer, bytes)
    return number(ERROR << 3 | 2) in answer


GOOD = request(MAKE_VIEW, TABLE, field(1, VIEW.encode()) + field(2, field(3, b"\x08\x00")))
HALVES = [GOOD[:length] for length in range(len(GOOD))]
SHAPES = {
    "nothing asked": b"\x08\x07" + field(2, b"sales"),
    "two requests": request(SIZE, TABLE) + field(DIMENSIONS, b""),
    "a number for a name": b"\x08\x07\x10\x07" + field(SIZE, b""),
    "a name that is no text": b"\x08\x07" + field(2, b"\xff\xfe") + field(SIZE, b""),
    "a number without an end": b"\x08" + b"\xff" * 70,
    "a length without bytes": b"\x08\x07\x12" + number(2**63) + b"x",
    "a group": b"\x0b\x0c",
}
CONFIGS = {
    "columns of no kind": field(3, b""),
    "an aggregate of nothing": field(7, field(1, b"n")),
    "an aggregate without words": field(7, field(1, b"n") + field(2, b"")),
    "a filter by nothing": field(4, field(1, b"n") + field(2, b"==") + field(3, b"")),
    "an order that there is not": field(5, field(1, b"n") + b"\x10\x63"),
    "a roll-up that there is not": b"\x50\x63",
    "windows": field(11, field(1, b"n") + field(2, b"")),
    "a number of 2 to the 40th": b"\x48" + number(2**40),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with attacked_server(tmp_path_factory.mktemp("sockets")) as found:
        yield found


def opened(server: AttackedServer, socket: str) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{server.port}/page/{socket}", proxy=None, open_timeout=30, max_size=None)


def code_after(server: AttackedServer, socket: str, message: bytes) -> int | None:
    """Return the code with which a socket is closed after a message."""
    with opened(server, socket) as connection:
        connection.send(message)
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=30)
        return connection.close_code


def answers(connection: ClientConnection) -> list[bytes]:
    """Return what is answered before a ping is."""
    connection.send('{"ping": true}')
    found = list[bytes]()
    while True:
        message = connection.recv(timeout=60)
        if isinstance(message, bytes):
            found.append(message)
        elif "pong" in message:
            return found


@pytest.mark.parametrize("socket", SOCKETS)
def test_bytes_that_are_no_message_close_their_socket_only(server: AttackedServer, socket: str) -> None:
    with server.shop() as shop:
        for message in (*(each[:4096] for each in GARBAGE.values()), *SHAPES.values(), *HALVES):
            assert code_after(server, socket, message) == 1007, message[:80]
        shop.go_on()


@pytest.mark.parametrize("socket", SOCKETS)
@pytest.mark.parametrize("name", ["", "nosuch", TABLE, "../evil", "x" * 10_000])
def test_no_request_about_unknown_names_ends_the_process(server: AttackedServer, socket: str, name: str) -> None:
    with opened(server, socket) as connection:
        for kind in range(3, 64):
            connection.send(request(kind, name))
        answers(connection)
    assert server.process.poll() is None


def test_a_grid_of_another_socket_is_unknown(server: AttackedServer) -> None:
    with server.shop(), opened(server, "cubes") as first, opened(server, "cubes") as second:
        first.send(GOOD)
        [answer] = answers(first)
        assert not is_refused(answer)
        second.send(request(DIMENSIONS, VIEW))
        [answer] = answers(second)
        assert is_refused(answer)
        first.send(request(DIMENSIONS, VIEW))
        first.send(GOOD)  # once more
        first.send(request(TO_COLUMNS, VIEW))  # of no rectangle
        assert [is_refused(each) for each in answers(first)] == [False, True, True]


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_grid_that_cannot_be_is_refused(server: AttackedServer, config: bytes) -> None:
    for socket in SOCKETS:
        with opened(server, socket) as connection:
            connection.send(request(MAKE_VIEW, TABLE, field(1, b"bad") + field(2, config)))
            connection.send(request(DESCRIBE, TABLE, field(1, config)))
            assert [is_refused(each) for each in answers(connection)] == [True, True]
            connection.send(request(DIMENSIONS, "bad"))
            assert all(map(is_refused, answers(connection)))


@pytest.mark.parametrize("seed", sampled(range(20), of=10))
def test_bytes_that_were_changed_on_the_way_end_nothing(server: AttackedServer, seed: int) -> None:
    chance = random.Random(seed)
    viewport = field(1, b"\x08\x00\x10\x00\x18\x05\x20\x05")
    messages = [GOOD, request(DESCRIBE, TABLE, GOOD[-6:]), request(TO_COLUMNS, VIEW, viewport), request(SIZE, TABLE)]
    for socket in SOCKETS:
        for _ in range(20):
            with opened(server, socket) as connection, suppress(ConnectionClosed):
                connection.send(GOOD)
                for _ in range(10):
                    message = bytearray(chance.choice(messages))
                    for _ in range(chance.randint(0, 2)):
                        message[chance.randrange(len(message))] = chance.randrange(256)
                    connection.send(bytes(message))
                answers(connection)
    assert server.process.poll() is None
