"""Figure 12: chunks of which some are read far more often than others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import ChunkTally, RingRow

MEAN, DEVIATION = 0.5, 0.05
"""Of the numbers of chunks, as shares of how many there are."""
CENTRE = (-0.4, 0.4)
SHOULDERS = (-2.4, -1.6), (1.6, 2.4)
"""In deviations from the mean: of 1000 chunks, 480 to 520, and 380 to 420 and 580 to 620."""

IN_VOGUE, UNPOPULAR = 250, 20
"""Touches of the groups of chunks."""

LOADS: dict[tuple[float, ...], Band] = {
    (0.1,): Band(most=0.8),
    (1.1,): Band(most=0.88),
    (0.1, 0.6, 1.1): Band(most=0.95),
}
"""Loads of a chunk in the centre by those of one on the shoulders, by thresholds."""
REQUESTS: dict[tuple[float, ...], Band] = {(0.1,): Band(most=0.8)}
REQUESTS_A_TOUCH = Band(most=0.5)


def figure_12(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 12."""
    found = [_groups(rows[0])]
    for row in rows:
        found += _centre_and_shoulders(row)
    return found


def _groups(row: RingRow) -> FigureFinding:
    in_vogue = [number for number, each in enumerate(row.chunks) if each.touches > IN_VOGUE]
    others = [number for number, each in enumerate(row.chunks) if each.touches >= UNPOPULAR]
    return FigureFinding(
        "chunks touched more than 250 times",
        "350 to 600 of 1000",
        f"{min(in_vogue)} to {max(in_vogue)} of {len(row.chunks)}; 20 times or more {min(others)} to {max(others)}",
        differs="fewer; the paper's group is not even around 500",
    )


def _centre_and_shoulders(row: RingRow) -> list[FigureFinding]:
    centre, shoulders = _near(row, (CENTRE,)), _near(row, SHOULDERS)
    level = f"threshold {':'.join(map(str, row.loit))}"
    loads, requests = _mean(each.loads for each in centre), _mean(each.requests for each in centre)
    outer_loads, outer_requests = _mean(each.loads for each in shoulders), _mean(each.requests for each in shoulders)
    touches, outer_touches = _mean(each.touches for each in centre), _mean(each.touches for each in shoulders)
    band, rare = LOADS[row.loit], REQUESTS.get(row.loit)
    a_touch = (requests / touches) / (outer_requests / outer_touches)
    return [
        FigureFinding(
            f"loads of a chunk, centre and shoulders, {level}",
            "less in the centre",
            f"{loads:.1f} and {outer_loads:.1f}: {loads / outer_loads:.2f}",
            str(band),
            loads / outer_loads in band,
        ),
        FigureFinding(
            f"requests for a chunk, the same, {level}",
            "less in the centre",
            f"{requests:.1f} and {outer_requests:.1f}: {requests / outer_requests:.2f}",
            str(rare or ""),
            rare is None or requests / outer_requests in rare,
            "more in the centre" if requests > outer_requests else "",
        ),
        FigureFinding(
            f"… by touches, {level}",
            "",
            f"{a_touch:.2f}",
            str(REQUESTS_A_TOUCH),
            a_touch in REQUESTS_A_TOUCH,
        ),
    ]


def _near(row: RingRow, ranges: Sequence[tuple[float, float]]) -> list[ChunkTally]:
    """Return chunks that are so many deviations from the mean."""
    count = len(row.chunks)
    return [
        each
        for number, each in enumerate(row.chunks)
        if any(least <= (number - MEAN * count) / (DEVIATION * count) <= most for least, most in ranges)
    ]


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return sum(found) / len(found)
