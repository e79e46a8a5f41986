"""A server of a warehouse, in a thread of this process, at a port of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from cumulus import connect
from cumulus.http_client.client import HttpClient
from cumulus.server.http.entrance.listening import http_config, open_socket
from cumulus.server.http.site import Site
from cumulus.server.opening import open_keeper
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from cumulus.server.sources import ServedSource

SCRIPT = """
CREATE TABLE orders (id INT PRIMARY KEY, region TEXT, amount DECIMAL(12,2), day DATE);
CREATE VIEW sales AS SELECT region, COUNT(*) AS n, SUM(amount) AS revenue, AVG(amount) AS mean
  FROM orders GROUP BY region;
CREATE VIEW days AS SELECT day, COUNT(*) AS n FROM orders GROUP BY day;
CREATE VIEW total AS SELECT SUM(amount) AS revenue FROM orders;
"""


@dataclass
class Served:
    """A source that is served."""

    port: int
    site: Site
    scheme: str = "http"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def http(self, token: str = "", **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.address, headers=headers, timeout=20, trust_env=False, **options)

    def client(self, token: str = "", **options: Any) -> HttpClient:
        client: HttpClient = connect(self.address, token=token, **options)
        return client


@dataclass
class Running(Served):
    """A server that runs."""

    keeper: SingleWriter = field(kw_only=True)


@contextmanager
def running(folder: Path, script: str = SCRIPT, **settings: Any) -> Iterator[Running]:
    """Serve a script."""
    given = ServerSettings(folder / "data", **{"port": 0, "sync": "off", **settings})
    (folder / "script.sql").write_text(script, encoding="utf-8")
    keeper = open_keeper(folder / "script.sql", given)
    with serving(keeper, given, given.port) as found:
        yield Running(found.port, found.site, found.scheme, keeper=keeper)


@contextmanager
def serving(source: ServedSource, settings: ServerSettings, port: int = 0) -> Iterator[Served]:
    """Serve a source, and close it."""
    site = Site(source, settings)
    listening = open_socket(settings.host, port)
    server = uvicorn.Server(http_config(site))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "the server does not start"
            assert time.monotonic() < until, "the server takes too long"
            time.sleep(0.005)
        scheme = "http" if settings.certificate is None else "https"
        yield Served(listening.getsockname()[1], site, scheme)
    finally:
        site.end_subscriptions()
        server.should_exit = True
        thread.join()
        source.close()
