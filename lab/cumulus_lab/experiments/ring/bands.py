"""Figures 9 and 10: what must come out, whatever the seed; and rules that are broken on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow

LEVELS = tuple(round(0.1 * number, 1) for number in range(1, 12))
LOW, HIGH = (LEVELS[0],), (LEVELS[-1],)
LEAST_RATIO = Band(2.4)
TOLERANCE = 0.02
"""Finished queries may fall by so much from one threshold to the next."""
BREAK_TOLERANCE = 0.15


@dataclass(frozen=True, slots=True)
class ThroughputBands:
    """Bands of figure 9 at one scale.

    Parameters
    ----------
    low, high
        Queries finished at 40 s, at the lowest threshold and at the highest.
    long_lives
        So many queries live longer than 100 s at the lowest threshold, and none at the highest.
    """

    low: Band
    high: Band
    long_lives: Band


BANDS = {
    "full": ThroughputBands(Band(5_500, 10_500), Band(22_500, 27_000), Band(2_001)),
    "ci": ThroughputBands(Band(1_375, 2_625), Band(5_625, 6_750), Band(501)),
}

BROKEN = {
    "figure-6": (0, 0),
    "no-resend": (1_505, 424),
    "smallest-first": (1_744, 3_895),
    "drop-tail": (3_816, 4_360),
}
"""Queries finished at 40 s with a broken rule, at the lowest and at the highest threshold; scale ``ci``."""


def figure_9(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 9."""
    bands = BANDS[scale]
    by_loit = {row.loit: row for row in rows}
    low, high = by_loit[LOW], by_loit[HIGH]
    ratio = high.finished_at / max(1, low.finished_at)
    found = [
        FigureFinding(
            f"finished at 40 s, threshold {row.loit[0]}",
            paper if scale == "full" else f"{paper}, at four times the rate",
            f"{row.finished_at:,} of {row.registered_at:,}",
            str(band),
            row.finished_at in band,
        )
        for row, paper, band in ((low, "8000 of 30000", bands.low), (high, "almost 25000", bands.high))
    ]
    found += [
        FigureFinding("… the latter by the former", "about 3", f"{ratio:.2f}", str(LEAST_RATIO), ratio in LEAST_RATIO),
        _order(rows),
        FigureFinding(
            "lives under 5 s, threshold 0.1",
            "a peak",
            f"{low.lives[0]:,}; after it at most {max(low.lives[1:], default=0):,} in 5 s",
            differs="" if low.lives[0] == max(low.lives) else "more live longer",
        ),
        FigureFinding(
            "lives over 100 s, threshold 0.1",
            "the remaining queries",
            f"{low.above_100_s:,} of {low.registered - low.below_5_s:,}",
            str(bands.long_lives),
            low.above_100_s in bands.long_lives,
            "not all of them" if low.above_100_s < low.registered - low.below_5_s else "",
        ),
        FigureFinding("lives over 100 s, threshold 1.1", "none", f"{high.above_100_s:,}", "0", high.above_100_s == 0),
    ]
    return found


def _order(rows: Sequence[RingRow]) -> FigureFinding:
    """More queries are finished at a higher threshold."""
    in_order = sorted(rows, key=lambda row: row.loit)
    less = [after for before, after in pairwise(in_order) if after.finished_at < before.finished_at]
    much_less = [
        after for before, after in pairwise(in_order) if after.finished_at < (1 - TOLERANCE) * before.finished_at
    ]
    return FigureFinding(
        "finished at 40 s by threshold",
        "monotonously increasing",
        f"less at {', '.join(str(row.loit[0]) for row in less)}" if less else f"more at each of {len(rows)}",
        "nowhere 2 % less",
        not much_less,
        "not everywhere" if less else "",
    )


def figure_10(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 10: at the lowest threshold large chunks come last."""
    by_loit = {row.loit: row for row in rows}
    found = [_sizes(by_loit[LOW], "ever smaller, at last large ones", "5 % more after the least")]
    high = _sizes(by_loit[HIGH], "a delay less evident", "")
    return [*found, high]


def _sizes(row: RingRow, paper: str, must: str) -> FigureFinding:
    # While the ring is full; at the end there are few chunks left, of any size.
    full = max(sample.bytes for sample in row.samples)
    samples = [sample for sample in row.samples if sample.bytes >= full / 2]
    sizes = [sample.mean_mb for sample in samples]
    least = sizes.index(min(sizes))
    after = max(range(least, len(sizes)), key=sizes.__getitem__)
    texts = [f"{sizes[place]:.2f} at {samples[place].second:.0f} s" for place in (0, least, after)]
    is_inside = not must or (least > 0 and sizes[after] > 1.05 * sizes[least])
    return FigureFinding(f"mean MB in the ring, threshold {row.loit[0]}", paper, ", ".join(texts), must, is_inside)


def broken_rule(rows: Sequence[RingRow], broken: str) -> list[FigureFinding]:
    """Return where a broken rule shows."""
    by_loit = {row.loit: row for row in rows}
    return [
        FigureFinding(
            f"finished at 40 s, threshold {loit[0]}",
            "",
            f"{by_loit[loit].finished_at:,}",
            f"{wanted:,} within 15 %",
            abs(by_loit[loit].finished_at - wanted) <= BREAK_TOLERANCE * wanted,
        )
        for loit, wanted in zip((LOW, HIGH), BROKEN[broken], strict=True)
    ]


def sums_that_are_wrong(rows: Sequence[RingRow]) -> list[str]:
    """Return which rows do not add up."""
    return [
        f"the sums of threshold {':'.join(map(str, row.loit))} do not add up"
        for row in rows
        if row.finished + row.unfinished + row.failed != row.registered
        or row.loads - row.unloads - row.lost != row.in_ring
        or sum(row.lives) != row.finished
        or any(sample.sets and sum(sample.sets) != sample.bytes for sample in row.samples)
        or (row.chunks and sum(each.requests for each in row.chunks) != row.requests)
        or (row.chunks and sum(each.loads for each in row.chunks) != row.loads)
    ]
