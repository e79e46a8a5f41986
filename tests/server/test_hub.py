"""Subscribers of the hub: what they hold is the view at every mark, whatever they ask for and however slow they are."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from cumulus import Warehouse
from cumulus.catalog.types import Interval
from cumulus.errors import HistoryError, UnknownNameError, UsageError
from cumulus.hosts import TableRows, WriteRequest
from cumulus.server.hub.channel import Channel
from cumulus.server.hub.hub import Hub, HubLimits
from cumulus.server.hub.messages import MessageForm
from cumulus.server.single_writer import SingleWriter
from cumulus.views.folding import Bound, between
from support.tiers import sampled

SQL = """
CREATE TABLE r (id INTEGER PRIMARY KEY, a INTEGER, x INTEGER);
CREATE VIEW sums AS SELECT a, COUNT(*) AS n, SUM(x) AS s FROM r GROUP BY a;
CREATE VIEW bag AS SELECT a, x FROM r;
"""
SCHEMA = pa.schema([("id", pa.int32()), ("a", pa.int32()), ("x", pa.int32())])


def write(keeper: SingleWriter, op: Any, rows: list[tuple[int, int, int]]) -> int:
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    return keeper.write(WriteRequest((TableRows(op, "r", table),))).result().at


class Writer:
    """Writes random rows, deletes some, and knows the view after each transaction by DuckDB."""

    def __init__(self, keeper: SingleWriter, seed: int) -> None:
        self._keeper, self._random = keeper, random.Random(seed)
        self._rows: dict[int, tuple[int, int, int]] = {}
        self._next = 0
        self._oracle = duckdb.connect()
        self._expected: dict[tuple[int, str], Counter[tuple[Any, ...]]] = {}
        self.states: dict[int, list[tuple[int, int, int]]] = {keeper.at: []}

    def write(self) -> None:
        if self._rows and self._random.random() < 0.4:
            gone = self._random.sample(sorted(self._rows), min(len(self._rows), self._random.randint(1, 4)))
            at = write(self._keeper, "delete", [self._rows.pop(each) for each in gone])
        else:
            rows = []
            for _ in range(self._random.randint(1, 6)):
                self._next += 1
                rows.append((self._next, self._random.randint(0, 5), self._random.randint(-3, 3)))
            self._rows.update((row[0], row) for row in rows)
            at = write(self._keeper, "insert", rows)
        self.states[at] = list(self._rows.values())

    def expected(self, at: int, sql: str) -> Counter[tuple[Any, ...]]:
        if (at, sql) not in self._expected:
            r = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in self.states[at]], SCHEMA)
            found = self._oracle.register("r", r).execute(sql).fetchall()
            self._expected[at, sql] = Counter(tuple(map(_plain, row)) for row in found)
        return self._expected[at, sql]


def _plain(value: Any) -> Any:
    return value if value is None else int(value)


@contextmanager
def served() -> Iterator[SingleWriter]:
    keeper = SingleWriter(Warehouse(SQL))
    try:
        yield keeper
    finally:
        keeper.close()


class Held:
    """What a subscriber holds."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.at = -1
        self._is_beginning = False

    def take(self, message: bytes) -> bool:
        """Take a message; return whether it ends with a mark."""
        told = json.loads(message)
        if "error" in told:
            assert (told["error"], told["at"]) == ("HistoryError", self.at)
            return False
        assert told["at"] >= self.at
        if told.get("snapshot") and not self._is_beginning:
            self.rows.clear()
            self._is_beginning = True
        for each in told["rows"]:
            change, *row = each.values()
            self.rows[tuple(map(_plain, row))] += change
        if told["progress"]:
            self._is_beginning = False
            assert all(count >= 0 for count in self.rows.values())
            self.rows = +self.rows
            self.at = told["at"]
        return bool(told["progress"])


CASES = [
    ("sums", None, (), "SELECT a, COUNT(*), SUM(x) FROM r GROUP BY a"),
    ("sums", ["n"], (Bound("a", between(1, 3)),), "SELECT COUNT(*) FROM r WHERE a BETWEEN 1 AND 3 GROUP BY a"),
    ("sums", ["S", "A"], (Bound("a", (2, 4)),), "SELECT SUM(x), a FROM r WHERE a IN (2, 4) GROUP BY a"),
    ("bag", ["x"], (), "SELECT x FROM r"),
]


