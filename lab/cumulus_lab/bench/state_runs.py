"""What a single event costs by how much the maps hold: `cumulus bench engine --states`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import thread_time_ns
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import arrow_type
from cumulus.cli.terminal.charts import bars
from cumulus.compiler import compile_sql
from cumulus.engine.batches import Columns, rows_of
from cumulus.engine.session import Session
from cumulus.explain.cost import cost_classes
from cumulus.garbage_collection import gc_paused
from cumulus.warehouse.loading.initial_load import fill
from cumulus_lab.bench.agreement import check, compare, view_rows
from cumulus_lab.bench.engine_runs import optimised_engine
from cumulus_lab.workloads import benchmark, orders

_FEWEST_PAIRS, _MOST_PAIRS = 10, 10_000
_SAMPLE_NS = 200_000_000
"""Nanoseconds that a sample takes at most, or the fewest pairs if these take longer."""

_COMPARED = 10_000
"""Rows up to which DuckDB computes the view anew: some of these joins have no equality."""

Tables: TypeAlias = dict[str, Mapping[str, npt.NDArray[np.int64]]]
"""Table → column → values."""


@dataclass(frozen=True)
class Growing:
    """A program, and rows for it in any number.

    Parameters
    ----------
    fill
        Returns as many rows as given, over all tables, for the state.
    more
        Returns rows to insert and delete, all different from those of a state of the first number; the second is how
        many.
    """

    script: str
    view: str
    fill: Callable[[int, np.random.Generator], Tables]
    more: Callable[[int, int, np.random.Generator], Tables]


def _orders(count: int, choose: np.random.Generator) -> Tables:
    made = orders.stream(scale=count / 2_550_000, deletes=0, seed=int(choose.integers(1 << 30)))
    return {
        name: {column: table[column].to_numpy() for column in table.column_names} for name, table in made.tables.items()
    }


def _items(count: int, more: int, choose: np.random.Generator) -> Tables:
    oids = choose.integers(0, max(1, round(500_000 * count / 2_550_000)), more)
    return {"lineitem": {"oid": oids, "price": choose.integers(100, 1_000_000, more)}}


_KEYED = orders.SQL.replace("cid BIGINT NOT NULL, nation", "cid BIGINT PRIMARY KEY RELY, nation").replace(
    "oid BIGINT NOT NULL, rate", "oid BIGINT PRIMARY KEY RELY, rate"
)
_GROUPS = 100
_ENDS = """
CREATE TABLE r (g INTEGER NOT NULL, x BIGINT NOT NULL);
CREATE VIEW ends AS SELECT g, MIN(x) AS least, MAX(x) AS most FROM r GROUP BY g;
"""


def _numbers(count: int, choose: np.random.Generator) -> Tables:
    return {"r": {"g": choose.integers(0, _GROUPS, count), "x": choose.permutation(count)}}


def _new_ends(count: int, more: int, choose: np.random.Generator) -> Tables:
    """Return rows beyond both ends of their groups: when one goes, the next end must be found."""
    beyond = 1 + np.arange(more) // 2
    x = np.where(np.arange(more) % 2, -beyond, count + beyond)
    return {"r": {"g": choose.integers(0, _GROUPS, more), "x": x}}


def _book(count: int, choose: np.random.Generator) -> Tables:
    return _bids(np.arange(count), 2 * choose.permutation(count), 2 * choose.permutation(count), choose)


def _bids_between(count: int, more: int, choose: np.random.Generator) -> Tables:
    """Return bids at times and prices anywhere between those that stand."""
    times, prices = 2 * choose.integers(0, count, (2, more)) + 1
    return _bids(count + np.arange(more), times, prices, choose)


def _bids(ids: Any, times: Any, prices: Any, choose: np.random.Generator) -> Tables:
    volumes, brokers = 100 * choose.integers(1, 21, len(ids)), choose.integers(0, 10, len(ids))
    return {"bids": {"t": times, "id": ids, "broker_id": brokers, "volume": volumes, "price": prices}}


def programs() -> dict[str, Growing]:
    """Return the programs, by what they stand for."""
    book = benchmark("orderbook")
    bsp, vwap = (book.sql(query, columns="used", keys="rely") for query in ("bsp", "vwap"))
    return {
        "example 2.1, with keys": Growing(_KEYED, "revenue", _orders, _items),
        "MIN, MAX": Growing(_ENDS, "ends", _numbers, _new_ends),
        "SUM over a range (bsp)": Growing(bsp, "bsp", _book, _bids_between),
        "threshold (vwap)": Growing(vwap, "vwap", _book, _bids_between),
    }


def measure(states: Sequence[int], samples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield for each program and state what an event costs, in nanoseconds of the thread's CPU time.

    Beside it stands what `explain` says of the event, which knows nothing of how an engine keeps maps in order. Events
    are single transactions, fired from Arrow columns: a row comes, and goes again. So the state stays as large
    as it is.

    Raises
    ------
    CumulusError
        The view is not what it was before, or not what DuckDB computes.
    """
    for name, each in programs().items():
        costs = cost_classes(compile_sql(each.script))[each.view]
        smallest: float | None = None
        for rows in sorted(set(states)):
            found, table, size = _measured(each, rows, samples, np.random.default_rng(seed))
            middle = median(found)
            smallest = smallest or middle
            yield {
                "program": name,
                "explained": costs[table].value,
                "rows": rows,
                "ns_per_event": round(middle, 1),
                "least": round(min(found), 1),
                "most": round(max(found), 1),
                "of_smallest": round(middle / smallest, 2),
                "bytes": size,
            }


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a bar for each row: equal ones are a cost that does not depend on the state."""
    entries: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        entries.setdefault(row["program"], []).append((f"{row['rows']:,} rows", row["ns_per_event"]))
    return "\n".join(bars(title, found, "ns") for title, found in entries.items())


def _measured(each: Growing, rows: int, samples: int, choose: np.random.Generator) -> tuple[list[float], str, int]:
    """Return nanoseconds per event of each sample, the table that has the events, and the bytes of the maps."""
    program = compile_sql(each.script)
    session = Session(program, {}, optimised_engine(program))
    bulks = [_events(session, name, columns) for name, columns in each.fill(rows, choose).items()]
    fill(session, bulks, {}, "auto", set())
    before, size = view_rows(session, each.view), session.engine.memory()
    count = _warmed(session, lambda pairs: each.more(rows, pairs, choose))
    found = [_sample(session, each.more(rows, count, choose)) for _ in range(samples)]
    what = f"the native engine after {rows:,} rows"
    compare(before, view_rows(session, each.view), f"{each.view} by {what}")
    if rows <= _COMPARED:
        standing = {name: table for bulk in bulks for name, table in bulk.tables.items()}
        check(session, each.view, each.script, standing, what)
    (table,) = each.more(rows, 1, choose)
    return found, table, size


def _warmed(session: Session, more: Callable[[int], Tables]) -> int:
    """Return how many pairs a sample has; the first events, for which all is far away, count for nothing."""
    count = _FEWEST_PAIRS
    while (took := 2 * count * _sample(session, more(count))) < _SAMPLE_NS / 4 and count < _MOST_PAIRS:
        count = min(4 * count, _MOST_PAIRS)
    return min(max(round(count * _SAMPLE_NS / took), _FEWEST_PAIRS), _MOST_PAIRS)


def _sample(session: Session, rows: Tables) -> float:
    """Insert and delete rows in turn; return the nanoseconds that an event took."""
    ((name, columns),) = rows.items()
    bulk = _events(session, name, {column: np.repeat(values, 2) for column, values in columns.items()})
    bulk.kinds[1::2] = 0
    gc.collect()
    with gc_paused():
        start = thread_time_ns()
        for _, event in session.each(bulk):
            session.commit([event])
        return (thread_time_ns() - start) / len(bulk)


def _events(session: Session, name: str, columns: Mapping[str, npt.NDArray[np.int64]]) -> Columns:
    """Return insertions of rows, with the types of their table."""
    relation = session.relation(name)
    arrays = {each.name: pa.array(columns[each.name], arrow_type(each.type)) for each in relation.columns if each.type}
    found = rows_of(1, relation, pa.table(arrays), relation.checked)
    assert isinstance(found, Columns)
    return found
