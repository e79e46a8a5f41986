"""Figure 11: workloads that come and go, each with a hot set of its own, and thresholds that adapt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus_lab.experiments.ring.findings import Band, FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow, RingSample
from cumulus_lab.experiments.ring.set_up import SkewedAccess

USUAL = SkewedAccess()
_, SW2_START, SW3_START, SW4_START = USUAL.starts

LEVEL_S, LEVEL = 4.0, 0.05
MUCH = 0.1
"""A hot set that takes so much of the ring has been loaded."""


@dataclass(frozen=True, slots=True)
class SkewedBands:
    """Bands of figure 11 at one scale.

    Parameters
    ----------
    last_sw1
        When the last query of SW1 finishes, in seconds.
    dip, dip_loit
        The least load of the ring between 50 and 66 s, and the mean threshold around then.
    dh1
        The least part of the ring that DH1 takes while both SW1 and SW2 run.
    level
        By how much the load changes in 4 s between 60 and 67.5 s.
    raised
        The highest mean threshold within 2 s of SW4's start.
    evicted
        The least of DH3 by 85 s, as a part of its peak.
    """

    last_sw1: Band
    dip: Band
    dip_loit: Band
    dh1: Band
    level: Band
    raised: Band
    evicted: Band


BANDS_11 = {
    "full": SkewedBands(
        Band(40, 50), Band(most=0.4), Band(0.1, 0.1), Band(0.001), Band(most=LEVEL), Band(0.601), Band(most=0.1)
    ),
    # The queue of a quarter holds six chunks, so its load moves in large steps: hardly level, and nodes disagree.
    "ci": SkewedBands(Band(40, 50), Band(most=0.5), Band(0.1, 0.3), Band(), Band(), Band(0.4), Band(most=0.1)),
}


def figure_11(rows: Sequence[RingRow], scale: str) -> list[FigureFinding]:
    """Return what is found in figure 11."""
    (row,), bands = rows, BANDS_11[scale]
    return [
        _peak(row, scale),
        _reaction(row),
        _last_of_sw1(row, bands.last_sw1),
        _dh1_stays(row, bands.dh1),
        *_dip(row.samples, bands),
        _level(row.samples, bands.level),
        _raised(row.samples, bands.raised),
        _evicted(row.samples, bands.evicted),
    ]


def _between(samples: Sequence[RingSample], start: float, end: float) -> list[RingSample]:
    return [each for each in samples if start <= each.second <= end]


def _peak(row: RingRow, scale: str) -> FigureFinding:
    """How many queries of SW2 finish in a second."""
    of_sw2 = {each.second: each.finished[1] for each in row.samples}
    by_second = {second: count - of_sw2[second - 1] for second, count in of_sw2.items() if second - 1 in of_sw2}
    most = max(by_second, key=by_second.__getitem__)
    first = by_second[SW2_START + 1]
    return FigureFinding(
        "queries of SW2 finished between 15 and 16 s",
        "a peak of 2000" if scale == "full" else "a peak of 2000, at four times the rate",
        f"{first:,}; most {by_second[most]:,}, until {most:g} s",
        differs="" if most == SW2_START + 1 else "the peak is later",
    )


def _reaction(row: RingRow) -> FigureFinding:
    """How long a hot set takes until it has a tenth of the ring."""
    waits = []
    for number, start in enumerate(USUAL.starts):
        later = (each for each in row.samples if each.second >= start and _share(each, number) >= MUCH)
        found = next(later, None)
        waits.append(f"{found.second - start:g}" if found else "never")
    return FigureFinding(
        "seconds until DH1, 2, 3, 4 have a tenth of the ring",
        "quick, within a second for DH2",
        ", ".join(waits),
        differs="" if all(wait != "never" and float(wait) <= 1 for wait in waits) else "not all within a second",
    )


def _share(sample: RingSample, number: int) -> float:
    """Return which part of all queues a hot set takes; DH4 counts as a part of DH1, too."""
    size = sample.sets[number] + (sample.sets[3] if number == 0 else 0)
    return sample.load * size / sample.bytes if sample.bytes else 0.0


def _last_of_sw1(row: RingRow, band: Band) -> FigureFinding:
    last = row.last_of[0]
    return FigureFinding("last query of SW1, s", "until the 43rd second", f"{last:.1f}", str(band), last in band)


def _dh1_stays(row: RingRow, band: Band) -> FigureFinding:
    least = min(_share(each, 0) for each in _between(row.samples, SW2_START, row.last_of[0]))
    return FigureFinding(
        "least part of the ring for DH1 while SW1 and SW2 run",
        "not completely removed",
        f"{least:.3f}",
        str(band),
        least in band,
        "" if least else "removed for a moment",
    )


def _dip(samples: Sequence[RingSample], bands: SkewedBands) -> list[FigureFinding]:
    dip = min(_between(samples, 50, 66), key=lambda each: each.load)
    lowest = min(each.loit for each in _between(samples, dip.second - 3, dip.second + 3))
    return [
        FigureFinding(
            "least load of the ring between 50 and 66 s",
            "0.375",
            f"{dip.load:.3f} at {dip.second:g} s",
            str(bands.dip),
            dip.load in bands.dip,
        ),
        FigureFinding(
            "mean threshold in that dip",
            "the minimum, 0.1",
            f"{lowest:.2f}",
            str(bands.dip_loit),
            round(lowest, 6) in bands.dip_loit,
            "" if lowest < 0.105 else "not at all nodes",
        ),
    ]


def _swing(samples: Sequence[RingSample]) -> float:
    loads = [each.load for each in samples]
    return max(loads) - min(loads)


def _level(samples: Sequence[RingSample], band: Band) -> FigureFinding:
    """How long the load hardly changes while DH3 is kept."""
    phase = _between(samples, 60, SW4_START)
    flattest, start = min(
        (_swing(_between(phase, each.second, each.second + LEVEL_S)), each.second)
        for each in phase
        if each.second + LEVEL_S <= SW4_START
    )
    around = _between(samples, SW3_START, SW4_START + 5)
    longest = max(
        last.second - first.second
        for place, first in enumerate(around)
        for last in around[place:]
        if last.second > 60
        and first.second < SW4_START
        and _swing(_between(around, first.second, last.second)) <= LEVEL
    )
    return FigureFinding(
        "load keeps level between 60 and 67.5 s",
        "for almost 10 s",
        f"within {flattest:.3f} for 4 s from {start:g} s, within {LEVEL} for {longest:g} s",
        f"{band} for 4 s" if band.most is not None else "",
        flattest in band,
        "shorter" if longest < 9 else "",
    )


def _raised(samples: Sequence[RingSample], band: Band) -> FigureFinding:
    most = max(_between(samples, SW4_START, SW4_START + 2), key=lambda each: each.loit)
    return FigureFinding(
        "mean threshold within 2 s of SW4's start",
        "raised to higher levels",
        f"{most.loit:.2f} at {most.second:g} s",
        str(band),
        most.loit in band,
    )


def _evicted(samples: Sequence[RingSample], band: Band) -> FigureFinding:
    peak = max(each.sets[2] for each in samples)
    left = min(each.sets[2] for each in _between(samples, SW4_START, 85)) / peak
    gone = next((each.second for each in samples if each.second > SW4_START and each.sets[2] <= peak / 10), None)
    return FigureFinding(
        "DH3 by 85 s, as a part of its peak",
        "being evicted",
        f"{left:.2f}" + (f", 0.1 at {gone:g} s" if gone is not None else ""),
        str(band),
        left in band,
    )
