"""Figures 9 to 12: which runs they are made of, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cumulus_lab.experiments.ring.bands import (
    HIGH,
    LEVELS,
    LOW,
    broken_rule,
    figure_9,
    figure_10,
    sums_that_are_wrong,
)
from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.gaussian import figure_12
from cumulus_lab.experiments.ring.rows import RingRow, ring_row
from cumulus_lab.experiments.ring.set_up import (
    SCALES,
    SECOND,
    Access,
    EvenAccess,
    GaussianAccess,
    RingSetUp,
    SkewedAccess,
)
from cumulus_lab.experiments.ring.skewed import figure_11

Judge: TypeAlias = Callable[[Sequence[RingRow], str], list[FigureFinding]]

MOST_BROKEN_SECONDS = 300.0
"""With a broken rule some queries never finish."""

DYNAMIC = (0.1, 0.6, 1.1)


@dataclass(frozen=True, slots=True)
class RingFigure:
    """A figure of the paper.

    Parameters
    ----------
    title
        What it shows, in a few words.
    loits
        The thresholds of its runs.
    access
        Which queries come, by scale.
    judge
        Says of the rows, and the scale, what is found in them.
    sample_us
        How often the ring is looked at.
    by_chunk
        Whether it is about single chunks.
    """

    title: str
    loits: tuple[tuple[float, ...], ...]
    access: dict[str, Access]
    judge: Judge
    sample_us: int = SECOND
    by_chunk: bool = False


EVEN: dict[str, Access] = {"full": EvenAccess(), "ci": EvenAccess(rate=20.0)}
SKEWED: dict[str, Access] = {"full": SkewedAccess(), "ci": SkewedAccess(rates=(50.0, 75.0, 100.0, 125.0))}
GAUSSIAN: dict[str, Access] = {
    "full": GaussianAccess(),
    "ci": GaussianAccess(rate=20.0, mean=125.0, deviation=12.5),
}

FIGURES = {
    "fig9": RingFigure("throughput by threshold", tuple((each,) for each in LEVELS), EVEN, figure_9),
    "fig10": RingFigure("load of the ring", (LOW, (0.6,), HIGH), EVEN, figure_10),
    "fig11": RingFigure("skewed workloads", (DYNAMIC,), SKEWED, figure_11, sample_us=SECOND // 2),
    "fig12": RingFigure("Gaussian workload", (LOW, HIGH, DYNAMIC), GAUSSIAN, figure_12, by_chunk=True),
}


@dataclass(frozen=True, slots=True)
class FigureRun:
    """What has come of a figure.

    Parameters
    ----------
    rows
        One for each run.
    findings
        What is found in them; nothing of set-ups that nobody has tried, of which it is not known what must come out.
    outside
        What is not as it must be, a sentence each.
    """

    rows: tuple[RingRow, ...]
    findings: tuple[FigureFinding, ...]
    outside: tuple[str, ...]


def usual_set_up(name: str, scale: str) -> RingSetUp:
    """Return the set-up of a figure at a scale."""
    return replace(SCALES[scale], access=FIGURES[name].access[scale])


def figure_runs(name: str, scale: str, set_up: RingSetUp, loits: Sequence[tuple[float, ...]], broken: str) -> FigureRun:
    """Run all runs of a figure.

    Parameters
    ----------
    name, scale
        The figure, and the scale that says what must come out.
    set_up
        What is run, but for the threshold; other than the scale's, for a set-up that nobody has tried.
    loits
        Thresholds other than the figure's; none for those of the figure.
    broken
        A rule to break, or "".
    """
    figure, usual = FIGURES[name], usual_set_up(name, scale)
    chosen = tuple(loits) or ((LOW, HIGH) if broken else figure.loits)
    if broken:
        set_up = replace(set_up, most_seconds=min(set_up.most_seconds, MOST_BROKEN_SECONDS))
    rows = tuple(ring_row(replace(set_up, loit=loit), broken, figure.sample_us, figure.by_chunk) for loit in chosen)
    is_usual = replace(set_up, seed=usual.seed, most_seconds=usual.most_seconds) == usual
    findings: list[FigureFinding] = []
    if is_usual and not broken and chosen == figure.loits:
        findings = figure.judge(rows, scale)
    elif is_usual and broken and chosen == (LOW, HIGH) and name == "fig9" and scale == "ci":
        findings = broken_rule(rows, broken)
    wrong = [f"{each.what}: {each.here}, must be {each.must}" for each in findings if not each.is_inside]
    return FigureRun(rows, tuple(findings), (*wrong, *sums_that_are_wrong(rows)))
