"""`cumulus bench bank`: whether the totals of a bank are right while money moves."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import typer

from cumulus.errors import UsageError
from cumulus.machine_facts import facts, load_average
from cumulus_lab.bench.measurements import report


def bank_bench(
    transfers: int = typer.Option(1_000_000, min=1000, help="Transfers in all, half of them in a second table."),
    accounts: int = typer.Option(1000, min=2, help="Accounts; the first transfers go once round them."),
    batch: int = typer.Option(1000, min=1, help="Transfers that a client sends at once."),
    nodes: int = typer.Option(2, "--nodes", min=1, max=64, help="Nodes."),
    switches: int = typer.Option(2, "--switches", min=1, max=64, help="Switches; two have work."),
    trigger: str = typer.Option("250ms", help="How often an epoch may begin."),
    engine: str = typer.Option("auto", help="auto, native or interpreter."),
    seed: int = typer.Option(0, min=0, help="Of the transfers."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per row, then one with the summary."),
) -> None:
    """Move money between accounts on a live cluster, and sum up all accounts again and again meanwhile: it is 0.

    Tentative sums of the spread view may be wrong, and say that they are tentative. A committed sum, or one of the
    nested views, that is wrong is an error; so are balances that are not those of the transfers in the end.

    Example: cumulus bench bank --transfers 100000
    """
    from cumulus.engine.engines import check_engine
    from cumulus.epochs.trigger import parse_interval
    from cumulus_lab.bench.live import bank
    from cumulus_lab.bench.live.running_cluster import RunningCluster

    check_engine(engine)
    every_s = parse_interval(trigger)
    if 2 * accounts > transfers:
        raise UsageError(f"{transfers} transfers are few for {accounts} accounts", hint="Give two for each account.")
    load = load_average()
    moves = bank.Moves.drawn(transfers, accounts, seed)
    with tempfile.TemporaryDirectory(prefix="cumulus-bench-") as scratch:
        home = Path(scratch) / "home"
        with (
            RunningCluster(bank.SQL, home, nodes=nodes, switches=switches, every_s=every_s, engine=engine) as cluster,
            cluster.connect() as client,
        ):
            began, cpu = time.perf_counter(), cluster.cpu_seconds()
            reads, last = bank.write_and_read(cluster, moves, accounts, batch)
            seconds, cpu = time.perf_counter() - began, cluster.cpu_seconds() - cpu
            reads += bank.read_epochs(cluster)
            summary = {
                "transfers": transfers,
                "accounts": accounts,
                "batch": batch,
                "nodes": nodes,
                "switches": switches,
                "trigger": trigger,
                "seed": seed,
                "epochs": last,
                "transfers_per_s": round(transfers / seconds),
                "cpu_us_per_transfer": round(cpu / transfers * 1e6, 1),
                **cluster.late_shares(client),
                "restarts": cluster.restarts,
                **facts(load, "pyarrow", "llvmlite"),
            }
            report(bank.rows_of(reads), summary, as_json)
            bank.check(reads, client, moves)
