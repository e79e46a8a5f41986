"""`cumulus bench compile`: how long the compiler takes, query by query."""

from __future__ import annotations

import random
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

import typer

from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report


def compile_bench(
    workload: str = typer.Option("tpch", help="tpch, ssb or orderbook."),
    query: str = typer.Option("", help="One query of the workload; all if left out."),
    keys: str = typer.Option("rely", help="What the tables declare: none, primary, foreign or rely."),
    static: list[str] = typer.Option([], help="A table that does not change; may be given again."),
    seed: int = typer.Option(0, min=0, help="Of the order in which a repetition takes the queries."),
    repetitions: int = typer.Option(3, min=3, help="Compilations of each query; the median counts."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per query, then the total and the summary."),
) -> None:
    """Compile each query of a workload: milliseconds, maps, statements, or the feature that does not compile.

    Example: cumulus bench compile --workload tpch --json
    """
    from cumulus_lab.workloads import queries

    load = load_average()
    scripts = queries(workload, query, keys=keys, static=tuple(static))
    rows = measure(scripts, repetitions=repetitions, seed=seed)
    rows.append(total(rows))
    summary = {
        "workload": workload,
        "keys": keys,
        "static": static,
        "queries": len(scripts),
        "compiled": sum(row["unsupported"] is None for row in rows[:-1]),
        "seed": seed,
        "repetitions": repetitions,
        **facts(load, "sqlglot"),
    }
    report([{"workload": workload, **row} for row in rows] if as_json else rows, summary, as_json)


def measure(scripts: Mapping[str, str], *, repetitions: int, seed: int) -> list[dict[str, Any]]:
    """Compile every script `repetitions` times; return a row for each, in the order of `scripts`.

    Each round takes them in another order, so none always follows the same neighbour.

    Returns
    -------
    list of dict
        `query`; `compile_ms`, the median; the number of `maps`, of those among them that only `loading` static tables
        needs, and of `statements` in all triggers; `cost`, the worst class of an event of each relation;
        `unsupported`, the feature that does not compile (then the others are None).
    """
    from cumulus.compiler import compile_sql
    from cumulus.errors import UnsupportedError
    from cumulus.explain.cost import cost_classes
    from cumulus.m3.dataflow import loading_maps

    rows: dict[str, dict[str, Any]] = {}
    took: dict[str, list[float]] = {query: [] for query in scripts}
    choose = random.Random(seed)
    for _ in range(repetitions):
        for query in choose.sample(list(scripts), len(scripts)):
            start = perf_counter()
            try:
                program = compile_sql(scripts[query], name=query)
            except UnsupportedError as problem:
                told = problem.feature or problem.message
                rows[query] = {**dict.fromkeys(("maps", "loading", "statements", "cost")), "unsupported": told}
                continue
            took[query].append(1000 * (perf_counter() - start))
            statements = sum(len(trigger.statements) for trigger in program.triggers)
            classes = cost_classes(program).get(query, {})
            cost = ", ".join(f"{relation} {each.value}" for relation, each in classes.items())
            rows[query] = {
                "maps": len(program.maps),
                "loading": len(loading_maps(program)),
                "statements": statements,
                "cost": cost,
                "unsupported": None,
            }
    return [
        {
            "query": query,
            "compile_ms": round(median(took[query]), 1) if took[query] else None,
            **rows[query],
        }
        for query in scripts
    ]


def total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of sums over the queries that compile; `unsupported` counts the others."""
    numbers = ("compile_ms", "maps", "loading", "statements")
    sums = {name: round(sum(row[name] or 0 for row in rows), 1) for name in numbers}
    refused = sum(row["unsupported"] is not None for row in rows)
    return {"query": "total", **sums, "cost": None, "unsupported": f"{refused} of {len(rows)}" if refused else None}
