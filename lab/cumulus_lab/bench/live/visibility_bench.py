"""`cumulus bench visibility`: how soon rows that are sent to a live cluster are to be read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report


def visibility_bench(
    rate: list[int] = typer.Option([10_000, 50_000], min=100, help="Events a second that clients send; repeatable."),
    seconds: int = typer.Option(20, min=1, help="How long they do."),
    batch: int = typer.Option(1000, min=1, help="Events of a turn, over all tables."),
    nodes: int = typer.Option(2, "--nodes", min=1, max=64, help="Nodes."),
    switches: int = typer.Option(2, "--switches", min=1, max=64, help="Switches."),
    trigger: str = typer.Option("1s", help="How often an epoch may begin."),
    engine: str = typer.Option("auto", help="auto, native or interpreter."),
    seed: int = typer.Option(0, min=0, help="Of the stream."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Send example 2.1's stream to a live cluster at a rate, and single rows beside it until they can be read.

    A row has when single rows were acknowledged, tentatively visible and committed. The summary has what a sync of the
    bytes of a turn costs on this disk: nothing is acknowledged without one.

    Example: cumulus bench visibility --rate 10000 --seconds 10
    """
    from cumulus.engine.engines import check_engine
    from cumulus.epochs.trigger import parse_interval
    from cumulus_lab.bench.live import visibility
    from cumulus_lab.bench.live.running_cluster import RunningCluster
    from cumulus_lab.workloads import orders

    check_engine(engine)
    every_s = parse_interval(trigger)
    load, rows = load_average(), []
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        sync_s = visibility.sync_s(Path(scratch), batch * 24)
        for each in rate:
            stream = orders.stream(scale=each * seconds / orders.EVENTS, seed=seed)
            home = Path(scratch) / str(each)
            shape = RunningCluster(orders.SQL, home, nodes=nodes, switches=switches, every_s=every_s, engine=engine)
            with shape as cluster:
                turns = max(each * seconds // batch, 1)
                rows.append({"rate": each, **visibility.measure(cluster, stream, seconds, turns)})
    shape_told = {"nodes": nodes, "switches": switches, "trigger": trigger, "batch": batch, "seconds": seconds}
    summary = {**shape_told, "seed": seed, "sync_ms": round(sync_s * 1000, 2), **facts(load, "pyarrow", "llvmlite")}
    report(rows, summary, as_json)
