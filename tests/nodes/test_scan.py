"""What DuckDB promises those who feed its scans: its protocol is not public, so each line that we rely on is here."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from cumulus_ring.chunks.predicates import AllOf, AnyOf, ColumnAmong, ColumnCompared, ColumnNull, Constant, Predicate
from cumulus_ring.nodes.feed import lend
from cumulus_ring.nodes.scan import OccurrenceSource, registered
from support.sources import MODULES, name_of


class Lines:
    """A feed of some batches that notes what is asked of it, and holds them back while `gate` is closed."""

    def __init__(self, batches: list[pa.RecordBatch], notes: list[str], name: str = "t") -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.is_blocked = threading.Event()
        self.pulls_at_once = 0
        self.error: Exception | None = None
        self._batches = batches
        self._notes, self._name = notes, name
        self._pulling = threading.Lock()

    def pull(self) -> pa.RecordBatch | None:
        alone = self._pulling.acquire(blocking=False)
        self.pulls_at_once = max(self.pulls_at_once, 1 if alone else 2)
        self.is_blocked.set()
        self.gate.wait()
        if self.error is not None:
            raise self.error
        batch = self._batches.pop(0) if self._batches else None
        self._notes.append(f"{self._name} gives" if batch else f"{self._name} ends")
        self._pulling.release()
        return batch

    def close(self) -> None:
        self._notes.append(f"{self._name} closed")


SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.float64()})


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([list(values), [str(each) for each in values], [each / 2 for each in values]], schema=SCHEMA)


class Bench:
    """A source over batches, and what DuckDB has asked of it."""

    def __init__(self, *batches: pa.RecordBatch, number: int = 0, schema: pa.Schema = SCHEMA) -> None:
        self.notes: list[str] = []
        self.columns: list[tuple[str, ...]] = []
        self.feeds: list[Lines] = []
        self.batches = batches
        self.schema = schema
        self.source = OccurrenceSource(number, schema, sum(len(each) for each in batches), self.open)

    def open(self, columns: tuple[str, ...]) -> Lines:
        self.columns.append(columns)
        self.notes.append("opened")
        self.feeds.append(Lines([each.select(list(columns)) for each in self.batches], self.notes))
        return self.feeds[-1]


@pytest.fixture(params=[1, 3], ids=["1-thread", "3-threads"])
def connection(request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": str(request.param), "python_enable_replacements": "false"}) as opened:
        yield opened


def test_what_is_registered_belongs_to_one_cursor(connection: duckdb.DuckDBPyConnection) -> None:
    one, other = connection.cursor(), connection.cursor()
    with registered(one, {"t": Bench(batch(1)).source}):
        for stranger in (other, connection, one.cursor()):
            with pytest.raises(duckdb.CatalogException):
                stranger.execute("FROM t")
        with registered(other, {"t": Bench(batch(7)).source}):
            assert other.sql('SELECT "0.a" FROM t').fetchall() == [(7,)]
        assert one.sql('SELECT "0.a" FROM t').fetchall() == [(1,)]
    with pytest.raises(duckdb.CatalogException):
        one.execute("FROM t")


def test_nothing_is_unregistered_while_a_result_is_open(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(*[batch(*range(5_000))] * 1_000)
    with registered(connection, {"t": bench.source}):
        result = connection.sql('SELECT "0.a" FROM t').to_arrow_reader(2_048)
        result.read_next_batch()
        with pytest.raises(duckdb.Error, match="open result"):
            connection.unregister("t")
        assert bench.notes.count("t gives") < 1_000, "a reader streams, and a slow client holds the scan open"
        result.read_all()
    assert connection.sql("SELECT 1").to_arrow_table().num_rows == 1


def test_a_plan_opens_no_stream_and_offers_predicates(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(batch(1, 2, 3))
    with registered(connection, {"t": bench.source}):
        connection.execute('EXPLAIN SELECT "0.b" FROM t WHERE "0.a" > 1').fetchall()
        assert bench.columns == []
        assert {str(each) for each in bench.source.offered} == {"a > 1"}
        assert connection.sql('SELECT "0.b" FROM t WHERE "0.a" > 1 ORDER BY 1').fetchall() == [("2",), ("3",)]
        # What was declined is filtered by the engine, so its column is asked for.
        assert [sorted(each) for each in bench.columns] == [["a", "b"]]


def test_each_scan_opens_one_stream_of_the_columns_that_it_needs(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(batch(1, 2), batch(3))
    with registered(connection, {"t": bench.source}):
        connection.sql('SELECT "0.c" FROM t').fetchall()
        connection.sql("FROM t").fetchall()
        connection.sql("SELECT count(*) FROM t").fetchall()
        connection.sql('SELECT x."0.a" FROM t x JOIN t y ON x."0.a" = y."0.a" AND y."0.c" > 1').fetchall()
    assert bench.columns[:2] == [("c",), ("a", "b", "c")]
    assert len(bench.columns[2]) == 1, "a count reads one column"
    assert sorted(map(len, bench.columns[3:])) == [1, 2]


def test_a_recursive_query_opens_a_stream_for_each_round(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(batch(1, 2, 3))
    with registered(connection, {"t": bench.source}):
        found = connection.sql(
            'WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT r.a + 1 FROM r, t WHERE t."0.a" = r.a) FROM r'
        ).fetchall()
    assert sorted(found) == [(1,), (2,), (3,), (4,)]
    assert len(bench.columns) > 1


def test_others_go_on_while_pulls_block(connection: duckdb.DuckDBPyConnection) -> None:
    stuck = [Bench(batch(at)) for at in range(6)]
    results: queue.SimpleQueue[int] = queue.SimpleQueue()

    def ask(bench: Bench) -> None:
        cursor = connection.cursor()
        with registered(cursor, {"t": bench.source}):
            results.put(cursor.sql('SELECT sum("0.a") FROM t').fetchall()[0][0])

    gate = threading.Event()
    for bench in stuck:
        bench.source.open_feed = _behind(gate, bench.open)
    threads = [threading.Thread(target=ask, args=[bench]) for bench in stuck]
    for thread in threads:
        thread.start()
    try:
        for bench in stuck:
            while not bench.feeds:
                threading.Event().wait(0.001)
            assert bench.feeds[0].is_blocked.wait(10)
        assert connection.sql("SELECT sum(range) FROM range(1000)").fetchall() == [(499_500,)]
        assert results.empty()
    finally:
        gate.set()
        for thread in threads:
            thread.join()
    assert sorted(results.get() for _ in stuck) == [*range(6)]
    assert {feed.pulls_at_once for bench in stuck for feed in bench.feeds} == {1}


def _behind(gate: threading.Event, open_feed: Callable[[tuple[str, ...]], Lines]) -> Callable[[tuple[str, ...]], Lines]:
    def opening(columns: tuple[str, ...]) -> Lines:
        feed = open_feed(columns)
        feed.gate = gate
        return feed

    return opening


def test_pulls_of_a_stream_come_one_after_the_other(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(*[batch(*range(100))] * 50)
    with registered(connection, {"t": bench.source}):
        assert connection.sql('SELECT count(DISTINCT "0.b") FROM t').fetchall() == [(100,)]
    assert bench.feeds[0].pulls_at_once == 1
    assert bench.notes.count("t gives") == 50


def test_each_batch_may_have_a_dictionary_of_its_own_and_decimals_are_small(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    schema = pa.schema({"d": pa.dictionary(pa.int32(), pa.string()), "m": pa.decimal64(15, 2)})
    batches = [
        pa.record_batch(
            [pa.array(texts).dictionary_encode(), pa.array([Decimal("1.25"), Decimal("-7.00")], pa.decimal64(15, 2))],
            schema=schema,
        )
        for texts in (["x", "y"], ["y", "z"])
    ]
    bench = Bench(*batches, schema=schema)
    with registered(connection, {"t": bench.source}):
        found = connection.sql('SELECT "0.d", sum("0.m"), any_value(typeof("0.m")) FROM t GROUP BY 1 ORDER BY 1')
        assert found.fetchall() == [
            ("x", Decimal("1.25"), "DECIMAL(15,2)"),
            ("y", Decimal("-5.75"), "DECIMAL(15,2)"),
            ("z", Decimal("-7.00"), "DECIMAL(15,2)"),
        ]


@pytest.mark.parametrize("build", [(), (batch(1, 2),)], ids=["of nothing", "of rows"])
def test_the_build_side_is_read_first(connection: duckdb.DuckDBPyConnection, build: tuple[pa.RecordBatch, ...]) -> None:
    notes: list[str] = []
    sources = {}
    for number, (name, batches) in enumerate({"small": build, "large": [batch(*range(100))] * 3}.items()):
        feed = Lines(list(batches), notes, name)
        sources[name] = OccurrenceSource(number, SCHEMA, len(batches) * 100, _noting(notes, name, feed))
    with registered(connection, sources):
        sql = 'SELECT count(*) FROM large LEFT JOIN small ON "0.a" = "1.a"'
        assert connection.sql(sql).fetchall() == [(300,)]
    assert notes.index("small ends") < notes.index("large opened")


def _noting(notes: list[str], name: str, feed: Lines) -> Callable[[tuple[str, ...]], Lines]:
    def opening(columns: tuple[str, ...]) -> Lines:
        notes.append(f"{name} opened")
        feed._batches[:] = [each.select(list(columns)) for each in feed._batches]
        return feed

    return opening


def _hold_until_opened(notes: list[str], feeds: dict[str, Lines]) -> None:
    """Let feeds give nothing until all of them are opened, or ten seconds are over."""
    for feed in feeds.values():
        feed.gate.clear()

    def release() -> None:
        until = time.monotonic() + 10
        while sum(each.endswith("opened") for each in notes) < len(feeds) and time.monotonic() < until:
            time.sleep(0.001)
        for feed in feeds.values():
            feed.gate.set()

    threading.Thread(target=release, daemon=True).start()


@pytest.mark.parametrize("above", ["SELECT * FROM ({})", "SELECT min(k) FROM ({})"], ids=["in order", "at once"])
def test_a_union_opens_its_branches_in_order_or_at_once(connection: duckdb.DuckDBPyConnection, above: str) -> None:
    """Rows that are kept in order come branch after branch; under an aggregate all branches are open at once."""
    notes: list[str] = []
    names = ("first", "second", "third")
    feeds = {name: Lines([batch(at)], notes, name) for at, name in enumerate(names)}
    sources = {
        name: OccurrenceSource(at, SCHEMA, 1, _noting(notes, name, feeds[name])) for at, name in enumerate(names)
    }
    if "min" in above:  # a quick thread may end the first branch before a slow one has opened the last
        _hold_until_opened(notes, feeds)
    with registered(connection, sources):
        sql = " UNION ALL ".join(f'SELECT "{at}.a" AS k FROM {name}' for at, name in enumerate(names))
        connection.sql(above.format(sql)).to_arrow_table()
    opened = [notes.index(f"{name} opened") for name in names]
    ends = [notes.index(f"{name} ends") for name in names]
    assert (max(opened) < min(ends)) == ("min" in above)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_each_thread_keeps_its_last_batch_until_it_gets_the_next(threads: int) -> None:
    """A thread has the next before it has let go of the last, so two for each are held at most."""
    lives = _Lives()
    with duckdb.connect(config={"threads": str(threads)}) as connection:
        source = OccurrenceSource(0, pa.schema({"a": pa.int64()}), 40_000, lambda _: lives)
        with registered(connection, {"t": source}):
            assert connection.sql('SELECT sum("0.a") FROM t').fetchall() == [(40 * sum(range(1_000)),)]
        assert 2 <= lives.most <= 2 * threads
        assert lives.now == 0


class _Lives:
    """A feed of 40 batches in lent memory, that counts how many are held."""

    def __init__(self) -> None:
        self.most = 0
        self._given = 0
        self._lent = pa.array(range(1_000), pa.int64()).buffers()[1]  # who lends keeps it
        self._released: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def now(self) -> int:
        return self._given - self._released.qsize()

    def pull(self) -> pa.RecordBatch | None:
        if self._given == 40:
            return None
        self._given += 1
        self.most = max(self.most, self.now)
        memory = lend(self._lent, lambda: self._released.put(None))
        return pa.record_batch({"a": pa.Array.from_buffers(pa.int64(), 1_000, [None, memory])})

    def close(self) -> None:
        pass


def test_a_limit_closes_the_feed_and_lets_go(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(*[batch(*range(3_000))] * 500)
    with registered(connection, {"t": bench.source}):
        assert len(connection.sql('SELECT "0.a" FROM t LIMIT 3').to_arrow_table()) == 3
    assert bench.notes[-1] == "t closed"
    assert bench.notes.count("t gives") < 500


def test_an_interrupt_stops_what_runs(connection: duckdb.DuckDBPyConnection) -> None:
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.02):  # one that comes before the query has begun is lost
            connection.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        # From a relation it may come as a RuntimeError.
        with pytest.raises((duckdb.InterruptException, RuntimeError), match=r"(?i)interrupted"):
            connection.sql(
                "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range"
            ).fetchall()
    finally:
        over.set()
        thread.join()


def test_an_interrupt_does_not_wake_a_pull_but_its_own_error_does(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(batch(1))
    bench.source.open_feed = _behind(threading.Event(), bench.open)
    caught: list[Exception] = []

    def ask() -> None:
        cursor = connection.cursor()
        with registered(cursor, {"t": bench.source}):
            asking.append(cursor)
            try:
                cursor.sql('SELECT sum("0.a") FROM t').fetchall()
            except duckdb.Error as problem:
                caught.append(problem)

    asking: list[duckdb.DuckDBPyConnection] = []
    thread = threading.Thread(target=ask)
    thread.start()
    while not bench.feeds:
        threading.Event().wait(0.001)
    feed = bench.feeds[0]
    assert feed.is_blocked.wait(10)
    asking[0].interrupt()
    thread.join(0.1)
    assert thread.is_alive(), "it goes on waiting"
    feed.error = ValueError("the ring is gone")
    feed.gate.set()
    thread.join(10)
    assert isinstance(caught[0], duckdb.InterruptException | duckdb.InvalidInputException)


def test_what_a_feed_raises_comes_as_words(connection: duckdb.DuckDBPyConnection) -> None:
    bench = Bench(batch(1))

    def fails(columns: tuple[str, ...]) -> Lines:
        feed = bench.open(columns)
        feed.error = ValueError("the ring is gone")
        return feed

    bench.source.open_feed = fails
    with (
        registered(connection, {"t": bench.source}),
        pytest.raises(duckdb.InvalidInputException, match="the ring is gone"),
    ):
        connection.sql('SELECT sum("0.a") FROM t').fetchall()
    assert bench.notes[-1] == "t closed"


@pytest.mark.slow
def test_a_blocked_pull_keeps_a_process_that_wants_to_end() -> None:
    script = """
