"""Ctrl-C at any moment leaves a warehouse as it was before the call, or as the call makes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import cumulus
from cumulus.interrupts import Deferring, deliver, interruptible
from support.tiers import sampled

TESTS = Path(__file__).parents[1]
SQL = "CREATE TABLE r (a BIGINT NOT NULL); CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a"


@pytest.fixture(autouse=True)
def handler():
    """Take Ctrl-C as a terminal's programs do: who is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("engine", "seed"), sampled([("native", 1), ("interpreter", 2), ("native", 2), ("interpreter", 1)], of=4)
)
def test_what_is_interrupted_is_done_or_not(engine, seed) -> None:
    command = [sys.executable, "-m", "support.interrupted", engine, str(seed), "80"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


IMPORTED = """
import os, signal, sys
import cumulus
class Pest:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2] and not hits:
            hits.append(name)
            os.kill(os.getpid(), signal.SIGINT)
hits = []
sql = "CREATE TABLE r (a INT, b INT); CREATE VIEW v AS SELECT a, SUM(b) AS s FROM r GROUP BY a"
wh = cumulus.Warehouse(sql, keep="all")
wh.insert("r", [(1, 2)])
assert not {"duckdb", "pandas"} & {*sys.modules}
sys.meta_path.insert(0, Pest())
calls = {"query": lambda: wh.query("SELECT s FROM v").rows(), "recheck": wh.recheck, "facts": wh.view("v").facts}
calls["arrow"] = wh.view("v").arrow
calls["execute"] = lambda: wh.execute("CREATE VIEW w AS SELECT b, COUNT(*) AS n FROM r GROUP BY b")
try:
    calls[sys.argv[1]]()
    raise SystemExit("Ctrl-C is lost")
except KeyboardInterrupt:
    pass
assert [(int(s),) for (s,) in wh.query("SELECT s FROM v").rows()] == [(2,)]
assert wh.view("v").pandas()["s"].tolist() == [2]
"""


@pytest.mark.parametrize(
    ("call", "module"),
    [
        *((call, "_duckdb") for call in ("query", "recheck", "facts", "execute")),
        *(("arrow", module) for module in ("pandas", "pandas._libs", "pandas.core.frame")),
        ("query", "pandas._libs"),
    ],
)
def test_ctrl_c_waits_for_the_end_of_an_import(call: str, module: str) -> None:
    """In the middle, DuckDB's ends the process, for nanobind aborts there, and pandas is no good from then on."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, call, module], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("engine", sampled(["interpreter", "native"], of=2))
def test_queries_are_interrupted_wherever_duckdb_is(engine) -> None:
    command = [sys.executable, "-m", "support.interrupted_queries", engine]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_waits_and_the_second_does_not() -> None:
    reached = []

    def once() -> None:
        with Deferring():
            with Deferring():
                ctrl_c()
                reached.append("nested")
            reached.append("end")
        reached.append("after")

    def twice() -> None:
        with Deferring():
            ctrl_c()
            reached.append("first")
            ctrl_c()
            reached.append("second")

    for run in (once, twice):
        with pytest.raises(KeyboardInterrupt):
            run()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert reached == ["nested", "end", "first"]


def test_what_waits_comes_where_it_may() -> None:
    for way in (deliver, lambda: interruptible().__enter__()):
        with Deferring():
            ctrl_c()
            with pytest.raises(KeyboardInterrupt):
                way()
    with Deferring(), interruptible():
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        with pytest.raises(KeyboardInterrupt), Deferring():
            ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_is_asked() -> None:
    told = []
    before = signal.signal(signal.SIGINT, lambda *_: told.append(1))
    try:
        with Deferring():
            ctrl_c()
            assert told == []
        assert told == [1]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with Deferring():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_defers_nothing() -> None:
    def work() -> None:
        with Deferring(), interruptible():
            deliver()
            handlers.append(signal.getsignal(signal.SIGINT))

    handlers: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_who_feeds_events_may_be_interrupted() -> None:
    wh = cumulus.Warehouse(SQL)

    def events():
        yield 1, "r", (1,)
        ctrl_c()
        yield 1, "r", (2,)

    def collect() -> None:
        wh.insert("r", [(3,)])
        ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        wh.apply(events())
    assert wh.view("v").rows() == [(1, 1)]
    with pytest.raises(KeyboardInterrupt), wh.transaction():
        collect()
    assert wh.view("v").rows() == [(1, 1)]
    heard = []
    wh.subscribe("v", lambda changes: (ctrl_c(), heard.append(changes)))
    with pytest.raises(KeyboardInterrupt):
        wh.insert("r", [(1,)])
    assert wh.view("v").rows() == [(1, 2)]
    assert heard == [[cumulus.Change((1, 1), (1, 2))]]
