"""Rows that are there from the start: filled as is quicker, by SQL, and as events (`--bulk`).

Each way runs in a process of its own, so that its peak of memory is nobody else's.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.events import Event
from cumulus.compiler import compile_sql
from cumulus.engine.batches import rows_of
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.engine.session import Session
from cumulus.m3.dataflow import parents_first
from cumulus.machine_facts import peak_memory
from cumulus.warehouse.loading.initial_load import Filled
from cumulus.warehouse.loading.initial_load import fill as fill_warehouse
from cumulus.warehouse.view_changes import carry_over, compute
from cumulus.workloads import checks
from cumulus_lab.bench.agreement import check, compare, recomputed_view, view_rows
from cumulus_lab.bench.engine_runs import batches_of, columns_of, insert_tables, optimised_engine
from cumulus_lab.workloads.orders import Interleaved

WAYS = ("fill", "sql", "create_view", "replay", "interpreter")
_BATCH = 100_000
_SHARE = 0.05
"""So much of the events the interpreter replays, the last ones; the rest is extrapolated."""

SECONDS = 5.0
"""After which it stops even so; its first event may take `_PATIENCE` times as long."""

_PATIENCE = 2.0

_MB = 1 << 20


def measure(
    query: str, script: str, static: Mapping[str, pa.Table], stream: Interleaved, repetitions: int
) -> dict[str, Any]:
    """Return how long the same rows take on each way, in seconds that pass, and its peak of memory.

    `fill` is what `Warehouse.fill` does of itself, and `fill_way` what it has chosen; `sql` is what it does if it must
    compute each map by its SQL; `create_view` does that from the rows that a warehouse has kept, as CREATE VIEW on a
    live one does; `replay` takes the rows as events in their order, in batches of Arrow columns; `interpreter` a part
    of the events, on maps that SQL has filled. Where `interpreter_events` is 0, not even one was done in time, and
    what is said of the interpreter is the least it can be.

    The stream has insertions only.

    Raises
    ------
    CumulusError
        A view is wrong.
    """
    assert bool(np.all(stream.kinds & 1)), "rows only come"
    with tempfile.TemporaryDirectory(prefix="cumulus-bulk-") as folder:
        _write(Path(folder), static, stream)
        rounds = [{way: _in_child(way, query, script, folder) for way in WAYS} for _ in range(repetitions)]
    runs = {way: [each[way] for each in rounds] for way in WAYS}
    seconds = {way: median(run["seconds"] for run in found) for way, found in runs.items()}
    rows = len(stream.kinds) + sum(table.num_rows for table in static.values())
    nbytes = sum(table.nbytes for table in [*static.values(), *stream.tables.values()])
    return {
        "query": query,
        "rows": rows,
        **{f"{way}_s": round(took, 4) for way, took in seconds.items()},
        "fill_way": "/".join(sorted({run["way"] for run in runs["fill"]})),
        "replay_by_fill": round(seconds["replay"] / seconds["fill"], 2),
        "interpreter_by_fill": round(seconds["interpreter"] / seconds["fill"], 1),
        "replay_events_per_s": round(rows / seconds["replay"]),
        "interpreter_events": runs["interpreter"][0]["events"],
        "rows_mb": round(nbytes / _MB, 1),
        "start_mb": round(median(run["start"] for run in runs["fill"]) / _MB),
        **{f"{way}_peak_mb": round(median(run["peak"] for run in found) / _MB) for way, found in runs.items()},
    }


def run(way: str, query: str, script: str, folder: str) -> dict[str, Any]:
    """Take the rows of a folder in one of `WAYS`; return seconds, events, and the peak of memory before and after."""
    static, stream = _read(Path(folder))
    tables = {**static, **stream.tables}
    session, act, before = _prepared(way, script, static, stream)
    start = peak_memory()
    began = perf_counter()
    done = act()
    seconds = perf_counter() - began
    peak = peak_memory()
    events = done if isinstance(done, int) else len(stream.kinds)
    if before + events == len(stream.kinds):
        compare(_answer(session, query, script, tables, Path(folder)), view_rows(session, query), f"{query} by {way}")
    elif events:
        there = stream.part(0, before + events).tables
        check(session, query, script, {**tables, **there}, way)
    chosen = done.way if isinstance(done, Filled) else way
    found = {"events": events, "start": start, "peak": peak, "way": chosen}
    return {"seconds": seconds * len(stream.kinds) / max(1, events), **found}


def _answer(session: Session, query: str, script: str, tables: Mapping[str, pa.Table], folder: Path) -> pa.Table:
    """Return what DuckDB computes from all rows, which may take minutes: once for all ways."""
    path = folder / "answer.arrow"
    if not path.exists():
        found = recomputed_view(session, query, script, tables)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
            writer.write_table(found)
    with pa.OSFile(str(path), "rb") as file:
        return pa.ipc.open_file(file).read_all()


def _prepared(
    way: str, script: str, static: Mapping[str, pa.Table], stream: Interleaved
) -> tuple[Session, Callable[[], object], int]:
    """Return what will hold the rows, what puts them in, and how many events are in it before.

    Who does not put in all events returns how many.
    """
    tables, count = {**static, **stream.tables}, len(stream.kinds)
    program = compile_sql(script, keep="all" if way == "create_view" else "auto")
    session = Session(program, {}, Interpreter(program) if way == "interpreter" else optimised_engine(program))

    def fill(way: str) -> Filled:
        order = [each for each in parents_first(program) if each.name in tables]
        bulks = [rows_of(1, each, tables[each.name], session.checkers[each.name]) for each in order]
        return fill_warehouse(session, bulks, {}, way, set())[0]

    def replay() -> None:
        insert_tables(session, static)
        for part in batches_of(stream, _BATCH):
            for name, table in part.tables.items():  # looked at as `Warehouse.apply` does
                rows_of(1, program.relation(name), table, session.checkers[name])
            session.commit_bulk(columns_of(program, part))

    match way:
        case "fill" | "sql":
            return session, lambda: fill("auto" if way == "fill" else way), 0
        case "replay":
            return session, replay, 0
        case "create_view":
            bare = compile_sql(";\n".join(checks.statements(script)[:-1]), keep="all")
            live = Session(bare, {}, optimised_engine(bare))
            insert_tables(live, tables)
            return session, lambda: carry_over(live, session, {}), 0
        case _:
            cut = count - max(1, round(count * _SHARE))
            compute(session, program.maps, {**static, **stream.part(0, cut).tables}, {})
            session.compute_assigned()
            events = [*columns_of(program, stream.part(cut, count))]
            return session, lambda: in_time(session, events), cut


class _LateError(BaseException):
    """An event takes too long. No Exception, which an engine would take for one of the event's."""


