"""The page in a browser, with no network but its server: what it shows is what DuckDB says, at every level.

With CUMULUS_PICTURES=1 the pictures of the documentation are made anew.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cumulus.server.access import Role, UserFile
from support.http_server import Running, running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")]

PICTURES = Path(__file__).parents[2] / "docs" / "images"
SCRIPT = """
CREATE TABLE orders (id INT PRIMARY KEY, y INT, m INT, region TEXT, nation TEXT, carrier TEXT, revenue DECIMAL(12,2),
                     delay DOUBLE);
CREATE CUBE sales
  DIMENSION date (y, m) DIMENSION customer (region, nation) DIMENSION carrier
  KEEP (y, region)
AS SELECT y, m, region, nation, carrier, COUNT(*) AS orders, SUM(revenue) AS revenue, AVG(delay) AS mean_delay
   FROM orders GROUP BY ALL;
CREATE VIEW regions AS SELECT region, COUNT(*) AS n, SUM(revenue) AS revenue FROM orders GROUP BY region;
CREATE VIEW inverse AS SELECT SUM(1 // (m - 13)) AS total FROM orders;
"""
NATIONS = {"ASIA": ("INDIA", "JAPAN"), "EUROPE": ("FRANCE", "SPAIN"), None: ("ATLANTIS",)}
COLUMNS = ("id", "y", "m", "region", "nation", "carrier", "revenue", "delay")


@dataclass
class Orders:
    """Rows that come; `counts` says how many there were after each transaction."""

    server: Running
    rows: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def send(self, count: int) -> None:
        new = [self._row(len(self.rows) + each) for each in range(count)]
        with self.server.http() as http:
            answer = http.post("/v1/tables/orders/rows", json=new)
        assert answer.status_code == 200, answer.text
        self.rows += new
        self.counts[answer.json()["at"]] = len(self.rows)

    def _row(self, number: int) -> dict[str, Any]:
        chance = self.chance
        region = chance.choice(list(NATIONS))
        revenue = f"{chance.randint(100, 1_000_000) / 100:.2f}"
        values = (number, chance.choice((1994, 1995)), chance.randint(1, 4), region, chance.choice(NATIONS[region]))
        return dict(zip(COLUMNS, (*values, chance.choice("ABC"), revenue, chance.uniform(0, 60)), strict=True))

    def ask(self, sql: str, at: int) -> list[tuple[Any, ...]]:
        """Return what DuckDB says of the rows that there were after a transaction."""
        rows = pa.Table.from_pylist(self.rows[: self.counts[at]])
        with duckdb.connect() as connection:
            connection.register("sent", rows)
            connection.execute("CREATE TABLE orders AS SELECT * REPLACE (revenue::DECIMAL(12,2) AS revenue) FROM sent")
            return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    with running(tmp_path_factory.mktemp("page"), SCRIPT) as server:
        made = Orders(server)
        made.send(300)
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", rules])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any, orders: Orders) -> Iterator[Any]:
    """A page; at the end nothing was refused by its policy, and nothing was asked of others."""
    made = browser.new_page(viewport={"width": 1400, "height": 1200})
    troubles: list[str] = []
    made.on("pageerror", lambda problem: troubles.append(str(problem)))
    made.on("request", lambda request: None if _is_own(request.url, orders) else troubles.append(request.url))
    made.on("console", lambda told: troubles.append(told.text) if told.type == "error" else None)
    yield made
    assert made.evaluate("window.violations") == []
    assert troubles == []
    made.close()


def _is_own(url: str, orders: Orders) -> bool:
    return url.startswith((f"{orders.server.address}/", "data:", "blob:"))


def until(found: Callable[[], Any], page: Any, seconds: float = 20) -> Any:
    """Return what is found, as soon as it is something."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it does not come"
        page.wait_for_timeout(100)
    return value


GRID = """place => {
  const grid = document.querySelector(place + " perspective-viewer-datagrid");
  const table = grid && (grid.querySelector("regular-table") ?? grid.shadowRoot?.querySelector("regular-table"));
  if (!table) return [];
  return [...table.querySelectorAll("tbody tr")].map(row => [...row.children].map(cell => cell.textContent.trim()));
}"""


def grid(page: Any, place: str = "#cube-grid") -> list[list[str]]:
    """Return the rows of a grid: for a tree the last member of each, then its numbers."""
    rows = page.evaluate(GRID, place)
    return [[text.lstrip("-+ ") if not at else text for at, text in enumerate(t for t in row if t)] for row in rows]


def tree(rows: list[tuple[Any, ...]], depth: int) -> list[list[str]]:
    """Return rows of a ROLLUP as a grid writes them: GROUPING, members, COUNT, SUM, AVG."""
    shown = []
    for grouping, *values in rows:
        path = [str(value) if value is not None else "NULL" for value in values[: depth - bin(grouping).count("1")]]
        count, revenue, mean = values[depth:]
        shown.append([path[-1] if path else "TOTAL", f"{count:,}", f"{revenue:,.2f}", f"{mean:,.2f}"])
    return shown


MEASURES = "COUNT(*), SUM(revenue), AVG(delay)"


def rollup(columns: str, where: str = "TRUE") -> str:
    order = ", ".join(f"GROUPING({name}) DESC, {name} NULLS LAST" for name in columns.split(", "))
    return f"""SELECT GROUPING({columns}), {columns}, {MEASURES} FROM orders WHERE {where}
               GROUP BY ROLLUP ({columns}) ORDER BY {order}"""


def shows(page: Any, orders: Orders, sql: str, depth: int, least: int = 0) -> int:
    """Wait until the grid is what DuckDB says of one state, that after `least` or a later one; return which."""

    def state() -> int:
        found = grid(page)
        last = [at for at in sorted(orders.counts)[-8:] if at >= least]
        return next((at for at in reversed(last) if tree(orders.ask(sql, at), depth) == found), 0)

    try:
        return int(until(state, page))
    except AssertionError:
        assert grid(page) == tree(orders.ask(sql, max(orders.counts)), depth)
        raise


def drill(page: Any, dimension: str, way: str = "down") -> None:
    page.click(f'.dimension[data-name="{dimension}"] .{way}')


def open_cube(page: Any, orders: Orders, *dimensions: str) -> None:
    page.goto(f"{orders.server.address}/#cube")
    until(lambda: page.query_selector(".dimension"), page)
    for dimension in dimensions:
        drill(page, dimension)


def test_totals_are_right_at_every_level_while_rows_arrive(page: Any, orders: Orders) -> None:
    open_cube(page, orders, "date", "date", "customer")
    is_over = threading.Event()

    def arrive() -> None:
        while not is_over.wait(0.3):
            orders.send(7)

    thread = threading.Thread(target=arrive)
    thread.start()
    try:
        seen = {shows(page, orders, rollup("y, m, region"), 3)}
        until(lambda: len(seen) > 3 or seen.add(shows(page, orders, rollup("y, m, region"), 3)), page, 60)
    finally:
        is_over.set()
        thread.join()
    shows(page, orders, rollup("y, m, region"), 3, least=max(orders.counts))
    assert "read of map sales" in page.inner_text("#explain")
    if os.environ.get("CUMULUS_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=str(PICTURES / "page-cube.png"))


def test_a_kept_level_answers_what_it_can(page: Any, orders: Orders) -> None:
    open_cube(page, orders, "date", "customer")
    shows(page, orders, rollup("y, region"), 2)
    assert "6 entries read of map sales by y, region" in page.inner_text("#explain")


def test_a_pivot_a_filter_and_its_address(page: Any, orders: Orders, browser: Any) -> None:
    open_cube(page, orders, "date", "customer")
    page.click('.dimension[data-name="customer"] .pivot')
    sql = f"""SELECT GROUPING(y), y, region, {MEASURES} FROM orders WHERE m <= 2
              GROUP BY ROLLUP (y), region ORDER BY GROUPING(y) DESC, y, region NULLS LAST"""
    page.select_option("#filter-level", "m")
    page.select_option("#filter-operator", "<=")
    page.fill("#filter-value", "2")
    page.click("#filter-form button")

    def pivoted(which: Any) -> bool:
        expected: dict[str, list[str]] = {}
        for grouping, y, _, count, revenue, mean in orders.ask(sql, max(orders.counts)):
            row = expected.setdefault("TOTAL" if grouping else str(y), [])
            row += [f"{count:,}", f"{revenue:,.2f}", f"{mean:,.2f}"]
        return grid(which) == [[name, *row] for name, row in expected.items()]

    until(lambda: pivoted(page), page)
    again = browser.new_page(viewport={"width": 1400, "height": 1200})
    again.goto(page.url)
    until(lambda: pivoted(again), again)
    assert again.url == page.url
    assert again.inner_text("#filters").startswith("m <= 2")
    again.close()


def test_a_new_member_becomes_a_column(browser: Any, tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as server:
        orders = Orders(server)
        orders.send(30)
        page = browser.new_page(viewport={"width": 1400, "height": 1200})
        open_cube(page, orders, "date", "carrier")
        page.click('.dimension[data-name="carrier"] .pivot')
        until(lambda: len(grid(page)[0][1:]) == 9, page)
        with server.http() as http:
            row = {**orders.rows[0], "id": 100, "carrier": "Z", "revenue": "1.25"}
            assert http.post("/v1/tables/orders/rows", json=[row]).status_code == 200
        until(lambda: grid(page) and grid(page)[0][-3:-1] == ["1", "1.25"], page)
        page.close()


def test_a_click_goes_below_a_member(page: Any, orders: Orders) -> None:
    open_cube(page, orders, "date")
    shows(page, orders, rollup("y"), 1)
    page.locator("#cube-grid regular-table tbody tr").nth(2).locator("td").first.click()
    until(lambda: page.is_visible("#below"), page)
    assert page.inner_text("#below") == "Below 1995"
    page.click("#below")
    shows(page, orders, rollup("y, m", "y = 1995"), 2)


def test_what_is_held_stays_while_the_cube_goes_on(page: Any, orders: Orders) -> None:
    open_cube(page, orders, "date")
    shows(page, orders, rollup("y"), 1)
    page.check("#pin")
    held = max(orders.counts)
    until(lambda: page.inner_text("#shown-at") == str(held), page)
    orders.send(50)
    drill(page, "customer")  # also what was not shown before is of that state
    until(lambda: grid(page) == tree(orders.ask(rollup("y, region"), held), 2), page)
    page.wait_for_timeout(1500)
    assert grid(page) == tree(orders.ask(rollup("y, region"), held), 2)
    page.uncheck("#pin")
    assert max(orders.counts) > held
    shows(page, orders, rollup("y, region"), 2, least=max(orders.counts))


def test_a_view_is_alive(page: Any, orders: Orders) -> None:
    page.goto(f"{orders.server.address}/#views/regions")

    def is_shown() -> bool:
        rows = orders.ask("SELECT region, COUNT(*), SUM(revenue) FROM orders GROUP BY ALL", max(orders.counts))
        expected = sorted([region or "", f"{n:,}", f"{revenue:,.2f}"] for region, n, revenue in rows)
        return sorted(page.evaluate(GRID, "#view-grid")) == expected

    until(is_shown, page)
    orders.send(20)
    until(is_shown, page, 3)


def test_the_program_has_its_numbers(page: Any, orders: Orders) -> None:
    page.goto(f"{orders.server.address}/#program")
    until(lambda: page.query_selector("#drawing .map"), page)
    entries = orders.server.keeper.status()["entries"]
    numbers = """() => Object.fromEntries([...document.querySelectorAll("#drawing .map")].map(
        node => [node.dataset.name, node.querySelector(".numbers").textContent.split(" ")[0].replace(/,/g, "")]))"""
    until(lambda: page.evaluate(numbers) == {name: str(count) for name, count in entries.items()}, page)
    page.click('#drawing .map[data-name="regions"]')
    until(lambda: "+orders" in page.inner_text("#map"), page)
    assert "O(1)" in page.inner_text("#map")
    if os.environ.get("CUMULUS_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        page.screenshot(path=str(PICTURES / "page-program.png"))


def test_what_is_refused_and_what_fails_is_told_at_once(page: Any, orders: Orders) -> None:
    page.goto(f"{orders.server.address}/#problems")
    until(lambda: page.query_selector("#quarantine table"), page)
    with orders.server.http() as http:
        assert http.post("/v1/tables/orders/rows", json=[orders.rows[0]]).status_code == 409
        row = {**orders.rows[0], "id": -1, "m": 13}
        assert http.post("/v1/tables/orders/rows", json=[row]).status_code == 200
        until(lambda: "orders" in page.inner_text("#quarantine"), page, 2)
        until(lambda: "inverse" in page.inner_text("#errors"), page, 2)
        assert page.inner_text("#problem-count") != ""
        answer = http.post("/v1/tables/orders/rows", params={"op": "delete"}, json=[row])
        orders.counts[answer.json()["at"]] = len(orders.rows)
        orders.counts[answer.json()["at"] - 1] = len(orders.rows)


def test_who_has_a_name_sees_what_is_there_for_it(browser: Any, tmp_path: Path) -> None:
    token = UserFile(tmp_path / "data").add("ann", Role.READER, ("regions",))
    with running(tmp_path, SCRIPT) as server:
        page = browser.new_page()
        page.goto(server.address)
        until(lambda: page.is_visible("#login"), page)
        page.fill("#token", "cumulus_wrong")
        page.click("#login button")
        until(lambda: "not known" in page.inner_text("#trouble"), page)
        page.fill("#token", token)
        page.click("#login button")
        until(lambda: page.query_selector("#view-grid perspective-viewer"), page)
        shown = page.evaluate(
            "[...document.querySelectorAll('#view option, #cube-name option')].map(each => each.value)"
        )
        assert shown == ["regions", "regions"]
        page.goto(f'{server.address}/#cube/{{"cube":"sales","by":[]}}')
        until(lambda: "there is no cube or view sales" in page.inner_text("#trouble"), page)
        page.close()


def test_memory_and_progress_are_told(page: Any, orders: Orders) -> None:
    page.goto(f"{orders.server.address}/#memory")
    maps = orders.server.keeper.status()["maps"]
    until(lambda: len(page.query_selector_all("#maps tbody tr")) == len(maps), page)
    page.click("nav a[href='#progress']")
    until(lambda: "events" in page.inner_text("#numbers"), page)


def test_dark_is_dark(browser: Any, orders: Orders) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(f"{orders.server.address}/#views/regions")
    until(lambda: page.query_selector("#view-grid perspective-viewer[theme='Pro Dark']"), page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    page.close()
