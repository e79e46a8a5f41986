"""`cumulus bench live`: the memory of a cluster that runs on under load, and what a slow node does to the others."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from cumulus.errors import CumulusError, UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report


def live_bench(
    epochs: int = typer.Option(600, min=6, help="Epochs to run."),
    warm: int = typer.Option(60, min=1, help="Epochs at the beginning in which processes may grow."),
    every: int = typer.Option(10, min=1, help="Epochs of a row."),
    trigger: str = typer.Option("100ms", help="How often an epoch may begin."),
    rate: int | None = typer.Option(
        None, min=0, help="Events a second; 0 for as many as are accepted. 5000 if not given; with --slow, 0."
    ),
    batch: int = typer.Option(100, min=1, help="Orders that come, and that go, at once, with two items each."),
    held: int = typer.Option(100, min=1, help="Batches of orders that are there."),
    slow: str = typer.Option("", help="A machine, such as node1, that has a tenth of the time in the middle third."),
    band: float = typer.Option(5.0, min=0.0, help="By how many per cent memory may differ after --warm."),
    nodes: int = typer.Option(2, "--nodes", min=1, max=64, help="Nodes."),
    switches: int = typer.Option(2, "--switches", min=1, max=64, help="Switches."),
    engine: str = typer.Option("auto", help="auto, native or interpreter."),
    seed: int = typer.Option(0, min=0, help="Of the rows."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Let orders come and go on a live cluster, as many as there are, and see how much memory each process has.

    It is an error if one grows or shrinks beyond the band, or processes start anew, or the views are not DuckDB's in
    the end. With --slow, it is an error if less does not come in while the machine is slow, or a process grows by more
    than what can wait for it.

    Example: cumulus bench live --epochs 90 --warm 15 --every 3 --batch 2000 --held 10 --slow node1
    """
    from cumulus.cluster.messages import node_name, switch_name
    from cumulus.cluster.publisher import PUBLISHER
    from cumulus.engine.engines import check_engine
    from cumulus.epochs.trigger import parse_interval
    from cumulus_lab.bench.live import load_rows
    from cumulus_lab.bench.live.load import SQL, ShopLoad
    from cumulus_lab.bench.live.running_cluster import RunningCluster

    check_engine(engine)
    every_s = parse_interval(trigger)
    if warm + every > epochs:
        raise UsageError(f"{epochs} epochs are few: {warm} do not count", hint="Give more --epochs, or less --warm.")
    machines = [*map(switch_name, range(switches)), *map(node_name, range(nodes)), PUBLISHER]
    if slow and slow not in machines:
        raise UsageError(f"--slow {slow}: there is no such machine", hint=f"Machines: {', '.join(machines)}.")
    events_per_s = rate if rate is not None else 0 if slow else 5000
    load_before = load_average()
    rows: list[load_rows.LoadRow] = []
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        home = Path(scratch) / "home"
        shape = {"nodes": nodes, "switches": switches}
        with RunningCluster(
            SQL, home, nodes=nodes, switches=switches, every_s=every_s, engine=engine, keep=100
        ) as cluster:
            load = ShopLoad(cluster, batch=batch, held=held, events_per_s=events_per_s, seed=seed)
            cpu = cluster.cpu_seconds()
            load.start()
            try:
                rows.extend(load_rows.measure(cluster, load, epochs=epochs, every=every, slow=slow))
            finally:
                last = load.stop()
            found = load_rows.end(cluster, load, last, cpu)
    asked = {"trigger": trigger, "rate": events_per_s, "batch": batch, "held": held, "slow": slow or None, "seed": seed}
    summary = {"epochs": rows[-1].epoch, **shape, **asked, **found, **facts(load_before, "pyarrow", "llvmlite")}
    report([row.columns() for row in rows], summary, as_json)
    wrong = load_rows.check_slowed(rows, warm) if slow else load_rows.check_flat(rows, warm, band / 100)
    if found["restarts"]:
        wrong.append(f"the processes have started anew {found['restarts']} times")
    if wrong:
        raise CumulusError("; ".join(wrong), hint="Please report it, with the command and what it has printed.")
