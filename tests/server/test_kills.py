"""A server that is killed under clients that send again what was not answered: each event counts once.

Each life of the server ends by SIGKILL, at a named point or at any moment. Sixteen clients write all the while; one
request in five is to be refused. In the end the views have what was acknowledged, each once, and nothing else.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from cumulus.hosts import RowRequest
from cumulus.server.opening import open_keeper
from cumulus.server.settings import ServerSettings
from support import server_driver

SCRIPT = """
CREATE TABLE taken (k INTEGER PRIMARY KEY);
CREATE TABLE event (client INTEGER, n INTEGER);
CREATE VIEW counts AS SELECT client, n, COUNT(*) AS times FROM event GROUP BY client, n;
"""
POINTS = ("before-append", "after-append", "after-apply", "in-snapshot", "after-snapshot", "in-recovery")
CLIENTS = 16


class Server:
    """One life after another of a server; `port` is that of the one that lives."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        (folder / "script.sql").write_text(SCRIPT)
        self.hits: Counter[str] = Counter()

    def start(self, crash: str = "") -> subprocess.Popen[str]:
        environment = dict(os.environ)
        if crash:
            faults = self.folder / f"faults-{time.monotonic_ns()}"
            faults.mkdir()
            environment |= {"CUMULUS_CRASH": crash, "CUMULUS_CRASH_DIR": str(faults)}
        command = [sys.executable, server_driver.__file__, str(self.folder / "script.sql"), self.data]
        life = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert life.stdout is not None
        address = life.stdout.readline().strip()  # nothing if it was killed before
        if address:
            self.port = int(address.rsplit(":", 1)[1])
        return life

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def live_and_die(self, chance: random.Random) -> None:
        """Start the server, and have it killed."""
        point = chance.choice(POINTS) if chance.random() < 0.6 else ""
        life = self.start(f"{point}:{chance.randint(1, 30 if point != 'in-snapshot' else 3)}" if point else "")
        with suppress(subprocess.TimeoutExpired):
            life.wait(chance.uniform(0.05, 0.6) if not point else 1.5)
        self.hits[point if life.poll() is not None else "anywhere"] += 1
        life.kill()
        life.wait()


class Client(threading.Thread):
    """Writes one request after another, each again and again until it is answered."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(daemon=True)
        self.server, self.number = server, number
        self.acknowledged: set[tuple[int, int]] = set()
        self.refused = self.repeated = 0
        self.is_over = False
        self.problem = ""
        self._last_at = 0

    def run(self) -> None:
        n = 0
        while not self.is_over:
            n += 1
            is_wrong = n % 5 == 0
            parts = [{"op": "insert", "table": "event", "rows": [[self.number, -n if is_wrong else n]]}]
            if is_wrong:
                parts.append({"op": "insert", "table": "taken", "rows": [[0]]})
            status, answer = self._ask(json.dumps({"parts": parts}), f"{self.number}-{n}")
            if is_wrong and status in (409, 422):
                self.refused += 1
            elif not is_wrong and status == 200:
                self.acknowledged.add((self.number, n))
                self.repeated += bool(answer["repeated"])
                if answer["at"] <= self._last_at:
                    self.problem = f"{answer} after {self._last_at}"
                self._last_at = answer["at"]
            else:
                self.problem = f"{status} {answer} to request {n}"
                return

    def _ask(self, body: str, id: str) -> tuple[int, dict[str, object]]:
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=5)
                headers = {"Content-Type": "application/json", "Idempotency-Key": id}
                connection.request("POST", "/v1/transactions", body, headers)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status < 500:  # else it is going down
                    return answer.status, json.loads(text)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
            finally:
                connection.close()


def check_kills(folder: Path, kills: int, seed: int) -> None:
    server, chance = Server(folder), random.Random(seed)
    first = server.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    parts = [{"op": "insert", "table": "taken", "rows": [[0]]}]
    connection.request("POST", "/v1/transactions", json.dumps({"parts": parts}), {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()
    first.kill()
    first.wait()
    clients = [Client(server, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for _ in range(kills):
        server.live_and_die(chance)
    last = server.start()
    time.sleep(0.2)
    for client in clients:
        client.is_over = True
    for client in clients:
        client.join(30)
    assert [client.problem for client in clients if client.problem or client.is_alive()] == []
    last.send_signal(signal.SIGTERM)
    assert last.wait(30) == 0
    keeper = open_keeper(folder / "script.sql", ServerSettings(Path(server.data), engine="interpreter"))
    rows = keeper.host.read(RowRequest("counts")).table.to_pylist()
    keeper.close()
    assert {row["times"] for row in rows} == {1}
    assert {(row["client"], row["n"]) for row in rows} == set[tuple[int, int]]().union(
        *(client.acknowledged for client in clients)
    )
    assert len(rows) > CLIENTS * kills / 4
    told = f"{len(rows)} acknowledged, {sum(each.refused for each in clients)} refused, "
    print(f"{told}{sum(each.repeated for each in clients)} repeated; killed: {dict(server.hits)}")


def test_a_kill_loses_and_doubles_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path, 1, 1)


@pytest.mark.kill
@pytest.mark.parametrize("seed", range(10))
def test_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """Ten worlds of thirty kills."""
    check_kills(tmp_path, 30, seed)
