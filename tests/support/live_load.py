"""Clients that send rows to a live cluster whatever happens to it, and what its epochs must show of them.

Every sale has an id of its own, so a row that is lost or doubled shows. Rows whose call has failed may be in or not,
but stay what they are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread, current_thread
from types import TracebackType
from typing import Any

import duckdb

import cumulus
from cumulus.cluster.live import daemon
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.mode import Mode
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.committed.manifest import committed_epochs, read_manifest
from cumulus.epochs.output.query import query
from cumulus.errors import DelayError, NotRunningError, RemoteProtocolError
from cumulus.hosts import WriteReceipt

TABLES = """
CREATE TABLE people (p INT PRIMARY KEY, town VARCHAR);
CREATE TABLE sales (id BIGINT NOT NULL, p INT NOT NULL, amount INT NOT NULL);
"""
VIEWS = {
    "by_town": "SELECT town, SUM(amount) AS a, COUNT(*) AS n FROM sales JOIN people USING (p) GROUP BY town",
    "different": "SELECT COUNT(DISTINCT amount) AS n FROM sales",
}
LISTED = "CREATE VIEW listed AS SELECT id, p, amount, COUNT(*) AS n FROM sales GROUP BY id, p, amount;"
SCRIPT = TABLES + LISTED + "".join(f"CREATE VIEW {name} AS {select};\n" for name, select in VIEWS.items())
PEOPLE = [(p, f"town{p % 4}") for p in range(20)]
Sale = tuple[int, int, int]


def settings_of(home: Path, **settings: Any) -> daemon.LiveSettings:
    """Return what a cluster of two nodes and two switches is started with."""
    program = str(compile_sql(SCRIPT, rely=False, enforced=False))
    others = {"engine": "interpreter", "keep": 100_000, **settings}
    return daemon.LiveSettings(program, (), str(home), Mode.EVENTUAL.value, 2, 2, 0.1, "", (), others)


@contextmanager
def running(home: Path, **settings: Any) -> Iterator[None]:
    """Keep a cluster running in processes of its own."""
    daemon.start(settings_of(home, **settings))
    try:
        yield
    finally:
        with suppress(NotRunningError):
            daemon.stop(home)


class LiveLoad:
    """Clients in threads of their own, as a context.

    Parameters
    ----------
    clients
        How many.
    pause_s
        Of each, between two calls.
    timeout_s
        After which a call has failed.
    ahead
        So many epochs before that of a call's token some of its rows may be in: switches share the table.
    """

    def __init__(
        self, home: Path, clients: int = 3, pause_s: float = 0.02, timeout_s: float = 30.0, ahead: int = 0
    ) -> None:
        self.home = home
        self.inserted: dict[Sale, int] = {}
        """Sale → the epoch of its token; 0 if its call has failed."""
        self.deleted: dict[Sale, int] = {}
        self.failed: list[Exception] = []
        self._pause_s, self._timeout_s, self._ahead = pause_s, timeout_s, ahead
        self._last: dict[str, int] = {}
        """Thread → the epoch of its last token."""
        self._lock, self._is_over = Lock(), Event()
        self._threads = [Thread(target=self._feed, args=(number,)) for number in range(clients)]
        self.problems: list[BaseException] = []

    def __enter__(self) -> LiveLoad:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._is_over.set()
        for each in self._threads:
            each.join()
        if kind is None:
            assert not self.problems, self.problems

    def wait_for_rows(self, count: int, seconds: float = 120.0) -> None:
        """Wait until so many more sales are acknowledged."""
        wanted, until = self.acknowledged + count, time.monotonic() + seconds
        while self.acknowledged < wanted:
            assert time.monotonic() < until, f"{wanted - self.acknowledged} rows are missing; {self.failed[-1:]}"
            assert not self.problems, self.problems
            time.sleep(0.02)

    @property
    def acknowledged(self) -> int:
        """How many sales have an epoch."""
        with self._lock:
            return sum(map(bool, self.inserted.values()))

    def _feed(self, number: int) -> None:
        try:
            self._send_on(number, random.Random(number))
        except BaseException as problem:  # noqa: BLE001  # who waits for the thread says it
            self.problems.append(problem)

    def _send_on(self, number: int, draw: random.Random) -> None:
        client: ClusterClient | None = None
        mine: list[Sale] = []
        count = 0
        while not self._is_over.wait(self._pause_s):
            try:
                client = client or cumulus.connect(self.home, timeout_s=self._timeout_s)
            except NotRunningError:
                continue  # somebody starts it again
            if len(mine) > 5 and draw.random() < 0.3:
                rows = [mine.pop(draw.randrange(len(mine)))]
                if not self._call(client.delete, rows, self.deleted):
                    client = None
                continue
            made = range(count, count + draw.randrange(1, 4))
            count = made.stop
            rows = [(1_000_000 * number + at, draw.randrange(25), draw.randrange(100)) for at in made]
            if self._call(client.insert, rows, self.inserted):
                mine += rows
            else:
                client = None  # what comes next waits until there is a cluster again
        if client is not None:
            client.close()

    def _call(self, send: Callable[[str, Any], WriteReceipt], rows: list[Sale], into: dict[Sale, int]) -> bool:
        """Send rows; return whether they were acknowledged."""
        epoch = 0
        try:
            epoch = send("sales", rows).epoch
        except (DelayError, NotRunningError, RemoteProtocolError) as problem:
            self.failed.append(problem)
        with self._lock:
            into.update(dict.fromkeys(rows, epoch))
            last = self._last.get(name := current_thread().name, 0)
            assert not epoch or epoch >= last, f"epoch {epoch} was told behind {last}"
            self._last[name] = max(epoch, last)
        return epoch > 0

    @property
    def last(self) -> int:
        """The last epoch of a token."""
        with self._lock:
            return max((*self.inserted.values(), *self.deleted.values()))

    def settle(self) -> None:
        """Wait until all that was acknowledged is committed."""
        with cumulus.connect(self.home, timeout_s=120) as client:
            client.view("different", after=WriteReceipt(self.last, 0))

    def check(self) -> int:
        """Compare each committed epoch with DuckDB over the rows that it must have; return how many there were."""
        epochs = committed_epochs(self.home)
        before: set[Sale] = set()
        for epoch in epochs:
            if read_manifest(self.home, epoch).files("listed"):
                before = self._check_epoch(epoch, before)
        assert epochs[-1] >= self.last, f"epoch {self.last} was acknowledged, {epochs[-1]} is the last"
        return len(epochs)

    def _check_epoch(self, epoch: int, before: set[Sale]) -> set[Sale]:
        listed = [tuple(row.values()) for row in query(self.home, "FROM listed", epoch).to_pylist()]
        sales = {row[:3] for row in listed}
        assert {row[3] for row in listed} <= {1}, f"doubled in epoch {epoch}: {[row for row in listed if row[3] != 1]}"
        assert sales <= self.inserted.keys(), f"epoch {epoch} has what nobody has sent"
        for sale, since in self.inserted.items():
            gone = self.deleted.get(sale)  # None: nobody has tried; 0: it may be
            if gone is not None and 0 < gone <= epoch:
                assert sale not in sales, f"{sale} was deleted in epoch {gone}, and is in {epoch}"
            elif since > epoch >= since - self._ahead or (gone or 0) > epoch >= (gone or 0) - self._ahead:
                pass
            elif since > epoch:
                assert sale not in sales, f"{sale} came in epoch {since}, and is in {epoch}"
            elif since and gone != 0:
                assert sale in sales, f"{sale} came in epoch {since}, and is not in {epoch}"
            elif sale in before and gone is None:
                assert sale in sales, f"{sale} was in epoch {epoch - 1}, and is not in {epoch}"
        connection = duckdb.connect()
        connection.execute(TABLES)
        connection.executemany("INSERT INTO people VALUES (?, ?)", PEOPLE)
        if sales:
            connection.executemany("INSERT INTO sales VALUES (?, ?, ?)", sorted(sales))
        for name, select in VIEWS.items():
            found = [tuple(row.values()) for row in query(self.home, f"FROM {name}", epoch).to_pylist()]
            expected = sorted(connection.execute(select).fetchall())
            assert sorted(found) == expected, f"epoch {epoch}, {name}: {sorted(found)}, and it should be {expected}"
        return sales


def begin(home: Path) -> None:
    """Send the people, and wait until they are committed."""
    with cumulus.connect(home, timeout_s=60) as client:
        client.view("different", after=client.insert("people", PEOPLE))
