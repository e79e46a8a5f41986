"""Figures 14 to 16: queries of one table that circulate in a ring of racks; what runs, and what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import correlation, linear_regression, mean

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.set_up import RingSetUp, TableAccess

COLUMNS = 64
CHUNK_MB = 128.0
BUFFERS_MB = 8_000.0
"""A third of a node's memory (section 6.1)."""
KEPT = 0.8
"""Mean share of its chunks that a query keeps."""

LINEAR = Band(0.95)
MS_A_GB = Band(700, 1_000)
STREAM = Band(0.9, 1.3)
CONVERGED = Band(most=0.333)
FIRST_EXTENSION = Band(1.3)


@dataclass(frozen=True, slots=True)
class TableScenario:
    """One of S1 to S6: the partitions of its table, and the share of columns that queries read.

    Examples
    --------
    >>> [f"{each.hot_gb:.1f}" for each in SCENARIOS.values()]
    ['8.2', '16.4', '12.3', '24.6', '24.6', '49.2']
    """

    partitions: int
    touched: float

    @property
    def hot_gb(self) -> float:
        """Size of the hot set in gigabytes."""
        return COLUMNS * self.touched * self.partitions * CHUNK_MB / 1000


SCENARIOS = {
    f"S{2 * table + 1 + (touched == 1)}": TableScenario(partitions, touched)
    for table, partitions in enumerate((2, 3, 6))
    for touched in (0.5, 1.0)
}
CLUSTER = RingSetUp(
    nodes=32,
    chunks=COLUMNS * 2,
    smallest_mb=CHUNK_MB,
    largest_mb=CHUNK_MB,
    total_gb=0.0,
    queue_mb=BUFFERS_MB,
    link_gbs=1.3,
    access=TableAccess(2),
    most_seconds=10_000.0,
    shortest_ms=10,
    longest_ms=20,
    pins="parallel",
    resend_s=16.0,
    rack_nodes=16,
    disk_mb_s=200.0,
)
"""Thirty-two nodes in two racks. The paper does not give the time after which a request is sent again: two cycles of
eight seconds (E25)."""

HALF_OF_THE_RING = (1.0,) * 16
"""Weights of the nodes that own data: those that are added own none."""

FEWEST_LOADS = COLUMNS
"""Chunks that S1 reads, two for each of half of the columns: there cannot be fewer loads."""

Named = tuple[str, RingSetUp]


def _at(set_up: RingSetUp, scenario: str) -> RingSetUp:
    """Return a set-up with the table and the queries of a scenario."""
    assert isinstance(set_up.access, TableAccess)
    chosen = SCENARIOS[scenario]
    access = replace(set_up.access, partitions=chosen.partitions, touched=chosen.touched)
    kept_mb = KEPT * access.columns * chosen.partitions * CHUNK_MB
    return replace(
        set_up, chunks=COLUMNS * chosen.partitions, access=access, queue_mb=set_up.queue_mb - kept_mb, dbms_mb=kept_mb
    )


def scenario_runs(set_up: RingSetUp) -> list[Named]:
    """Return the runs of figure 14: S1 to S6, the last with the threshold that it reached in the paper."""
    runs = [(name, replace(_at(set_up, name), loit=(0.9,) if name == "S6" else set_up.loit)) for name in SCENARIOS]
    return [(name, replace(each, kept_least=0.7, kept_most=0.9)) for name, each in runs]


def eviction_runs(set_up: RingSetUp) -> list[Named]:
    """Return the runs of figure 15: half of a table and all of it, at two thresholds."""
    return [
        (f"{name}, threshold {loit}", replace(_at(set_up, name), loit=(loit,)))
        for loit in (0.1, 0.9)
        for name in ("S1", "S2")
    ]


def flow_runs(set_up: RingSetUp) -> list[Named]:
    """Return the runs of figure 15, first as they are and then with requests that decide (section 6.1)."""
    runs = eviction_runs(set_up)
    return [*runs, *((f"{name}, request flow", replace(each, request_flow=True)) for name, each in runs)]