def in_time(session: Session, events: list[Event]) -> int:
    """Apply events until all are, or `SECONDS` are over; return how many were."""

    def give_up(*_: object) -> NoReturn:
        raise _LateError

    began, at, size = perf_counter(), 0, 1
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE * SECONDS)
    try:
        while at < len(events) and perf_counter() - began < SECONDS:
            session.commit(events[at : at + size])
            at, size = min(at + size, len(events)), min(2 * size, _BATCH)
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _LateError:
        return 0
    return at


def _in_child(*task: str) -> dict[str, Any]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, *task).result()


_KINDS = "kinds.npy"


def _write(folder: Path, static: Mapping[str, pa.Table], stream: Interleaved) -> None:
    for kind, tables in (("static", static), ("stream", stream.tables)):
        (folder / kind).mkdir()
        for place, (name, table) in enumerate(tables.items()):
            pq.write_table(table, folder / kind / f"{place}.{name}.parquet")
    np.save(folder / _KINDS, stream.kinds)


def _read(folder: Path) -> tuple[dict[str, pa.Table], Interleaved]:
    static, stream = (
        {path.name.split(".")[1]: pq.read_table(path) for path in sorted((folder / kind).iterdir())}
        for kind in ("static", "stream")
    )
    return static, Interleaved(stream, np.load(folder / _KINDS))
