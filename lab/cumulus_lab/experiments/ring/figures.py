"""Figures 9 to 17 and table II: which runs they are made of, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

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
from cumulus_lab.experiments.ring.policy_figures import (
    BIG,
    KEEPING,
    MIXED,
    UPDATES,
    cache,
    cache_runs,
    forwarding_runs,
    hot_and_cold,
    inner_runs,
    relevance,
    relevance_runs,
    update_runs,
    updates,
)
from cumulus_lab.experiments.ring.rows import RingRow, ring_row
from cumulus_lab.experiments.ring.set_up import (
    SCALES,
    SECOND,
    Access,
    EvenAccess,
    FragmentAccess,
    GaussianAccess,
    MixAccess,
    PulseAccess,
    RingSetUp,
    SkewedAccess,
    SuiteAccess,
    TableAccess,
    ZipfAccess,
)
from cumulus_lab.experiments.ring.skewed import figure_11
from cumulus_lab.experiments.ring.suite_figures import (
    MIX_CLUSTER,
    SUITE_CLUSTER,
    figure_17,
    mix_runs,
    suite_runs,
    table_2,
)
from cumulus_lab.experiments.ring.table_figures import (
    CLUSTER,
    HALF_OF_THE_RING,
    Named,
    eviction_runs,
    extension_runs,
    figure_14,
    figure_15,
    figure_16,
    flow_runs,
    request_flow,
    scenario_runs,
)
from cumulus_lab.experiments.ring_policies.intermediate_figures import intermediate_runs, intermediates
from cumulus_lab.experiments.ring_policies.nomad_figures import ANY_ORDER, nomad_runs, nomads
from cumulus_lab.experiments.ring_policies.pulse_figures import PULSE_CLUSTER, pulsation, pulse_runs

Judge: TypeAlias = Callable[[Sequence[RingRow], str], list[FigureFinding]]

MOST_BROKEN_SECONDS = 300.0
"""With a broken rule some queries never finish."""

DYNAMIC = (0.1, 0.6, 1.1)
LOWEST = (0.03,)
"""Of figures 14 and 16, "as low as possible": a chunk stays if one of 31 nodes has used it in its last cycle."""


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
    cluster
        The set-up at each scale but for access, or None for that of figures 9 to 12.
    runs
        Makes the named runs of a set-up; none if they differ in the threshold only.
    changes
        In what its set-up differs from that of the scale or the cluster.
    """

    title: str
    loits: tuple[tuple[float, ...], ...]
    access: dict[str, Access]
    judge: Judge
    sample_us: int = SECOND
    by_chunk: bool = False
    cluster: RingSetUp | None = None
    runs: Callable[[RingSetUp], Sequence[Named]] | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


EVEN: dict[str, Access] = {"full": EvenAccess(), "ci": EvenAccess(rate=20.0)}
SKEWED: dict[str, Access] = {"full": SkewedAccess(), "ci": SkewedAccess(rates=(50.0, 75.0, 100.0, 125.0))}
GAUSSIAN: dict[str, Access] = {
    "full": GaussianAccess(),
    "ci": GaussianAccess(rate=20.0, mean=125.0, deviation=12.5),
}
TABLE: dict[str, Access] = {"full": TableAccess(2), "ci": TableAccess(2, queries=512)}
SUITE_ONCE: dict[str, Access] = {"full": SuiteAccess(), "ci": SuiteAccess()}
MIX: dict[str, Access] = {"full": MixAccess(), "ci": MixAccess(scale_factor=10.0, queries=256)}
POPULAR: dict[str, Access] = {"full": ZipfAccess(), "ci": ZipfAccess(rate=5.0)}
SIZES: dict[str, Access] = {"full": EvenAccess(rate=20.0), "ci": EvenAccess(rate=5.0)}
LOCAL: dict[str, Access] = {"full": ZipfAccess(local=0.5), "ci": ZipfAccess(rate=5.0, local=0.5)}
PULSES: dict[str, Access] = {
    "full": PulseAccess((0.0, 120.0, 480.0), (120.0, 480.0, 660.0)),
    "ci": PulseAccess(),
}
PLACED: dict[str, Access] = {"full": ZipfAccess(rate=32.0), "ci": ZipfAccess(rate=8.0)}
SHARED: dict[str, Access] = {"full": FragmentAccess(rate=32.0, fragments=800), "ci": FragmentAccess(rate=8.0)}
UNEVEN = replace(CLUSTER, weights=HALF_OF_THE_RING)

