"""`cumulus experiments`: the figures of the papers, by the machines that real processes run, in virtual time."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus_lab.claims.claims import ClaimFound, PaperClaim
    from cumulus_lab.experiments.ring.figures import FigureRun
    from cumulus_lab.experiments.ring.rows import RingRow
    from cumulus_lab.experiments.ring.set_up import RingSetUp

experiments = typer.Typer(
    name="experiments", help="Figures of the papers, by simulation, beside what must come out.", no_args_is_help=True
)

COLUMNS = (
    "loit",
    "registered",
    "finished_at",
    "finished",
    "unfinished",
    "failed",
    "last_s",
    "median_s",
    "below_5_s",
    "above_100_s",
    "requests",
    "resent",
    "loads",
    "unloads",
    "lost",
    "in_ring",
    "events",
    "wall_s",
)
MOST_SAMPLES = 25
MEGABYTE = 1_000_000


@experiments.callback()
def _group() -> None:
    """Figures of the papers, by simulation, beside what must come out."""


@experiments.command("ring")
def experiments_ring(
    context: typer.Context,
    figure: str = typer.Argument(
        help="fig9 (throughput by threshold), fig10 (load of the ring), fig11 (skewed workloads), fig12 (Gaussian), "
        "fig14 (time by hot set), fig15 (hot-set management), fig16 (ring extension), "
        "fig17 (TPC-H at all nodes), table2 (TPC-H at one node), "
        "request-flow (figure 15 with requests that decide), forwarding, inner-ring and cache (section 6.3), "
        "nomads (section 7.1), intermediates (section 7.2), pulsation (section 7.3), updates (section 7.4), "
        "relevance (section 8.2)."
    ),
    scale: str = typer.Option("full", help="full, as in the paper, or ci, smaller and quicker."),
    nodes: int = typer.Option(None, min=2, help="How many nodes."),
    chunks: int = typer.Option(None, min=1, help="How many chunks."),
    chunk_mb: str = typer.Option(None, help="Sizes of chunks are uniform between these: 1:10."),
    total_gb: float = typer.Option(None, min=0, help="To what all chunks together are scaled; 0 for as drawn."),
    queue_mb: float = typer.Option(None, min=0.001, help="A node's outgoing queue."),
    link_gbs: float = typer.Option(None, min=0.000001, help="Bandwidth of a link, in gigabytes a second."),
    latency_us: int = typer.Option(None, min=0, help="How long a message travels."),
    queries: int = typer.Option(None, min=1, help="fig14 to fig17: how many queries circulate."),
    scale_factor: float = typer.Option(None, min=0.01, help="table2, fig17: that of TPC-H's tables."),
    cores: int = typer.Option(None, min=1, help="table2, fig17: cores of a node that a query works on."),
    measure: bool = typer.Option(False, help="table2, fig17: measure CPU times of queries here, for about a minute."),
    disk_mb_s: float = typer.Option(None, min=0, help="How fast an owner reads chunks, in megabytes a second."),
    rate: float = typer.Option(None, min=0.001, help="Queries a second at each node."),
    seconds: float = typer.Option(None, min=0.001, help="How long queries come."),
    skews: str = typer.Option(None, help="fig11: each workload reads chunks whose numbers are multiples: 3,5,7,9."),
    starts: str = typer.Option(None, help="fig11, pulsation: when each workload begins, in seconds: 0,15,37.5,67.5."),
    ends: str = typer.Option(None, help="fig11: when it ends: 30,45,67.5,97.5."),
    rates: str = typer.Option(
        None, help="fig11: its queries a second at each node: 200,300,400,500; pulsation: at all."
    ),
    mean: float = typer.Option(None, help="fig12: mean of the numbers of chunks that are read."),
    deviation: float = typer.Option(None, min=0, help="fig12: their standard deviation."),
    exponent: float = typer.Option(None, min=0, help="Policies of 6.3: chunk n is read as 1 / n ** exponent."),
    local: float = typer.Option(None, min=0, max=1, help="The same: share read by an order of each node's own."),
    query_chunks: str = typer.Option(None, help="How many chunks a query reads: 1:5."),
    work_ms: str = typer.Option(None, help="How long a query works on a chunk: 100:200."),
    at: float = typer.Option(None, min=0, help="When finished queries are counted, in seconds."),
    until: float = typer.Option(None, min=0, help="When a run ends that does not come to its end, in seconds."),
    loit: str = typer.Option("", help="Thresholds to run, with commas between; levels of one run as 0.1:0.6:1.1."),
    loit_loads: str = typer.Option(None, help="Loads of its queue below and above which a node changes it: 0.4:0.8."),
    adapt_ms: int = typer.Option(None, min=1, help="How often it looks for that."),
    seed: int = typer.Option(None, help="Decides everything else."),
    resend_s: float = typer.Option(None, min=0.001, help="After how long a request is sent again."),
    load_all_ms: int = typer.Option(None, min=1, help="How often postponed loads are tried."),
    pins: str = typer.Option(None, help="sequential, parallel or any: how a query waits for its chunks."),
    broken: str = typer.Option("", "--break", help="Break a rule: figure-6, no-resend, smallest-first, drop-tail."),
    plot: Path = typer.Option(None, help="Draw the figure into this file: .png, .svg or .pdf; needs matplotlib."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Run the ring as the paper's simulation did; exit code 1 if what comes out is not as it must be.

    With other numbers than the scale's nothing is known of what must come out, but that sums add up.
    Example: cumulus experiments ring fig9 --scale ci
    """
    from cumulus_lab.commands.ring_set_up import known, ring_set_up, threshold_levels
    from cumulus_lab.experiments.ring.breaks import BREAKS
    from cumulus_lab.experiments.ring.figures import FIGURES, figure_runs
    from cumulus_lab.experiments.ring.pictures import check_picture, draw_figure

    known(figure, FIGURES, "figure")
    known(broken or "no-resend", BREAKS, "rule to break")
    set_up = ring_set_up(figure, scale, {name: given for name, given in context.params.items() if given is not None})
    if plot is not None:
        check_picture(plot)
    run = figure_runs(figure, scale, set_up, threshold_levels(loit), broken)
    if plot is not None:
        draw_figure(figure, run.rows, run.findings, plot)
    tell_figure(run, set_up, as_json)


