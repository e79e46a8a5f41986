"""Names with slashes, dots, percent signs and blanks: each view, table and cube has an address of its own."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

import cumulus
from cumulus.algebra.printing import quoted
from support.http_server import Running, running

NAMES = [
    "a/b",
    "a",
    "b",
    "a%2Fb",
    "/",
    "//",
    "..",
    ".",
    "../evil",
    "a/../a",
    "a/rows",
    "x/changes",
    " ",
    "a b+c?d#e&f=g;h",
    "%",
    "%00",
    "Übersicht/Größe",
    '"quoted"',
    "\\",
    "y" * 255,
]
"""Each is a cube."""


TABLE = "/../the table%"


def script() -> str:
    cubes = "".join(
        f"CREATE CUBE {quoted(name)} DIMENSION k KEEP () AS "
        f'SELECT k, SUM(n) AS "total {place}" FROM {quoted(TABLE)} GROUP BY k;'
        for place, name in enumerate(NAMES)
    )
    return f"CREATE TABLE {quoted(TABLE)} (k INT PRIMARY KEY, n INT); {cubes}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("names"), script()) as found, found.http() as http:
        answer = http.post(f"/v1/tables/{quote(TABLE, safe='')}/rows", json=[[1, 10], [2, 20]])
        assert answer.status_code == 200, answer.text
        yield found


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with server.http() as found:
        yield found


@pytest.mark.parametrize("place", range(len(NAMES)), ids=[name[:20] for name in NAMES])
def test_each_name_has_an_address(server: Running, http: httpx.Client, place: int) -> None:
    name = NAMES[place]
    part = name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
    assert http.get(f"/v1/views/{part}").json()["name"] == name
    rows = http.get(f"/v1/views/{part}/rows").json()["rows"]
    assert sorted((row["k"], int(row[f"total {place}"])) for row in rows) == [(1, 10), (2, 20)]
    assert http.get(f"/v1/views/{part}/explain").status_code == 200
    assert http.get(f"/v1/cubes/{part}").json()["name"] == name
    assert http.head(f"/v1/views/{part}/rows").status_code == 200
    with cumulus.connect(server.address) as client:
        assert sorted(client.view(name).rows()) == [(1, 10), (2, 20)]
        assert client.get(name, 2).rows() == [(2, 20)]
        assert client.view(name).arrow().column_names == ["k", f"total {place}"]
        assert cumulus.Cube(client, name).rollup("k").rows() == [(1, 10), (2, 20)]
        with client.changes(name, snapshot=True) as changes:
            first = next(iter(changes))
            assert len(first.rows) == 2


def test_kept_levels_are_not_listed(http: httpx.Client) -> None:
    assert sorted(each["name"] for each in http.get("/v1/views").json()["views"]) == sorted(NAMES)


@pytest.mark.parametrize("path", ["a/b/rows", "a%1Fb", "a%1Eb", "a%2F%2Fb", "..%2F..", "%2F%2F%2F", "A%2F"])
def test_other_addresses_lead_nowhere(http: httpx.Client, path: str) -> None:
    assert http.get(f"/v1/views/{path}").status_code == 404


@pytest.mark.parametrize("path", ["/page/files%2Findex.html", "/v1%2Fviews", "%2Fhealthz"])
def test_a_slash_of_a_name_is_none_of_an_address(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code in (400, 404)
