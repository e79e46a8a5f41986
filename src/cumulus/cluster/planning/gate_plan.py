"""Where the gated part of a program is computed: in buckets, one on each node, or in one.

The gate is what the other hosts of epochs run. Several buckets must check what one checks, and must never wait for each
other's votes on a deletion: the epoch has an end of its own already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cumulus.epochs.layouts import polled_tables, unchecked_keys
from cumulus.epochs.plan import BucketPlan
from cumulus.layout.one_round import choose_layout
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The buckets of the gate; that with number i is on the node `nodes[i]`."""

    buckets: BucketPlan
    nodes: tuple[int, ...]


def plan_gate(gated: Program, nodes: int, rows: Mapping[str, int]) -> GatePlan | None:
    """Return where a gated program is computed, None if there is nothing in it.

    Parameters
    ----------
    rows
        Of the tables, that no large one is put on every node (`cumulus.cluster.homes.estimated_rows`).
    """
    if not gated.maps:
        return None
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
        reasons = "; ".join(f"{name}: {reason}" for name, reason in found.reasons.items())
        why = f"one bucket on node {last}, since no table can be partitioned ({reasons})"
        return GatePlan(BucketPlan(why=why), (last,))
    split = ", ".join(f"{name} by {column}" for name, column in found.partitioned.items())
    others = [relation.name for relation in gated.relations if relation.name not in found.partitioned]
    everywhere = f"; on every node {', '.join(others)}" if others else ""
    why = f"{nodes} buckets, one on each node: {split}{everywhere}"
    return GatePlan(BucketPlan(nodes, found.partitioned, why), tuple(range(nodes)))
