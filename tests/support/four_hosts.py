"""The same views in four hosts: a warehouse, the output folder of a run, a cluster, and a server over HTTP."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import cumulus
from cumulus import Cube
from cumulus.catalog.events import Row
from cumulus.cli.main import app
from cumulus.cluster.live.host import ClusterHost
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.embedded_run import EmbeddedRun
from cumulus.epochs.output.host import FolderHost
from cumulus.epochs.sources import sources_from
from cumulus.hosts import Host, RowRequest, TableRows, WriteRequest
from cumulus.http_client.host import HttpHost
from cumulus.warehouse.host import WarehouseHost
from support.engines import engine_of
from support.http_server import running
from support.orders_stream import json_lines

SCRIPT = """
CREATE TABLE sales (id INT, country VARCHAR, amount DECIMAL(18,2), day DATE);
CREATE VIEW by_country AS
  SELECT country, SUM(amount) AS total, AVG(amount) AS mean, COUNT(*) AS n FROM sales GROUP BY country;
CREATE VIEW ordered AS
  SELECT day, COUNT(*) AS n, MAX(amount) AS most FROM sales GROUP BY day ORDER BY n DESC, day;
CREATE VIEW whole AS SELECT COUNT(*) AS n, SUM(amount) AS total FROM sales;
CREATE CUBE sold DIMENSION place (country) KEEP (day) AS
  SELECT country, day, SUM(amount) AS total, AVG(amount) AS mean, COUNT(*) AS n FROM sales GROUP BY country, day;
"""
VIEWS = ("by_country", "ordered", "whole", "sold")
NAMES = ("warehouse", "folder", "cluster", "http")


def first_rows() -> list[Row]:
    """Return rows with NULLs, extremes of their types, and twins."""
    rows: list[Row] = []
    for number in range(60):
        country = [None, "", "France", "Spain", "Ünïted ☃", "spain"][number % 6]
        amount = Decimal(number * number) / 100 if number % 7 else None
        day = None if number % 11 == 0 else f"2026-{1 + number % 3:02}-{1 + number % 2:02}"
        rows.append((number, country, amount, day))
    rows += [(2**31 - 1, "France", Decimal("9999999999999999.99"), "9999-12-31"), (-(2**31), None, None, "0001-01-01")]
    return [*rows, rows[2], rows[2]]


class Hosted(ABC):
    """A host with rows in it, and a way to bring more."""

    host: Host

    def __init__(self) -> None:
        self.rows: list[Row] = []
        """What is in the table now."""

    def bring(self, come: list[Row], gone: list[Row] | None = None) -> int:
        """Insert and delete rows; return the version from which on readers see that."""
        self.rows += come
        for row in gone or []:
            self.rows.remove(row)
        return self._bring(come, gone or [])

    @abstractmethod
    def _bring(self, come: list[Row], gone: list[Row]) -> int:
        """Insert and delete rows."""

    def cube(self, name: str) -> Cube:
        """Return a cube of the host."""
        return Cube(self.host, name)

    def seen(self, at: int) -> None:
        """Wait until readers see a version."""
        until = time.monotonic() + 30
        while self.host.at < at:
            assert time.monotonic() < until, (self.host.at, at)
            time.sleep(0.02)


class Written(Hosted):
    """A host that is written to by its contract: deletions and insertions are two requests."""

    def _bring(self, come: list[Row], gone: list[Row]) -> int:
        at = 0
        for op, rows in (("delete", gone), ("insert", come)):
            if rows:
                request = WriteRequest((TableRows(op, "sales", rows),))  # type: ignore[arg-type]  # both are ops
                at = self.host.write(request).result(30).at
        self.seen(at)
        return at


class InWarehouse(Written):
    """A warehouse of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.host = WarehouseHost(cumulus.Warehouse(SCRIPT, keep="all"))


class OverHttp(Written):
    """A server of this process."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.host = HttpHost(cumulus.connect(address))

    def cube(self, name: str) -> Cube:
        return Cube(self.host.client, name)  # type: ignore[attr-defined]  # it is the client that answers questions


class InCluster(Hosted):
    """A cluster of processes: rows go by its client."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.client = cumulus.connect(home)
        self.host = ClusterHost(self.client)

    def _bring(self, come: list[Row], gone: list[Row]) -> int:
        receipts = [self.client.delete("sales", gone)] if gone else []
        receipts += [self.client.insert("sales", come)] if come else []
        self.client.view("whole", after=receipts[-1])
        return int(receipts[-1].at)


class InFolder(Hosted):
    """The output folder of a run, which goes an epoch further when rows come."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        (folder / "in" / "sales").mkdir(parents=True)
        program = compile_sql(SCRIPT)
        sources = sources_from([f"sales={folder / 'in' / 'sales'}"], program)
        self._run = EmbeddedRun(
            program, sources, folder / "out", make_engine=engine_of, layout="one-bucket", buckets=1, keep=5
        )
        self._files = 0
        self.bring([])
        self.host = FolderHost(folder / "out")

    def _bring(self, come: list[Row], gone: list[Row]) -> int:
        self._files += 1
        events = [{"op": op, **_as_json(row)} for op, rows in (("delete", gone), ("insert", come)) for row in rows]
        json_lines(self._folder / "in" / "sales" / f"{self._files}.json", events)
        for _ in self._run.steps():
            pass
        return self._files if self._files == 1 else self.host.at

    def close(self) -> None:
        """End the run."""
        self._run.close()


def _as_json(row: Row) -> dict[str, Any]:
    return dict(zip(("id", "country", "amount", "day"), (None if v is None else str(v) for v in row), strict=True))


@contextmanager
def hosted(name: str, folder: Path) -> Iterator[Hosted]:
    """Return a host of this name, with the first rows in it."""
    made: Hosted
    if name == "warehouse":
        made = InWarehouse()
        made.bring(first_rows())
        yield made
        made.host.close()
    elif name == "folder":
        made = InFolder(folder)
        made.bring(first_rows())
        yield made
        made.close()
    elif name == "cluster":
        script = folder / "script.sql"
        script.write_text(SCRIPT, encoding="utf-8")
        start = ["cluster", "start", str(script), "--home", str(folder / "home"), "--nodes", "2"]
        started = CliRunner().invoke(app, [*start, "--trigger", "100ms", "--engine", "interpreter"])
        assert started.exit_code == 0, started.output
        try:
            made = InCluster(folder / "home")
            made.bring(first_rows())
            yield made
            made.host.close()
        finally:
            CliRunner().invoke(app, ["cluster", "stop", str(folder / "home")])
    else:
        with running(folder, SCRIPT, keep="all") as server:
            made = OverHttp(server.address)
            made.bring(first_rows())
            yield made
            made.host.close()


def rows_read(hosted: Hosted, request: RowRequest) -> list[Row]:
    """Return rows as they were read, with numbers as floats where they are fractions."""
    return hosted.host.read(request).rows()
