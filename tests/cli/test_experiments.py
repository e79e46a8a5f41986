"""`cumulus experiments ring`: what it prints, its exit codes, and what it does not take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError
from cumulus_lab.commands.experiments import tell_figure
from cumulus_lab.experiments.ring.figures import FigureRun
from cumulus_lab.experiments.ring.findings import FigureFinding
from cumulus_lab.experiments.ring.set_up import RingSetUp

SCALED = ("--scale", "ci", "--chunks", "40", "--total-gb", "0.3", "--at", "8")
SMALL = (*SCALED, "--rate", "1", "--seconds", "10")
SKEWED = (*SCALED, "--skews", "2,3", "--starts", "0,4", "--ends", "6,8", "--rates", "1,2")
CIRCULATING = ("--scale", "ci", "--nodes", "16", "--queries", "32")
SUITE = ("--scale", "ci", "--nodes", "4", "--chunk-mb", "640")
GAUSSIAN = (*SMALL, "--mean", "20", "--deviation", "4")


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["experiments", "ring", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_a_set_up_of_ones_own_is_run_and_its_sums_add_up() -> None:
    code, text = run("fig9", *SMALL, "--loit", "0.1:0.6:1.1", "--json")
    found = json.loads(text)
    (row,) = found["rows"]
    assert (code, found["outside"], row["loit"], found["set_up"]["chunks"]) == (0, [], [0.1, 0.6, 1.1], 40)
    assert row["finished"] == row["registered"] == 100
    assert row["loads"] - row["unloads"] - row["lost"] == row["in_ring"]


def test_a_seed_decides_everything() -> None:
    def rows(seed: str) -> list[dict[str, object]]:
        found = json.loads(run("fig10", *SMALL, "--loit", "0.1", "--json", "--seed", seed)[1])["rows"]
        return [{**row, "wall_s": 0} for row in found]

    assert rows("5") == rows("5") != rows("6")


def test_a_table_says_what_is_known_of_it() -> None:
    code, text = run("fig10", *SMALL, "--loit", "0.1,1.1", "--pins", "parallel", "--chunk-mb", "2:4")
    assert code == 0
    assert text.splitlines()[0].split()[:3] == ["loit", "registered", "finished_at"]
    assert text.splitlines()[-1] == "of this set-up nobody knows what must come out"


def test_skewed_workloads_read_multiples_and_count_apart() -> None:
    code, text = run("fig11", *SKEWED, "--adapt-ms", "50", "--loit-loads", "0.2:0.5", "--json")
    found = json.loads(text)
    (row,) = found["rows"]
    assert (code, found["findings"], row["registered"]) == (0, [], 140)
    assert (found["set_up"]["lower_at"], found["set_up"]["raise_at"], found["set_up"]["adapt_ms"]) == (0.2, 0.5, 50)
    last = row["samples"][-1]
    assert last["registered"] == [60, 80]
    assert all(sum(each["sets"]) == each["bytes"] for each in row["samples"])
    # Chunks that neither reads are never in the ring; those that both read are.
    assert max(each["sets"][0] for each in row["samples"]) > 0 < max(each["sets"][1] for each in row["samples"])


def test_touches_are_normally_distributed_and_chunks_add_up() -> None:
    code, text = run("fig12", *GAUSSIAN, "--loit", "1.1", "--query-chunks", "2:3", "--work-ms", "1:2", "--json")
    (row,) = json.loads(text)["rows"]
    assert code == 0
    touches = [each["touches"] for each in row["chunks"]]
    assert 2 * row["finished"] <= sum(touches) <= 3 * row["finished"]
    assert sum(touches[12:29]) > 0.9 * sum(touches)
    for name in ("requests", "loads"):
        assert sum(each[name] for each in row["chunks"]) == row[name]


def test_queries_of_tpch_run_on_rings_of_ones_own() -> None:
    code, text = run("table2", *SUITE, "--cores", "1", "--json")
    found = json.loads(text)
    assert (code, found["findings"], found["set_up"]["access"]["cores"]) == (0, [], 1)
    assert [(row["nodes"], row["name"], len(row["by_query"])) for row in found["rows"]] == [
        (nodes, f"{nodes} node{'s'[: nodes > 1]}", 18) for nodes in (1, 4, 6, 8)
    ]
    code, text = run("fig17", *SUITE, "--scale-factor", "40", "--queries", "8", "--json")
    rows = json.loads(text)["rows"]
    assert [(code, row["finished"]) for row in rows] == [(0, 18), *[(0, 8)] * 6]


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_as_it_must_be_is_told_and_fails(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    finding = FigureFinding("finished", "many", "few", "many", is_inside=False)
    run = FigureRun((), (finding,), ("finished: few, must be many",))
    with pytest.raises(typer.Exit) as caught:
        tell_figure(run, RingSetUp(), as_json)
    assert caught.value.exit_code == 1
    assert "finished: few, must be many" in capsys.readouterr().out


def test_queries_read_by_popularity_with_and_without_a_policy() -> None:
    for figure in ("forwarding", "inner-ring", "cache"):
        code, text = run(figure, *SMALL, "--nodes", "8", "--exponent", "0.8", "--local", "0.2", "--json")
        found = json.loads(text)
        assert (code, found["findings"], found["outside"]) == (0, [], [])
        assert all(row["finished"] == row["registered"] == 80 for row in found["rows"])
        assert all(sum(each["finished"] for each in row["tenths"]) == 80 for row in found["rows"])


@pytest.mark.slow
def test_each_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for figure, words in (
        ("fig9", SMALL),
        ("fig10", SMALL),
        ("fig11", SKEWED),
        ("fig12", GAUSSIAN),
        ("fig16", CIRCULATING),
        ("fig17", (*SUITE, "--queries", "8")),
        ("table2", SUITE),
        ("inner-ring", (*SMALL, "--nodes", "8")),
        ("relevance", SMALL),
        ("pulsation", (*SCALED, "--starts", "0,10", "--ends", "10,20", "--rates", "2,1")),
        ("nomads", SMALL),
        ("intermediates", SMALL),
    ):
        path = tmp_path / f"{figure}.svg"
        assert run(figure, *words, "--loit", "1.1", "--plot", str(path))[0] == 0
        assert "<svg" in path.read_text()


def test_what_is_not_known_is_told_with_what_is() -> None:
    for words in (
        ["fig9", "--mean", "3"],
        ["fig11", "--rate", "3"],
        ["fig11", "--skews", "3,5"],
        ["fig11", "--skews", "3,5,7,x"],
        ["fig11", "--starts", "0,15,37,99"],
        ["fig11", "--ends", "30,45,67.5,inf"],
        ["fig11", "--loit", "nan"],
        ["fig12", "--mean", "nan"],
        ["fig12", "--scale", "ci", "--mean", "5000"],
        ["fig9", "--chunks", "1", "--nodes", "2"],
        ["fig9", "--query-chunks", "5:1"],
        ["fig9", "--chunk-mb", "1:inf"],
        ["fig9", "--plot", "picture.txt"],
        ["fig9", "--plot", "nowhere/picture.png"],
        ["fig8"],
        ["fig9", "--queries", "3"],
        ["fig9", "--exponent", "1"],
        ["cache", "--mean", "1"],
        ["fig16", "--rate", "3"],
        ["fig16", "--measure"],
        ["fig16", "--scale-factor", "3"],
        ["fig17", "--chunks", "3"],
        ["table2", "--queries", "3"],
        ["table2", "--pins", "any"],
        ["fig9", "--scale", "half"],
        ["fig9", "--break", "everything"],
        ["fig9", "--pins", "both"],
        ["fig9", "--chunk-mb", "10:1"],
        ["fig9", "--loit", "high"],
    ):
        result = CliRunner().invoke(app, ["experiments", "ring", *words])
        assert isinstance(result.exception, UsageError), words


@pytest.mark.slow
@pytest.mark.parametrize(
    "figure",
    [
        "fig9",
        "fig10",
        "fig11",
        "fig12",
        "fig15",
        "fig16",
        "fig17",
        "table2",
        "request-flow",
        "forwarding",
        "nomads",
        "intermediates",
    ],
)
def test_figures_are_as_they_must_be(figure: str) -> None:
    code, text = run(figure, "--scale", "ci")
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["figure-6", "no-resend", "smallest-first", "drop-tail"])
def test_a_broken_rule_shows(broken: str) -> None:
    code, text = run("fig9", "--scale", "ci", "--break", broken)
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("figure", "outside"),
    [
        ("inner-ring", ["… 99 % of them"]),
        ("cache", ["… PIX by LRU", "… LIX by LRU"]),
        ("relevance", ["mean seconds of queries of 5 chunks or fewer", "mean seconds of a query"]),
        ("pulsation", []),
    ],
)
def test_what_is_not_as_it_must_be_with_a_policy(figure: str, outside: list[str]) -> None:
    found = json.loads(run(figure, "--scale", "ci", "--json")[1])
    assert [each["what"] for each in found["findings"] if not each["is_inside"]] == outside
