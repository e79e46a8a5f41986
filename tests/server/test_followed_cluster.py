"""A running cluster behind a server: rows go to its switches, and are read tentative and committed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cumulus import Cube, errors
from cumulus.cli.main import app
from cumulus.errors import NotRunningError
from cumulus.hosts import RowRequest
from cumulus.server.followed.cluster_source import FollowedCluster
from cumulus.server.followed.folder_source import FollowedFolder
from cumulus.server.opening import kind_of
from cumulus.server.settings import ServerSettings
from support.http_server import Served, serving

pytestmark = [pytest.mark.xdist_group("live"), pytest.mark.slow]

SCRIPT = """
CREATE TABLE people (p INT PRIMARY KEY, town VARCHAR);
CREATE TABLE sales (p INT NOT NULL, amount DECIMAL(9,2) NOT NULL);
CREATE VIEW by_town AS SELECT town, SUM(amount) AS a, COUNT(*) AS n FROM sales JOIN people USING (p) GROUP BY town;
CREATE VIEW different AS SELECT COUNT(DISTINCT town) AS n FROM people;
CREATE CUBE sold DIMENSION place (town, p) KEEP (town) AS
SELECT town, p, AVG(amount) AS mean, MAX(amount) AS most FROM sales JOIN people USING (p) GROUP BY town, p;
"""


def run(*arguments: object) -> None:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("followed")
    (folder / "live.sql").write_text(SCRIPT)
    fixed = ("--nodes", 2, "--switches", 2, "--trigger", "100ms", "--engine", "interpreter")
    run("cluster", "start", folder / "live.sql", "--home", folder / "home", *fixed)
    yield folder / "home"
    with suppress(NotRunningError):
        run("cluster", "stop", folder / "home")


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[Served]:
    assert kind_of(home) == "cluster"
    settings = ServerSettings(home)
    with serving(FollowedCluster(home, settings), settings) as found:
        yield found


def test_what_is_written_is_read_tentative_and_committed(served: Served) -> None:
    with served.client() as client, served.http() as http:
        client.insert("people", [(1, "x"), (2, "y")])
        client.upsert("people", [(2, "z")])
        token = client.insert("sales", [(1, "1.50"), (2, 3), (2, 4)])
        assert token.rows == 3
        found = client.view("by_town", after=token)
        expected = [("x", Decimal("1.50"), 1), ("z", Decimal("7.00"), 2)]
        assert (sorted(found.rows()), found.at >= token.at) == (expected, True)
        asked = client.query("SELECT SUM(a) FROM by_town")
        assert asked.rows() == [(Decimal("8.50"),)]
        for read, consistency in (("committed", "committed"), ("tentative", "tentative")):
            for name in ("/v1/views/by_town/rows?key=z&", "/v1/views/by_town/rows?town=z&columns=town,a,n&"):
                answer = http.get(f"{name}read={read}")
                assert answer.json()["rows"] == [{"town": "z", "a": "7.00", "n": 2}], answer.text
                assert answer.headers["x-cumulus-consistency"] == consistency
        gated = http.get("/v1/views/different/rows?read=tentative")
        assert gated.headers["x-cumulus-consistency"] == "committed"
        for read in ("committed", "tentative"):
            rolled = Cube(client, "sold").rollup("town").reading(read=read)
            assert sorted(rolled.rows()) == [("x", 1.5, Decimal("1.50")), ("z", 3.5, Decimal("4.00"))]
        stats = http.get("/v1/stats").json()
        assert (stats["problem"], max(stats["entries"].values())) == ("", 3)
        assert set(stats["lag_epochs"]) == {"publisher", "switch0", "switch1", "node0", "node1"}


def test_a_request_counts_once_and_has_one_part(served: Served) -> None:
    with served.http() as http, served.client() as client:
        before = client.view("by_town", after=client.insert("people", [(7, "once")])).arrow().num_rows
        answers = [
            http.post("/v1/tables/sales/rows", json=[[7, "2.00"]], headers={"Idempotency-Key": "a"}).json()
            for _ in range(2)
        ]
        assert [each["repeated"] for each in answers] == [False, True]
        assert answers[0]["at"] == answers[1]["at"]
        http.get("/v1/views/by_town/rows", params={"after": answers[0]["at"]}).raise_for_status()
        assert client.get("by_town", "once").row == ("once", Decimal("2.00"), 1)
        assert client.view("by_town").arrow().num_rows == before + 1
        part = {"op": "insert", "table": "sales", "rows": [[7, 1]]}
        refused = http.post("/v1/transactions", json={"parts": [part, part]})
        assert (refused.status_code, "2 parts" in refused.text) == (400, True), refused.text
        with pytest.raises(errors.DataError):
            client.insert("sales", [(1, "much")])
        for path, body in (("execute", {"sql": "DROP VIEW by_town"}), ("snapshot", {})):
            answer = http.post(f"/v1/{path}", json=body)
            assert (answer.status_code, "home of a cluster" in answer.text) == (400, True), answer.text


def test_a_subscriber_is_told_of_committed_epochs(served: Served) -> None:
    with served.http() as http, served.client() as client:
        client.view("by_town", after=client.insert("people", [(9, "told")]))
        with http.stream("GET", "/v1/views/by_town/changes?town=told") as stream:
            told = (json.loads(line[5:]) for line in stream.iter_lines() if line.startswith("data:"))
            bag: dict[Any, int] = {}
            at = next(told)["at"]
            client.view("by_town", after=client.insert("sales", [(9, 5)]))
            last = client.insert("sales", [(9, 6)])
            while at < last.at:
                message = next(told)
                at = message["at"]
                for row in message["rows"]:
                    key = row["a"], row["n"]
                    bag[key] = bag.get(key, 0) + row["change"]
            assert {key: count for key, count in bag.items() if count} == {("11.00", 2): 1}


def test_a_cluster_that_stops_is_read_on_and_takes_nothing(served: Served, home: Path) -> None:
    with served.client() as client, served.http() as http:
        rows = sorted(map(str, client.view("by_town").rows()))
        run("cluster", "stop", home)
        assert sorted(map(str, client.view("by_town").rows())) == rows
        assert "not running" in http.get("/v1/stats").json()["problem"]
        assert http.get("/readyz").status_code == 503
        answer = http.post("/v1/tables/sales/rows", json=[[1, 1]], headers={"Idempotency-Key": "b"})
        assert "not running" in answer.text
        assert kind_of(home) == "folder"
        source = FollowedFolder(home)
        assert sorted(map(str, source.host.read(RowRequest("by_town")).rows())) == rows
        source.close()
