"""`cumulus bench cluster`: what the cluster costs beside one process that reads the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product, starmap
from pathlib import Path
from typing import Any

import typer

from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.central_options import (
    ARITY_HELP,
    DEFAULT_CENTRAL,
    DISPATCH_HELP,
    GC_HELP,
    CentralOptions,
    central_options,
)
from cumulus.cluster.planning.epoch_endings import (
    COMMIT_HELP,
    TRANSITIONS_HELP,
    CommitBy,
    EpochEndings,
    Transitions,
)
from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report

WORKLOADS = ("example-2.1", "q3", "q5")


def cluster_bench(
    workload: str = typer.Option("example-2.1", help="example-2.1, or a query of TPC-H: q3, q5."),
    events: int = typer.Option(400_000, min=10_000, help="Events in all, about; a tenth of them deletions."),
    epochs: int = typer.Option(8, min=4, help="Epochs; the first two do not count."),
    nodes: list[int] = typer.Option([1, 2], min=1, max=64, help="Nodes; repeatable."),
    switches: list[int] = typer.Option([1, 2], min=1, max=64, help="Switches; repeatable."),
    block: list[int] = typer.Option([10_000], min=1, help="Rows of a block, at most; repeatable."),
    order: list[str] = typer.Option(["clock"], help="Of versions: clock or switch; repeatable."),
    mode: list[Mode] = typer.Option([Mode.EVENTUAL, Mode.GATED], help="What is measured; repeatable."),
    option: list[str] = typer.Option([], help="Measured beside modes that take it; with commas; repeatable."),
    dispatch: list[str] = typer.Option(["table"], help=f"Repeatable. {DISPATCH_HELP}"),
    arity: list[int] = typer.Option([2], help=f"Repeatable. {ARITY_HELP}"),
    gc: list[str] = typer.Option(["epochs"], help=f"Repeatable. {GC_HELP}"),
    commit: list[CommitBy] = typer.Option([CommitBy.PUBLISHER], help=f"Repeatable. {COMMIT_HELP}"),
    transitions: list[Transitions] = typer.Option([Transitions.ALIGNED], help=f"Repeatable. {TRANSITIONS_HELP}"),
    seed: int = typer.Option(0, min=0, help="Of the stream."),
    cache: Path | None = typer.Option(None, help="Where TPC-H's tables are kept; a temporary folder if not given."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Run the same files through the embedded host and through clusters of several shapes.

    Rows have events a second, CPU time of all processes an event, the time from commit to commit, what was late, and
    what was sent, by kind. Modes that need one switch have one.

    Example: cumulus bench cluster --mode eventual --mode central-target --nodes 2 --switches 1
    """
    if workload not in WORKLOADS:
        raise UsageError(f"unknown workload {workload!r}", hint=f"Workloads: {', '.join(WORKLOADS)}.")
    for each in order:
        if each not in ("clock", "switch"):
            raise UsageError(f"unknown order {each!r}", hint="Orders of versions: clock, switch.")
    centrals = _centrals(dispatch, arity, gc)
    for each_central in centrals if Mode.CENTRAL_TARGET not in mode else ():
        each_central.require_mode(mode[0])
    from cumulus.compiler import compile_sql
    from cumulus_lab.bench.cluster_runs import ClusterShape, cluster_row, embedded_row

    load = load_average()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        folder = Path(scratch)
        text = write_input(workload, folder / "in", events, epochs, seed, cache)
        program = compile_sql(text, rely=False, enforced=False)
        shapes = [
            ClusterShape(each, count, others, size, by, chosen, central, how)
            for each in mode
            for central in (centrals if each is Mode.CENTRAL_TARGET else [DEFAULT_CENTRAL])
            for chosen in ((), *(tuple(text.split(",")) for text in option if _is_of(each, text.split(","))))
            for count, others in product(nodes, (1,) if RULES[each].needs_one_switch else switches)
            for size, by in product(
                block if RULES[each].is_spread else block[:1], order if RULES[each].corrects else order[:1]
            )
            for how in starmap(EpochEndings, product(commit, transitions))
        ]
        rows.append(embedded_row(program, folder / "in", folder / "embedded"))
        for number, shape in enumerate(shapes):
            rows.append(cluster_row(program, folder / "in", folder / str(number), shape))
    floor = rows[0]["cpu_us_per_event"]
    rows = [{**row, "cpu_by_embedded": round(row["cpu_us_per_event"] / floor, 2)} for row in rows]
    names = rows[-1].keys()
    summary = {"workload": workload, "epochs": epochs, "seed": seed, **facts(load, "pyarrow", "llvmlite")}
    report([{name: row.get(name) for name in names} for row in rows], summary, as_json)


def _centrals(dispatch: Sequence[str], arity: Sequence[int], gc: Sequence[str]) -> list[CentralOptions]:
    """Return all choices of target aggregation by one switch, each once; UsageError if one is none."""
    found = [
        central_options(scheme, number if scheme != "table" else None, each)
        for scheme, number, each in product(dispatch, arity, gc)
    ]
    return list(dict.fromkeys(found))


def _is_of(mode: Mode, options: Sequence[str]) -> bool:
    """Whether a mode takes some options; UsageError if there are none such."""
    from cumulus.cluster.planning.mode_options import OPTIONS, options_of

    named = [each.partition("=")[0] for each in options]
    if any(name in OPTIONS and mode not in OPTIONS[name].modes for name in named):
        return False
    options_of(mode, options)
    return True


def write_input(workload: str, folder: Path, events: int, epochs: int, seed: int, cache: Path | None) -> str:
    """Write the files of a workload; return its SQL."""
    from cumulus.workloads import changes
    from cumulus_lab.bench.cluster_runs import write_orders
    from cumulus_lab.workloads import orders, tpch

    if workload == "example-2.1":
        write_orders(folder, events=events, epochs=epochs, seed=seed)
        return orders.SQL
    kept = cache or Path(tempfile.gettempdir()) / "cumulus-tpch"
    tables = tpch.generate(max(events / 7_000_000, 0.01), kept)
    stream = tpch.stream(tables, query=workload, batch=events // epochs, deletes=0.1, columns="used", seed=seed)
    for number, epoch in zip(range(epochs), stream.epochs(), strict=False):
        changes.write_epoch(folder, number, epoch)
    return tpch.sql(workload, columns="used", keys="none")
