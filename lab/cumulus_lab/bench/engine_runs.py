"""What `cumulus bench engine` measures: ways to feed a stream into an engine, timed by the thread's own CPU time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, thread_time, thread_time_ns
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from cumulus.engine.batches import Changes, Columns, rows_of
from cumulus.engine.integrity import wanted_indexes
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.protocol import Engine
from cumulus.engine.session import Session
from cumulus.garbage_collection import gc_paused
from cumulus.m3.program import Program
from cumulus.workloads import checks
from cumulus_lab.bench.c import CompiledC
from cumulus_lab.workloads.orders import Interleaved

T = TypeVar("T")

_FRESH = 1_000
_BULK = 100_000
Feed: TypeAlias = Callable[[Session, Interleaved], float]
"""Apply all events; return the seconds of CPU time that applying took."""


def columns_of(program: Program, part: Interleaved) -> Columns:
    """Return events as the engines take them."""
    return Columns([program.relation(name) for name in part.tables], [*part.tables.values()], part.kinds)


def batches_of(stream: Interleaved, batch: int) -> Iterator[Interleaved]:
    """Yield a stream in pieces of `batch` events."""
    for start in range(0, len(stream.kinds), batch):
        yield stream.part(start, min(start + batch, len(stream.kinds)))


def insert_tables(session: Session, tables: Mapping[str, pa.Table]) -> None:
    """Insert the rows of tables, one table after the other."""
    for name, table in tables.items():
        relation = session.relation(name)
        for start in range(0, table.num_rows, _BULK):
            session.commit_bulk(rows_of(1, relation, table.slice(start, _BULK), relation.checked))


def feed_columns(batch: int) -> Feed:
    """Return what feeds Arrow columns, each batch a transaction; their conversion counts."""

    def feed(session: Session, stream: Interleaved) -> float:
        bulks = [columns_of(session.program, part) for part in batches_of(stream, batch)]
        start = thread_time()
        for bulk in bulks:
            session.commit_bulk(bulk)
        return thread_time() - start

    return feed


def _timed(pieces: Iterable[T], take: Callable[[T], object]) -> float:
    """Return the seconds of CPU time that taking pieces needs; they are made one by one, which does not count."""
    took = 0.0
    for piece in pieces:
        start = thread_time()
        take(piece)
        took += thread_time() - start
    return took


def feed_tuples(batch: int) -> Feed:
    """Return what feeds lists of events as Python tuples, each list a transaction."""

    def feed(session: Session, stream: Interleaved) -> float:
        events = (columns_of(session.program, part) for part in batches_of(stream, batch))
        return _timed((Changes([*map(tuple, each)], lambda event: event) for each in events), session.commit_bulk)

    return feed


def feed_single(session: Session, stream: Interleaved) -> float:
    """Call the builtin of each event's table: a transaction for each, from a Python loop that counts, too.

    The values are made anew every few events, as in an application, which has just got them from somewhere.
    """
    entrances = {name: session.builtin(name, _never) for name in stream.tables}
    events = (columns_of(session.program, part) for part in batches_of(stream, _FRESH))

    def call(calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        for entrance, event in calls:
            entrance(*event)

    session.rest(True)
    gc.collect()
    with gc_paused():
        took = _timed(([(entrances[name], (sign, *row)) for sign, name, row in each] for each in events), call)
    session.rest(False)
    return took


def feed_events(batch: int) -> Feed:
    """Return what applies checked events one by one, in transactions of `batch`: what an interpreter does at best."""

    def feed(session: Session, stream: Interleaved) -> float:
        with gc_paused():
            return _timed(([*columns_of(session.program, part)] for part in batches_of(stream, batch)), session.commit)

    return feed


def _never(*event: Any) -> None:
    raise AssertionError(f"{event} is not ordinary")


@dataclass
class Contestant:
    """One way: with an engine of empty maps that `make` returns, into which `feed` puts the events."""

    name: str
    make: Callable[[Program], Engine]
    feed: Feed
    rates: list[float] = field(default_factory=list)
    compile_ms: list[float] = field(default_factory=list)
    events: int = 0
    bytes: int = 0

    def run(self, program: Program, stream: Interleaved) -> Session:
        """Feed the stream once, and note how fast that was."""
        start = perf_counter()
        session = Session(program, {}, self.make(program))
        self.compile_ms.append(1000 * (perf_counter() - start))
        self.events = len(stream.kinds)
        self.rates.append(self.events / self.feed(session, stream))
        self.bytes = session.engine.memory()
        return session

    def row(self) -> dict[str, Any]:
        """Return what was measured."""
        return {
            "engine": self.name,
            "events": self.events,
            "events_per_s": round(median(self.rates)),
            "least": round(min(self.rates)),
            "most": round(max(self.rates)),
            "compile_ms": round(median(self.compile_ms), 1),
            "bytes": self.bytes,
        }


def optimised_engine(program: Program) -> NativeEngine:
    """Return the native engine with code as good as it gets, which checks keys and references."""
    return NativeEngine(program, indexes=wanted_indexes(program), level=2)


def compiled_by_c(program: Program) -> NativeEngine:
    """Return the native engine with the same kernel, compiled by the C compiler."""
    return NativeEngine(program, load=CompiledC)


def contestants(batch: int, *, with_c: bool) -> list[Contestant]:
    """Return the ways that are compared."""
    found = [
        Contestant("native-batch", optimised_engine, feed_columns(batch)),
        Contestant("native-single", optimised_engine, feed_single),
        Contestant("native-tuples", optimised_engine, feed_tuples(batch)),
        Contestant("interpreter", Interpreter, feed_events(batch)),
    ]
    return [*found, Contestant("c", compiled_by_c, feed_columns(batch))] if with_c else found


def latencies(program: Program, stream: Interleaved, singles: int) -> dict[str, float]:
    """Return how long single events take when the maps are full, in microseconds of the thread's CPU time."""
    session = Session(program, {}, optimised_engine(program))
    count = len(stream.kinds)
    feed_columns(_BULK)(session, stream.part(0, count - singles))
    entrances = {name: session.builtin(name, _never) for name in stream.tables}
    last = columns_of(program, stream.part(count - singles, count))
    calls = [(entrances[name], (sign, *row)) for sign, name, row in last]
    session.rest(True)
    took = np.zeros(len(calls), dtype=np.int64)
    nothing = np.zeros(len(calls), dtype=np.int64)
    for place in range(len(calls)):
        start = thread_time_ns()
        nothing[place] = thread_time_ns() - start
    gc.collect()
    with gc_paused():
        for place, (entrance, event) in enumerate(calls):
            start = thread_time_ns()
            entrance(*event)
            took[place] = thread_time_ns() - start
    session.rest(False)
    own = took - int(np.median(nothing))
    rows = sum(session.engine.size(each.name) for each in program.maps)
    return {
        "rows": rows,
        **{f"p{share:g}_us": round(float(np.percentile(own, share)) / 1000, 2) for share in (50, 99, 99.9, 99.99)},
        "worst_us": round(float(own.max()) / 1000, 1),
    }


def time_recompute(query: str, script: str, tables: Mapping[str, pa.Table], repetitions: int) -> tuple[pa.Table, float]:
    """Return what DuckDB computes for a query anew, and the median of how long that takes, in milliseconds."""
    select = checks.views(script)[query]
    took = []
    for _ in range(repetitions):
        start = perf_counter()
        found = checks.recompute(select, tables)
        took.append(1000 * (perf_counter() - start))
    return found, median(took)
