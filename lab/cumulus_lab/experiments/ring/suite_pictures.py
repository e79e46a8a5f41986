"""Pictures of table II and figure 17, with the paper's numbers as marks where it gives any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.suite_figures import PAPER_S, PAPER_THROUGHPUT, seconds_by_query
from cumulus_lab.experiments.ring.suite_plans import SUITE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = [name.upper() for name in SUITE]


def draw_suite(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Table II: the time of each query by nodes, and that of all queries."""
    nodes = [row.nodes for row in rows]
    for place, row in enumerate(rows):
        times = seconds_by_query(row)
        label = "1 node" if row.nodes == 1 else f"{row.nodes} nodes"
        left.plot(NAMES, [times[name] for name in SUITE], f"C{place}o-", label=f"{label}, here")
        left.plot(NAMES, [PAPER_S[name][place] for name in SUITE], f"C{place}x", label=f"{label}, paper")
    left.set(title="(a) query execution times", xlabel="query", ylabel="s", yscale="log")
    left.tick_params(axis="x", labelsize="x-small")
    places = [str(each) for each in nodes]
    right.bar(places, [sum(seconds_by_query(row).values()) for row in rows], label="here")
    paper = [sum(each[place] for each in PAPER_S.values()) for place in range(len(rows))]
    right.plot(places, paper, "kx", label="paper")
    right.set(title="(b) all queries in sequence", xlabel="nodes", ylabel="s")


def draw_mix(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 17: mean time of a query by nodes and order, and throughput beside that of table III."""
    count = len(rows) // 2
    for label, chosen in (("by arrival", rows[1 : 1 + count]), ("by file", rows[1 + count :])):
        nodes = [row.nodes for row in chosen]
        left.plot(nodes, [row.mean_s for row in chosen], "o-", label=label)
        left.set_xticks(nodes)
        right.set_xticks(nodes)
        right.plot(nodes, [row.finished / row.last_s for row in chosen], "o-", label=label)
    first = rows[1]
    left.plot([rows[0].nodes], [rows[0].mean_s], "s", label="one node busy")
    left.set(title="(a) query average time with all nodes", xlabel="nodes", ylabel="s", ylim=(0, None))
    unit = first.finished / first.last_s / PAPER_THROUGHPUT[1]
    paper = [unit * each for each in PAPER_THROUGHPUT[1:]]
    right.plot([row.nodes for row in rows[1 : 1 + count]], paper, "kx", label="paper (table III), by its first ring")
    right.set(title="(b) throughput", xlabel="nodes", ylabel="queries a second", ylim=(0, None))
