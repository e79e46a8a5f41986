"""Pictures of figures 14 to 16 and of policies, with the paper's numbers as marks where it gives any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.table_figures import SCENARIOS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER_S_A_GB = 0.75, 0.95
PAPER_THROUGHPUT = 1.0, 1.7, 1.7 * 1.14
"""Of rings of 32, 48 and 64 nodes, by that of the first."""


def draw_scenarios(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 14: mean time of a query by scenario, and by size of the hot set."""
    left.bar([row.name for row in rows], [row.mean_s for row in rows], label="here")
    left.set(title="(a) query average time", xlabel="scenario", ylabel="s")
    sizes = [SCENARIOS[row.name].hot_gb for row in rows if row.name in SCENARIOS]
    right.plot(sizes, [row.mean_s for row in rows], "o", label="here")
    for slope in PAPER_S_A_GB:
        right.plot([0, max(sizes)], [0, slope * max(sizes)], "k--", label=f"paper: {slope:g} s a GB")
    right.set(title="(b) by hot set", xlabel="GB", ylabel="s")


def draw_eviction(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 15: mean time of a query by threshold and hot set, and chunks loaded by node."""
    for row in rows:
        left.bar(row.name.replace(", ", "\n"), row.mean_s, label=row.name)
        right.plot(row.loads_by_node, label=row.name)
    left.axhline(8.0, color="k", linestyle="--", label="paper: a cycle")
    left.set(title="(a) query average time", ylabel="s")
    right.set(title="(b) chunks loaded", xlabel="node", ylabel="chunks", yscale="symlog")


def draw_tenths(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """A policy of section 6.3: waits of queries by the popularity of their chunk."""
    for row in rows:
        places = range(1, 1 + len(row.tenths))
        left.plot(places, [each.p50_s for each in row.tenths], "o-", label=row.name)
        right.plot(places, [each.p99_s for each in row.tenths], "o-", label=row.name)
    for axes, title in ((left, "(a) half wait at most"), (right, "(b) 99 % wait at most")):
        axes.set(title=title, xlabel="tenth of the chunks, the most popular first", ylabel="s", ylim=(0, None))


def draw_sizes(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """The policy of section 8.2: mean time of a query by how many chunks it reads, and queries finished."""
    for row in rows:
        left.plot([int(each.name) for each in row.by_size], [each.mean_s for each in row.by_size], "o-", label=row.name)
        right.plot([each.second for each in row.samples], [sum(each.finished) for each in row.samples], label=row.name)
    left.set(title="(a) query average time", xlabel="chunks", ylabel="s", ylim=(0, None))
    right.set(title="(b) finished queries", xlabel="s", ylabel="queries")


def draw_extension(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Figure 16: mean time of a query by ring and scenario, and throughput beside that of the paper."""
    names = list(dict.fromkeys(row.name.partition(" ")[2] for row in rows))
    nodes = list(dict.fromkeys(row.nodes for row in rows))
    for name in names:
        chosen = [row for row in rows if row.name.partition(" ")[2] == name]
        left.plot(nodes, [row.mean_s for row in chosen], "o-", label=name)
        right.plot(nodes, [row.finished / row.last_s for row in chosen], "o-", label=name)
    first = [row.finished / row.last_s for row in rows if row.nodes == nodes[0]]
    paper = [sum(first) / len(first) * each for each in PAPER_THROUGHPUT]
    right.plot(nodes[: len(paper)], paper[: len(nodes)], "kx", label="paper, by its first ring")
    left.set(title="(a) query average time", xlabel="nodes", ylabel="s", ylim=(0, None))
    right.set(title="(b) throughput", xlabel="nodes", ylabel="queries a second", ylim=(0, None))
