"""What is found in the figures of the ring: what is not as it must be is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from cumulus_lab.experiments.ring.bands import LEVELS, figure_9, figure_10, sums_that_are_wrong
from cumulus_lab.experiments.ring.figures import usual_set_up
from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.rows import RingRow, ring_row
from cumulus_lab.experiments.ring.scripts import scripted_queries
from cumulus_lab.experiments.ring.set_up import EvenAccess, SkewedAccess, chunk_plan
from cumulus_lab.experiments.ring.skewed import figure_11


@pytest.fixture(scope="module")
def row() -> RingRow:
    """Far too few queries."""
    return ring_row(replace(usual_set_up("fig9", "ci"), access=EvenAccess(rate=0.2)), by_chunk=True)


def outside(findings: list[FigureFinding]) -> list[str]:
    return [each.what for each in findings if not each.is_inside]


def test_figure_9_is_not_that_of_another_ring(row: RingRow) -> None:
    rows = [replace(row, loit=(loit,)) for loit in LEVELS]
    assert outside(figure_9(rows, "ci")) == [
        "finished at 40 s, threshold 0.1",
        "finished at 40 s, threshold 1.1",
        "… the latter by the former",
        "lives over 100 s, threshold 0.1",
    ]
    rows[3] = replace(rows[3], finished_at=row.finished_at // 2)
    assert "finished at 40 s by threshold" in outside(figure_9(rows, "ci"))


def test_figure_10_needs_large_chunks_that_come_last(row: RingRow) -> None:
    samples = tuple(replace(each, bytes=1, mean_mb=5.0) for each in row.samples)
    rows = [replace(row, samples=samples, loit=(loit,)) for loit in (0.1, 1.1)]
    assert outside(figure_10(rows, "ci")) == ["mean MB in the ring, threshold 0.1"]


def test_figure_11_needs_rings_that_are_full_and_empty_again() -> None:
    rates = (0.1, 0.1, 0.1, 0.1)
    row = ring_row(replace(usual_set_up("fig11", "ci"), access=SkewedAccess(rates=rates), loit=(0.1, 0.6, 1.1)))
    assert outside(figure_11([row], "full")) == [
        "last query of SW1, s",
        "least part of the ring for DH1 while SW1 and SW2 run",
        "load keeps level between 60 and 67.5 s",
        "mean threshold within 2 s of SW4's start",
    ]


def test_rates_of_skewed_workloads_are_those_of_each_node() -> None:
    """E32: 300 queries a second in all could not give 2,000 that end within one."""
    set_up = usual_set_up("fig11", "ci")
    assert isinstance(set_up.access, SkewedAccess)
    starts, ends, rates = set_up.access.starts, set_up.access.ends, set_up.access.rates
    counts = Counter(each.kind for each in scripted_queries(set_up, chunk_plan(set_up)))
    assert counts == {
        kind: set_up.nodes * round((end - start) * rate)
        for kind, (start, end, rate) in enumerate(zip(starts, ends, rates, strict=True))
    }


def test_the_chunks_that_are_read_most_lie_evenly_about_the_mean() -> None:
    """E33: the paper's ids 350 to 600 are not symmetric; of a normal distribution those are 413 to 587."""
    set_up = usual_set_up("fig12", "full")
    queries = scripted_queries(set_up, chunk_plan(set_up))
    touches = Counter(chunk for each in queries for chunk in each.chunks)
    in_vogue = [chunk for chunk, count in touches.items() if count > 250]
    assert min(in_vogue) == pytest.approx(413, abs=8)
    assert max(in_vogue) == pytest.approx(587, abs=8)


def test_rows_that_do_not_add_up_are_seen(row: RingRow) -> None:
    assert sums_that_are_wrong([row]) == []
    for wrong in (
        replace(row, finished=row.finished - 1),
        replace(row, loads=row.loads + 1),
        replace(row, lives=row.lives[1:]),
        replace(row, chunks=row.chunks[1:]),
        replace(row, samples=(replace(row.samples[5], sets=(row.samples[5].bytes, 1)),)),
    ):
        assert sums_that_are_wrong([wrong]) == ["the sums of threshold 0.1 do not add up"]
