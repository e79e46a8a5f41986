"""Where the gated part of a program is computed: in buckets, one on each node, or in one.

The gate is what the other hosts of epochs run. Several buckets must check what one checks, and must never wait for each
other's votes on a deletion: the epoch has an end of its own already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cumulus.epochs.layouts import polled_tables, unchecked_keys
from cumulus.epochs.plan import BucketPlan
from cumulus.explain.layout.co_partitioning import choose_layout
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The buckets of the gate.

    Parameters
    ----------
    nodes
        Of each bucket the node that it is on.
    reasons
        Table that every bucket has whole → why it is not partitioned.
    """

    buckets: BucketPlan
    nodes: tuple[int, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)


def plan_gate(gated: Program, nodes: int, rows: Mapping[str, int]) -> GatePlan:
    """Return where a gated program is computed.

    Parameters
    ----------
    rows
        Of the tables, that no large one is put on every node
        (`cumulus.cluster.placement.statement_placement.estimated_rows`).
    """
    # Node 0 has the maps without keys, and the others have equal shares.
    last = nodes - 1
    if nodes == 1:
        return GatePlan(BucketPlan(why="one bucket, as there is one node"), (last,))

    def objection(partitioned: Mapping[str, str]) -> str:
        lost, voted = unchecked_keys(gated, partitioned), polled_tables(gated, partitioned)
        if lost:
            return f"nobody would check {lost[0]}"
        return f"buckets would vote on deletions from {voted[0]}" if voted else ""

    found = choose_layout(gated, sizes=rows, objection=objection)
    if found.one_bucket:
        why = f"one bucket on node {last}, since no table can be partitioned"
        return GatePlan(BucketPlan(why=why), (last,), found.reasons)
    split = ", ".join(f"{name} by {column}" for name, column in found.partitioned.items())
    everywhere = f"; in all of them {', '.join(found.reasons)}" if found.reasons else ""
    why = f"{nodes} buckets, one on each node: {split}{everywhere}"
    return GatePlan(BucketPlan(nodes, found.partitioned, why), tuple(range(nodes)), found.reasons)
