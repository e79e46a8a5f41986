"""What is too large, takes too long, or is one too many; strangers on the port; senders that are slow."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pytest

from cumulus import errors
from cumulus.catalog.arrow import to_ipc
from cumulus.server.limits import Limits
from support.http_server import Running, running

LIMITS = Limits(
    body_bytes=200_000,
    result_rows=5_000,
    result_bytes=400_000,
    statement_s=2.0,
    wait_s=0.3,
    connections=60,
    requests_per_user=6,
    streams_per_user=8,
    header_s=0.4,
    body_s=0.4,
    page_bytes=1,
)
ENDLESS = "SELECT COUNT(*) FROM range(1000000) a, range(1000000) b, range(1000) c WHERE a.range + b.range > c.range"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("limited"), limits=LIMITS) as found:
        yield found


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


def test_answers_are_limited(http: httpx.Client) -> None:
    for sql, words in (
        ("SELECT range FROM range(1000000000000)", "more than 5,000 rows"),
        ("SELECT repeat('x', 1000) FROM range(4000)", "more than 400,000 bytes"),
    ):
        answer = http.post("/v1/query", json={"sql": sql})
        assert (answer.status_code, answer.json()["error"]) == (413, "LimitError")
        assert words in answer.json()["message"]


@pytest.mark.slow
def test_a_query_that_takes_too_long_is_stopped(server: Running, http: httpx.Client) -> None:
    begun = time.monotonic()
    answer = http.post("/v1/query", json={"sql": ENDLESS})
    assert (answer.status_code, answer.json()["error"]) == (422, "QueryTimeoutError")
    assert time.monotonic() - begun < 60
    assert http.post("/v1/query", json={"sql": "SELECT 1 AS one"}).json()["rows"] == [{"one": 1}]
    with server.client() as client, pytest.raises(errors.QueryTimeoutError, match=r"longer than 2 s"):
        client.query(ENDLESS)


SLOW_JOIN = " WHERE (SELECT SUM(hash(x.range % 7 + y.range)) FROM range(4000) x, range(4000) y) > 0"


@pytest.mark.slow
def test_a_query_that_fails_or_is_stopped_half_way_is_told(tmp_path: Path) -> None:
    """When rows have come already, DuckDB's errors come as Arrow's."""
    failing = "SELECT CASE WHEN range < 300000 THEN 1 ELSE CAST('x' || range AS INT) END AS n FROM range(1000000)"
    slow = "SELECT range, repeat('x', 100) AS s FROM range(100000000000) WHERE range % 100000 = 0"
    for sql, status, error, limit_s in ((failing, 400, "UsageError", 60), (slow, 422, "QueryTimeoutError", 0.5)):
        (tmp_path / error).mkdir()
        with running(tmp_path / error, limits=Limits(statement_s=limit_s)) as server, server.http() as http:
            answer = http.post("/v1/query", json={"sql": sql}, timeout=60)
            assert (answer.status_code, answer.json()["error"]) == (status, error), answer.text[:200]


@pytest.mark.slow
def test_a_query_that_takes_long_holds_up_nobody(tmp_path: Path) -> None:
    """It is begun anew over copies, and what it reads are views of one state."""
    with running(tmp_path, limits=Limits(statement_s=60)) as server, server.http() as http:
        row = [[1, "ASIA", 1, "1994-01-01"]]
        http.post("/v1/tables/orders/rows", json=row)
        queries = [
            "SELECT n, m FROM (SELECT s.n, d.n AS m FROM sales s, days d)" + SLOW_JOIN,
            "SELECT n, n AS m FROM query_table('sales')" + SLOW_JOIN,
            "SELECT COUNT(*) AS n, SUM(n) AS m FROM sales" + SLOW_JOIN,
            "SELECT * FROM days PIVOT (SUM(n) AS n FOR day IN ('1994-01-01'))" + SLOW_JOIN,
        ]
        found: list[httpx.Response] = []

        def ask() -> None:
            with server.http() as other:
                found.extend(other.post("/v1/query", json={"sql": sql}) for sql in queries)

        asking = threading.Thread(target=ask)
        asking.start()
        waits = []
        while asking.is_alive():
            begun = time.monotonic()
            at = http.post("/v1/tables/orders/rows", json=row, params={"op": "upsert"}).json()["at"]
            waits.append(time.monotonic() - begun)
            time.sleep(0.01)
        asking.join()
        assert max(waits) < 1.0, "writers go on"
        assert [answer.status_code for answer in found] == [200] * 4, [answer.text for answer in found]
        assert [next(iter(answer.json()["rows"][0].values())) for answer in found] == [1, 1, 1, 1]
        assert all(0 < answer.json()["at"] <= at for answer in found)
        missing = http.post("/v1/query", json={"sql": "SELECT * FROM query_table('nothing')" + SLOW_JOIN})
        assert (missing.status_code, missing.json()["hint"]) == (400, "Views: sales, days, total.")


def test_bodies_are_limited_as_they_come_and_unpacked(http: httpx.Client) -> None:
    url = "/v1/tables/orders/rows"

    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    assert http.post(url, content=b"[" * 300_000).status_code == 413
    assert http.post(url, content=pieces()).status_code == 413
    rows = pa.table({"id": range(2_000), "region": ["x" * 1_000] * 2_000})
    bomb = to_ipc(rows)
    assert len(bomb) < LIMITS.body_bytes
    told = http.post(url, content=bomb, headers={"Content-Type": "application/vnd.apache.arrow.stream"})
    assert (told.status_code, told.json()["error"]) == (413, "LimitError")
    assert http.get("/v1/stats").json()["rows"]["orders"] == 0


def test_who_asks_too_much_at_once_is_told(server: Running) -> None:
    at = server.keeper.at + 1
    statuses: list[int] = []

    def ask() -> None:
        with server.http() as http:
            statuses.append(http.get("/v1/views/sales/rows", params={"after": at}).status_code)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {429, 503}


def test_streams_are_limited_apart_from_requests(server: Running, http: httpx.Client) -> None:
    asked = b"GET /v1/views/sales/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    streams = [raw(server, asked) for _ in range(8)]
    try:
        assert all(each.recv(4096).startswith(b"HTTP/1.1 200 ") for each in streams)
        assert http.get("/v1/views/sales/rows").status_code == 200
        told = http.get("/v1/views/sales/changes")
        assert (told.status_code, told.json()["message"]) == (429, "everybody has 8 streams under way already")
    finally:
        for each in streams:
            each.close()


def raw(server: Running, data: bytes = b"") -> socket.socket:
    found = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    found.sendall(data)
    return found


def test_slow_senders_are_left(server: Running, http: httpx.Client) -> None:
    head = b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{"
    for begun in (b"", b"GET /v1/views HTTP/1.1\r\nHost: 127.0", head):
        with raw(server, begun) as slow:
            since = time.monotonic()
            assert http.get("/healthz").status_code == 200
            left = slow.recv(4096)
            assert left == b"" or b" 408 " in left
            assert time.monotonic() - since < 3
    with raw(server, b"GET / HTTP/1.1\r\n") as endless, pytest.raises(ConnectionError):
        endless.sendall((b"X-A: " + b"a" * 10_000 + b"\r\n") * 5_000)


def test_idle_connections_give_way(server: Running, http: httpx.Client) -> None:
    idle = [raw(server) for _ in range(200)]
    try:
        for _ in range(5):
            assert server.http().get("/healthz").status_code == 200
    finally:
        for each in idle:
            each.close()


def random_request(rng: random.Random) -> bytes:
    """Bytes that are a request, or begin as one, or nothing of the kind."""
    words = [b"GET ", b"POST ", b"/v1/", b"views/sales/rows?", b" HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n", b"{"]
    words += [
        b"Content-Length: ",
        b"-1",
        b"99999999999999999999",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n\r\n",
        b"%00",
    ]
    words += [b"where=", b"\xff\xfe", b"Upgrade: websocket\r\nConnection: upgrade\r\n", bytes(rng.randbytes(20)), b"]"]
    return b"".join(rng.choice(words) for _ in range(rng.randrange(1, 25)))


def throw_bytes(server: Running, seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        data = random_request(rng)
        with raw(server) as thrown:
            try:
                thrown.sendall(data)
                thrown.shutdown(socket.SHUT_WR)
                told = thrown.recv(65536)
            except OSError:
                continue
            assert b"Traceback" not in told, data
            assert b" 500 " not in told[:40], data


def test_random_bytes_do_no_harm(server: Running, http: httpx.Client) -> None:
    throw_bytes(server, 1, 150)
    assert http.get("/healthz").status_code == 200


@pytest.mark.slow
def test_many_random_bytes_do_no_harm(server: Running, http: httpx.Client) -> None:
    process = psutil.Process()
    throw_bytes(server, 2, 2_000)
    before = process.memory_info().rss
    for seed in range(3, 13):
        throw_bytes(server, seed, 2_000)
    assert http.get("/healthz").status_code == 200
    assert process.memory_info().rss - before < 100 << 20


@pytest.mark.slow
def test_two_thousand_idle_connections_stop_nobody(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(header_s=60)) as server, server.http() as http:
        idle = [raw(server) for _ in range(2_000)]
        begun = time.monotonic()
        for number in range(200):
            row = json.dumps([[number, "ASIA", 1, None]])
            assert http.post("/v1/tables/orders/rows", content=row).status_code == 200
        assert http.get("/v1/views/sales/rows").json()["rows"][0]["n"] == 200
        assert time.monotonic() - begun < 20
        for each in idle:
            each.close()