import threading, duckdb, pyarrow as pa
from cumulus_ring.nodes.scan import OccurrenceSource, registered
class Stuck:
    def pull(self): blocked.set(); threading.Event().wait()
    def close(self): pass
blocked = threading.Event()
connection = duckdb.connect()
def ask():
    with registered(connection, {"t": OccurrenceSource(0, pa.schema({"a": pa.int64()}), 1, lambda _: Stuck())}):
        connection.sql("FROM t").fetchall()
threading.Thread(target=ask, daemon=True).start()
blocked.wait()
print("ends", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ends\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
    finally:
        process.kill()
        process.communicate()


def test_predicates_are_read_as_they_are_meant(connection: duckdb.DuckDBPyConnection) -> None:
    def offered(condition: str) -> list[Predicate]:
        bench = Bench(batch(1, 2))
        with registered(connection, {"t": bench.source}):
            connection.execute(f"EXPLAIN SELECT * FROM (FROM t) t(a, b, c) WHERE {condition}").fetchall()
        return bench.source.offered

    two, nine = (Constant(each, "BIGINT", str(each)) for each in (2, 9))
    assert offered("a <= 2") == [ColumnCompared("a", "<=", two)]
    assert offered("2 < a") == [ColumnCompared("a", ">", two)]
    assert offered("a BETWEEN 2 AND 9") == [AllOf((ColumnCompared("a", ">=", two), ColumnCompared("a", "<=", nine)))]
    assert offered("a < 2 OR a > 9 OR a IS NULL") == [
        AnyOf((ColumnCompared("a", "<", two), ColumnCompared("a", ">", nine), ColumnNull("a", True)))
    ]
    assert offered("b IS NOT NULL") == [ColumnNull("b", False)]
    assert offered("b IN ('x', 'y')") == [
        ColumnAmong("b", (Constant("x", "VARCHAR", "'x'"), Constant("y", "VARCHAR", "'y'")))
    ]
    assert offered("length(b) = 2") == []


def test_one_module_knows_the_protocol() -> None:
    knows = re.compile(r"duckdb\._sources|_register_arrow_source")
    assert [name_of(path) for path in MODULES if knows.search(path.read_text())] == ["src/cumulus_ring/nodes/scan.py"]
