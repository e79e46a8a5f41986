"""A warehouse that is interrupted at random moments: `python -m support.interrupted ENGINE SEED STEPS`.

Another thread sends the process SIGINT somewhere in each call. After each the warehouse must be what it was before the
call or what the call makes of it, and whoever has subscribed must have heard all that.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

import cumulus

SQL = """
CREATE TABLE r (id BIGINT PRIMARY KEY, a BIGINT NOT NULL, s VARCHAR);
CREATE VIEW v AS SELECT a, COUNT(*) AS n, SUM(id) AS ids, MAX(id) AS most FROM r GROUP BY a;
CREATE VIEW w AS SELECT s, COUNT(*) AS n FROM r WHERE s LIKE 'a%' GROUP BY s;
"""
LATER = "CREATE VIEW later AS SELECT s, MIN(id) AS least FROM r GROUP BY s"
MOMENTS = (1e-6, 1e-4, 1e-3, 1e-2)
"""Up to so many seconds go by before a call is interrupted."""
Row = tuple[int, int, str | None]
Rows = dict[int, Row]


class Pest:
    """Sends SIGINT from a thread of its own."""

    def __init__(self) -> None:
        self._wanted, self._sent = threading.Event(), threading.Event()
        self._delay = 0.0
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            time.sleep(self._delay)
            os.kill(os.getpid(), signal.SIGINT)
            self._sent.set()

    def interrupt(self, call: Callable[[], object], delay: float) -> None:
        """Call something, and interrupt it, or what comes right after it."""
        self._delay = delay
        self._sent.clear()
        with suppress(KeyboardInterrupt):
            with suppress(KeyboardInterrupt):
                self._wanted.set()
                call()
                self._wait()
            self._wait()
            return
        self._wait()

    def _wait(self) -> None:
        while not self._sent.is_set():
            time.sleep(0)


class Run:
    """One warehouse and the rows that it should have."""

    def __init__(self, engine: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.engine = engine
        self.wh = cumulus.Warehouse(SQL, engine=engine)
        self.rows: Rows = {}
        self.heard: dict[Any, Any] = {}
        if seed % 2:
            self.wh.subscribe("v", self._hear)
        self.on = self.wh.trigger("r")
        self.folder = tempfile.TemporaryDirectory()

    def _hear(self, changes: list[Any]) -> None:
        for old, new in changes:
            if old is not None:
                assert self.heard.pop(old[0]) == old
            if new is not None:
                self.heard[new[0]] = new

    def _new(self, count: int) -> list[Row]:
        first = max(self.rows, default=0) + 1
        return [(id, self.rng.randrange(30), self.rng.choice(("ab", "b", None))) for id in range(first, first + count)]

    def _filled(self, rows: list[Row]) -> Rows:
        other = cumulus.Warehouse(SQL, engine=self.engine)
        other.fill({"r": rows})
        self.wh = other
        return {row[0]: row for row in rows}

    def _step(self) -> tuple[Callable[[], object], Rows]:
        """Return what to call, and the rows that are there after it."""
        wh, rng = self.wh, self.rng
        new = self._new(rng.choice((1, 1, 50, 2000)))
        events = [(1, "r", row) for row in new]
        gone = rng.sample(sorted(self.rows.values()), min(len(self.rows), len(new)))
        left = {id: row for id, row in self.rows.items() if row not in gone}
        more = self.rows | {row[0]: row for row in new}
        table = pa.Table.from_pylist([dict(zip(("id", "a", "s"), row, strict=True)) for row in new])

        def one_by_one() -> None:
            with wh.transaction():
                for row in new:
                    wh.insert("r", [row])

        def read() -> None:
            wh.view("v").rows()
            wh.query("SELECT COUNT(*) FROM w")
            wh.save(self.folder.name + "/saved")

        return rng.choice(
            [
                (lambda: wh.insert("r", new), more),
                (lambda: wh.insert("r", table), more),
                (lambda: wh.delete("r", gone), left),
                (lambda: wh.upsert("r", new), more),
                (lambda: wh.apply(iter(events), per="call"), more),
                (lambda: wh.apply(iter(events[:1])), self.rows | {new[0][0]: new[0]}),
                (lambda: self.on(1, *new[0]), self.rows | {new[0][0]: new[0]}),
                (one_by_one, more),
                (read, self.rows),
                (lambda: wh.execute("DROP VIEW later" if "later" in wh.views else LATER), self.rows),
            ]
        )

    def step(self, pest: Pest) -> None:
        """Do one thing, interrupted; look what has become of it."""
        call, after = self._step()
        pest.interrupt(call, self.rng.choice(MOMENTS) * self.rng.random())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        stats = self.wh.stats()
        assert stats.rows["r"] in (len(self.rows), len(after)), (stats.rows, len(self.rows), len(after))
        self.rows = after if stats.rows["r"] == len(after) else self.rows
        wanted = sorted(views(self.rows))
        assert sorted(self.wh.view("v").rows()) == wanted
        if self.wh._state.subscriptions.views:
            assert sorted(self.heard.values()) == wanted
        if "later" in self.wh.views:
            assert sum(n for _, n in self.wh.view("w").rows()) == sum(row[2] == "ab" for row in self.rows.values())


def views(rows: Rows) -> Iterator[tuple[int, int, int, int]]:
    """Yield the rows of v."""
    groups: dict[int, list[int]] = {}
    for id, a, _ in rows.values():
        groups.setdefault(a, []).append(id)
    for a, ids in groups.items():
        yield a, len(ids), sum(ids), max(ids)


def fill(engine: str, rng: random.Random, pest: Pest) -> None:
    """Fill a warehouse, interrupted: it is empty then, or full."""
    rows = [(id, rng.randrange(30), "ab") for id in range(3000)]
    wh = cumulus.Warehouse(SQL, engine=engine)
    pest.interrupt(lambda: wh.fill({"r": rows}), rng.choice((1e-3, 1e-1)) * rng.random())
    assert sorted(wh.view("v").rows()) == (sorted(views({row[0]: row for row in rows})) if wh.stats().events else [])


def main(engine: str, seed: int, steps: int) -> None:
    """Run so many steps."""
    sys.setswitchinterval(1e-5)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pest, run = Pest(), Run(engine, seed)
    for step in range(steps):
        if step % 20 == 0:
            fill(engine, run.rng, pest)
        run.step(pest)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