FIGURES = {
    "fig9": RingFigure("throughput by threshold", tuple((each,) for each in LEVELS), EVEN, figure_9),
    "fig10": RingFigure("load of the ring", (LOW, (0.6,), HIGH), EVEN, figure_10),
    "fig11": RingFigure("skewed workloads", (DYNAMIC,), SKEWED, figure_11, sample_us=SECOND // 2),
    "fig12": RingFigure("Gaussian workload", (LOW, HIGH, DYNAMIC), GAUSSIAN, figure_12, by_chunk=True),
    "fig14": RingFigure("time by hot set", (LOWEST,), TABLE, figure_14, cluster=CLUSTER, runs=scenario_runs),
    "fig15": RingFigure("hot-set management", (LOW,), TABLE, figure_15, cluster=UNEVEN, runs=eviction_runs),
    "fig16": RingFigure("ring extension", (LOWEST,), TABLE, figure_16, cluster=UNEVEN, runs=extension_runs),
    "fig17": RingFigure("queries at all nodes", (LOW,), MIX, figure_17, cluster=MIX_CLUSTER, runs=mix_runs),
    "table2": RingFigure("queries at one node", (LOW,), SUITE_ONCE, table_2, cluster=SUITE_CLUSTER, runs=suite_runs),
    "request-flow": RingFigure("requests that decide", (LOW,), TABLE, request_flow, cluster=UNEVEN, runs=flow_runs),
    "forwarding": RingFigure("by rank", (LOW,), POPULAR, hot_and_cold, runs=forwarding_runs, changes=BIG),
    "inner-ring": RingFigure("an inner ring", (LOW,), POPULAR, hot_and_cold, runs=inner_runs, changes=BIG),
    "relevance": RingFigure("relevance", (LOW,), SIZES, relevance, runs=relevance_runs, changes=MIXED),
    "pulsation": RingFigure(
        "nodes that come and go", (LOW,), PULSES, pulsation, cluster=PULSE_CLUSTER, runs=pulse_runs
    ),
    "updates": RingFigure("updates", (LOW,), SIZES, updates, runs=update_runs, changes=UPDATES),
    "cache": RingFigure("kept chunks", (LOW,), LOCAL, cache, runs=cache_runs, changes=KEEPING),
    "nomads": RingFigure("queries that move", (LOW,), PLACED, nomads, runs=nomad_runs, changes=ANY_ORDER),
    "intermediates": RingFigure(
        "results that are kept", (LOW,), SHARED, intermediates, runs=intermediate_runs, changes=ANY_ORDER
    ),
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
    figure = FIGURES[name]
    return replace(figure.cluster or SCALES[scale], access=figure.access[scale], **figure.changes)


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
    set_ups = [replace(set_up, loit=loit) for loit in chosen]
    named = [run for each in set_ups for run in (figure.runs(each) if figure.runs else [("", each)])]
    rows = tuple(
        replace(ring_row(each, broken, figure.sample_us, figure.by_chunk), name=title) for title, each in named
    )
    is_usual = replace(set_up, seed=usual.seed, most_seconds=usual.most_seconds) == usual
    findings: list[FigureFinding] = []
    if is_usual and not broken and chosen == figure.loits:
        findings = figure.judge(rows, scale)
    elif is_usual and broken and chosen == (LOW, HIGH) and name == "fig9" and scale == "ci":
        findings = broken_rule(rows, broken)
    wrong = [f"{each.what}: {each.here}, must be {each.must}" for each in findings if not each.is_inside]
    return FigureRun(rows, tuple(findings), (*wrong, *sums_that_are_wrong(rows)))
