"""Table II and figure 17: queries of TPC-H alone at a node of a ring, and at all nodes; what must come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.set_up import SECOND, MixAccess, RingSetUp, SuiteAccess
from cumulus_lab.experiments.ring.suite_plans import SUITE
from cumulus_lab.experiments.ring.table_figures import CLUSTER, Named
from cumulus_ring.machine import RingSettings

PAPER_S = {
    "q1": (208.4, 11.5, 14.1, 14.6),
    "q2": (13.6, 3.6, 4.9, 4.8),
    "q3": (14.7, 8.3, 8.6, 10.9),
    "q4": (30.4, 4.8, 5.4, 5.8),
    "q5": (16.9, 7.0, 8.6, 10.1),
    "q6": (3.4, 5.8, 5.3, 6.3),
    "q7": (7.6, 10.6, 13.7, 17.6),
    "q8": (20.6, 10.0, 9.9, 11.1),
    "q11": (11.3, 3.9, 5.9, 4.6),
    "q12": (15.2, 5.6, 7.4, 7.7),
    "q14": (4.9, 5.1, 5.6, 6.3),
    "q15": (13.9, 12.0, 12.8, 12.6),
    "q17": (36.4, 37.9, 73.4, 74.9),
    "q18": (125.2, 78.9, 108.1, 112.8),
    "q19": (79.3, 22.6, 28.3, 28.8),
    "q20": (11.0, 7.6, 7.7, 8.2),
    "q21": (31.8, 10.2, 15.8, 16.5),
    "q22": (14.9, 8.11, 9.6, 10.2),
}
"""Table II: seconds of each query on 1, 32, 48 and 64 nodes."""
PAPER_THROUGHPUT = (3, 5, 7, 9)
"""Table III, which has no unit."""

QUARTER_MB = 2_000.0
"""A quarter of a node's buffers, as a node of a real ring divides them: two for transit, as these links need no credit,
one for queries, one for what is kept."""

MIX_CLUSTER = replace(
    CLUSTER,
    access=MixAccess(),
    queue_mb=2 * QUARTER_MB,
    dbms_mb=QUARTER_MB,
    neutral_mb=QUARTER_MB,
    asks_again=True,
    pins="any",
    weights=(1.0,) * 32,
)
"""Thirty-two nodes that read data concurrently (section 6.2); nodes that are added own none, as in figure 16."""


def with_one_busy(set_up: RingSetUp) -> RingSetUp:
    """Return a set-up in which a request is sent again as a node does of itself: an idle ring turns quickly (E25)."""
    node = RingSettings()
    return replace(
        set_up,
        resend_s=node.resend_floor_us / SECOND,
        resend_cycles=node.resend_cycles,
        resend_backoff=node.resend_backoff,
    )


SUITE_CLUSTER = with_one_busy(replace(MIX_CLUSTER, access=SuiteAccess()))

LARGEST_GAINS = 3
NOT_SLOWER = Band(1.0)
ALIKE = Band(0.5, 2.0)
"""A time by that of the paper; beyond, it is said to differ."""


def rings(set_up: RingSetUp) -> list[tuple[int, RingSetUp]]:
    """Return the paper's rings, each with its number of nodes: the first, and two extensions by half of it."""
    sizes = [set_up.nodes + step * set_up.nodes // 2 for step in range(3)]
    return [(nodes, replace(set_up, nodes=nodes, weights=(1.0,) * set_up.nodes)) for nodes in sizes]


def suite_runs(set_up: RingSetUp) -> list[Named]:
    """Return the runs of table II: one node that has no memory to keep chunks in, and three rings."""
    alone = replace(set_up, nodes=1, dbms_mb=0.0, neutral_mb=0.0)
    return [("1 node", alone), *((f"{nodes} nodes", ring) for nodes, ring in rings(set_up))]


def mix_runs(set_up: RingSetUp) -> list[Named]:
    """Return the runs of figure 17: a ring with one busy node, then all nodes busy, in two orders of chunks."""
    assert isinstance(set_up.access, MixAccess)
    suite = SuiteAccess(set_up.access.scale_factor, set_up.access.cores, set_up.access.cpu_s)
    return [
        (f"{set_up.nodes} nodes, one busy", with_one_busy(replace(set_up, access=suite))),
        *((f"{nodes} nodes, by arrival", ring) for nodes, ring in rings(set_up)),
        *((f"{nodes} nodes, by file", replace(ring, pins="sequential")) for nodes, ring in rings(set_up)),
    ]


def seconds_by_query(row: RingRow) -> dict[str, float]:
    """Return the mean time of each query, by name."""
    return {each.name: each.mean_s for each in row.by_query}


def table_2(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in table II."""
    by_row = [seconds_by_query(row) for row in rows]
    times = {name: tuple(row[name] for row in by_row) for name in SUITE}
    nodes = [row.nodes for row in rows]
    listed = ", ".join(map(str, nodes))
    found = [
        FigureFinding(
            f"seconds of {name.upper()} on {listed} nodes",
            _listed(PAPER_S[name]),
            _listed(times[name]),
            differs=_other_times(nodes, PAPER_S[name], times[name]),
        )
        for name in SUITE
    ]
    paper_sums, sums = ([sum(column) for column in zip(*each.values(), strict=True)] for each in (PAPER_S, times))
    return [
        *found,
        *_gains({name: each[:2] for name, each in times.items()}),
        FigureFinding(
            f"seconds of all queries on {listed} nodes",
            _listed(paper_sums),
            _listed(sums),
            "less on the first ring than on one node",
            sums[1] < sums[0],
            _other_times(nodes, paper_sums, sums),
        ),
        FigureFinding(
            "… the last ring by the first",
            f"{paper_sums[-1] / paper_sums[1]:.2f}",
            f"{sums[-1] / sums[1]:.2f}",
            "1 or more",
            sums[-1] >= sums[1],
        ),
    ]


def _gains(times: Mapping[str, Sequence[float]]) -> list[FigureFinding]:
    """Return which queries the first ring makes quicker, and which slower, by their times on one node and on it."""
    gains, paper = ({name: each[0] / each[1] for name, each in table.items()} for table in (times, PAPER_S))
    saved, paper_saved = ({name: each[0] - each[1] for name, each in table.items()} for table in (times, PAPER_S))
    ratio_place, place = (_most(each, len(each)).index("q1") + 1 for each in (gains, saved))
    losing, paper_losing = ([name for name in SUITE if each[name] < 1] for each in (gains, paper))
    return [
        FigureFinding(
            "place of Q1 by seconds that the first ring gains",
            f"1: {paper_saved['q1']:.1f}",
            f"{place}: {saved['q1']:.1f}",
            f"{LARGEST_GAINS} or less",
            place <= LARGEST_GAINS,
        ),
        FigureFinding(
            "… by ratio",
            f"1: × {paper['q1']:.1f}",
            f"{ratio_place}: × {gains['q1']:.1f}",
            differs="" if ratio_place <= LARGEST_GAINS else "other queries gain more",
        ),
        FigureFinding(
            "largest gains",
            _largest(paper, "× "),
            _largest(gains, "× "),
            differs=_other_queries(_most(paper), _most(gains)),
        ),
        FigureFinding(
            "most seconds gained",
            _largest(paper_saved),
            _largest(saved),
            differs=_other_queries(_most(paper_saved), _most(saved)),
        ),
        FigureFinding(
            "queries that lose by the first ring",
            ", ".join(map(str.upper, paper_losing)),
            ", ".join(map(str.upper, losing)) or "none",
            differs=_other_queries(paper_losing, losing),
        ),
    ]


def _most(values: Mapping[str, float], count: int = LARGEST_GAINS) -> list[str]:
    return sorted(values, key=values.__getitem__, reverse=True)[:count]


def _largest(values: Mapping[str, float], sign: str = "") -> str:
    return ", ".join(f"{name.upper()} {sign}{values[name]:.1f}" for name in _most(values))


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in values)


def _other_times(nodes: Sequence[int], paper: Sequence[float], here: Sequence[float]) -> str:
    """Return on how many nodes a time is another than the paper's, and by how much."""
    ratios = [(count, ours / theirs) for count, theirs, ours in zip(nodes, paper, here, strict=True)]
    return ", ".join(f"× {ratio:.1f} on {count}" for count, ratio in ratios if ratio not in ALIKE)


def _other_queries(paper: Sequence[str], here: Sequence[str]) -> str:
    return "" if set(paper) == set(here) else "other queries" if here else "none"


def figure_17(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 17: chunks in order of arrival are not slower than in that of files."""
    count = len(rows) // 2
    alone, by_arrival, by_file = rows[0], rows[1 : 1 + count], rows[1 + count :]
    nodes = ", ".join(str(row.nodes) for row in by_arrival)
    busy = by_arrival[0].mean_s / _mean_alone(alone, by_arrival[0])
    through = [row.finished / row.last_s for row in by_arrival]
    found = [
        FigureFinding(
            f"seconds of a query on {by_arrival[0].nodes} nodes, all busy, by those with one busy",
            "not as optimal as expected",
            f"{busy:.2f}",
            differs="" if busy > 1 else "less",
        ),
        FigureFinding(
            f"seconds of a query on {nodes} nodes, by file",
            "a static plan",
            _listed([row.mean_s for row in by_file]),
        ),
        FigureFinding("… by arrival", "future work", _listed([row.mean_s for row in by_arrival])),
    ]
    for quick, slow in zip(by_arrival, by_file, strict=True):
        ratio = slow.mean_s / quick.mean_s
        found.append(
            FigureFinding(
                f"… the former by the latter, {quick.nodes} nodes",
                "will reduce the latency",
                f"{ratio:.2f}",
                str(NOT_SLOWER),
                ratio in NOT_SLOWER and quick.finished == quick.registered,
            )
        )
    rises = all(after > before for before, after in pairwise(through))
    found.append(
        FigureFinding(
            f"queries a second on {nodes} nodes, by arrival",
            f"{', '.join(map(str, PAPER_THROUGHPUT[1:]))} (table III, no unit)",
            ", ".join(f"{each:.2f}" for each in through),
            differs="" if rises else "does not rise with each ring",
        )
    )
    return found


def _mean_alone(alone: RingRow, mix: RingRow) -> float:
    """Return the mean time that the queries of a mix would have, if each took as long as it does alone."""
    times = seconds_by_query(alone)
    return sum(each.finished * times[each.name] for each in mix.by_query) / mix.finished
