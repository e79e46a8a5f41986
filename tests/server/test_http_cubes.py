"""Cubes over HTTP: the selections of a client, and of bare requests, give what the warehouse gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from cumulus import Cube, between, errors
from cumulus.cubes import source_of
from cumulus.server.access import Role, UserFile
from support.http_server import Running, running

SCRIPT = """
CREATE TABLE orders (id INT PRIMARY KEY, day DATE, region TEXT, nation TEXT, amount DECIMAL(12,2), delay INT)
  WITH (keep = all);
CREATE CUBE sales DIMENSION customer (region, nation) DIMENSION day KEEP (region), ()
  AS SELECT day, region, nation, COUNT(*) AS n, SUM(amount) AS revenue, AVG(delay) AS mean, MAX(delay) AS worst
  FROM orders GROUP BY ALL;
CREATE VIEW days AS SELECT day, COUNT(*) AS n FROM orders GROUP BY day;
"""
ROWS = [
    (number, dt.date(1994, 1, 1 + number % 3), "ASIA" if number % 2 else None, f"n{number % 5}", number, number % 7)
    for number in range(60)
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("cubes"), SCRIPT) as found, found.client() as client:
        client.insert("orders", ROWS)
        yield found


SELECTIONS: list[Any] = [
    lambda cube: cube.rollup("customer.region"),
    lambda cube: cube.rollup("customer.nation", "day", measures=["mean", "worst"]),
    lambda cube: cube.rollup("customer.region", "day").totals(),
    lambda cube: cube.rollup("day").pivot("day"),
    lambda cube: cube.rollup("day").dice(region=["ASIA", None], day=between("1994-01-02", None)),
    lambda cube: cube.rollup("customer.nation").top(2, by="revenue", others=True),
    lambda cube: cube.rollup("customer.nation").having("revenue", ">", 170).order_by("-mean"),
    lambda cube: cube.rollup(),
]


@pytest.mark.parametrize("select", SELECTIONS)
def test_a_client_gets_what_the_warehouse_gives(server: Running, select: Any) -> None:
    with server.client() as client:
        remote, local = select(Cube(client, "sales")), select(Cube(source_of(server.keeper.cubes()), "sales"))
        assert remote.arrow().equals(local.arrow())
        assert remote.arrow().num_rows > 0
        assert remote.explain() == local.explain()
        assert remote.at == server.keeper.at


def test_cubes_are_described(server: Running) -> None:
    local = Cube(source_of(server.keeper.cubes()), "sales")
    with server.client() as client, server.http() as http:
        cube = Cube(client, "SALES")
        assert (cube.shape, cube.kept) == (local.shape, local.kept)
        assert client.names() == ("sales", "days")
        assert cube.members("customer", under=["ASIA"]) == local.members("customer", under=["ASIA"])
        assert cube.rollup("day").slice(region="ASIA").facts(5).arrow().num_rows == 5
        told = http.get("/v1/cubes/sales/members", params={"dimension": "customer", "under": '["ASIA"]', "limit": 1})
        assert told.json()["members"] == [{"path": ["ASIA", "n0"], "level": "nation"}]
        assert http.get("/v1/cubes").json()["cubes"] == ["sales"]
        rows = http.post("/v1/cubes/days/query", json={"by": ["day"], "limit": 1}, params={"format": "csv"}).text
        assert rows.splitlines() == ['"day","n"', "1994-01-01,20"]
        why = http.post("/v1/cubes/sales/explain", json={"by": ["customer.region"], "measures": ["n"]}).json()
        assert (why["entries_read"], why["levels"]) == (2, ["region"])
        assert sorted(each["reason"] == "" for each in why["candidates"]) == [False, False, True]
        with pytest.raises(errors.UnknownNameError, match="there is no level nothing"):
            cube.rollup("nothing")
        for path, body, status in (
            ("/v1/cubes/nothing/query", {}, 404),
            ("/v1/cubes/sales/query", {"by": ["nothing"]}, 404),
            ("/v1/cubes/sales/query", {"bye": []}, 400),
            ("/v1/cubes/sales/query", [], 400),
            ("/v1/cubes/sales/query", {"by": 1}, 400),
            ("/v1/cubes/sales/explain", {"measures": ["nothing"]}, 404),
        ):
            answer = http.post(path, json=body)
            assert answer.status_code == status, answer.text


def test_a_selection_waits_for_what_was_written(server: Running) -> None:
    with server.client() as client:
        token = client.insert("orders", [(100, None, "AFRICA", "n", 1, 1)])
        asked = {"by": ["customer.region"], "after": token.at, "where": [{"level": "region", "in": ["AFRICA"]}]}
        assert client.ask("POST", "/v1/cubes/sales/query", asked)["rows"][0]["n"] == 1
        client.delete("orders", [(100, None, "AFRICA", "n", 1, 1)])


def test_other_cubes_are_not_there_for_who_may_read_some(server: Running) -> None:
    users = UserFile(server.site.settings.data)
    token = users.add("dora", Role.READER, ("days",))
    try:
        with server.client(token) as client, server.http(token) as http:
            assert client.names() == ("days",)
            told = http.post("/v1/cubes/days/query", json={"by": ["day"]})
            assert '"map": ""' in told.headers["x-cumulus-explain"]
            for path in ("", "/members?dimension=day"):
                assert http.get(f"/v1/cubes/sales{path}").json()["hint"] == "Cubes: days."
            assert http.post("/v1/cubes/sales/query", json={}).status_code == 404
            for view, status in (("days", 200), ("sales", 400)):
                asked = http.post("/v1/query", json={"sql": f"SELECT MEASURE(n) AS n FROM {view}"})
                assert (asked.status_code, "revenue" in asked.text) == (status, False), asked.text
            assert http.post("/v1/cubes/days/facts", json={}).status_code == 403
    finally:
        users.path.unlink()
