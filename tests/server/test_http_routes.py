"""What goes over HTTP: rows in every form, errors with their status, marks of what has not changed, pages, ids."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import re
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from cumulus.catalog.arrow import to_ipc
from support.http_server import Running, running

SCRIPT = """
CREATE TABLE kinds (id INT PRIMARY KEY, flag BOOLEAN, tiny TINYINT, large BIGINT, huge HUGEINT, price DECIMAL(20,8),
  single REAL, number DOUBLE, word TEXT, day DATE, moment TIMESTAMP, zoned TIMESTAMPTZ, span INTERVAL)
  WITH (keep = all);
CREATE VIEW seen AS SELECT id, flag, tiny, large, huge, price, single, number, word, day, moment, zoned, span,
  COUNT(*) AS n FROM kinds GROUP BY ALL;
CREATE TABLE orders (id INT PRIMARY KEY, region TEXT, amount DECIMAL(12,2)) WITH (keep = all);
CREATE VIEW sales AS SELECT region, COUNT(*) AS n, SUM(amount) AS revenue FROM orders GROUP BY region;
CREATE VIEW ratio AS SELECT region, SUM(1 / (id - 7)) AS r FROM orders GROUP BY region;
"""
KINDS: list[dict[str, Any]] = [
    {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "large": 2**63 - 1,
        "huge": 10**30,
        "price": "0.00000010",
        "single": 1.5,
        "number": 0.1,
        "word": 'say "x"\n\\ \u0001 é 😀',
        "day": "0001-01-01",
        "moment": "2013-01-31T12:00:00.000001",
        "zoned": "2013-01-31T12:00:00.000000Z",
        "span": "1 year 2 months -00:00:01.5",
    },
    {"id": 2, "flag": None},
    {"id": 3, "number": "NaN", "single": "Infinity", "large": -(2**53), "huge": 2**53 - 1, "word": "", "price": "-1.5"},
]
SHOWN: list[dict[str, Any]] = [
    {**KINDS[0], "large": str(2**63 - 1), "huge": str(10**30), "n": 1},
    {**dict.fromkeys(KINDS[0]), "id": 2, "n": 1},
    {
        **dict.fromkeys(KINDS[0]),
        **KINDS[2],
        "large": str(-(2**53)),
        "price": "-1.50000000",
        "n": 1,
    },
]
"""What JSON says of these rows: whole numbers beyond what a double has exactly are texts."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("routes"), SCRIPT) as found:
        yield found


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client


def write(http: httpx.Client, table: str, rows: Any, op: str = "insert", **headers: str) -> httpx.Response:
    return http.post(f"/v1/tables/{table}/rows", params={"op": op}, json=rows, headers=headers)


def as_table(body: bytes, form: str) -> pa.Table:
    if form == "parquet":
        return pq.read_table(pa.BufferReader(body))
    if form == "csv":
        return pa.csv.read_csv(io.BytesIO(body), parse_options=pa.csv.ParseOptions(newlines_in_values=True))
    return pa.ipc.open_stream(body).read_all()


MEDIA_TYPES = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}


@pytest.mark.parametrize("form", MEDIA_TYPES)
def test_values_of_all_types_go_in_and_come_out(http: httpx.Client, form: str) -> None:
    """What comes out in a form goes in again in that form, and is the same."""

    def shown() -> list[dict[str, Any]]:
        return sorted(http.get("/v1/views/seen/rows").json()["rows"], key=lambda row: int(row["id"]))

    assert write(http, "kinds", KINDS).status_code == 200
    try:
        assert shown() == SHOWN
        answer = http.get("/v1/query", params={"sql": "SELECT * FROM kinds ORDER BY id", "format": form})
        assert answer.headers["content-type"].partition(";")[0] == MEDIA_TYPES[form]
        body = answer.content
        if form == "json":
            body = json.dumps(answer.json()["rows"]).encode()
        assert write(http, "kinds", KINDS, "delete").status_code == 200
        again = http.post("/v1/tables/kinds/rows", content=body, headers={"Content-Type": MEDIA_TYPES[form]})
        assert again.status_code == 200, again.text
        assert shown() == SHOWN
        if form in ("arrow", "parquet"):
            rows = as_table(body, form).to_pylist()
            assert rows[0]["huge"] == Decimal(10**30)
            assert rows[0]["day"] == dt.date(1, 1, 1)
            assert math.isnan(rows[2]["number"])
    finally:
        write(http, "kinds", KINDS, "delete")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('id,region\n1,"x\n2,y\n', "the body, row 1: a quote is not closed"),
        ('id,"region\n1,x\n', "the body: a quote in the header is not closed"),
        ("", "no text/csv"),
    ],
)
def test_a_quote_that_is_not_closed_takes_in_no_rows(http: httpx.Client, body: str, told: str) -> None:
    kind = {"Content-Type": "text/csv"}
    before = http.get("/v1/tables/orders").json()["rows"]
    answer = http.post("/v1/tables/orders/rows", content=body.encode(), headers=kind)
    assert (answer.status_code, told in answer.text) == (422, True), answer.text
    assert http.get("/v1/tables/orders").json()["rows"] == before
    assert (
        http.post("/v1/tables/orders/rows", content=b'id,region\n-7,"a ""b"",\nc"\n', headers=kind).json()["rows"] == 1
    )
    sold = http.get("/v1/views/sales/rows", params={"key": 'a "b",\nc'}).json()["rows"]
    assert [row["n"] for row in sold] == [1]
    write(http, "orders", [{"id": -7, "region": 'a "b",\nc'}], "delete")


