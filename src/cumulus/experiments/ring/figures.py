"""Figures 9 and 10: which runs they are made of, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cumulus.experiments.ring.bands import (
    BANDS,
    HIGH,
    LEVELS,
    LOW,
    outside_break,
    outside_figure_9,
    outside_figure_10,
    sums_that_are_wrong,
)
from cumulus.experiments.ring.rows import RingRow, ring_row
from cumulus.experiments.ring.set_up import SCALES, SECOND, RingSetUp

Outside: TypeAlias = Callable[[Sequence[RingRow], str], list[str]]

MOST_BROKEN_SECONDS = 300.0
"""With a broken rule some queries never finish."""


@dataclass(frozen=True, slots=True)
class RingFigure:
    """A figure of the paper.

    Parameters
    ----------
    loits
        The thresholds of its runs.
    sample_us
        How often the ring is looked at; 0 for never.
    outside
        Says of the rows, and the scale, what is not as in the paper.
    """

    loits: tuple[tuple[float, ...], ...]
    sample_us: int
    outside: Outside


FIGURES = {
    "fig9": RingFigure(tuple((each,) for each in LEVELS), 0, lambda rows, scale: outside_figure_9(rows, BANDS[scale])),
    "fig10": RingFigure((LOW, (0.6,), HIGH), SECOND, lambda rows, scale: outside_figure_10(rows)),
}


@dataclass(frozen=True, slots=True)
class FigureRun:
    """What has come of a figure.

    Parameters
    ----------
    rows
        One for each run.
    has_bands
        Whether it is known what must come out: not for set-ups that nobody has tried.
    outside
        What is not as it must be, a sentence each.
    """

    rows: tuple[RingRow, ...]
    has_bands: bool
    outside: tuple[str, ...]


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
    figure = FIGURES[name]
    chosen = tuple(loits) or ((LOW, HIGH) if broken else figure.loits)
    if broken:
        set_up = replace(set_up, most_seconds=min(set_up.most_seconds, MOST_BROKEN_SECONDS))
    rows = tuple(ring_row(replace(set_up, loit=loit), broken, figure.sample_us) for loit in chosen)
    usual = SCALES[scale]
    is_usual = replace(set_up, seed=usual.seed, most_seconds=usual.most_seconds) == usual and not loits
    if broken and is_usual and scale == "ci":
        return FigureRun(rows, True, tuple(outside_break(rows, broken)))
    if not broken and is_usual:
        return FigureRun(rows, True, tuple(figure.outside(rows, scale)))
    return FigureRun(rows, False, tuple(sums_that_are_wrong(rows)))
