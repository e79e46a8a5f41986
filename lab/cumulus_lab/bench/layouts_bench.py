"""`cumulus bench layouts`: what the buckets of a layout have to do, beside the one bucket that does everything.

CPU seconds of the thread that runs a bucket, both stages added; what is read, packed and written does not count.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report

QUERIES = "all"


def layouts_bench(
    queries: str = typer.Option("q3,q15,q17", help="Of TPC-H, together in one program; all for the 22."),
    sf: float = typer.Option(0.1, help="Scale factor."),
    epochs: int = typer.Option(4, min=1, help="Epochs; the first one has most of the rows."),
    updates: float = typer.Option(0.2, help="Share of customers and suppliers changed in an epoch."),
    deletions: float = typer.Option(0.2, help="Share of deletions among the rows of orders."),
    layout: list[str] = typer.Option(["auto"], help="As for cumulus run, each beside one bucket; repeatable."),
    buckets: int = typer.Option(4, min=2, max=64, help="Buckets of each layout."),
    seed: int = typer.Option(0, min=0, help="Of the stream."),
    cache: Path | None = typer.Option(None, help="Where TPC-H's tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Apply refreshes of TPC-H, with keys that are checked, to the buckets of layouts.

    A row has the CPU seconds of each bucket in both stages, the heaviest, and how many times those of one bucket that
    is. Then what a reshape takes: of the state in one bucket to the layout (its snapshots, the seconds to make others
    of them, and to load these), and the events that one core replays in a second, as after a move from a log.

    Example: cumulus bench layouts --queries all --sf 0.1 --layout auto
    """
    from cumulus.workloads.tpch import QUERIES as KNOWN
    from cumulus_lab.workloads import tpch

    names = tuple(KNOWN if queries == QUERIES else queries.split(","))
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        raise UsageError(f"--queries {queries}: no query {unknown[0]!r}", hint=f"Queries: q1 to {KNOWN[-1]}, or all.")
    load = load_average()
    kept = cache or Path(tempfile.gettempdir()) / "cumulus-tpch"
    tables = tpch.read_tables(tpch.generate(sf, kept), names)
    shares: dict[str, Any] = {"updates": updates, "deletions": deletions}
    stream = tpch.refreshes(tables, queries=names, epochs=epochs, seed=seed, **shares)
    counts = {name: table.num_rows for name, table in tables.items()}
    rows: list[dict[str, Any]] = []
    for each in ["one-bucket", *layout]:
        row = _measured(stream, each, buckets, counts)
        rows.append({**row, "ratio": round(row["heaviest_s"] / (rows or [row])[0]["heaviest_s"], 2)})
    what = {"workload": "tpch", "queries": queries, "sf": sf, "epochs": epochs, **shares, "seed": seed}
    report(rows, {**what, **facts(load, "pyarrow")}, as_json)


def _measured(stream: Any, layout: str, buckets: int, rows: dict[str, int]) -> dict[str, Any]:
    """Return what the buckets of a layout had to do for a stream."""
    from cumulus.compiler.pipeline import compile_sql
    from cumulus.engine.engines import make_engine
    from cumulus.epochs.bucket.votes import Poll
    from cumulus.epochs.folder_source import FolderSource
    from cumulus.epochs.intake.packing import pack, pack_notice
    from cumulus.epochs.intake.reading import read_table
    from cumulus.epochs.plan_choice import choice_of_plan
    from cumulus.epochs.stages.parts import PartMaker
    from cumulus.explain.sizes import Statistics

    program = compile_sql(stream.sql("foreign"), rely=False)
    chosen = choice_of_plan(program, layout, buckets, Statistics(rows))
    plan = chosen.plan
    maker = PartMaker(program, plan, partial(make_engine, "auto"))
    stages = [[maker.make(stage, index) for index in range(plan.buckets)] for stage in range(2 if plan.groups else 1)]
    used = [[0.0] * plan.buckets for _ in range(2)]
    poll, events = Poll(), 0
    for number, epoch in enumerate(stream.epochs(), 1):
        readings = [
            read_table(FolderSource(name, "", op="op", order="seq"), program.relation(name), table, f"{name}/{number}")
            for name, table in epoch.items()
        ]
        events += sum(reading.rows.num_rows for reading in readings)
        coming: Sequence[Sequence[bytes]] = [[pack_notice(poll.plain()), each] for each in pack(readings, plan)]
        for stage, parts in enumerate(stages):
            handed = []
            for index, part in enumerate(parts):
                gc.collect()  # no part pays for what another has left
                began = time.thread_time()
                handed.append(part.apply(number, coming[index]))
                used[stage][index] += time.thread_time() - began
            coming = list(zip(*handed, strict=True))
            if not stage:
                poll = Poll.merge(part.poll for part in parts)
    both = [sum(each) for each in zip(*used, strict=True)]
    told = {
        "replayed_events_s": round(events / sum(both)),
        **_reshaped(maker, [part.dump() for parts in stages for part in parts]),
    }
    return {
        "layout": layout,
        "buckets": plan.buckets,
        "groups": len(plan.groups),
        "told_share": round(chosen.share, 2),
        "events": events,
        **{f"stage_{stage + 1}_s": " ".join(f"{each:.2f}" for each in used[stage]) for stage in range(2)},
        "heaviest_s": round(max(both), 3),
        **told,
    }


def _reshaped(maker: Any, dumps: Sequence[bytes]) -> dict[str, float]:
    """Return what it takes to bring states from the buckets of a layout into one bucket, and from there back."""
    from cumulus.epochs.plan import BucketPlan
    from cumulus.epochs.reshape import reshape
    from cumulus.epochs.stages.contents import part_counts

    one = BucketPlan()
    began = time.thread_time()
    whole = reshape(maker.program, maker.plan, dumps, one)
    joined = time.thread_time()
    shares = iter(reshape(maker.program, one, whole, maker.plan))
    split = time.thread_time()
    parts = [maker.make(stage, index) for stage, count in enumerate(part_counts(maker.plan)) for index in range(count)]
    made = time.thread_time()
    for part in parts:
        part.load(next(shares))
    loaded = time.thread_time()
    size = len(whole[0]) / 1e6
    return {
        "state_mb": round(size, 1),
        "join_mb_s": round(size / (joined - began)),
        "split_mb_s": round(size / (split - joined)),
        "load_mb_s": round(size / (loaded - made)),
    }
