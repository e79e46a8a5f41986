"""The queries of a benchmark through the native engine: events a second by batch, beside what others have published."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.compiler import compile_sql
from cumulus.engine.native.build import forget
from cumulus.engine.native.engine import NativeEngine
from cumulus.engine.session import Session
from cumulus.errors import UsageError
from cumulus.garbage_collection import gc_paused
from cumulus_lab.bench.agreement import check
from cumulus_lab.bench.engine_runs import batches_of, columns_of, insert_tables, optimised_engine
from cumulus_lab.workloads import queries
from cumulus_lab.workloads.orders import Interleaved
from cumulus_lab.workloads.ssb import streams as ssb

STATIC = {"tpch": ("region", "nation"), "ssb": ssb.STATIC, "orderbook": ()}
"""Tables that are loaded before a stream, parents first: keys are trusted."""

DELETES = {"tpch": (0.0, 0.1), "ssb": (0.0, 0.1), "orderbook": (0.5,)}
"""Shares of deletions with which each workload is taken; the book of orders has its own."""

DBTOASTER = {
    "q1": 4.4e6,
    "q3": 5.3e6,
    "q4": 10.8e6,
    "q5": 0.69e6,
    "q6": 138e6,
    "q7": 0.78e6,
    "q8": 0.28e6,
    "q9": 0.11e6,
    "q10": 7.1e6,
    "q11": 0.59e6,
    "q12": 8.7e6,
    "q13": 0.78e6,
    "q14": 53e6,
    "q15": 964,
    "q16": 0.13e6,
    "q17": 0.38e6,
    "q18": 1.3e6,
    "q19": 10e6,
    "q20": 2.2e6,
    "q21": 0.84e6,
    "q22": 0.82e6,
}
"""Events a second of TPC-H at 10 GB that DBToaster's authors published for their C++, best of one event or a batch at a
time, one thread, on their machine."""


def scripts_of(workload: str, query: str, keys: str = "rely") -> dict[str, str]:
    """Return query → script, for one query or all; nation and region are static, `keys` as of the benchmark."""
    if workload not in STATIC:
        raise UsageError(f"unknown workload {workload!r}", hint=f"There are {', '.join(STATIC)}.")
    return queries(workload, query, columns="used", keys=keys, static=STATIC[workload])


def stream_of(
    workload: str, query: str, *, sf: float, deletes: float, seed: int, cache: Path | None
) -> tuple[dict[str, pa.Table], Interleaved]:
    """Return the static tables of a query's stream, and its events; for the order book, `sf` is millions of events."""
    if workload == "orderbook":
        return {}, _of_events(query, round(sf * 1e6), seed)
    if workload == "ssb":
        return ssb.stream(query=query, sf=sf, deletes=deletes, seed=seed)
    from cumulus_lab.workloads import tpch

    folder = tpch.generate(sf, cache or Path(tempfile.gettempdir()) / "cumulus-tpch")
    made = tpch.stream(folder, query=query, batch=1 << 40, deletes=deletes, columns="used", seed=seed)
    (epoch,) = made.epochs()
    static = {name: _plain(epoch[name]) for name in STATIC[workload] if name in epoch}
    return static, interleave({name: table for name, table in epoch.items() if name not in static})


def _of_events(query: str, count: int, seed: int) -> Interleaved:
    from cumulus.workloads import changes
    from cumulus_lab.workloads import orderbook
    from cumulus_lab.workloads.orderbook.schema import BENCHMARK, TABLES

    used = BENCHMARK.query_columns(query, "used")
    schemas = {name: BENCHMARK.schema(name) for name in TABLES}
    (epoch,) = changes.epochs(orderbook.events(count, book=1000, seed=seed), schemas, count)
    return interleave({name: epoch[name].select(["op", "seq", *columns]) for name, columns in used.items()})


def insertions(stream: Interleaved) -> Interleaved:
    """Return a stream without its deletions: all rows that ever came."""
    comes = stream.kinds & 1 == 1
    tables = {
        name: table.filter(pa.array(comes[stream.kinds >> 1 == place]))
        for place, (name, table) in enumerate(stream.tables.items())
    }
    return Interleaved(tables, stream.kinds[comes])


def _plain(table: pa.Table) -> pa.Table:
    return table.drop_columns(["op", "seq"])


def interleave(epoch: Mapping[str, pa.Table]) -> Interleaved:
    """Return tables of changes (module `cumulus.workloads.changes`), insertions and deletions only, in their order."""
    seqs = [table.column("seq").to_numpy() for table in epoch.values()]
    tables = {
        name: _plain(table.take(pa.array(np.argsort(seq))))
        for (name, table), seq in zip(epoch.items(), seqs, strict=True)
    }
    kinds = [
        place << 1 | pc.equal(table.column("op"), "i").to_numpy().astype(np.uint8)
        for place, table in enumerate(epoch.values())
    ]
    order = np.argsort(np.concatenate(seqs), kind="stable")
    return Interleaved(tables, np.concatenate(kinds)[order].astype(np.uint8))


def measure(
    query: str,
    script: str,
    static: Mapping[str, pa.Table],
    stream: Interleaved,
    batch: int,
    seconds: float,
    repetitions: int,
) -> dict[str, Any]:
    """Feed a stream in batches; return events a second of CPU time, and what stands beside them.

    The view of the last run is compared with DuckDB's answer over the events that went in.

    Parameters
    ----------
    batch
        Events in a transaction; 1 fires them one by one, from columns, too.
    seconds
        Of CPU time, after which a run ends: what is slow would take hours.

    Raises
    ------
    CumulusError
        The view is wrong.
    """
    program = compile_sql(script)
    rates, events, took = [], 0, 0.0
    for _ in range(repetitions):
        session = Session(program, {}, optimised_engine(program))
        insert_tables(session, static)
        events, took = _feed(session, stream, batch, seconds)
        rates.append(events / took)
    check(session, query, script, {**static, **stream.part(0, events).final()}, f"the native engine, batch {batch:,}")
    live = sum(max(count, 0) for count in session.counters.rows.values())
    return {
        "events": events,
        "events_per_s": round(median(rates)),
        "least": round(min(rates)),
        "most": round(max(rates)),
        "bytes_per_row": round(session.engine.memory() / max(live, 1), 1),
        "whole_stream": events == len(stream.kinds),
    }


def _feed(session: Session, stream: Interleaved, batch: int, seconds: float) -> tuple[int, float]:
    events, took = 0, 0.0
    gc.collect()
    with gc_paused():
        for part in batches_of(stream, batch if batch > 1 else 10_000):
            bulk = columns_of(session.program, part)
            start = thread_time()
            if batch == 1:
                for _, event in session.each(bulk):
                    session.commit([event])
            else:
                session.commit_bulk(bulk)
            took += thread_time() - start
            events += len(bulk)
            if took > seconds:
                break
    return events, took


def compile_ms(script: str) -> tuple[float, float]:
    """Return how long a program takes to be compiled at once and to be loaded from the cache, in milliseconds."""
    program = compile_sql(script)
    took = []
    before = os.environ.get("CUMULUS_CACHE")
    with tempfile.TemporaryDirectory(prefix="cumulus-cache-") as folder:
        os.environ["CUMULUS_CACHE"] = folder
        try:
            for _ in range(2):
                forget()
                start = perf_counter()
                NativeEngine(program)
                took.append(round(1000 * (perf_counter() - start), 1))
        finally:
            if before is None:
                del os.environ["CUMULUS_CACHE"]
            else:
                os.environ["CUMULUS_CACHE"] = before
            forget()
    return took[0], took[1]
