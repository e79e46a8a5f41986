"""Strangers at the port: no HTTP, heads of two meanings, halves of messages, slow senders, frames of WebSockets."""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.attacked_server import ROWS, AttackedServer, attacked_server
from support.attacks import GARBAGE, Trickle, held_open, lines_with, send_raw
from support.tiers import sampled

pytestmark = pytest.mark.xdist_group("attacks on the port")
LIMITS = {"header_s": 5, "body_s": 2, "connections": 60}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with attacked_server(tmp_path_factory.mktemp("port"), LIMITS) as found:
        yield found


def request(*lines: str, body: bytes = b"", method: str = "POST", path: str = ROWS) -> bytes:
    closing = [] if method == "GET" else ["Connection: close"]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, *closing, "", ""]).encode("latin-1") + body


def test_garbage_ends_nothing(server: AttackedServer) -> None:
    with server.shop() as shop:
        for data in GARBAGE.values():
            send_raw(server.address, data, 1, ends=True)
            send_raw(server.address, data, 1, is_half=True)
        shop.go_on()


HOST = "Host: 127.0.0.1"
ROW = b'[[1, "x", 1, null]]'
AMBIGUOUS = {
    "two hosts": request(HOST, "Host: elsewhere", f"Content-Length: {len(ROW)}", body=ROW),
    "no host": request(f"Content-Length: {len(ROW)}", body=ROW),
    "two lengths": request(HOST, "Content-Length: 2", f"Content-Length: {len(ROW)}", body=ROW),
    "the same length twice": request(HOST, f"Content-Length: {len(ROW)}", f"Content-Length: {len(ROW)}", body=ROW),
    "a length and chunks": request(
        HOST, "Content-Length: 4", "Transfer-Encoding: chunked", body=b"2\r\n[]\r\n0\r\n\r\n"
    ),
    "chunks of another name": request(HOST, "Transfer-Encoding: xchunked", "Content-Length: 2", body=b"[]"),
    "chunks twice": request(
        HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: identity", body=b"2\r\n[]\r\n0\r\n\r\n"
    ),
    "a negative length": request(HOST, "Content-Length: -1", body=ROW),
    "a length with a plus": request(HOST, "Content-Length: +2", body=b"[]"),
    "a blank before the colon": request(HOST, "Content-Length : 2", body=b"[]"),
    "a folded header": request(HOST, "Content-Length: 2", "X-Folded: a", " b", body=b"[]"),
    "two keys": request(HOST, "Idempotency-Key: a", "Idempotency-Key: b", "Content-Length: 2", body=b"[]"),
    "two types": request(
        HOST, "Content-Type: text/csv", "Content-Type: application/json", "Content-Length: 2", body=b"[]"
    ),
    "many headers": request(HOST, *(f"X-{number}: a" for number in range(1_000)), "Content-Length: 2", body=b"[]"),
    "an endless header": request(HOST, "X: " + "a" * 200_000, "Content-Length: 2", body=b"[]"),
    "a chunk that is too long": request(HOST, "Transfer-Encoding: chunked", body=b"fffffffffffffffff\r\n[]"),
    "no chunk": request(HOST, "Transfer-Encoding: chunked", body=b"zz\r\n[]\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", sampled(AMBIGUOUS, of=4))
def test_a_head_of_two_meanings_is_refused(server: AttackedServer, name: str) -> None:
    with server.shop():
        answer = send_raw(server.address, AMBIGUOUS[name], 3)
        assert not answer or answer.split(b" ", 2)[1].startswith((b"4",)), answer[:200]
        assert answer.count(b"HTTP/1.1 ") <= 1, "the rest of a refused request is no request"


def test_who_leaves_in_the_middle_of_a_body_leaves_no_traceback(server: AttackedServer) -> None:
    before = len(server.log.read_text().splitlines())
    half = request(HOST, "Content-Length: 1000000", body=b"[" * 300_000)
    with server.shop() as shop:
        for _ in range(5):
            send_raw(server.address, half, 1, is_half=True)
            send_raw(server.address, half, 1, ends=True)
        shop.go_on()
    assert len(server.log.read_text().splitlines()) - before <= 10
    assert not lines_with(server.log, "Traceback")


CROWDS = {
    "headers": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a: b\r\n" * 100_000 + b"\r\n",
    "requests": b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20_000,
    "large answers": b"GET /page/files/page.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40,
}


@pytest.mark.parametrize("name", CROWDS)
def test_who_sends_very_much_at_once_and_leaves_is_cut(server: AttackedServer, name: str) -> None:
    before = len(server.log.read_text().splitlines())
    with server.shop() as shop:
        for _ in range(5):
            send_raw(server.address, CROWDS[name], 1, is_half=True)
            send_raw(server.address, CROWDS[name], 1, ends=True)
        shop.go_on()
    assert len(server.log.read_text().splitlines()) - before <= 20
    told = [line for name in ("Traceback", "Fatal") for line in lines_with(server.log, name)]
    assert not told


@pytest.mark.slow
def test_slow_senders_are_left_and_hold_up_nobody(server: AttackedServer) -> None:
    heads = Trickle(server.address, b"GET /healthz HTTP/1.1\r\n", b"X-Slow: a\r\n")
    bodies = Trickle(server.address, request(HOST, "Content-Length: 100000"), b" ")
    with server.shop() as shop, heads, bodies:
        assert heads.cut.wait(30)
        assert bodies.cut.wait(30), "a byte now and then is not enough"
        shop.go_on()


def test_connections_that_say_nothing_give_way(server: AttackedServer) -> None:
    with server.shop() as shop, held_open(server.address, 200):
        shop.go_on(5)


def test_a_repeated_request_counts_once(server: AttackedServer) -> None:
    """Whoever records a request and sends it again, whole or with other rows, changes nothing."""
    body = b'[[990000001, "R", 1, null]]'
    head = [HOST, f"Content-Length: {len(body)}", "Idempotency-Key: recorded"]
    with server.shop(), server.http() as http:
        for _ in range(5):
            assert b" 200 " in send_raw(server.address, request(*head, body=body))
        other = request(*head, body=body.replace(b"1,", b"2,", 1)[: len(body)])
        assert b" 409 " in send_raw(server.address, other)
        found = http.get("/v1/views/sales/rows", params={"region": "R"}).json()["rows"]
        assert [row["n"] for row in found] == [1]


# --- WebSockets -------------------------------------------------------------------------------------------------------


def opened(server: AttackedServer) -> socket.socket:
    connection = socket.create_connection(server.address, timeout=10)
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = ["Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
    connection.sendall(request(HOST, *upgrade, method="GET", path="/v1/views/sales/changes"))
    assert b" 101 " in connection.recv(4096)
    return connection


def frame(payload: bytes, code: int = 1, *, is_last: bool = True, length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    if size < 126:
        head = bytes([code | (128 if is_last else 0), 128 | size])
    else:
        head = bytes([code | (128 if is_last else 0), 128 | 127]) + struct.pack(">Q", size)
    return head + bytes(4) + payload


FRAMES = {
    "huge": frame(b"", length=1 << 62),
    "large": frame(b"x" * 1_000_000),
    "fragments": frame(b"x" * 60_000, is_last=False) + frame(b"x" * 60_000, 0, is_last=False) * 100,
    "half": frame(b"xx", length=100),
    "rest of nothing": frame(b"x", 0),
    "of no known kind": frame(b"x", 7),
    "a long ping": frame(b"x" * 500, 9),
    "pings": frame(b"", 9) * 10_000,
    "no text": frame(b"\xff\xfe"),
    "not masked": b"\x81\x05hello",
    "garbage": GARBAGE["random"],
}


@pytest.mark.parametrize("name", sampled(FRAMES, of=4))
def test_frames_of_any_kind_end_no_more_than_their_socket(server: AttackedServer, name: str) -> None:
    with server.shop() as shop:
        connection = opened(server)
        try:
            connection.sendall(FRAMES[name])
            shop.go_on()
        except OSError:
            pass  # it was ended meanwhile
        finally:
            connection.close()
        shop.go_on()


@pytest.mark.slow
def test_wrong_tokens_hold_up_nobody(tmp_path: Path) -> None:
    with attacked_server(tmp_path, has_users=True) as server, server.shop() as shop, server.http() as http:
        for token in ("wrong", "x" * 10_000, "\\", "cumulus_" + "0" * 64, server.token[:-1], server.token + "0"):
            answer = http.get("/v1/views", headers={"Authorization": f"Bearer {token}"})
            assert (answer.status_code, answer.json()["error"]) == (401, "AccessError")
        assert http.get("/v1/views").status_code == 200
        shop.go_on()