async def subscriber(hub: Hub, writer: Writer, seed: int, stop: asyncio.Event) -> tuple[int, int]:
    """Hold a selection, slowly or not, leave and come back; return how many marks came, and how often it left."""
    chance = random.Random(seed)
    view, columns, where, sql = chance.choice(CASES)
    every_s, pace = chance.choice([0.0, 0.0, 0.02]), chance.choice([0.0, 0.0, 0.05])
    held, checked, left, since = Held(), 0, 0, None
    while not stop.is_set():
        subscription = await hub.subscribe(
            view, columns=columns, where=where, snapshot=True, since=since, every_s=every_s
        )
        async for message in subscription.messages(idle_s=0.05):
            if message is not None and held.take(message):
                checked += 1
                if chance.random() < 0.2:
                    while held.at not in writer.states:  # the message was quicker than the writer's acknowledgement
                        await asyncio.sleep(0.001)
                    assert held.rows == writer.expected(held.at, sql), (view, columns, held.at)
                if chance.random() < 0.1:
                    left, since = left + 1, held.at
                    break
                since = held.at
            if stop.is_set():
                break
            await asyncio.sleep(pace)
        subscription.close()
    assert held.rows == writer.expected(held.at, sql)
    return checked, left


@pytest.mark.parametrize(
    "kept", sampled([HubLimits(), HubLimits(kept_rows=30, kept_bytes=500)], of=2, first=1), ids=["much", "little"]
)
def test_what_subscribers_hold_is_the_view_at_every_mark(kept: HubLimits) -> None:
    async def run(keeper: SingleWriter) -> list[tuple[int, int]]:
        hub, writer, stop = Hub(keeper, asyncio.get_running_loop(), kept), Writer(keeper, 7), asyncio.Event()
        for _ in range(5):
            await asyncio.to_thread(writer.write)
        tasks = [asyncio.create_task(subscriber(hub, writer, seed, stop)) for seed in range(24)]
        for _ in range(120):
            await asyncio.to_thread(writer.write)
            await asyncio.sleep(0.003)
        await asyncio.sleep(0.3)
        stop.set()
        found = await asyncio.gather(*tasks)
        assert hub.subscribers == 0
        hub.close()
        return found

    with served() as keeper:
        found = asyncio.run(run(keeper))
    assert all(checked for checked, _ in found)
    assert sum(left for _, left in found) > 20


def test_one_encoding_serves_all_subscribers_of_a_selection() -> None:
    async def run(keeper: SingleWriter) -> list[bytes]:
        hub = Hub(keeper, asyncio.get_running_loop())
        streams = [(await hub.subscribe("sums", since=0)).messages() for _ in range(3)]
        await asyncio.to_thread(write, keeper, "insert", [(1, 1, 5)])
        found = [await anext(stream) for stream in streams]
        for stream in streams:
            await stream.aclose()
        hub.close()
        return [each for each in found if each is not None]

    with served() as keeper:
        first, *others = asyncio.run(run(keeper))
    assert json.loads(first) == {"at": 1, "progress": True, "rows": [{"change": 1, "a": 1, "n": 1, "s": 5}]}
    assert all(each is first for each in others)


def test_a_reader_that_never_reads_holds_nothing_up() -> None:
    async def run(keeper: SingleWriter) -> Channel:
        hub = Hub(keeper, asyncio.get_running_loop(), HubLimits(kept_rows=50, kept_bytes=1000))
        asleep = (await hub.subscribe("bag", snapshot=False)).messages()
        assert json.loads(await anext(asleep) or b"")["rows"] == []
        awake = (await hub.subscribe("bag", snapshot=False)).messages()
        await anext(awake)
        for number in range(100):
            await asyncio.to_thread(write, keeper, "insert", [(number, 1, number)])
            assert json.loads(await anext(awake) or b"")["rows"] == [{"change": 1, "a": 1, "x": number}]
        (channel,) = hub._channels.values()
        told = json.loads(await anext(asleep) or b"")
        assert (told["error"], told["at"]) == ("HistoryError", 0)
        await awake.aclose()
        hub.close()
        return channel

    with served() as keeper:
        channel = asyncio.run(run(keeper))
    assert channel._bytes <= 1000
    assert channel.feed._rows <= 50