def test_a_large_answer_comes_in_pieces_and_whole(http: httpx.Client) -> None:
    sql = "SELECT range AS i, 'text ' || range AS t FROM range(300000)"
    with http.stream("GET", "/v1/query", params={"sql": sql, "format": "ndjson"}) as answer:
        pieces = [*answer.iter_raw()]
        assert "content-length" not in answer.headers
    assert max(map(len, pieces)) < 1 << 21
    rows = b"".join(pieces).splitlines()
    assert (len(rows), json.loads(rows[-1])) == (300_000, {"i": 299_999, "t": "text 299999"})
    for form in ("csv", "arrow", "parquet"):
        body = http.get("/v1/query", params={"sql": sql, "format": form}).content
        assert as_table(body, form).num_rows == 300_000
    assert len(http.get("/v1/query", params={"sql": sql}).json()["rows"]) == 300_000


def test_rows_are_chosen(http: httpx.Client) -> None:
    rows = [[1, "ASIA", 1], [2, "EUROPE", 2], [3, None, 3], [4, "ASIA", "4.5"]]
    at = write(http, "orders", rows).json()["at"]
    try:

        def regions(**wanted: Any) -> list[Any]:
            answer = http.get("/v1/views/sales/rows", params={"after": at, **wanted})
            assert answer.status_code == 200, answer.text
            return sorted((row["region"] for row in answer.json()["rows"]), key=str)

        assert regions() == ["ASIA", "EUROPE", None]
        assert regions(region="ASIA") == ["ASIA"]
        assert regions(where='{"region": ["EUROPE", null]}') == ["EUROPE", None]
        assert regions(where='{"revenue": {"from": "2.00", "to": 3}}') == ["EUROPE", None]
        assert regions(where='{"REGION": {"to": "B"}}', n=2) == ["ASIA"]
        assert len(regions(limit=2)) == 2
        assert len(regions(limit=2, offset=2)) == 1
        one = http.get("/v1/views/sales/rows", params={"key": "ASIA", "columns": "revenue, n"})
        assert one.json()["rows"] == [{"revenue": "5.50", "n": 2}]
        assert http.get("/v1/views/sales/rows", params={"keys": "[null]"}).json()["rows"][0]["n"] == 1
        assert http.get("/v1/views/sales/rows", params={"key": "AFRICA"}).json()["rows"] == []
        asked = {"sql": "SELECT n FROM sales WHERE region = $r", "parameters": {"r": "ASIA"}}
        assert http.post("/v1/query", json=asked).json()["rows"] == [{"n": 2}]
    finally:
        write(http, "orders", rows, "delete")


def test_pages_are_of_one_state(http: httpx.Client) -> None:
    rows = [[number, f"r{number:03}", 1] for number in range(250)]
    at = write(http, "orders", rows).json()["at"]
    found: list[str] = []
    page = http.get("/v1/views/sales/rows", params={"page": 100, "after": at, "columns": "region"}).json()
    write(http, "orders", rows, "delete")
    while True:
        assert page["at"] == at
        found += [row["region"] for row in page["rows"]]
        if page["next"] is None:
            break
        page = http.get(page["next"]).json()
    assert sorted(found) == [row[1] for row in rows]
    gone = http.get("/v1/views/sales/rows", params={"cursor": "nothing.100.100"})
    assert (gone.status_code, gone.json()["error"]) == (410, "HistoryError")


