"""What must come out of the figures, whatever the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cumulus.experiments.ring.rows import RingRow

LEVELS = tuple(round(0.1 * number, 1) for number in range(1, 12))
LOW, HIGH = (LEVELS[0],), (LEVELS[-1],)
LEAST_RATIO = 2.4
TOLERANCE = 0.02
"""Finished queries may fall by so much from one threshold to the next."""
BREAK_TOLERANCE = 0.15


@dataclass(frozen=True, slots=True)
class Bands:
    """Bands of one scale.

    Parameters
    ----------
    low, high
        Queries finished at 40 s, at the lowest threshold and at the highest.
    long_lives
        More queries than this live longer than 100 s at the lowest threshold, and none at the highest.
    """

    low: tuple[int, int]
    high: tuple[int, int]
    long_lives: int


BANDS = {"full": Bands((5_500, 10_500), (22_500, 27_000), 2_000), "ci": Bands((1_375, 2_625), (5_625, 6_750), 500)}

BROKEN = {
    "figure-6": (0, 0),
    "no-resend": (1_505, 424),
    "smallest-first": (1_744, 3_895),
    "drop-tail": (3_816, 4_360),
}
"""Queries finished at 40 s with a broken rule, at the lowest and at the highest threshold; scale ``ci``."""


def outside_figure_9(rows: Sequence[RingRow], bands: Bands) -> list[str]:
    """Return what is not as in figure 9, a sentence each."""
    by_loit = {row.loit: row for row in rows}
    low, high = by_loit[LOW], by_loit[HIGH]
    found = [
        f"{row.finished_at:,} queries finished in time at threshold {row.loit[0]}, outside [{least:,}, {most:,}]"
        for row, (least, most) in ((low, bands.low), (high, bands.high))
        if not least <= row.finished_at <= most
    ]
    if high.finished_at < LEAST_RATIO * low.finished_at:
        found.append(f"the highest threshold is not {LEAST_RATIO} times as good as the lowest")
    for before, after in pairwise(sorted(rows, key=lambda row: row.loit)):
        if after.finished_at < (1 - TOLERANCE) * before.finished_at:
            found.append(f"fewer queries finished in time at threshold {after.loit[0]} than at {before.loit[0]}")
    if low.above_100_s <= bands.long_lives:
        found.append(f"{low.above_100_s:,} lives above 100 s at the lowest threshold, not over {bands.long_lives:,}")
    if high.above_100_s:
        found.append(f"{high.above_100_s:,} lives above 100 s at the highest threshold")
    return found + sums_that_are_wrong(rows)


def outside_figure_10(rows: Sequence[RingRow]) -> list[str]:
    """Return what is not as in figure 10: at the lowest threshold large chunks come last."""
    (row,) = (row for row in rows if row.loit == LOW)
    # While the ring is full; at the end there are few chunks left, of any size.
    full = max(sample.bytes for sample in row.samples)
    sizes = [sample.mean_mb for sample in row.samples if sample.bytes >= full / 2]
    least = sizes.index(min(sizes))
    found = [] if least and max(sizes[least:]) > 1.05 * sizes[least] else ["large chunks do not come last"]
    return found + sums_that_are_wrong(rows)


def outside_break(rows: Sequence[RingRow], broken: str) -> list[str]:
    """Return where a broken rule does not show as it should."""
    by_loit = {row.loit: row.finished_at for row in rows}
    return [
        f"{by_loit[loit]:,} queries finished in time at threshold {loit[0]}, not {wanted:,} within 15 %"
        for loit, wanted in zip((LOW, HIGH), BROKEN[broken], strict=True)
        if abs(by_loit[loit] - wanted) > BREAK_TOLERANCE * wanted
    ] + sums_that_are_wrong(rows)


def sums_that_are_wrong(rows: Sequence[RingRow]) -> list[str]:
    """Return which rows do not add up."""
    return [
        f"the sums of threshold {row.loit} do not add up"
        for row in rows
        if row.finished + row.unfinished + row.failed != row.registered
        or row.loads - row.unloads - row.lost != row.in_ring
    ]
