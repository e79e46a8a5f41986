from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from cumulus import Warehouse
from cumulus.server.http.app import create_app
from cumulus.server.http.site import Site
from cumulus.server.keeper import WarehouseKeeper
from cumulus.server.settings import ServerSettings


@pytest.fixture
def http(tmp_path: Path) -> Iterator[TestClient]:
    wh = Warehouse("""CREATE TABLE r (a INT PRIMARY KEY, g TEXT, x DECIMAL(12,2));
        CREATE VIEW v AS SELECT g, COUNT(*) AS n, SUM(x) AS s FROM r GROUP BY g""")
    keeper = WarehouseKeeper(wh)
    with TestClient(create_app(Site(keeper, ServerSettings(tmp_path)))) as client:
        yield client
    keeper.close()


def test_first(http: TestClient) -> None:
    r = http.post("/v1/tables/r/rows", json=[[1, "x", 1.5], {"a": 2, "g": "y", "x": "2.25"}])
    print(r.json())
    for url in (
        "/v1/views",
        "/v1/views/v",
        "/v1/views/v/rows",
        "/v1/views/v/rows?key=x",
        "/v1/views/v/rows?g=y&columns=s",
        "/v1/views/v/rows?page=1",
        "/v1/tables",
        "/v1/query?sql=SELECT 1 AS a",
        "/v1/query?sql=SELECT * FROM w",
        "/nope",
        "/v1/views/w",
        "/v1/views/v/rows?format=csv",
        "/v1/views/v/rows?limit=x",
    ):
        r = http.get(url)
        print(url, r.status_code, r.text, dict(r.headers))
    r = http.post("/v1/transactions", json={"parts": [{"op": "delete", "table": "r", "rows": [[1, "x", 1.5]]}]})
    print(r.status_code, r.text)
    r = http.post("/v1/tables/r/rows", json=[[2, "x", 1.5]])
    print(r.status_code, r.text)
    print(len(http.get("/openapi.json").text))
