"""Queries that are interrupted, each by SIGINT: `python -m support.interrupted_queries ENGINE`.

Each must end at once in a KeyboardInterrupt, wherever DuckDB is, and leave the warehouse as it was and as good as new.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import cumulus

SQL = """
CREATE TABLE r (a BIGINT NOT NULL);
CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM r GROUP BY a;
CREATE VIEW told AS SELECT a, ctrl_c(COUNT(*)) AS n FROM r GROUP BY a;
"""
LONG = "SELECT COUNT(*) FROM range(1000000000000) t WHERE hash(t.range) % 7 = 3 AND t.range NOT IN (SELECT a FROM v)"
is_wanted = False


def ctrl_c(a: int) -> int:
    """Interrupt who calls it, if that is wanted, and once."""
    global is_wanted
    if is_wanted:
        is_wanted = False
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # here a thread that is the main one hears of it
    return a


def interrupted(call: Callable[[], object]) -> None:
    """Call something that must be interrupted."""
    try:
        call()
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def main(engine: str) -> None:
    """Interrupt queries in what DuckDB does, in a function that it calls, in a view that it reads, and in `execute`."""
    global is_wanted
    signal.signal(signal.SIGINT, signal.default_int_handler)
    function = cumulus.function(ctrl_c, arguments=["BIGINT"], returns="BIGINT")
    wh = cumulus.Warehouse(SQL, engine=engine, keep="all", functions=[function])
    wh.insert("r", [(a,) for a in range(1000)])

    def ask_long(*, after: float) -> None:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()
        wh.query(LONG)

    for seconds in (0.01, 0.1, 0.3):  # the first comes while the connection is being opened
        interrupted(partial(ask_long, after=seconds))
    for number, call in enumerate(
        (
            lambda: wh.query("SELECT SUM(ctrl_c(a)) FROM v"),
            lambda: wh.query("SELECT SUM(n) FROM told"),
            lambda: wh.view("told").rows(),
            lambda: wh.execute("CREATE VIEW w AS SELECT SUM(ctrl_c(a)) AS s FROM r"),
        )
    ):
        is_wanted = True
        interrupted(call)
        wh.insert("r", [(1,)])
        assert wh.query("SELECT n FROM v WHERE a = 1").rows() == [(2 + number,)]
        assert wh.query("SELECT SUM(ctrl_c(n)) AS n FROM told").rows() == [(1001 + number,)]
        assert wh.views == ("v", "told"), wh.views


if __name__ == "__main__":
    main(sys.argv[1])
