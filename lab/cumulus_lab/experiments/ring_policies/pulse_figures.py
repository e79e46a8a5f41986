"""Pulsating rings (section 7.3): a ring of all nodes, and one that nodes leave and come to; what must come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow
from cumulus_lab.experiments.ring.set_up import CI, SECOND, PulseAccess, RingSetUp
from cumulus_lab.experiments.ring.table_figures import Named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PULSE_CLUSTER = replace(
    CI, nodes=16, chunks=60, total_gb=0.4, access=PulseAccess(), storage_gb=0.1, asks_again=True, most_seconds=10_000.0
)
"""Four nodes could own all chunks. With the rates of the access sixteen nodes are in use about two thirds of the time,
and then less than a tenth of it."""
PULSATING = {"pulse_us": 4 * SECOND}

QUIET = 1
"""The place of the time with few queries among the times of the access."""
NODE_SECONDS = Band(most=0.8)
"""Seconds of members together, by those of a ring of all nodes."""
NOT_SLOWER = Band(most=1.05)
"""When the last query is finished, by that of a ring of all nodes."""
BUSY = Band(most=1.1)
"""The mean time of queries of the busy times, by that of a ring of all nodes."""


def pulse_runs(set_up: RingSetUp) -> list[Named]:
    """Return a run with all nodes in the ring, and one that begins so and pulsates."""
    return [("all nodes", set_up), ("pulsating", replace(set_up, policy={**set_up.policy, **PULSATING}))]


def pulsation(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what it saves that nodes leave, and what it costs."""
    before, after = rows
    quiet = [row.by_kind[QUIET].mean_s for row in rows]
    busy = [_mean_s(row, but=QUIET) for row in rows]
    spent = [sum(each.members for each in row.samples) for row in rows]
    late = _late_in_the_quiet(after)
    last = after.last_s / before.last_s
    return [
        FigureFinding(
            f"members in the second half of the quiet time, of {before.nodes} nodes",
            "nodes are removed to reduce the latency",
            f"{min(late)} to {max(late)}",
            f"{before.nodes // 2} or less",
            max(late) <= before.nodes // 2,
        ),
        FigureFinding(
            "mean seconds of a query of the quiet time",
            "",
            f"{quiet[0]:.2f} → {quiet[1]:.2f}",
            "less",
            quiet[1] < quiet[0],
        ),
        FigureFinding(
            "… of the busy times",
            "they are thrown back in when they are needed",
            f"{busy[0]:.2f} → {busy[1]:.2f}: × {busy[1] / busy[0]:.2f}",
            f"× {BUSY}",
            busy[1] / busy[0] in BUSY,
        ),
        FigureFinding(
            "seconds until all queries are finished",
            "",
            f"{before.last_s:.1f} → {after.last_s:.1f}: × {last:.2f}",
            f"× {NOT_SLOWER}",
            last in NOT_SLOWER and after.finished == after.registered,
        ),
        FigureFinding(
            "seconds of members together",
            "",
            f"{spent[0]:,} → {spent[1]:,}: × {spent[1] / spent[0]:.2f}",
            f"× {NODE_SECONDS}",
            spent[1] / spent[0] in NODE_SECONDS,
        ),
        FigureFinding("GB over links", "", f"{before.bytes / 1e9:,.0f} → {after.bytes / 1e9:,.0f}"),
        FigureFinding("chunk loads", "", f"{before.loads:,} → {after.loads:,}"),
    ]


def _late_in_the_quiet(row: RingRow) -> list[int]:
    """Return how many members there were in the second half of the quiet time."""
    came = [each.registered[QUIET] for each in row.samples]
    half = max(came) / 2
    return [each.members for each, count in zip(row.samples, came, strict=True) if half <= count < max(came)]


def _mean_s(row: RingRow, but: int) -> float:
    """Return the mean time of the queries of all times but one."""
    chosen = [each for each in row.by_kind if int(each.name) != but]
    return sum(each.finished * each.mean_s for each in chosen) / sum(each.finished for each in chosen)


def draw_pulse(rows: Sequence[RingRow], left: Axes, right: Axes) -> None:
    """Section 7.3: members over time, and mean times of queries."""
    for place, row in enumerate(rows):
        left.plot([each.second for each in row.samples], [each.members for each in row.samples], label=row.name)
        times = [each.mean_s for each in row.by_kind]
        right.bar([each + 0.4 * place for each in range(len(times))], times, 0.4, label=row.name)
    left.set(title="(a) members", xlabel="s", ylabel="nodes", ylim=(0, None))
    right.set(title="(b) mean time of a query", xlabel="time of the access", ylabel="s")
