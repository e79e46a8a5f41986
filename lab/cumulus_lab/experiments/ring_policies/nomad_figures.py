"""The policy of nomads: queries that come to nodes drawn at random, and settle at the cheapest (section 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.policy_figures import with_policy
from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.set_up import RingSetUp, ZipfAccess
from cumulus_lab.experiments.ring.table_figures import Named

FEW_HOPS = 3
BUSY = 0.9
"""Share of their cores that nodes work with, if queries are spread evenly."""
FIT = 5
"""A part of the data of figure 9 that fits into its ring, which has room for a fourth."""
ANY_ORDER: dict[str, Any] = {"pins": "any"}
"""Queries take their chunks in any order."""


def busy_ring(set_up: RingSetUp) -> RingSetUp:
    """Return a set-up in which queries wait for cores, too.

    All chunks fit into the ring. Nodes have so many cores that queries by turns keep nine tenths of them busy.
    """
    assert isinstance(set_up.access, ZipfAccess)
    mean_s = (set_up.fewest_chunks + set_up.most_chunks) / 2 * (set_up.shortest_ms + set_up.longest_ms) / 2 / 1000
    return replace(
        set_up,
        chunks=max(1, set_up.chunks // FIT),
        total_gb=set_up.total_gb / FIT,
        cores=max(1, round(set_up.access.rate * mean_s / BUSY)),
        dbms_mb=set_up.queue_mb / 2,
        neutral_mb=2 * set_up.queue_mb,
    )


def nomad_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run of queries at all nodes by turns, one of queries at random nodes, and two of nomads from there."""
    by_turns = busy_ring(set_up)
    random = replace(by_turns, placed="at random")
    return [
        ("by turns", by_turns),
        ("at random", random),
        (f"nomads, {FEW_HOPS} hops", with_policy(random, {"nomad_hops": FEW_HOPS})),
        ("nomads, all nodes", with_policy(random, {"nomad_hops": set_up.nodes - 1})),
    ]


def nomads(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what nomads change for queries that come to random nodes."""
    turns, random, *with_nomads = rows
    found = [
        FigureFinding(
            f"mean seconds of a query, {row.name}",
            "a more satisfactory node to settle",
            f"{random.mean_s:.3f} → {row.mean_s:.3f}",
            "less",
            row.mean_s < random.mean_s and row.finished == row.registered,
        )
        for row in with_nomads
    ]
    found.append(FigureFinding("mean seconds of a query, by turns", "", f"{turns.mean_s:.3f}"))
    for what, values in (
        ("GB over links", [f"{row.bytes / 1e9:,.1f}" for row in rows]),
        ("chunk loads", [f"{row.loads:,}" for row in rows]),
        ("requests", [f"{row.requests:,}" for row in rows]),
        ("queries that settle elsewhere", [f"{row.moved_queries:,} of {row.registered:,}" for row in rows[2:]]),
        ("visits to nodes", [f"{row.nomad_hops:,}" for row in rows[2:]]),
    ):
        which = "by turns, at random, nomads" if len(values) == len(rows) else "nomads"
        found.append(FigureFinding(f"{what}: {which}", "", ", ".join(values)))
    return found
