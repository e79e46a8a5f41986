"""Threads: calls wait for their turn, every read is of one transaction, and what would wait for ever is named."""

from __future__ import annotations

import contextvars
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import cumulus
from cumulus import errors

SQL = "CREATE TABLE r (a INT NOT NULL, x BIGINT); CREATE VIEW v AS SELECT COUNT(*) AS n, SUM(x) AS s FROM r"
ENGINES = ["native", "interpreter"]


def started(target) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


class Holding:
    """Another thread that has the turn in a transaction until it is told to end it."""

    def __init__(self, wh) -> None:
        self._inside, self._end, self._wh = threading.Event(), threading.Event(), wh
        self._thread = started(self._hold)
        assert self._inside.wait(10)

    def _hold(self) -> None:
        with self._wh.transaction():
            self._wh.insert("r", [(1, 1)])
            self._inside.set()
            self._end.wait(10)

    def __enter__(self) -> Holding:
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        self._thread.join(10)

    def end_in(self, seconds: float) -> None:
        threading.Timer(seconds, self._end.set).start()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pool_of_threads_inserts_every_row(engine) -> None:
    wh = cumulus.Warehouse(SQL, engine=engine)
    on = wh.trigger("r")
    ways = [
        lambda i: wh.insert("r", [(i % 7, i)]),
        lambda i: on(+1, i % 7, i),
        lambda i: wh.apply([(+1, "r", (i % 7, i))]),
        lambda i: wh.view("v").rows() and wh.insert("r", [{"a": i, "x": i}]),
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: ways[i % len(ways)](i), range(200)))
    assert wh.view("v").rows() == [(200, sum(range(200)))]
    assert wh.stats().rows == {"r": 200}


def test_a_transaction_belongs_to_its_thread_and_others_wait() -> None:
    wh = cumulus.Warehouse(SQL)
    with Holding(wh) as holding:
        holding.end_in(0.05)
        assert wh.view("v").rows() == [(1, 1)]
    with Holding(wh) as holding:
        holding.end_in(0.05)
        wh.trigger("r")(+1, 2, 5)
    assert wh.view("v").rows() == [(3, 7)]


def test_who_does_not_wait_gets_an_error_at_once_or_after_a_time() -> None:
    wh, no = cumulus.Warehouse(SQL), cumulus.Warehouse(SQL, wait=False)
    on = wh.trigger("r")
    calls = [
        lambda w: w.insert("r", [(1, 1)]),
        lambda w: w.view("v").rows(),
        lambda w: w.stats(),
        lambda w: w.query("SELECT * FROM v"),
    ]
    with Holding(no):
        for call in calls:
            with pytest.raises(errors.ThreadError, match="wait=True"):
                call(no)
        with no.waiting(0.05), pytest.raises(errors.ThreadError):
            no.stats()
    with Holding(wh) as holding:
        before = time.monotonic()
        with wh.waiting(0.05):
            with pytest.raises(errors.ThreadError):
                on(+1, 1, 1)
            with wh.waiting(False), pytest.raises(errors.ThreadError):
                wh.view("v").rows()
            assert time.monotonic() - before >= 0.05
        holding.end_in(0.02)
        assert wh.insert("r", [(1, 1)]) == 1
    assert wh.view("v").rows() == [(2, 2)]
    for bad in (-1, float("nan"), float("inf"), "yes", None):
        with pytest.raises(errors.UsageError, match="in seconds"):
            cumulus.Warehouse(SQL, wait=bad)


def test_a_busy_thread_does_not_keep_others_out() -> None:
    wh = cumulus.Warehouse(SQL)
    end = threading.Event()

    def write() -> None:
        while not end.is_set():
            wh.insert("r", [(1, 1)] * 50)

    thread = started(write)
    with wh.waiting(5):
        for _ in range(20):
            assert wh.view("v").rows()[0][0] % 50 == 0
    end.set()
    thread.join()