def test_what_has_not_changed_is_not_sent_again(http: httpx.Client) -> None:
    first = http.get("/v1/views/sales/rows")
    tag = {"If-None-Match": first.headers["etag"]}
    same = http.get("/v1/views/sales/rows", headers=tag)
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", first.headers["etag"])
    assert http.get("/v1/views/sales/rows", headers=tag | {"Accept": "text/csv"}).status_code == 200
    write(http, "orders", [[1, "ASIA", 1]])
    changed = http.get("/v1/views/sales/rows", headers=tag)
    assert (changed.status_code, changed.json()["rows"][0]["n"]) == (200, 1)
    assert int(changed.headers["x-cumulus-at"]) == int(first.headers["x-cumulus-at"]) + 1
    write(http, "orders", [[1, "ASIA", 1]], "delete")


def test_a_request_with_the_same_key_is_applied_once(http: httpx.Client) -> None:
    before = http.get("/v1/views").json()["at"]
    key = {"Idempotency-Key": "a key"}
    parts = {"parts": [{"op": "insert", "table": "orders", "rows": [[1, "ASIA", 1], {"id": 2}]}]}
    first = http.post("/v1/transactions", json=parts, headers=key).json()
    again = http.post("/v1/transactions", json=parts, headers=key).json()
    assert first == {"at": before + 1, "rows": 2, "repeated": False}
    assert again == {"at": before + 1, "rows": 2, "repeated": True}
    other = http.post("/v1/transactions", json={"parts": []}, headers=key)
    assert (other.status_code, other.json()["error"]) == (409, "RepeatedIdError")
    packed = base64.b64encode(
        to_ipc(pa.table({"id": [1, 2], "region": ["ASIA", None], "amount": [1.0, None]}))
    ).decode()
    undo = {"parts": [{"op": "delete", "table": "orders", "arrow": packed}]}
    assert http.post("/v1/transactions", json=undo).json()["at"] == before + 2


def test_a_read_waits_for_what_was_written(http: httpx.Client, server: Running) -> None:
    at = http.get("/v1/views").json()["at"] + 1
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.append(server.http().get("/v1/views/sales/rows", params={"after": at}).json())
    )
    waiting.start()
    write(http, "orders", [[5, "ASIA", 1]])
    waiting.join(10)
    write(http, "orders", [[5, "ASIA", 1]], "delete")
    assert (found[0]["at"], found[0]["rows"][0]["region"]) == (at, "ASIA")


WRONG = [
    ("GET", "/v1/nothing", None, 404, "there is no such address"),
    ("DELETE", "/v1/views", None, 405, "Method Not Allowed"),
    ("GET", "/v1/views/nothing/rows", None, 404, "there is no view nothing"),
    ("GET", "/v1/views/sales/rows?limit=-1", None, 400, "limit"),
    ("GET", "/v1/views/sales/rows?what=1", None, 404, "'what' is neither a column of sales nor a parameter"),
    ("GET", "/v1/views/sales/rows?n=x", None, 400, "sales.n: 'x' is not an integer"),
    ("GET", "/v1/views/sales/rows?where=[1]", None, 400, "where is no object"),
    ("GET", "/v1/views/sales/rows?where={", None, 400, "where is no JSON"),
    ("GET", "/v1/views/sales/rows?where={%22n%22:{%22a%22:1}}", None, 400, "a range has from, to or both"),
    ("GET", "/v1/views/sales/rows?key=a&key=b", None, 400, "2 values were given"),
    ("GET", "/v1/views/sales/rows?format=xml", None, 400, "there is no format 'xml'"),
    ("GET", "/v1/views/sales/rows?cursor=x", None, 400, "is no cursor"),
    ("GET", "/v1/query?sql=SELECT+1+AS+a,+2+AS+a", None, 400, "two columns are called 'a'"),
    ("GET", "/v1/query?sql=SELECT+nothing", None, 400, "nothing"),
    ("POST", "/v1/query", b"[" * 100_000, 400, "nested too deeply"),
    ("POST", "/v1/query", b'{"sql": 1}', 400, "has no sql"),
    ("POST", "/v1/query", b"\xff", 400, "no JSON"),
    ("POST", "/v1/transactions", b"{}", 400, "no list of parts"),
    ("POST", "/v1/transactions", b'{"parts": [{"op": "drop"}]}', 400, "'drop' is no op"),
    ("POST", "/v1/transactions", b'{"parts": [{"op": "insert", "table": "orders", "arrow": "?"}]}', 422, "no Arrow"),
    ("POST", "/v1/tables/nothing/rows", b"[]", 404, "there is no table nothing"),
    ("POST", "/v1/tables/orders/rows", b"{}", 422, "no list of rows"),
    ("POST", "/v1/tables/orders/rows", b"[1]", 422, "a row of orders must be"),
    ("POST", "/v1/tables/orders/rows", b"[[1]]", 422, "orders has 3 columns"),
    ("POST", "/v1/tables/orders/rows", b'[{"id": 1, "x": 1}]', 422, "no column 'x'"),
    ("POST", "/v1/tables/orders/rows", b"[[1e999999999, null, null]]", 422, "orders.id"),
    ("POST", "/v1/tables/orders/rows", b"[[null, null, null]]", 422, "NULL"),
    ("POST", "/v1/execute", b'{"sql": "CREATE VIEW"}', 400, "1:8: the name of the view is missing"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), WRONG)
