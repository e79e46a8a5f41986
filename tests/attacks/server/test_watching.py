"""Who watches a server: readiness and numbers, asked without end, hold up nobody, and say what is so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.attacked_server import AttackedServer, attacked_server
from support.attacks import Steady

pytestmark = pytest.mark.xdist_group("attacks by watching")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    with attacked_server(tmp_path_factory.mktemp("watched")) as found:
        yield found


@pytest.mark.parametrize(
    "path", ["/readyz", "/metrics", "/v1/views", "/v1/tables", "/v1/stats", "/v1/views/sales/rows?max_staleness=60s"]
)
def test_watching_holds_up_nobody(server: AttackedServer, path: str) -> None:
    with server.shop() as shop, server.http() as http:

        def ask(_: int) -> None:
            assert http.get(path).status_code == 200

        with Steady(ask, 0) as asking:
            asking.wait_for(20)
            shop.go_on(10)


def test_numbers_say_what_is_so(server: AttackedServer) -> None:
    with server.shop() as shop, server.http() as http:
        shop.go_on()
        lines = http.get("/metrics").text.splitlines()
        told = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        for name in ("cumulus_log_records", "cumulus_log_bytes", "cumulus_log_sync_ms", "cumulus_snapshot_bytes"):
            assert float(told[name]) > 0, name
        for name in ("cumulus_problem", "cumulus_log_problem", "cumulus_snapshot_problem"):
            assert float(told[name]) == 0, name
        assert float(told["cumulus_queue"]) >= 0
        known = len(shop.acknowledged)
        assert http.get("/v1/stats").json()["rows"]["orders"] >= known
        assert http.get("/readyz").json() == {"status": "ready"}
