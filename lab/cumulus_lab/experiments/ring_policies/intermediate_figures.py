"""The policy of intermediates: results of fragments that queries share enter the ring, at once or on request (7.2)."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.policy_figures import with_policy
from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.set_up import RingSetUp
from cumulus_lab.experiments.ring.table_figures import Named
from cumulus_lab.experiments.ring_policies.nomad_figures import busy_ring
from cumulus_ring.machine.settings import MEGABYTE

KEPT = 0.25
"""What a node keeps of lazy results, by its queue."""


def intermediate_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run in which each query computes its fragment, and runs with eager and with lazy results."""
    limited = busy_ring(set_up)
    room = round(KEPT * set_up.queue_mb * MEGABYTE)
    return [
        ("no results", limited),
        ("eager", with_policy(limited, {"intermediates": "eager"})),
        ("lazy", with_policy(limited, {"intermediates": "lazy", "intermediate_bytes": room})),
    ]


def intermediates(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what results save, and what they cost."""
    without, eager, lazy = rows
    found = [
        FigureFinding(
            f"CPU seconds of all queries, {row.name}",
            "avoid (part of) the processing cost",
            f"{without.worked_s:,.0f} → {row.worked_s:,.0f}",
            "less",
            row.worked_s < without.worked_s and row.finished == row.registered,
        )
        for row in (eager, lazy)
    ]
    found.append(
        FigureFinding(
            "GB over links: eager, lazy",
            "if a request is issued, they enter the ring",
            f"{eager.bytes / 1e9:,.1f} → {lazy.bytes / 1e9:,.1f}",
            "fewer",
            lazy.bytes < eager.bytes,
        )
    )
    for what, values in (
        ("GB over links", [f"{row.bytes / 1e9:,.1f}" for row in rows]),
        ("mean seconds of a query", [f"{row.mean_s:.3f}" for row in rows]),
        ("chunk loads", [f"{row.loads:,}" for row in rows]),
        ("requests", [f"{row.requests:,}" for row in rows]),
        ("queries that read a result", [f"{row.results_read:,} of {row.registered:,}" for row in rows]),
        ("… that was gone", [f"{row.counts.get('query failed', 0):,}" for row in rows]),
        ("results made", [f"{row.counts.get('result made', 0):,}" for row in rows]),
        ("… that their node had already", [f"{row.results_twice:,}" for row in rows]),
        ("… given up", [f"{row.counts.get('result given up', 0):,}" for row in rows]),
        ("… faded out", [f"{row.counts.get('result faded out', 0):,}" for row in rows]),
    ):
        found.append(FigureFinding(f"{what}: no results, eager, lazy", "", ", ".join(values)))
    return found
