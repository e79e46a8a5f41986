"""The star at the benchmark's own scale, and as a stream: dimensions first, then line orders that come and go."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.errors import UsageError
from cumulus_lab.workloads import words
from cumulus_lab.workloads.orders import Interleaved
from cumulus_lab.workloads.ssb.samples import FIRST_DAY, LAST_DAY, as_table, day_key, day_row, dimensions
from cumulus_lab.workloads.ssb.schema import BENCHMARK, TABLES

STATIC = ("dates",)
"""Tables of which nothing comes later: the calendar."""

_LONGEST = 90
"""Days at most from an order to its promised delivery."""

_LATER = 200_000
"""A line order that goes does so within so many further ones."""

Numbers = npt.NDArray[np.int64]


@lru_cache(maxsize=1)
def generate(sf: float, seed: int = 0) -> dict[str, pa.Table]:
    """Return all five tables, in `TABLES`' order, with values drawn evenly; the same parameters give the same rows.

    Parameters
    ----------
    sf
        1: 6,000,000 line orders, 30,000 customers, 2,000 suppliers, 200,000 parts. The benchmark's parts grow with the
        logarithm of what is beyond 1; below it, like all else, with the scale. The calendar has its 2,557 days.

    Raises
    ------
    UsageError
        `sf` is not positive.

    Examples
    --------
    >>> {name: table.num_rows for name, table in generate(0.001).items()}
    {'dates': 2557, 'customer': 30, 'supplier': 5, 'part': 200, 'lineorder': 6000}
    """
    if sf <= 0:
        raise UsageError(f"the scale factor is {sf}", hint="It can be any number above 0.")
    parts = 200_000 * (1 + np.log2(sf) if sf > 1 else sf)
    customers, parts, suppliers = (max(round(count), 5) for count in (30_000 * sf, parts, 2_000 * sf))
    days = [FIRST_DAY + dt.timedelta(days=number) for number in range((LAST_DAY - FIRST_DAY).days + 1)]
    rows = {
        "dates": [day_row(day) for day in days],
        **dimensions(random.Random(seed), 0.0, customers, parts, suppliers),
    }
    keys = np.array([day_key(day) for day in days])
    made = {name: as_table(name, found) for name, found in rows.items()}
    lines = _lines(np.random.default_rng(seed), max(round(6_000_000 * sf), 8), (customers, parts, suppliers), keys)
    return {name: made.get(name, lines) for name in TABLES}


def _lines(choose: np.random.Generator, count: int, sizes: tuple[int, int, int], days: Numbers) -> pa.Table:
    """Return line orders in orders of one to seven; `days` are the keys of the calendar."""
    customers, parts, suppliers = sizes
    per_order = choose.integers(1, 8, count)
    order = np.repeat(np.arange(count), per_order)[:count]
    starts = np.flatnonzero(np.diff(order, prepend=-1))
    orders = len(starts)
    day = choose.integers(0, len(days) - _LONGEST, orders)[order]
    part = choose.integers(1, parts + 1, count)
    quantity, discount, tax = (choose.integers(*ends, count) for ends in ((1, 51), (0, 11), (0, 9)))
    price = 90_000 + part // 10 % 20_001 + 100 * (part % 1_000)
    extended = quantity * price
    totals = np.add.reduceat(extended * (100 - discount) * (100 + tax), starts) // 10_000
    columns = {
        "lo_orderkey": order + 1,
        "lo_linenumber": np.arange(count) - starts[order] + 1,
        "lo_custkey": choose.integers(1, customers + 1, orders)[order],
        "lo_partkey": part,
        "lo_suppkey": choose.integers(1, suppliers + 1, count),
        "lo_orderdate": days[day],
        "lo_orderpriority": _texts(words.PRIORITIES, choose.integers(0, len(words.PRIORITIES), orders)[order]),
        "lo_shippriority": _texts(("0",), np.zeros(count, np.int64)),
        "lo_quantity": quantity,
        "lo_extendedprice": extended,
        "lo_ordtotalprice": totals[order],
        "lo_discount": discount,
        "lo_revenue": extended * (100 - discount) // 100,
        "lo_supplycost": price * 6 // 10,
        "lo_tax": tax,
        "lo_commitdate": days[day + choose.integers(30, _LONGEST + 1, count)],
        "lo_shipmode": _texts(words.MODES, choose.integers(0, len(words.MODES), count)),
    }
    schema = BENCHMARK.schema("lineorder")
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _texts(values: Sequence[str], places: Numbers) -> pa.Array:
    return pa.array(values).take(pa.array(places))


def stream(
    *, query: str, sf: float, deletes: float = 0.1, columns: str = "used", seed: int = 0
) -> tuple[dict[str, pa.Table], Interleaved]:
    """Return the tables of `STATIC` that `query` reads, and the events of the others: parents come first.

    `deletes` is the share of the line orders that go again, `columns` one of `cumulus.workloads.benchmark.COLUMNS`.

    Examples
    --------
    >>> static, events = stream(query="q1_1", sf=0.001, deletes=0.5)
    >>> list(static), list(events.tables), events.final()["lineorder"].num_rows < 4000
    (['dates'], ['lineorder'], True)
    """
    if not 0 <= deletes <= 1:
        raise UsageError(f"deletes is {deletes}", hint="It can be 0 to 1.")
    made = generate(sf, seed)
    tables = {name: made[name].select(list(used)) for name, used in BENCHMARK.query_columns(query, columns).items()}
    static = {name: tables.pop(name) for name in STATIC if name in tables}
    lines = tables["lineorder"]
    choose = np.random.default_rng(seed)
    gone = np.flatnonzero(choose.random(lines.num_rows) < deletes)
    times = np.concatenate([np.arange(lines.num_rows), gone + choose.integers(1, _LATER, len(gone)) + 0.5])
    in_time = np.argsort(times, kind="stable")
    place = len(tables) - 1
    assert [*tables][place] == "lineorder", "parents come first"
    before = [np.full(table.num_rows, number << 1 | 1) for number, table in enumerate(tables.values())][:place]
    kinds = np.where(in_time < lines.num_rows, place << 1 | 1, place << 1)
    which = np.concatenate([np.arange(lines.num_rows), gone])[in_time]
    tables["lineorder"] = lines.take(pa.array(which))
    return static, Interleaved(tables, np.concatenate([*before, kinds]).astype(np.uint8))