def extension_runs(set_up: RingSetUp) -> list[Named]:
    """Return the runs of figure 16: S1 to S5 in rings to which half of the first ring is added, twice."""
    steps = ((f"R{step + 1}", set_up.nodes + step * set_up.nodes // 2) for step in range(3))
    return [
        (f"{ring} {name}", replace(_at(set_up, name), nodes=nodes))
        for ring, nodes in steps
        for name in list(SCENARIOS)[:5]
    ]


def figure_14(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 14: the time of a query follows the size of the hot set."""
    low = [row for row in rows if row.name != "S6"]
    sizes, times = [SCENARIOS[row.name].hot_gb for row in low], [row.mean_s for row in low]
    fit, slope = correlation(sizes, times) ** 2, 1000 * linear_regression(sizes, times).slope
    found = [
        FigureFinding("R² of time by hot set, S1 to S5", "close to linear", f"{fit:.3f}", str(LINEAR), fit in LINEAR),
        FigureFinding("ms an extra GB, S1 to S5", "750 to 950", f"{slope:,.0f}", str(MS_A_GB), slope in MS_A_GB),
    ]
    for row in rows:
        size = SCENARIOS[row.name].hot_gb
        rate = size / row.mean_s
        here = f"{rate:.2f}: {size:.1f} GB in {row.mean_s:.1f} s"
        gate = ("", True) if row.name == "S6" else (str(STREAM), rate in STREAM)
        differs = "slower" if rate < 0.9 else ""
        found.append(FigureFinding(f"GB/s of the stream, {row.name}", "0.9 to 1.3", here, *gate, differs))
    return found


def figure_15(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 15: with a high threshold the size of the hot set hardly matters."""
    low, high = rows[:2], rows[2:]
    apart_low, apart_high = (abs(pair[1].mean_s - pair[0].mean_s) for pair in (low, high))
    share = apart_high / apart_low
    texts = [", ".join(f"{row.mean_s:.1f}" for row in pair) for pair in (low, high)]
    half = len(HALF_OF_THE_RING)
    return [
        FigureFinding("seconds of a query, 8.2 and 16.4 GB, threshold 0.1", "by size", texts[0]),
        FigureFinding(
            "the same, threshold 0.9; how far apart, by that at 0.1",
            "converge",
            f"{texts[1]}: {share:.2f}",
            str(CONVERGED),
            share in CONVERGED,
        ),
        FigureFinding(
            "chunks loaded by a node that owns some, thresholds 0.1 and 0.9",
            "loads by nodes of the left half",
            ", ".join(f"{mean(row.loads_by_node[:half]):.0f}" for row in rows),
        ),
    ]


def request_flow(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what requests that decide change in figure 15: fewer loads."""
    half = len(rows) // 2
    return [
        FigureFinding(
            f"loads and seconds of a query, {before.name}",
            "a more precise decision",
            f"{before.loads:,} → {after.loads:,}, {before.mean_s:.1f} → {after.mean_s:.1f} s",
            "not more loads" if before.loads <= FEWEST_LOADS else "fewer loads",
            after.loads < before.loads or before.loads <= FEWEST_LOADS == after.loads,
        )
        for before, after in zip(rows[:half], rows[half:], strict=True)
    ]


def figure_16(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 16: more nodes finish more queries, the second time by less."""
    rings = [rows[first : first + 5] for first in range(0, len(rows), 5)]
    times = [mean(row.mean_s for row in ring) for ring in rings]
    through = [sum(row.finished / row.last_s for row in ring) for ring in rings]
    a_node = [each / ring[0].nodes for each, ring in zip(through, rings, strict=True)]
    first, second = through[1] / through[0], through[2] / through[1]
    return [
        FigureFinding(
            "throughput, first extension", "+70 %", _more(first), f"× {FIRST_EXTENSION}", first in FIRST_EXTENSION
        ),
        FigureFinding("… second", "+14 %", _more(second), "less than the first", second < first),
        FigureFinding("mean time of a query, first extension", "almost the same", _more(times[1] / times[0])),
        FigureFinding("… second", "+10 to +16 %", _more(times[2] / times[1]), differs=_slower(times[2] / times[1])),
        FigureFinding(
            "throughput a node, first extension",
            "slightly more",
            _more(a_node[1] / a_node[0]),
            differs="less" if a_node[1] < a_node[0] else "",
        ),
        FigureFinding(
            "… second",
            "-13 %",
            _more(a_node[2] / a_node[1]),
            differs="hardly saturated" if a_node[2] > 0.9 * a_node[1] else "",
        ),
    ]


def _slower(ratio: float) -> str:
    """Return in what the growth of time differs from the paper's 10 to 16 %."""
    return "" if 1.10 <= ratio <= 1.16 else "less" if ratio < 1.10 else "more"


def _more(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"
