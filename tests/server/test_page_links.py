"""The page and its connections in a browser: what is lost is said and opened again; who may look at it, and charts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cumulus.hosts import RowRequest
from cumulus.server.access import Role, UserFile
from support.http_server import Running, running
from support.tcp_relay import TcpRelay

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")]

SCRIPT = """
CREATE TABLE orders (id INT PRIMARY KEY, y INT, m INT, region TEXT, price INT);
CREATE CUBE sales DIMENSION date (y, m) DIMENSION region
AS SELECT y, m, region, COUNT(*) AS n, SUM(price) AS price FROM orders GROUP BY ALL;
CREATE VIEW regions AS SELECT region, COUNT(*) AS n, SUM(price) AS price FROM orders GROUP BY region;
CREATE VIEW none AS SELECT id, region FROM orders WHERE price < 0;
"""
GRID = """place => {
  const grid = document.querySelector(place + " perspective-viewer-datagrid");
  const table = grid && (grid.querySelector("regular-table") ?? grid.shadowRoot?.querySelector("regular-table"));
  if (!table) return [];
  const texts = part => [...table.querySelectorAll(part + " tr")].map(
    row => [...row.children].map(cell => cell.textContent.trim()).filter(text => text));
  return [...texts("thead"), ...texts("tbody")];
}"""
RESTORE = "config => document.querySelector('#cube-grid perspective-viewer').restore(config)"
BARS = """async () => {
  const viewer = document.querySelector("#cube-grid perspective-viewer");
  const view = await viewer.getView(), config = await view.get_config();
  return [(await viewer.save()).plugin, config.group_rollup_mode, await view.num_rows(), config.group_by];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    made = browser.new_page(viewport={"width": 1400, "height": 1000})
    troubles: list[str] = []
    made.on("pageerror", lambda problem: troubles.append(str(problem)))
    yield made
    assert troubles == []
    made.close()


def until(found: Callable[[], Any], page: Any, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, page.evaluate("document.body.innerText")
        page.wait_for_timeout(100)
    return value


def send(server: Running, first: int, count: int) -> None:
    rows = [[each, 1994 + each % 2, each % 3, "AB"[each % 2], each] for each in range(first, first + count)]
    with server.http() as http:
        assert http.post("/v1/tables/orders/rows", json=rows).status_code == 200


def shown(page: Any, place: str = "#view-grid") -> list[list[str]]:
    found: list[list[str]] = page.evaluate(GRID, place)
    return found


def rows_of(server: Running) -> list[list[str]]:
    rows = server.keeper.host.read(RowRequest("regions")).table.to_pylist()
    return sorted([row["region"], f"{row['n']:,}", f"{row['price']:,}"] for row in rows)


def follows(page: Any, server: Running) -> None:
    """Wait until both grids show what the server has, and the page says that it follows."""
    page.evaluate("location.hash = '#views/regions'")
    until(lambda: sorted(shown(page)[1:]) == rows_of(server), page)
    total = f"{sum(row['n'] for row in server.keeper.host.read(RowRequest('regions')).table.to_pylist()):,}"
    page.evaluate("location.hash = '#cube'")
    until(lambda: any(total in row for row in shown(page, "#cube-grid")), page)
    until(lambda: not page.is_visible("#stale"), page)


def open_both(page: Any, address: str) -> None:
    page.goto(f"{address}/#views/regions")
    until(lambda: shown(page), page)
    page.evaluate("location.hash = '#cube'")
    until(lambda: page.query_selector(".dimension"), page)
    page.click('.dimension[data-name="date"] .down')


def test_a_restart_and_a_silent_connection_are_said_and_mended(page: Any, tmp_path: Path) -> None:
    with ExitStack() as first:
        server = first.enter_context(running(tmp_path, SCRIPT))
        relay = TcpRelay(("127.0.0.1", server.port))
        send(server, 0, 10)
        open_both(page, f"http://127.0.0.1:{relay.address[1]}")
        follows(page, server)
    until(lambda: page.is_visible("#stale"), page)
    assert "not followed" in page.inner_text("#stale-why")
    assert page.evaluate("getComputedStyle(document.querySelector('#cube-grid')).opacity") != "1"
    with running(tmp_path, SCRIPT) as server:
        relay.target = ("127.0.0.1", server.port)
        send(server, 10, 7)
        follows(page, server)  # by itself, what is grouped as before
        assert page.inner_text('.dimension[data-name="date"] .level.shown') == "y"

        relay.cut()  # as a sleep or a cable does: nobody is told
        send(server, 17, 5)
        until(lambda: page.is_visible("#stale"), page)
        relay.mend()
        follows(page, server)

        assert relay.broken() > 0  # as a proxy does whose time is out
        send(server, 22, 3)
        follows(page, server)


def test_an_empty_view_has_heads(page: Any, tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as server:
        page.goto(f"{server.address}/#views/none")
        heads = "[...document.querySelectorAll('#view-empty:not([hidden]) th')].map(each => each.textContent)"
        until(lambda: page.evaluate(heads) == ["id", "region"], page)
        row = [[9, 1, 1, "A", -1]]
        for way in ("insert", "delete", "insert"):
            with server.http() as http:
                assert http.post(f"/v1/tables/orders/rows?op={way}", json=row).status_code == 200
            if way == "delete":
                until(lambda: page.evaluate(heads) == ["id", "region"], page)
            else:
                until(lambda: page.evaluate(heads) == [] and ["9", "A"] in shown(page), page)


def test_a_bar_chart_has_no_bar_for_the_total(page: Any, tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as server:
        send(server, 0, 12)
        open_both(page, server.address)
        until(lambda: len(shown(page, "#cube-grid")) == 4, page)  # heads, the total, two years
        for name in ("X Bar", "Y Bar"):
            page.evaluate(
                "name => document.querySelector('#cube-grid perspective-viewer').restore({plugin: name})", name
            )
            plugin, mode, rows, levels = page.evaluate(BARS)
            assert (plugin, mode, levels) == (name, "flat", ["y"])
            assert rows == 2, "two years, and no total"
        page.evaluate(RESTORE, {"plugin": "Datagrid", "group_rollup_mode": "rollup"})
        until(lambda: len(shown(page, "#cube-grid")) == 4, page)


def test_who_logs_out_or_loses_the_token_sees_nothing_more(page: Any, tmp_path: Path) -> None:
    users = UserFile(tmp_path / "data")
    token = users.add("ann", Role.READER)
    users.add("root", Role.ADMIN)
    with running(tmp_path, SCRIPT) as server:
        page.goto(f"{server.address}/#views/regions")

        def log_in() -> None:
            until(lambda: page.is_visible("#login"), page)
            assert "cumulus serve token add" in page.inner_text("#login")
            page.fill("#token", token)
            page.click("#login button")
            until(lambda: shown(page), page)
            until(lambda: page.inner_text("#who-name") == "ann", page)

        log_in()
        page.click("#logout")
        until(lambda: page.is_visible("#login"), page)
        assert not shown(page)
        log_in()
        users.remove("ann")
        until(lambda: page.is_visible("#login"), page)
        token = users.add("ann", Role.READER)
        log_in()
        until(lambda: not page.is_visible("#stale"), page)
