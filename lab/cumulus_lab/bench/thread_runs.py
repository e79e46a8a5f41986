"""Threads at once, each with a warehouse of its own: `cumulus bench engine --threads`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from threading import Barrier, Thread
from time import perf_counter
from typing import Any

from cumulus.compiler import compile_sql
from cumulus.engine.batches import Columns
from cumulus.engine.session import Session
from cumulus.errors import CumulusError
from cumulus.workloads.checks import statements
from cumulus_lab.bench.agreement import check
from cumulus_lab.bench.engine_runs import batches_of, columns_of, optimised_engine
from cumulus_lab.workloads import orders
from cumulus_lab.workloads.orders import Interleaved

_ITEMS = """
CREATE VIEW items AS
SELECT nation, COUNT(*) AS n, SUM(price) AS price
FROM customers c, orders o, lineitem l
WHERE c.cid = o.cid AND o.oid = l.oid
GROUP BY nation;
"""


def programs() -> dict[str, str]:
    """Return two scripts over the tables of example 2.1, by the name of their view."""
    tables = statements(orders.SQL)[:-1]
    return {"revenue": orders.SQL, "items": ";\n".join([*tables, _ITEMS])}


class _Work:
    """One program, and the stream of events that its thread feeds."""

    def __init__(self, view: str, script: str, stream: Interleaved, batch: int) -> None:
        self.view, self.script, self.stream, self.batch = view, script, stream, batch
        self.program = compile_sql(script)
        self.seconds = 0.0
        self.problem: BaseException | None = None

    def prepare(self) -> None:
        """Make an engine with empty maps, and the batches."""
        self.session = Session(self.program, {}, optimised_engine(self.program))
        self.bulks: list[Columns] = [columns_of(self.program, part) for part in batches_of(self.stream, self.batch)]

    def feed(self, start: Barrier) -> None:
        """Feed the stream when all are ready."""
        try:
            start.wait()
            began = perf_counter()
            for bulk in self.bulks:
                self.session.commit_bulk(bulk)
            self.seconds = perf_counter() - began
        except BaseException as problem:  # noqa: BLE001  # told where the threads are joined
            self.problem = problem

    def check(self) -> None:
        """Compare the view with DuckDB's."""
        check(
            self.session, self.view, self.script, self.stream.final(), f"one of several threads, batch {self.batch:,}"
        )


def measure(most: int, scale: float, batch: int, repetitions: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each program alone, then for two and more threads at once, up to `most`.

    Time is what passes until the last thread is done. `scaling` is how much longer the same work takes one after the
    other, `at_most` what that would be if no thread held another up.

    Raises
    ------
    CumulusError
        A view is wrong.
    """
    scripts = [*programs().items()]
    works = [
        _Work(*scripts[number % len(scripts)], orders.stream(scale=scale, seed=seed + number), batch)
        for number in range(most)
    ]
    alone: list[float] = []
    for work in works:
        seconds = _seconds([work], repetitions)
        alone.append(seconds)
        if len(alone) <= len(scripts):
            yield _row([work], [seconds], seconds)
    for count in range(2, most + 1):
        seconds = _seconds(works[:count], repetitions)
        yield _row(works[:count], alone[:count], seconds)


def _row(works: Sequence[_Work], alone: Sequence[float], seconds: float) -> dict[str, Any]:
    events = sum(len(work.stream.kinds) for work in works)
    return {
        "threads": len(works),
        "programs": ", ".join(dict.fromkeys(work.view for work in works)),
        "events": events,
        "seconds": round(seconds, 4),
        "events_per_s": round(events / seconds),
        "scaling": round(sum(alone) / seconds, 2),
        "at_most": round(sum(alone) / max(alone), 2),
    }


def _seconds(works: Sequence[_Work], repetitions: int) -> float:
    """Return the median of how long all threads together take."""
    took = []
    for _ in range(repetitions):
        for work in works:
            work.prepare()
        start = Barrier(len(works))
        threads = [Thread(target=work.feed, args=(start,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for work in works:
            if work.problem is not None:
                raise CumulusError(f"{work.view}: {work.problem}") from work.problem
        took.append(max(work.seconds for work in works))
    for work in works:
        work.check()
    return median(took)