@experiments.command("cluster")
def experiments_cluster(
    claim: str = typer.Argument(
        help="updates, reads, broadcast, latency, buffer, corrections, elision, constant; or all."
    ),
    scale: str = typer.Option("full", help="full, or ci, which takes a few minutes for all."),
    plot: Path = typer.Option(None, help="Draw it into this file: .png, .svg or .pdf; needs matplotlib."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Measure what the papers claim of a cluster: rows, a sentence, and where it stops being true.

    Rows say whether they were measured here or computed, for more nodes than there are, from what was measured.
    Example: cumulus experiments cluster updates --scale ci
    """
    from cumulus.machine_facts import facts, load_average
    from cumulus_lab.claims.claims import SCALES
    from cumulus_lab.claims.pictures import draw_claim
    from cumulus_lab.claims.table import CLAIMS
    from cumulus_lab.commands.ring_set_up import known
    from cumulus_lab.experiments.ring.pictures import check_picture

    known(claim, [*CLAIMS, "all"], "claim")
    known(scale, SCALES, "scale")
    if plot is not None:
        check_picture(plot)
        if claim == "all":
            raise UsageError("a picture has one claim", hint="Name one of them.")
    load = load_average()
    for name in CLAIMS if claim == "all" else [claim]:
        with tempfile.TemporaryDirectory(prefix="cumulus-claims-") as scratch:
            found = CLAIMS[name].run(SCALES[scale], Path(scratch))
        if plot is not None:
            draw_claim(CLAIMS[name], found, plot)
        tell_claim(name, CLAIMS[name], found, as_json)
    if not as_json:
        print(" ".join(f"{name}={value}" for name, value in {"scale": scale, **facts(load)}.items()))


def tell_claim(name: str, claim: PaperClaim, found: ClaimFound, as_json: bool) -> None:
    """Print what was found of a claim."""
    if as_json:
        told = {"claim": name, "says": claim.says, "source": claim.source, **asdict(found)}
        print(json.dumps(told))
        return
    print(f"{name}: “{claim.says}” ({claim.source})\n")
    names = list(found.rows[0])
    _print_table([names, *([_cell(row.get(each)) for each in names] for row in found.rows)])
    print(f"{found.sentence}\nUntil: {found.until}\n")


def _cell(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,}"


def tell_figure(run: FigureRun, set_up: RingSetUp, as_json: bool) -> None:
    """Print what has come of a figure; exit with 1 if it is not as it must be."""
    if as_json:
        rows, findings = [asdict(row) for row in run.rows], [asdict(each) for each in run.findings]
        print(json.dumps({"set_up": asdict(set_up), "rows": rows, "findings": findings, "outside": run.outside}))
    else:
        _print_table([COLUMNS, *(tuple(_text(getattr(row, name)) for name in COLUMNS) for row in run.rows)])
        for row in run.rows:
            _print_samples(row)
        if run.findings:
            names = ("what", "paper", "here", "must be", "verdict")
            cells = [(each.what, each.paper, each.here, each.must, each.verdict) for each in run.findings]
            _print_table([names, *cells], to_the_left=True)
        usual = "as it must be" if run.findings else "of this set-up nobody knows what must come out"
        print(*(run.outside or [usual]), sep="\n")
    if run.outside:
        raise typer.Exit(1)


def _print_samples(row: RingRow) -> None:
    """Print the ring over time, some lines of it."""
    names = ("second", "MB", "chunks", "mean_mb", "load", "loit", "registered", "finished", "MB by hot set")
    chosen = row.samples[:: -(-len(row.samples) // MOST_SAMPLES) or 1]
    cells = [
        (
            *(_text(value) for value in (each.second, each.bytes // MEGABYTE, each.chunks)),
            *(_text(value) for value in (each.mean_mb, each.load, each.loit, each.registered, each.finished)),
            ":".join(str(size // MEGABYTE) for size in each.sets),
        )
        for each in chosen
    ]
    shown = len(names) if any(each.sets for each in chosen) else len(names) - 1
    print(f"\nthreshold {_text(row.loit)}")
    _print_table([names[:shown], *(line[:shown] for line in cells)])


def _print_table(table: Sequence[Sequence[str]], to_the_left: bool = False) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = zip(line, widths, strict=True)
        print("  ".join(word.ljust(width) if to_the_left else word.rjust(width) for word, width in cells).rstrip())
    print()


def _text(value: object) -> str:
    match value:
        case tuple():
            return (
                ":".join(map(_text, value))
                if all(isinstance(each, int) for each in value)
                else ":".join(map(str, value))
            )
        case float():
            return f"{value:,.2f}"
        case _:
            return f"{value:,}"
