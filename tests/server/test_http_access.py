"""Who may do what: tokens, roles, permitted views, where requests come from, TLS, and what SQL cannot reach."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as open_socket

from cumulus import connect, errors
from cumulus.server.access import Role, UserFile
from cumulus.server.http.entrance.listening import check_exposure
from cumulus.server.settings import ServerSettings
from support.http_server import Running, running
from support.tiers import sampled

ROWS = [[1, "ASIA", 1, "1994-01-01"], [2, "EUROPE", 2, None]]


@dataclass
class Guarded:
    """A server with users, and their tokens."""

    server: Running
    users: UserFile
    tokens: dict[str, str]

    def http(self, name: str) -> httpx.Client:
        return self.server.http(self.tokens[name])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    log = folder / "access.jsonl"
    with running(folder, access_log=str(log)) as server:
        users = UserFile(folder / "data")
        tokens = {
            "ann": users.add("ann", Role.ADMIN),
            "will": users.add("will", Role.WRITER),
            "rita": users.add("rita", Role.READER),
            "dora": users.add("dora", Role.READER, ("days", "Total")),
        }
        with server.http(tokens["will"]) as http:
            assert http.post("/v1/tables/orders/rows", json=ROWS).status_code == 200
        yield Guarded(server, users, tokens)


def test_the_file_of_users_has_no_token_and_is_private(guarded: Guarded) -> None:
    text = guarded.users.path.read_text("utf-8")
    assert all(token not in text for token in guarded.tokens.values())
    assert guarded.users.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(errors.UsageError, match="there is a user ann already"):
        guarded.users.add("ann", Role.READER)
    with pytest.raises(errors.UsageError, match="no name of a user"):
        guarded.users.add("a b", Role.READER)
    with pytest.raises(errors.UnknownNameError, match="there is no user zoe"):
        guarded.users.remove("zoe")


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    users = UserFile(tmp_path)
    token = users.add("ann", Role.ADMIN, ('a "view"\n',))
    assert UserFile(tmp_path).user_with(token) == users.users[0]
    users.path.chmod(0o644)
    with pytest.raises(errors.InputError, match="others can read it"):
        _ = UserFile(tmp_path).users
    users.path.chmod(0o600)
    users.path.write_text("[users.ann]\nrole = 'king'\n")
    with pytest.raises(errors.InputError, match="no list of users"):
        _ = UserFile(tmp_path).users


def test_nobody_comes_in_without_a_token(guarded: Guarded) -> None:
    with guarded.server.http() as http:
        for path in ("/v1/views", "/v1/views/sales/rows", "/v1/nothing", "/metrics", "/openapi.json", "/v1/me"):
            answer = http.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200
        begun = time.monotonic()
        told = {
            http.get("/v1/views", headers={"Authorization": given}).text
            for given in ("Bearer cumulus_no", "Basic YW5uOng=", f"Bearer {guarded.tokens['ann']}x", "Bearer ann")
        }
        assert len(told) == 1, "it is not told what is wrong with a token"
        assert time.monotonic() - begun > 0.1 + 0.2 + 0.4 + 0.8, "each failure takes longer"
    with pytest.raises(errors.AccessError) as refused, connect(guarded.server.address) as client:
        client.view("sales")
    assert not refused.value.is_known


def test_roles_say_what_may_be_done(guarded: Guarded) -> None:
    insert = ("POST", "/v1/tables/orders/rows", [])
    transact = ("POST", "/v1/transactions", {"parts": []})
    execute = ("POST", "/v1/execute", {"sql": "CREATE VIEW x AS SELECT COUNT(*) AS n FROM orders"})
    drop = ("POST", "/v1/execute", {"sql": "DROP VIEW x"})
    snapshot = ("POST", "/v1/snapshot", {})
    allowed: dict[str, list[Any]] = {"ann": [insert, execute, drop, snapshot], "will": [insert], "rita": [], "dora": []}
    for name, may in allowed.items():
        with guarded.http(name) as http:
            for request in (insert, transact, execute, drop, snapshot):
                status = http.request(request[0], request[1], json=request[2]).status_code
                if request in may:
                    assert status == 200, (name, request)
                elif request not in (transact,):
                    assert status in (403, 404), (name, request)
    with guarded.http("rita") as http:
        told = http.post("/v1/transactions", json={"parts": []})
        assert (told.status_code, told.json()["error"]) == (403, "AccessError")


def test_other_views_are_not_there_for_who_may_read_some(guarded: Guarded) -> None:
    with guarded.http("rita") as http:
        everything = http.get("/v1/query", params={"sql": "SELECT region, day FROM sales, days, total"})
        assert everything.status_code == 200
        assert http.get("/v1/stats").status_code == 200
    with guarded.http("dora") as http:
        assert [view["name"] for view in http.get("/v1/views").json()["views"]] == ["days", "total"]
        assert http.get("/v1/tables").json()["tables"] == []
        assert http.get("/v1/me").json() == {"name": "dora", "role": "reader", "views": ["days", "Total"]}
        assert http.get("/v1/views/DAYS/rows").status_code == 200
        assert http.get("/v1/errors", params={"view": "days"}).status_code == 403
        assert http.get("/v1/query", params={"sql": "SELECT day FROM days, total"}).status_code == 200
        absent = http.get("/v1/views/nothing/rows").json()["message"].replace("nothing", "sales")
        for path in ("", "/rows", "/explain", "/changes"):
            answer = http.get(f"/v1/views/sales{path}")
            assert (answer.status_code, answer.json()["message"]) == (404, absent)
            assert answer.json()["hint"] == "Views: days, total."
        assert http.get("/v1/errors", params={"view": "sales"}).status_code == 404
        assert http.get("/v1/tables/orders").status_code == 404
        for path in ("/v1/program", "/v1/program/graph", "/v1/stats", "/metrics", "/v1/errors", "/v1/quarantine"):
            assert http.get(path).status_code == 403, path


def test_a_refusal_does_not_tell_the_row_of_another(guarded: Guarded) -> None:
    token = guarded.users.add("wanda", Role.WRITER, ("days",))
    own = [[1, "mine", 5, None]]
    with guarded.server.http(token) as http, guarded.http("will") as other:
        told = http.post("/v1/tables/orders/rows", json=own)
        assert (told.status_code, told.json()["message"]) == (409, "a row is against a key of orders")
        assert "ASIA" in other.post("/v1/tables/orders/rows", json=own).json()["message"]


HIDDEN = [
    "SELECT * FROM sales",
    "SELECT * FROM orders",
    'SELECT * FROM main."sales"',
    "WITH x AS (SELECT * FROM sales) SELECT * FROM x",
    "SELECT (SELECT COUNT(*) FROM sales) FROM days",
    "SELECT * FROM query('SELECT * FROM sales')",
    "SELECT * FROM query_table('sales')",
    "SELECT * FROM query_table(['sales'])",
    "PIVOT sales ON region USING SUM(n)",
    "DESCRIBE sales",
    "SUMMARIZE sales",
    "FROM sales",
]


@pytest.mark.parametrize("sql", HIDDEN)
def test_sql_finds_no_view_that_is_not_there(guarded: Guarded, sql: str) -> None:
    with guarded.http("dora") as http:
        answer = http.post("/v1/query", json={"sql": sql})
        assert answer.status_code == 400, answer.text
        assert "Views: days, total." in answer.json()["hint"] or "SELECT" in answer.json()["message"]


def test_lists_of_duckdb_name_no_other_view(guarded: Guarded) -> None:
    with guarded.http("dora") as http:
        for sql in (
            "SELECT * FROM duckdb_tables()",
            "SELECT * FROM duckdb_views()",
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM information_schema.columns",
            "SELECT * FROM pg_catalog.pg_class",
            "SHOW ALL TABLES",
            "SELECT * FROM duckdb_columns()",
        ):
            answer = http.post("/v1/query", json={"sql": sql})
            assert "sales" not in answer.text, sql
            assert "orders" not in answer.text, sql


OUT_OF_REACH = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/*')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM read_parquet('http://127.0.0.1:1/x')",
    "SELECT * FROM read_json('https://example.com/x')",
    "COPY (SELECT 1) TO '/tmp/out.csv'",
    "COPY days FROM '/etc/passwd'",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET threads = 1",
    "RESET enable_external_access",
    "PRAGMA database_list",
    "EXPORT DATABASE '/tmp/x'",
    "CREATE TABLE t (a INT)",
    "CALL pragma_version()",
    "SELECT getenv('HOME')",
    "SELECT 1; SELECT 2",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '/tmp/out.csv'",
]


@pytest.mark.parametrize("sql", ["EXPLAIN {}", "EXPLAIN ANALYZE {}", "EXPLAIN (FORMAT JSON) {}"])
@pytest.mark.parametrize("query", ["SELECT * FROM sales", "SELECT region, repeat(region, 2) FROM sales"])
def test_sql_explains_its_plan(guarded: Guarded, sql: str, query: str) -> None:
    with guarded.http("ann") as http:
        answer = http.post("/v1/query", json={"sql": sql.format(query)})
        assert answer.status_code == 200, answer.text
        [row] = answer.json()["rows"]
        assert row["explain_key"] in ("physical_plan", "analyzed_plan")
        assert "/" not in row["explain_value"].replace("://", ""), "a plan has no path"


@pytest.mark.parametrize("name", ["ann", "dora"])
@pytest.mark.parametrize("sql", sampled(OUT_OF_REACH, of=2))
def test_sql_reaches_no_file_network_or_setting(guarded: Guarded, name: str, sql: str) -> None:
    with guarded.http(name) as http:
        answer = http.post("/v1/query", json={"sql": sql})
        assert answer.status_code in (400, 403), answer.text[:200]
        assert "root:" not in answer.text


def test_pages_elsewhere_cannot_ask(guarded: Guarded) -> None:
    with guarded.http("ann") as http:
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": guarded.server.address}, 200),
            ({"Host": "evil.example"}, 400),
            ({"Host": f"localhost:{guarded.server.port}"}, 200),
        ):
            assert http.get("/v1/views", headers=headers).status_code == status, headers
            assert http.post("/v1/query", json={"sql": "SELECT 1"}, headers=headers).status_code == status
    address = guarded.server.address.replace("http", "ws") + "/v1/views/sales/changes"
    token = {"Authorization": f"Bearer {guarded.tokens['ann']}"}
    for headers, origin in ((token, "http://evil.example"), ({}, None), ({"Authorization": "Bearer x"}, None)):
        with pytest.raises(InvalidStatus), open_socket(address, additional_headers=headers, origin=origin):
            pass
    with open_socket(address, additional_headers=token) as socket:
        assert json.loads(socket.recv(timeout=10))


def test_the_page_logs_in_with_a_cookie(guarded: Guarded) -> None:
    with guarded.server.http() as http:
        assert http.post("/v1/login", json={"token": "cumulus_no"}).status_code == 401
        begun = http.post("/v1/login", json={"token": guarded.tokens["rita"]})
        cookie = begun.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert guarded.tokens["rita"] not in cookie
        assert http.get("/v1/me").json()["name"] == "rita"
        assert http.get("/v1/views", headers={"Origin": "http://evil.example"}).status_code == 403
        assert http.post("/v1/logout").status_code == 204
        assert http.get("/v1/me").status_code == 401


def test_a_token_that_is_removed_is_worth_nothing(guarded: Guarded) -> None:
    token = guarded.users.add("tom", Role.READER)
    with guarded.server.http(token) as http, guarded.server.http() as page:
        assert http.get("/v1/me").json()["name"] == "tom"
        assert page.post("/v1/login", json={"token": token}).status_code == 200
        guarded.users.remove("tom")
        assert http.get("/v1/me").status_code == 401
        assert page.get("/v1/me").status_code == 401


def test_the_log_of_requests_has_no_values(guarded: Guarded) -> None:
    with guarded.http("rita") as http:
        http.get("/v1/views/sales/rows", params={"region": "a secret value"})
        http.get("/v1/query", params={"sql": "SELECT 'a secret value'"})
    text = Path(guarded.server.site.settings.access_log).read_text("utf-8")
    assert "secret" not in text
    assert all(token not in text for token in guarded.tokens.values())
    wanted = {"user": "rita", "method": "GET", "route": "/v1/query", "status": 200}
    until = time.monotonic() + 5  # a line is written when its answer has gone
    while not any(wanted.items() <= json.loads(line).items() for line in text.splitlines()):
        assert time.monotonic() < until, text[-1000:]
        text = Path(guarded.server.site.settings.access_log).read_text("utf-8")
    assert "secret" not in text


def test_a_server_that_strangers_reach_has_users_and_tls(tmp_path: Path) -> None:
    check_exposure(ServerSettings(tmp_path))
    check_exposure(ServerSettings(tmp_path, host="::1"))
    with pytest.raises(errors.UsageError, match="there are no users") as refused:
        check_exposure(ServerSettings(tmp_path, host="0.0.0.0"))
    assert "anybody may read and change all" in refused.value.hint
    UserFile(tmp_path).add("ann", Role.ADMIN)
    with pytest.raises(errors.UsageError, match="there is no TLS"):
        check_exposure(ServerSettings(tmp_path, host="example.com"))
    check_exposure(ServerSettings(tmp_path, host="0.0.0.0", insecure=True))
    with pytest.raises(errors.UsageError, match="private key"):
        check_exposure(ServerSettings(tmp_path, certificate=tmp_path / "x"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_tls_is_checked(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    with running(tmp_path, certificate=certificate, private_key=key) as server:
        with server.client(verify=str(certificate)) as client:
            assert client.view("total").rows() == [(None,)]
        with server.client(timeout_s=0.3) as client, pytest.raises(errors.NotRunningError, match="certificate"):
            client.view("total")
        with server.client(verify=False) as client:
            assert client.views


def test_a_browser_reaches_the_tables_of_its_own_page_alone(guarded: Guarded) -> None:
    perspective = pytest.importorskip("perspective")
    address = f"ws://127.0.0.1:{guarded.server.port}/page/views"

    tokens = ({"Authorization": f"Bearer {guarded.tokens[name]}"} for name in ("rita", "dora"))
    with (
        open_socket(address, additional_headers=next(tokens)) as first,
        open_socket(address, additional_headers=next(tokens)) as second,
    ):
        first.send(json.dumps({"open": "sales"}))
        assert json.loads(first.recv())["config"]["title"] == "sales"
        second.send(json.dumps({"open": "days"}))
        mine = json.loads(second.recv())
        client = perspective.Client(lambda data: second.send(bytes(data)), lambda: None)

        def answer() -> None:
            with suppress(ConnectionClosed):
                for data in second:
                    client.handle_response(data)

        listening = threading.Thread(target=answer, daemon=True)
        listening.start()
        assert client.get_hosted_table_names() == [mine["table"]]
    listening.join(5)