def test_what_is_wrong_is_told(
    http: httpx.Client, method: str, path: str, body: bytes | None, status: int, words: str
) -> None:
    answer = http.request(method, path, content=body, headers={"Content-Type": "application/json"})
    told = answer.json()
    assert told.keys() == {"error", "message", "hint", "place"}
    assert words in told["message"]
    assert answer.status_code == status
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("kind", [each for each in MEDIA_TYPES.values() if "json" not in each])
def test_a_body_that_is_not_of_its_kind_is_told(http: httpx.Client, kind: str) -> None:
    answer = http.post("/v1/tables/orders/rows", content=b"\x00\xffnothing\n\x00,", headers={"Content-Type": kind})
    assert answer.status_code == 422, answer.text
    odd = http.post("/v1/tables/orders/rows", content=b"[]", headers={"Content-Type": "image/png"})
    assert (odd.status_code, odd.json()["message"]) == (400, "rows do not come as image/png")


def test_the_program_is_told(http: httpx.Client) -> None:
    listed = http.get("/v1/views").json()["views"]
    assert [(view["name"], view["keys"]) for view in listed][1:] == [("sales", ["region"]), ("ratio", ["region"])]
    assert http.get("/v1/tables/orders").json()["key"] == ["id"]
    assert "VIEW sales" in http.get("/v1/program").json()["m3"]
    assert http.get("/v1/program/graph").json()["views"][1]["name"] == "sales"
    assert http.get("/v1/views/sales/explain").json()["cost"] == "O(1)"
    assert http.get("/v1/stats").json()["rows"] == {"kinds": 0, "orders": 0}
    at = http.post("/v1/execute", json={"sql": "CREATE VIEW more AS SELECT COUNT(*) AS n FROM orders"}).json()["at"]
    assert http.get("/v1/views/more/rows", params={"after": at}).json()["rows"] == [{"n": 0}]
    http.post("/v1/execute", json={"sql": "DROP VIEW more"})
    assert http.get("/v1/views/more/rows").status_code == 404
    assert http.post("/v1/snapshot").json()["at"] >= at


def test_errors_of_views_and_what_was_refused_are_rows(http: httpx.Client) -> None:
    write(http, "orders", [[7, "ASIA", 1]])
    found = http.get("/v1/errors", params={"view": "ratio"}).json()["rows"]
    assert ("ratio", "+orders(7, 'ASIA', Decimal('1.00'))") in [(row["view"], row["event"]) for row in found]
    assert http.get("/v1/errors").json()["rows"] == found
    write(http, "orders", [[7, "ASIA", 1]], "delete")
    assert http.get("/v1/quarantine").status_code == 200
    assert http.get("/v1/epochs", params={"limit": 1}).status_code == 200


def test_numbers_are_for_prometheus(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}
    http.get("/v1/views/sales/rows")
    text = http.get("/metrics").text
    assert re.search(
        r'cumulus_requests_total\{method="GET",route="/v1/views/\{name\}/rows",status="200"\} [\d.]+', text
    )
    assert re.search(r"cumulus_at \d", text)
    assert 'cumulus_rows{table="orders"} 0.0' in text


def test_every_route_is_described(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()
    assert {"/v1/views/{name}/rows", "/v1/query", "/v1/transactions", "/v1/tables/{name}/rows"} <= described[
        "paths"
    ].keys()
    assert described["paths"]["/v1/transactions"]["post"]["requestBody"]["content"].keys() == {"application/json"}