@pytest.mark.parametrize("engine", ENGINES)
def test_who_comes_while_a_builtin_calls_python_waits_until_it_is_out(engine) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(x: int) -> int:
        if x == 1:
            inside.set()
            assert go_on.wait(10)
        return x

    wh = cumulus.Warehouse(
        "CREATE TABLE r (a INT NOT NULL, x BIGINT NOT NULL);"
        "CREATE VIEW v AS SELECT COUNT(*) AS n, SUM(slow(x)) AS s FROM r; CREATE VIEW w AS SELECT SUM(a) AS a FROM r",
        functions=[cumulus.function(slow, arguments=["BIGINT"], returns="BIGINT")],
        engine=engine,
    )
    on = wh.trigger("r")
    on(+1, 0, 10)
    first = started(lambda: on(+1, 100, 1))
    assert inside.wait(10)
    with wh.waiting(0.01):
        for call in (lambda: on(+1, 3, 3), lambda: wh.insert("r", [(3, 3)]), lambda: wh.view("v").rows()):
            with pytest.raises(errors.ThreadError):
                call()
    others = [started(lambda: on(+1, 1000, 100)), started(lambda: wh.insert("r", [(10_000, 1000)] * 3))]
    time.sleep(0.02)
    go_on.set()
    for thread in (first, *others):
        thread.join(10)
    assert (wh.view("v").rows(), wh.view("w").rows()) == ([(6, 3111)], [(31_100,)])
    assert wh.stats().rows == {"r": 6}
    on(+1, 0, 0)
    assert wh.view("v").get() == (7, 3111)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_of_a_view_that_uses_the_warehouse_is_an_error_of_the_view(engine) -> None:
    made: list[cumulus.Warehouse] = []

    def meddle(x: int) -> int:
        made[0].insert("r", [(x,)]) if x else made[0].view("v").rows()
        return x

    wh = cumulus.Warehouse(
        "CREATE TABLE r (x BIGINT NOT NULL);CREATE VIEW v AS SELECT COUNT(*) AS n, SUM(meddle(x)) AS s FROM r",
        functions=[cumulus.function(meddle, arguments=["BIGINT"], returns="BIGINT")],
        engine=engine,
    )
    made.append(wh)
    wh.trigger("r")(+1, 0)
    wh.trigger("r")(+1, 1)
    wh.insert("r", [(0,), (1,)])
    assert wh.stats().rows == {"r": 4}
    assert [each.message for each in wh.errors("v")]
    assert all("must not use the warehouse" in each.message for each in wh.errors("v"))


def test_a_function_of_a_query_that_changes_the_warehouse_or_waits_for_it_is_an_error() -> None:
    def counted(x: int) -> int:
        if x < 0:
            found.append(called_elsewhere(wh.stats))
        return wh.insert("r", [(x, x)])

    def called_elsewhere(call) -> str:  # as DuckDB does with many rows
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool, pytest.raises(errors.UsageError) as caught:
            pool.submit(context.run, call).result(10)
        return str(caught.value)

    wh, found = cumulus.Warehouse(SQL), []
    wh.register("counted", counted, arguments=["BIGINT"], returns="BIGINT")
    wh.insert("r", [(1, 1), (1, 1)])
    with pytest.raises(errors.UsageError, match=r"must not (change|wait)"):
        wh.query("SELECT n, counted(-n) AS c FROM v")
    assert "must not wait for a warehouse" in found[0]
    assert wh.view("v").rows() == [(2, 2)]


def test_a_callback_may_read_and_what_it_must_not_do_is_named() -> None:
    wh = cumulus.Warehouse(SQL)
    seen = []

    def callback(changes) -> None:
        seen.append((wh.view("v").rows(), changes[0].new))
        wh.insert("r", [(1, 1)])

    wh.subscribe("v", callback)
    with pytest.raises(errors.UsageError, match="must not change"):
        wh.insert("r", [(1, 1)])
    assert seen == [([(1, 1)], (1, 1))]


