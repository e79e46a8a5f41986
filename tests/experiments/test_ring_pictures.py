"""What the pictures of a ring's experiments show: one colour for one run, and where workloads begin and end."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.pictures import DRAWINGS, draw_figure, paper_beside_ours
from cumulus_lab.experiments.ring.rows import ChunkTally, RingRow, RingSample

pytest.importorskip("matplotlib")


def row(loit: float, **changes: Any) -> RingRow:
    """Return a run of two workloads over six seconds: the first from 1 s to 3 s, the second from 2 s to 5 s."""
    registered = [(0, 0), (4, 0), (8, 5), (12, 5), (12, 9), (12, 12)]
    samples = tuple(
        RingSample(
            float(second), bytes=9, chunks=1, mean_mb=1.0, load=0.5, loit=loit, sets=(1, 2, 3), registered=counts,
            finished=counts,
        )
        for second, counts in enumerate(registered)
    )  # fmt: skip
    numbers: dict[str, Any] = {each.name: 0 for each in fields(RingRow)}
    chunks = tuple(ChunkTally(touches=1, requests=2, loads=3) for _ in range(4))
    made = RingRow(**{**numbers, "loit": (loit,), "samples": samples, "chunks": chunks, "lives": (3, 2), "last_of": ()})
    return replace(made, **changes)


def drawn(name: str, rows: list[RingRow]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    left, right = Figure().subplots(1, 2)
    DRAWINGS[name](rows, left, right)
    return left, right


def test_a_threshold_has_one_colour_in_both_parts_of_figure_9() -> None:
    left, right = drawn("fig9", [row(0.1), row(0.6), row(1.1)])
    colours = {line.get_label(): line.get_color() for line in left.lines}
    steps = {patch.get_label(): patch.get_edgecolor() for patch in right.patches}
    assert len(steps) == 3
    assert {label: colours[label] for label in steps} == steps


def test_figure_11_marks_where_each_workload_begins_and_ends() -> None:
    for axes in drawn("fig11", [row(0.1)]):
        marks = [line for line in axes.lines if len(line.get_xdata()) == 2 and len({*line.get_xdata()}) == 1]
        places = [(line.get_xdata()[0], line.get_linestyle(), line.get_color()) for line in marks]
        assert places == [(1.0, ":", "C0"), (3.0, "--", "C0"), (2.0, ":", "C1"), (5.0, "--", "C1")]


def test_figure_12_shows_requests_of_all_runs() -> None:
    _, right = drawn("fig12", [row(0.1), row(1.1)])
    labels = [line.get_label() for line in right.lines]
    assert labels == ["requests, LOIT 0.1", "loads, LOIT 0.1", "requests, LOIT 1.1", "loads, LOIT 1.1"]


def test_what_the_paper_says_stands_beside_what_was_found(tmp_path: Path) -> None:
    findings = [FigureFinding("finished at 40 s", "8000 of 30000", "7,446"), FigureFinding("lives", "", "0")]
    assert paper_beside_ours(findings) == "finished at 40 s: paper 8000 of 30000; here 7,446"
    draw_figure("fig9", [row(0.1), row(1.1)], findings, tmp_path / "figure.svg")
    assert "finished at 40 s: paper 8000 of 30000; here 7,446" in (tmp_path / "figure.svg").read_text()
