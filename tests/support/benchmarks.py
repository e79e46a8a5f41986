"""The benchmarks' queries on small data: which compile, and how each is fed to an engine and to DuckDB."""

from __future__ import annotations

from collections import Counter
from decimal import localcontext

import pyarrow as pa

from cumulus.catalog import Event
from cumulus.catalog.types import EXACT
from cumulus.compiler import compile_sql
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.workloads import checks
from cumulus_lab.workloads import benchmark, orderbook, ssb, tpch
from cumulus_lab.workloads.churn import churn
from support.differential import check_maps, check_views
from support.oracle import Oracle

NOT_YET: dict[str, set[str]] = {"tpch": set(), "ssb": set(), "orderbook": set()}
"""Queries that do not compile. A test fails as soon as one of them does: then it must leave this list."""

Placed = tuple[str, tuple[object, ...]]
"""A row and its table."""


def select_of(workload: str, query: str) -> str:
    """The SELECT of a query, read without our front end."""
    return checks.views(benchmark(workload).sql(query))[query]


def small_tables(workload: str, size: int, seed: int) -> dict[str, pa.Table]:
    """About `size` rows in all; every query finds something in those of the default seed."""
    match workload:
        case "tpch":
            return tpch.sample(orders=size // 7, seed=seed)
        case "ssb":
            return ssb.sample(lines=size // 2, seed=seed)
        case _:
            live: Counter[Placed] = Counter()
            for sign, name, row in book_events(size, seed):
                live[name, row] += sign
            return {name: standing(workload, name, live) for name in orderbook.TABLES}


def book_events(size: int, seed: int) -> list[Event]:
    return orderbook.events(size, book=max(size // 8, 20), seed=seed)


def standing(workload: str, name: str, live: Counter[Placed]) -> pa.Table:
    """The rows of one table that `live` counts."""
    schema = benchmark(workload).schema(name)
    rows = [row for (table, row), count in live.items() if count and table == name]
    if not rows:
        return schema.empty_table()
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)


def small_stream(workload: str, query: str, size: int, seed: int, keys: str) -> tuple[list[Event], list[int]]:
    """Events of the tables that a query reads, and after how many of them to compare."""
    names = benchmark(workload).query_columns(query, "used")
    if workload == "orderbook":
        events = [event for event in book_events(size, seed) if event.relation in names]
        return events, [0, len(events) // 3, 2 * len(events) // 3, len(events)]
    tables = {name: rows for name, rows in small_tables(workload, size, seed).items() if name in names}
    relations = benchmark(workload).tables if keys == "rely" else None
    events, full = churn(tables, relations=relations, seed=seed)
    return events, [0, full // 2, full, (full + len(events)) // 2, len(events)]


def differential(workload: str, query: str, *, size: int, keys: str, seed: int = 0) -> None:
    """Keep a query event by event and epoch by epoch; compare views and maps with DuckDB several times.

    With `keys` "rely" the stream keeps the promises of all foreign keys, with "none" rows come in any order. Raises
    UnsupportedError if the query does not compile.
    """
    program = compile_sql(benchmark(workload).sql(query, keys=keys), keep="none")
    by_event, by_epoch = Interpreter(program), Interpreter(program)
    plain = checks.statements(benchmark(workload).sql(query, keys="none"))
    oracle = Oracle(";\n".join(each for each in plain if each.startswith("CREATE TABLE")))
    live: Counter[Placed] = Counter()
    events, points = small_stream(workload, query, size, seed, keys)
    for start, end in zip([0, *points], points, strict=False):
        with localcontext(EXACT):
            for sign, relation, row in events[start:end]:
                by_event.begin()
                by_event.on_event(sign, relation, row)
                by_event.commit()
                live[relation, row] += sign
            apply_epoch(by_epoch, events[start:end])
        for relation in program.relations:
            oracle.database.register("now", standing(workload, relation.name, live))
            oracle.database.execute(f"DELETE FROM {relation.name}")
            oracle.database.execute(f"INSERT INTO {relation.name} FROM now")
        for engine in (by_event, by_epoch):
            check_views(program, engine, oracle, [select_of(workload, query)])
        check_maps(program, by_epoch, oracle)


def apply_epoch(engine: Interpreter, events: list[Event]) -> None:
    """Net changes as batches in one transaction: children leave before parents, parents come before children."""
    net: Counter[Placed] = Counter()
    for sign, relation, row in events:
        net[relation, row] += sign
    names = [relation.name for relation in engine.program.relations]
    engine.begin()
    for sign, ordered in ((-1, names[::-1]), (1, names)):
        for name in ordered:
            changed = {row: count for (table, row), count in net.items() if table == name and count * sign > 0}
            if changed:
                engine.on_batch(name, changed)
    engine.commit()
