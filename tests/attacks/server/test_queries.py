"""Queries of readers that make much of little, or take long, and readers who do not take what they have asked for."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.attacked_server import AttackedServer, as_json, attacked_server, wait_until_idle
from support.attacks import Steady, resident_bytes
from support.tiers import sampled

pytestmark = pytest.mark.xdist_group("attacks by queries")
LIMITS = {
    "statement_s": 60,
    "query_bytes": 400 << 20,
    "answer_bytes": 200 << 20,
    "result_bytes": 100 << 20,
    "body_s": 2,
}
GROWTH = 1 << 30
SLOW = "(SELECT SUM(hash(x.range % 7 + y.range)) FROM range(1000000) x, range(1000000) y) > 0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with attacked_server(tmp_path_factory.mktemp("queries"), LIMITS) as found:
        yield found


LARGE = {
    "a text": "SELECT repeat('x', 2000000000)",
    "a text by another name": "SELECT system.main.\"repeat\"('x', 2000000000)",
    "a text of a column": "SELECT repeat(region, 500000000) FROM sales",
    "a padded text": "SELECT length(lpad('x', 2000000000, 'y'))",
    "doubled texts": "WITH RECURSIVE t(s) AS (SELECT 'xxxxxxxx' UNION ALL SELECT s || s FROM t) "
    "SELECT MAX(length(s)) FROM t",
    "a list": "SELECT len(range(500000000))",
    "rows of texts": "SELECT repeat('x', 1000000) FROM range(1000)",
    "a replaced text": "SELECT length(replace(repeat('x', 50000), 'x', repeat('y', 50000)))",
    "a measure beside a text": "SELECT MEASURE(revenue), repeat('x', 2000000000) FROM sales",
}


@pytest.mark.parametrize("name", sampled(LARGE, of=9))
def test_a_query_that_makes_much_of_little_ends_alone(server: AttackedServer, name: str) -> None:
    before = resident_bytes(server.process.pid)
    largest = [0]

    def look(_: int) -> None:
        largest[0] = max(largest[0], resident_bytes(server.process.pid) - before)

    with server.shop() as shop, server.http() as http, Steady(look, 0.02):
        answer = http.post("/v1/query", json={"sql": LARGE[name]})
        assert answer.status_code in (413, 422), answer.text[:200]
        assert as_json(answer)["error"] in ("LimitError", "QueryTimeoutError")
        shop.go_on()
    assert largest[0] < GROWTH


@pytest.mark.slow
def test_a_list_of_many_values_is_no_text(server: AttackedServer) -> None:
    with server.shop(), server.http() as http:
        answer = http.post("/v1/query", json={"sql": "SELECT range(2000000) AS r"})
        assert (answer.status_code, as_json(answer)["error"]) == (413, "LimitError"), answer.text[:200]
        arrow = http.post("/v1/query?format=arrow", json={"sql": "SELECT range(2000000) AS r"})
        assert arrow.status_code == 200


LONG = {
    "a sub-query": f"SELECT COUNT(*) AS n FROM sales WHERE {SLOW}",
    "a measure": f"SELECT region, MEASURE(revenue) AS r FROM sales WHERE {SLOW} GROUP BY region",
    "a product of tables": "SELECT COUNT(*) AS n FROM orders o, range(1000000) a, range(1000000) b "
    "WHERE a.range + b.range < 0",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(LONG, of=3, first=1))
def test_a_query_that_takes_long_holds_up_no_writer(tmp_path: Path, name: str) -> None:
    """While DuckDB runs, writers go on: they end more often than such a query may take in their turn."""
    with attacked_server(tmp_path, {"statement_s": 4}) as server, server.shop() as shop, server.http() as http:
        shop.go_on(5)
        begun = len(shop.acknowledged)
        answer = http.post("/v1/query", json={"sql": LONG[name]})
        assert (answer.status_code, as_json(answer)["error"]) == (422, "QueryTimeoutError")
        assert len(shop.acknowledged) > begun + 3, "a writer who waited would have had one or two"


@pytest.mark.slow
def test_measures_are_right_while_rows_come(server: AttackedServer) -> None:
    sql = "SELECT MEASURE(n) AS m, (SELECT SUM(n) FROM sales) AS n FROM sales"
    with server.shop() as shop, server.http() as http:
        for _ in range(10):
            found = http.post("/v1/query", json={"sql": sql}).json()
            assert found["rows"][0]["m"] == found["rows"][0]["n"], "both are of one state"
            shop.go_on(1)


@pytest.mark.slow
def test_who_does_not_take_an_answer_is_left(server: AttackedServer) -> None:
    sql = "SELECT range AS a, range * 7 AS b FROM range(3000000)"
    address = f"/v1/query?format=csv&sql={sql.replace(' ', '+').replace('*', '%2A')}"
    head = f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    with server.shop() as shop:
        connections = [socket.create_connection(server.address) for _ in range(3)]
        for each in connections:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(head.encode())
        shop.go_on(10)
        wait_until_idle(server, 90)
        for each in connections:
            each.close()
    assert len([line for line in server.log.read_text().splitlines() if "does not take" in line]) <= 3


@pytest.mark.slow
def test_many_queries_at_once_share_what_there_is(server: AttackedServer) -> None:
    before = resident_bytes(server.process.pid)
    with server.shop() as shop:
        asking = []
        for number in range(6):
            client = server.http(120)

            def ask(_: int, client: object = client, number: int = number) -> None:
                answer = client.post("/v1/query", json={"sql": f"SELECT repeat('x', 2000000000 + {number})"})  # type: ignore[attr-defined]
                assert answer.status_code in (413, 422, 429), answer.text

            asking.append(Steady(ask))
        for each in asking:
            each.__enter__()
        until = time.monotonic() + 20
        while time.monotonic() < until and not all(each.seconds for each in asking):
            assert resident_bytes(server.process.pid) < before + GROWTH
            time.sleep(0.05)
        shop.go_on(3)
        for each in asking:
            each.__exit__(None, None, None)
