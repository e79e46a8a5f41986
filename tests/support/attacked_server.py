"""A server in a process of its own with a shop that goes on while it is attacked: a writer, and a reader who checks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cumulus.server.access import Role, UserFile
from support.attacks import Address, Steady
from support.http_server import SCRIPT

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}
CSV = {"Content-Type": "text/csv"}
ROWS = "/v1/tables/orders/rows"


@dataclass
class AttackedServer:
    """A server that runs, and where it says what has happened."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path
    token: str = ""

    @property
    def address(self) -> Address:
        return ("127.0.0.1", self.port)

    def http(self, seconds: float = 60.0) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=seconds, trust_env=False, headers=headers)

    @contextmanager
    def shop(self) -> Iterator[Shop]:
        """Have rows come and be read in the block; in the end all that were acknowledged are there, once."""
        shop, before = Shop(self), len(self.log.read_text())
        try:
            with shop.writing, shop.reading, shop.asking:
                yield shop
                for each in (shop.writing, shop.reading, shop.asking):
                    each.wait_for(3)
            shop.check()
        finally:
            shop.close()
        assert self.process.poll() is None, "the server has ended"
        told = self.log.read_text()[before:]
        assert "Traceback" not in told, told[-3000:]


_numbers = iter(range(1, 1 << 30))


@dataclass
class Shop:
    """Honest clients of a server, each with a connection of its own."""

    server: AttackedServer
    acknowledged: list[int] = field(default_factory=list)
    last: int = 0
    """The last transaction that was acknowledged."""

    def __post_init__(self) -> None:
        self._clients = [self.server.http() for _ in range(3)]
        self._number = next(_numbers)
        self._day = f"2001-{self._number % 12 + 1:02}-{self._number // 12 % 28 + 1:02}"
        writer, reader, asker = self._clients

        def write(count: int) -> None:
            key = 1_000_000 * self._number + count
            row = [[key, "SHOP", "1.00", self._day]]
            answer = writer.post(ROWS, json=row, headers={"Idempotency-Key": f"shop-{key}"})
            assert answer.status_code == 200, answer.text
            self.last = answer.json()["at"]
            self.acknowledged.append(key)

        def read(_: int) -> None:
            known, after = len(self.acknowledged), self.last
            answer = reader.get("/v1/views/days/rows", params={"day": self._day, "after": after})
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert found["at"] >= after, "reads go back"
            assert sum(row["n"] for row in found["rows"]) >= known, "a row that was acknowledged is missing"

        def ask(_: int) -> None:
            assert asker.get("/healthz").json() == {"status": "ok"}

        self.writing, self.reading, self.asking = Steady(write), Steady(read), Steady(ask)

    def go_on(self, calls: int = 3) -> None:
        """Wait until each of them has ended so many more calls: nothing stands still."""
        for each in (self.writing, self.reading, self.asking):
            each.wait_for(calls)

    def check(self) -> None:
        """Compare what was acknowledged with what is there."""
        with self.server.http() as http:
            sql = "SELECT COUNT(*) AS n FROM orders WHERE day = $day"
            found = http.post("/v1/query", json={"sql": sql, "parameters": {"day": self._day}})
            assert found.json()["rows"] == [{"n": len(self.acknowledged)}], found.text

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def attacked_server(
    folder: Path, limits: Mapping[str, Any] | None = None, *, has_users: bool = False
) -> Iterator[AttackedServer]:
    """Run `cumulus serve` in the block; honest clients have a token if it has users."""
    folder.mkdir(parents=True, exist_ok=True)
    script, log = folder / "shop.sql", folder / "stderr"
    script.write_text(SCRIPT, encoding="utf-8")
    given = [f"--limit={name}={value}" for name, value in (limits or {}).items()]
    command = [sys.executable, "-c", "from cumulus.cli.main import main; main()", "serve", str(script)]
    token = UserFile(folder / "data").add("shop", Role.WRITER, None) if has_users else ""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--data", str(folder / "data"), "--port", "0", "--keep", "all", *given],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert " at http://" in line, f"the server does not start: {line!r} {log.read_text()}"
        yield AttackedServer(int(line.rstrip().rpartition(":")[2]), process, log, token)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_idle(server: AttackedServer, seconds: float = 60.0) -> None:
    """Wait until no request but the one that asks is under way."""
    until = time.monotonic() + seconds
    with server.http() as http:
        while True:
            lines = http.get("/metrics").text.splitlines()
            running = next(line for line in lines if line.startswith("cumulus_requests_running "))
            if float(running.split()[1]) <= 1:
                return
            assert time.monotonic() < until, running
            time.sleep(0.05)


def as_json(answer: httpx.Response) -> dict[str, Any]:
    """Return the error that an answer tells, which is short whatever was sent."""
    assert len(answer.content) < 3_000, answer.text[:500]
    found: dict[str, Any] = json.loads(answer.content)
    return found