def test_two_threads_that_would_wait_for_each_other_are_told() -> None:
    one, two = cumulus.Warehouse(SQL), cumulus.Warehouse(SQL)
    both = threading.Barrier(2)
    told = []

    def use(first, second) -> None:
        with first.transaction():
            first.insert("r", [(1, 1)])
            both.wait(10)
            try:
                second.insert("r", [(1, 1)])
            except errors.ThreadError as problem:
                told.append(str(problem))

    threads = [started(lambda: use(one, two)), started(lambda: use(two, one))]
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert 1 <= len(told) <= 2
    assert all("wait for each other" in each for each in told)
    assert [one.view("v").get()[0], two.view("v").get()[0]].count(2) == 2 - len(told)


def test_ctrl_c_ends_waiting() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        wh = cumulus.Warehouse(SQL)
        with Holding(wh):
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                wh.insert("r", [(1, 1)])
        assert wh.insert("r", [(1, 1)]) == 1
        assert wh.view("v").rows() == [(2, 2)]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_has_the_warehouse_unless_a_thread_that_used_it_stayed_behind() -> None:
    wh = cumulus.Warehouse(SQL)
    wh.insert("r", [(1, 1)])

    def in_child() -> int:
        child = os.fork()
        if not child:
            try:
                wh.insert("r", [(1, 1)])
                os._exit(0 if wh.view("v").rows() == [(2, 2)] else 1)
            except errors.ThreadError as problem:
                os._exit(2 if "forked" in str(problem) else 3)
            finally:
                os._exit(4)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert in_child() == 0
    with Holding(wh):
        assert in_child() == 2
    held, leave = threading.Event(), threading.Event()

    def take() -> None:
        with wh._turn._lock:  # as whoever takes the turn does, before it is said to have it
            held.set()
            leave.wait()

    thread = threading.Thread(target=take)
    thread.start()
    held.wait()
    assert in_child() == 2
    leave.set()
    thread.join()


def read_and_write(seconds: float, readers: int) -> tuple[int, int]:
    """Move money between accounts in transactions; return how many, and how often readers looked."""
    wh = cumulus.Warehouse(
        "CREATE TABLE r (id BIGINT PRIMARY KEY, a INT NOT NULL, x BIGINT NOT NULL);"
        "CREATE VIEW v AS SELECT a, SUM(x) AS s, COUNT(*) AS n FROM r GROUP BY a;"
        "CREATE VIEW total AS SELECT SUM(x) AS s, COUNT(*) AS n FROM r"
    )
    groups, rows = 50, 500
    wh.insert("r", [(i, i % groups, 100) for i in range(rows)])
    end, looks, wrong = time.monotonic() + seconds, [0] * readers, []

    def read(number: int) -> None:
        ways = [
            lambda: [tuple(map(sum, zip(*(row[1:] for row in wh.view("v").rows()), strict=True)))],
            lambda: wh.view("total").rows(),
            lambda: wh.query("SELECT SUM(v.s), SUM(v.n) FROM v").rows(),
            lambda: wh.query("SELECT ANY_VALUE(t.s), SUM(v.n) FROM v, total t HAVING SUM(v.s) = ANY_VALUE(t.s)").rows(),
        ]
        while time.monotonic() < end and not wrong:
            found = ways[looks[number] % len(ways)]()
            if found != [(100 * rows, rows)]:
                wrong.append(found)
            looks[number] += 1

    threads = [started(lambda number=number: read(number)) for number in range(readers)]
    money = dict.fromkeys(range(rows), 100)
    transactions = 0
    while time.monotonic() < end and not wrong:
        one, other = transactions % rows, (transactions * 7 + 1) % rows
        money[one] -= 1
        money[other] += 1
        with wh.transaction():
            wh.upsert("r", [(one, one % groups, money[one])])
            wh.upsert("r", [(other, other % groups, money[other])])
        transactions += 1
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong
    assert min(looks) > 0
    return transactions, sum(looks)


def test_every_read_is_of_one_transaction() -> None:
    read_and_write(1.5, readers=4)


@pytest.mark.slow
def test_every_read_of_a_minute_is_of_one_transaction() -> None:
    transactions, looks = read_and_write(60, readers=8)
    assert transactions > 1000
    assert looks > 1000
