"""The figures as pictures, drawn by matplotlib: it is what most figures of papers are drawn by, and has no rival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cumulus.errors import UsageError
from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.rows import LIFE_S, RingRow
from cumulus_lab.experiments.ring.suite_pictures import draw_mix, draw_suite
from cumulus_lab.experiments.ring.table_pictures import (
    draw_eviction,
    draw_extension,
    draw_scenarios,
    draw_sizes,
    draw_tenths,
)
from cumulus_lab.experiments.ring_policies.pulse_figures import draw_pulse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing: TypeAlias = Callable[[Sequence[RingRow], "Axes", "Axes"], None]

KINDS = (".png", ".svg", ".pdf")
INCHES = (12.0, 4.5)
LINES, LINE_INCHES = 8, 0.14
"""So many lines below a figure have room, and what each further one takes."""


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before what is in it takes minutes.

    Raises
    ------
    UsageError
        If the library is missing, the name has another ending, or there is no such folder.
    """
    if path.suffix not in KINDS:
        raise UsageError(f"{path.name} has no ending of a picture", hint=f"Take one of {', '.join(KINDS)}.")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", hint="Make it, or say another place.")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as problem:
        raise UsageError(f"pictures need matplotlib: {problem}", hint="pip install 'cumulus-ivm[plots]'") from None


def draw_figure(name: str, rows: Sequence[RingRow], findings: Sequence[FigureFinding], path: Path) -> None:
    """Draw a figure's two parts into a file, with what the paper says below them, beside what was found."""
    from matplotlib.figure import Figure

    beside = paper_beside_ours(findings)
    width, height = INCHES
    height += LINE_INCHES * max(0, beside.count("\n") + 1 - LINES)
    picture = Figure(figsize=(width, height), layout="constrained")
    left, right = picture.subplots(1, 2)
    DRAWINGS[name](rows, left, right)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    picture.supxlabel(beside, fontsize="x-small")
    picture.savefig(path)


def paper_beside_ours(findings: Sequence[FigureFinding]) -> str:
    """Return a line for each finding of which the paper says something."""
    return "\n".join(f"{each.what}: paper {each.paper}; here {each.here}" for each in findings if each.paper)


def _label(row: RingRow) -> str:
    return f"LOIT {':'.join(map(str, row.loit))}"


def _seconds(row: RingRow) -> list[float]:
    return [each.second for each in row.samples]


def _throughput(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 9: queries finished over time, and how long they took."""
    from matplotlib import colormaps

    longest = max(rows, key=lambda row: len(row.samples))
    left.plot(_seconds(longest), [sum(each.registered) for each in longest.samples], "k--", label="registered")
    colours = [colormaps["viridis"](place / len(rows)) for place in range(len(rows))]
    for row, colour in zip(rows, colours, strict=True):
        left.plot(_seconds(row), [sum(each.finished) for each in row.samples], color=colour, label=_label(row))
    left.set(title="(a) throughput", xlabel="s", ylabel="queries finished")
    for place in sorted({0, len(rows) // 2, len(rows) - 1}):
        row = rows[place]
        edges = [LIFE_S * each for each in range(len(row.lives) + 1)]
        right.stairs(row.lives, edges, color=colours[place], label=_label(row))
    right.set(title="(b) life time", xlabel="s", ylabel=f"queries in {LIFE_S} s", yscale="log")


def _load(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 10: the ring in bytes and in chunks."""
    for row in rows:
        left.plot(_seconds(row), [each.bytes / 1e9 for each in row.samples], label=_label(row))
        right.plot(_seconds(row), [each.chunks for each in row.samples], label=_label(row))
    left.set(title="(a) bytes", xlabel="s", ylabel="GB in the ring")
    right.set(title="(b) chunks", xlabel="s", ylabel="chunks in the ring")


def _skewed(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 11: what of the ring each hot set takes, and queries finished by workload."""
    row = rows[0]
    seconds, kinds = _seconds(row), range(len(row.samples[0].finished))
    names = [f"DH{kind + 1}" for kind in kinds] + ["others"]
    shares = [[each.sets[place] / 1e9 for each in row.samples] for place in range(len(row.samples[0].sets))]
    left.stackplot(seconds, shares, labels=names[: len(shares)])
    left.set(title="(a) ring load", xlabel="s", ylabel="GB in the ring")
    beside = left.twinx()
    beside.plot(seconds, [each.loit for each in row.samples], "k", linewidth=0.7, label="mean LOIT")
    beside.set(ylabel="mean LOIT (line)", ylim=(0, 2.5))
    for kind in kinds:
        colour = f"C{kind}"  # of the hot set in (a)
        for at, style in zip(_registering(row, kind), (":", "--"), strict=False):
            for axes in (left, right):
                axes.axvline(at, color=colour, linestyle=style, linewidth=1.0)
        counts = [each.finished[kind] for each in row.samples]
        width = seconds[1] - seconds[0] if len(seconds) > 1 else 1.0
        rates = [0.0, *((after - before) / width for before, after in pairwise(counts))]
        right.plot(seconds, rates, color=colour, label=f"SW{kind + 1}")
    right.set(title="(b) queries finished (dotted: a workload begins, dashed: it ends)", xlabel="s")
    right.set(ylabel="queries a second")


def _registering(row: RingRow, kind: int) -> tuple[float, ...]:
    """Return between which seconds queries of a workload have come; nothing if none has."""
    counts = [0, *(each.registered[kind] for each in row.samples)]
    grown = [row.samples[place].second for place, pair in enumerate(pairwise(counts)) if pair[1] > pair[0]]
    return (grown[0], grown[-1]) if grown else ()


def _gaussian(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 12: touches by chunk, and loads and requests by chunk."""
    left.plot([each.touches for each in rows[0].chunks], "g", label="touches")
    left.set(title="(a) touches", xlabel="chunk", ylabel="touches")
    for place, row in enumerate(rows):
        right.plot([each.requests for each in row.chunks], f"C{place}:", label=f"requests, {_label(row)}")
        right.plot([each.loads for each in row.chunks], f"C{place}", label=f"loads, {_label(row)}")
    right.set(title="(b) loads and requests", xlabel="chunk", yscale="symlog")


DRAWINGS: dict[str, Drawing] = {
    "fig9": _throughput,
    "fig10": _load,
    "fig11": _skewed,
    "fig12": _gaussian,
    "fig14": draw_scenarios,
    "fig15": draw_eviction,
    "fig16": draw_extension,
    "fig17": draw_mix,
    "table2": draw_suite,
    "request-flow": draw_eviction,
    "forwarding": draw_tenths,
    "inner-ring": draw_tenths,
    "cache": draw_tenths,
    "relevance": draw_sizes,
    "pulsation": draw_pulse,
    "nomads": draw_sizes,
    "intermediates": draw_sizes,
}
