"""Two hundred subscribers of a real server, some slow, some of which leave and come back: at each mark, the view."""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pytest
import websockets

from cumulus.machine_facts import resident_bytes
from cumulus_lab.bench.serve.processes import RunningServer, ask, cumulus_server

SQL = """
CREATE TABLE r (id INTEGER PRIMARY KEY, a INTEGER, t VARCHAR, x INTEGER);
CREATE VIEW sums AS SELECT a, COUNT(*) AS n, SUM(x) AS s FROM r GROUP BY a;
CREATE VIEW bag AS SELECT a, x FROM r;
CREATE VIEW ends AS SELECT t, MIN(x) AS least, MAX(x) AS most FROM r GROUP BY t;
CREATE VIEW one AS SELECT COUNT(*) AS n, COUNT(DISTINCT a) AS d FROM r;
"""
CASES = [
    ("sums", None, None, "SELECT a, COUNT(*), SUM(x) FROM r GROUP BY a"),
    ("sums", "n", {"a": {"from": 1, "to": 30}}, "SELECT COUNT(*) FROM r WHERE a BETWEEN 1 AND 30 GROUP BY a"),
    ("sums", "s,a", {"a": [2, 4, 6]}, "SELECT SUM(x), a FROM r WHERE a IN (2, 4, 6) GROUP BY a"),
    ("bag", "x", None, "SELECT x FROM r"),
    ("bag", None, {"x": {"from": 0}}, "SELECT a, x FROM r WHERE x >= 0"),
    ("ends", None, None, "SELECT t, MIN(x), MAX(x) FROM r GROUP BY t"),
    ("one", None, None, "SELECT COUNT(*), COUNT(DISTINCT a) FROM r"),
]
SUBSCRIBERS = 200
SECONDS = float(os.environ.get("CUMULUS_SUBSCRIBERS_S", "600"))


class Writer:
    """Sends random rows, takes some away, and knows by DuckDB what each view was after each transaction."""

    def __init__(self, server: RunningServer) -> None:
        self._connection = server.connect()
        self._random = random.Random(11)
        self._rows: dict[int, tuple[int, int, str, int]] = {}
        self._next = 0
        self.at = 0
        self._oracle = duckdb.connect()
        self._oracle.execute("CREATE TABLE r (id INTEGER, a INTEGER, t VARCHAR, x INTEGER)")
        self.expected: dict[tuple[int, str], Counter[tuple[Any, ...]]] = {}
        self._note()

    def _note(self) -> None:
        for _, _, _, sql in CASES:
            found = self._oracle.execute(sql).fetchall()
            self.expected[self.at, sql] = Counter(tuple(map(plain, row)) for row in found)
            self.expected.pop((self.at - 1500, sql), None)

    def write(self) -> None:
        chance = self._random
        if len(self._rows) > 500 or (self._rows and chance.random() < 0.4):
            gone = [self._rows.pop(each) for each in chance.sample(sorted(self._rows), min(len(self._rows), 6))]
            self._send("delete", gone)
            self._oracle.execute(f"DELETE FROM r WHERE id IN ({', '.join(str(row[0]) for row in gone)})")
        else:
            rows = []
            for _ in range(chance.randint(1, 9)):
                self._next += 1
                rows.append((self._next, chance.randint(0, 60), chance.choice("äbc"), chance.randint(-9, 9)))
            self._send("insert", rows)
            self._rows.update((row[0], row) for row in rows)
            self._oracle.execute("INSERT INTO r VALUES " + ", ".join(map(str, rows)))
        self._note()

    def _send(self, op: str, rows: list[tuple[int, int, str, int]]) -> None:
        body = {"parts": [{"op": op, "table": "r", "rows": [list(row) for row in rows]}]}
        self.at = json.loads(ask(self._connection, "/v1/transactions", body=body))["at"]


