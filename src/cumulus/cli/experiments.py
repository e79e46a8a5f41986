"""`cumulus experiments`: the figures of the papers, by the machines that real processes run, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import typer

from cumulus.errors import UsageError

if TYPE_CHECKING:
    from cumulus.experiments.ring.figures import FigureRun
    from cumulus.experiments.ring.set_up import RingSetUp

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
    "loads",
    "events",
    "wall_s",
)


@experiments.callback()
def _group() -> None:
    """Figures of the papers, by simulation, beside what must come out."""


@experiments.command("ring")
def experiments_ring(
    figure: str = typer.Argument(help="fig9 (throughput by threshold), fig10 (load of the ring)."),
    scale: str = typer.Option("full", help="full, as in the paper, or ci, a quarter of it."),
    nodes: int = typer.Option(None, min=2, help="How many nodes."),
    chunks: int = typer.Option(None, min=1, help="How many chunks."),
    chunk_mb: str = typer.Option(None, help="Sizes of chunks are uniform between these: 1:10."),
    total_gb: float = typer.Option(None, min=0, help="To what all chunks together are scaled; 0 for as drawn."),
    queue_mb: float = typer.Option(None, min=0.001, help="A node's outgoing queue."),
    link_gbs: float = typer.Option(None, min=0.000001, help="Bandwidth of a link, in gigabytes a second."),
    latency_us: int = typer.Option(None, min=0, help="How long a message travels."),
    rate: float = typer.Option(None, min=0.001, help="Queries a second at each node."),
    seconds: float = typer.Option(None, min=0, help="How long queries come."),
    at: float = typer.Option(None, min=0, help="When finished queries are counted, in seconds."),
    until: float = typer.Option(None, min=0, help="When a run ends that does not come to its end, in seconds."),
    loit: str = typer.Option("", help="Thresholds to run, with commas between; levels of one run as 0.1:0.6:1.1."),
    seed: int = typer.Option(None, help="Decides everything else."),
    resend_s: float = typer.Option(None, min=0.001, help="After how long a request is sent again."),
    load_all_ms: int = typer.Option(None, min=1, help="How often postponed loads are tried."),
    pins: str = typer.Option(None, help="sequential, parallel or any: how a query waits for its chunks."),
    broken: str = typer.Option("", "--break", help="Break a rule: figure-6, no-resend, smallest-first, drop-tail."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Run the ring as the paper's simulation did; exit code 1 if what comes out is not as it must be.

    With other numbers than the scale's nothing is known of what must come out, but that sums add up.
    Example: cumulus experiments ring fig9 --scale ci
    """
    from cumulus.experiments.ring.breaks import BREAKS
    from cumulus.experiments.ring.figures import FIGURES, figure_runs
    from cumulus.experiments.ring.set_up import SCALES

    _known(figure, FIGURES, "figure")
    _known(scale, SCALES, "scale")
    _known(pins or "sequential", ("sequential", "parallel", "any"), "way to pin")
    _known(broken or "no-resend", BREAKS, "rule to break")
    chosen: dict[str, Any] = {
        "nodes": nodes,
        "chunks": chunks,
        "total_gb": total_gb,
        "queue_mb": queue_mb,
        "link_gbs": link_gbs,
        "latency_us": latency_us,
        "rate": rate,
        "seconds": seconds,
        "at": at,
        "most_seconds": until,
        "seed": seed,
        "resend_s": resend_s,
        "load_all_ms": load_all_ms,
        "pins": pins,
    }
    if chunk_mb is not None:
        chosen["smallest_mb"], chosen["largest_mb"] = _sizes(chunk_mb)
    set_up = replace(SCALES[scale], **{name: value for name, value in chosen.items() if value is not None})
    loits = [_levels(each) for each in loit.split(",") if each.strip()]
    _tell(figure_runs(figure, scale, set_up, loits, broken), set_up, as_json)


def _known(name: str, known: Sequence[str] | dict[str, Any], what: str) -> None:
    if name not in known:
        raise UsageError(f"there is no {what} {name!r}", hint=f"There are: {', '.join(known)}.")


def _sizes(text: str) -> tuple[float, float]:
    """Return the smallest and the largest size of ``1:10``."""
    least, _, most = text.partition(":")
    try:
        found = float(least), float(most or least)
    except ValueError:
        found = 0.0, 0.0
    if not 0 < found[0] <= found[1]:
        raise UsageError(f"{text!r} is no range of sizes", hint="Say, in megabytes: --chunk-mb 1:10.")
    return found


def _levels(text: str) -> tuple[float, ...]:
    """Return the levels of ``0.1:0.6:1.1``, lowest first."""
    try:
        found = tuple(float(each) for each in text.split(":"))
    except ValueError:
        found = ()
    if not found or list(found) != sorted(set(found)) or found[0] < 0:
        raise UsageError(
            f"{text!r} is no threshold", hint="Say --loit 0.1,1.1 for two runs, --loit 0.1:0.6:1.1 for a dynamic one."
        )
    return found


def _tell(run: FigureRun, set_up: RingSetUp, as_json: bool) -> None:
    """Print what has come of a figure; exit with 1 if it is not as it must be."""
    if as_json:
        rows = [asdict(row) for row in run.rows]
        print(json.dumps({"set_up": asdict(set_up), "rows": rows, "outside": run.outside}, indent=2))
    else:
        table = [COLUMNS, *(tuple(_text(getattr(row, name)) for name in COLUMNS) for row in run.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            print("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)))
        for row in run.rows:
            for sample in row.samples[:: max(1, len(row.samples) // 20)]:
                words = (f"{each.name} {_text(getattr(sample, each.name))}" for each in fields(sample))
                print(f"threshold {_text(row.loit)}:", *words)
        usual = "as it must be" if run.has_bands else "of this set-up nobody knows what must come out"
        print(*(run.outside or [usual]), sep="\n")
    if run.outside:
        raise typer.Exit(1)


def _text(value: object) -> str:
    match value:
        case tuple():
            return ":".join(map(str, value))
        case float():
            return f"{value:,.2f}"
        case _:
            return f"{value:,}"