def test_wrong_subscriptions_are_refused_by_name() -> None:
    async def run(keeper: SingleWriter) -> None:
        hub = Hub(keeper, asyncio.get_running_loop())
        with pytest.raises(UnknownNameError, match="there is no view w"):
            await hub.subscribe("w")
        with pytest.raises(UnknownNameError, match="column of sums"):
            await hub.subscribe("sums", columns=["x"])
        with pytest.raises(UsageError, match=r"sums\.a"):
            await hub.subscribe("sums", where=(Bound("a", ("x",)),))
        with pytest.raises(UsageError, match="since=5"):
            await hub.subscribe("sums", since=5)
        for _ in range(3):
            await asyncio.to_thread(write, keeper, "upsert", [(1, 1, 1)])
        with pytest.raises(HistoryError):
            await hub.subscribe("sums", since=1, snapshot=False)
        begun = (await hub.subscribe("sums", since=1, form=MessageForm.SSE)).messages()
        assert (await anext(begun) or b"").startswith(b"event: changes\nid: 3\ndata: ")
        await begun.aclose()
        hub.close()

    with served() as keeper:
        asyncio.run(run(keeper))


def test_a_value_without_a_place_ends_the_subscribers_of_its_view_alone() -> None:
    async def run() -> None:
        script = """CREATE TABLE t (a INTERVAL); CREATE VIEW longest AS SELECT MAX(a) AS a FROM t;
            CREATE VIEW counted AS SELECT COUNT(*) AS n FROM t"""
        keeper = SingleWriter(Warehouse(script))
        hub = Hub(keeper, asyncio.get_running_loop())
        try:
            first, second = [await hub.subscribe(view, snapshot=False) for view in ("longest", "counted")]
            told, others = first.messages(), second.messages()
            await anext(told)
            await anext(others)
            keeper.write(WriteRequest((TableRows("insert", "t", [(Interval(0, 0, 10**16),)]),))).result(10)
            assert b"cannot be told" in (await anext(told) or b"")
            assert b'"n":1' in (await anext(others) or b"")
            keeper.write(WriteRequest((TableRows("insert", "t", [(Interval(0, 0, 1),)]),))).result(10)
            assert b'"n":2' in (await anext(others) or b"")
        finally:
            await asyncio.to_thread(hub.close)
            keeper.close()

    asyncio.run(run())


def test_a_view_that_nobody_hears_of_any_more_can_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr("cumulus.server.hub.hub._LINGER_S", 0.1)
        with served() as keeper:
            hub = Hub(keeper, asyncio.get_running_loop())
            try:
                heard = (await hub.subscribe("bag")).messages()
                await anext(heard)
                with pytest.raises(UsageError, match="bag has subscribers"):
                    await asyncio.wrap_future(keeper.execute("DROP VIEW bag"))
                await heard.aclose()
                await asyncio.sleep(0.4)
                await asyncio.wrap_future(keeper.execute("DROP VIEW bag"))
            finally:
                await asyncio.to_thread(hub.close)

    asyncio.run(run())


def test_who_asks_for_a_pace_costs_nothing_while_nothing_changes() -> None:
    async def run() -> None:
        with served() as keeper:
            hub = Hub(keeper, asyncio.get_running_loop())
            try:
                heard = (await hub.subscribe("bag", where=[Bound("a", (99,))], every_s=0.02)).messages()
                await anext(heard)
                (channel,) = hub._channels.values()
                for number in range(5):
                    await asyncio.to_thread(write, keeper, "insert", [(number, 1, 1)])
                    await asyncio.sleep(0.1)
                assert channel.is_behind
                assert channel.due_s(monotonic()) > 0.2  # it looks again for a mark of progress
            finally:
                await asyncio.to_thread(hub.close)

    asyncio.run(run())