def plain(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else value


def address(case: tuple[Any, ...], since: int | None, every: str) -> str:
    view, columns, where, _ = case
    given = {"columns": columns, "where": where and json.dumps(where), "since": since, "every": every or None}
    return f"/v1/views/{view}/changes?" + "&".join(f"{k}={quote(str(v))}" for k, v in given.items() if v is not None)


async def events(port: int, path: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the data of server-sent events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n", 1)[0], head
        while line := await reader.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        writer.close()


async def messages(port: int, path: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of a WebSocket."""
    async with websockets.connect(f"ws://127.0.0.1:{port}{path}", max_size=None, ping_interval=None) as socket:
        async for message in socket:
            yield json.loads(message)


class Subscriber:
    """One that holds a selection, in its own way."""

    def __init__(self, writer: Writer, port: int, seed: int) -> None:
        self._random = chance = random.Random(seed)
        self.writer, self.port = writer, port
        self.case = chance.choice(CASES)
        self.every = chance.choice(["", "", "100ms", "1s"])
        self.pace_s = chance.choice([0, 0, 0, 0.3, 1.0])
        self.leaves = chance.choice([0, 0.01, 0.05])
        self.open = chance.choice([events, messages])
        self.rows = Counter[tuple[Any, ...]]()
        self.at: int | None = None
        self.marks = self.returns = self.snapshots = 0

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._hold(stop)
            self.returns += 1
            await asyncio.sleep(self._random.random())

    async def _hold(self, stop: asyncio.Event) -> None:
        stream, beginning = self.open(self.port, address(self.case, self.at, self.every)), False
        try:
            async for told in stream:
                if "error" in told:
                    assert told["error"] == "HistoryError", told
                    return
                if told.get("snapshot") and not beginning:
                    beginning, self.rows = True, Counter()
                    self.snapshots += 1
                for row in told["rows"]:
                    change, *values = row.values()
                    self.rows[tuple(map(plain, values))] += int(change)
                if told["progress"]:
                    beginning, self.at = False, told["at"]
                    await self._check()
                if stop.is_set() or self._random.random() < self.leaves:
                    return
                if self.pace_s:
                    await asyncio.sleep(self.pace_s)
        finally:
            await stream.aclose()

    async def _check(self) -> None:
        self.rows = +self.rows
        self.marks += 1
        assert self.at is not None
        for _ in range(1000):
            if self.writer.at >= self.at:
                break
            await asyncio.sleep(0.01)  # the message came before the writer was told
        wanted = self.writer.expected.get((self.at, self.case[3]))
        if wanted is not None:
            assert self.rows == wanted, (self.case, self.at)


async def subscribe_all(server: RunningServer, seconds: float) -> tuple[list[Subscriber], list[int]]:
    writer, stop = Writer(server), asyncio.Event()
    for _ in range(20):
        writer.write()
    all_of_them = [Subscriber(writer, server.port, seed) for seed in range(SUBSCRIBERS)]
    tasks = [asyncio.create_task(each.run(stop)) for each in all_of_them]
    # One that subscribes and never reads again.
    _, asleep = await asyncio.open_connection("127.0.0.1", server.port)
    asleep.write(b"GET /v1/views/bag/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    memory, loop = [], asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        await asyncio.to_thread(writer.write)
        await asyncio.sleep(0.1)
        memory.append(resident_bytes(server.pid))
        for task in tasks:
            if task.done():
                task.result()
    stop.set()
    for _ in range(12):  # so that all of them hear something
        await asyncio.to_thread(writer.write)
        await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(found, Exception):
            raise found
    asleep.close()
    return all_of_them, memory


@pytest.mark.slow
def test_at_every_mark_subscribers_hold_the_view(tmp_path: Path) -> None:
    with cumulus_server(SQL, tmp_path) as server:
        found, memory = asyncio.run(subscribe_all(server, SECONDS))
    assert min(each.marks for each in found) > 3
    assert sum(each.returns for each in found) > SUBSCRIBERS / 4
    early, late = memory[len(memory) // 3], memory[-1]
    print(
        f"{sum(each.marks for each in found)} marks, {sum(each.returns for each in found)} returns, "
        f"{sum(each.snapshots for each in found)} snapshots, memory {early >> 20} to {late >> 20} MB"
    )
    assert late < early * 1.15
