"""`cumulus experiments ring`: what it prints, its exit codes, and what it does not take."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError

SMALL = ("--scale", "ci", "--chunks", "40", "--total-gb", "0.3", "--rate", "1", "--seconds", "10", "--at", "8")


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


def test_what_is_not_known_is_told_with_what_is() -> None:
    for words in (
        ["fig8"],
        ["fig9", "--scale", "half"],
        ["fig9", "--break", "everything"],
        ["fig9", "--pins", "both"],
        ["fig9", "--chunk-mb", "10:1"],
        ["fig9", "--loit", "high"],
    ):
        result = CliRunner().invoke(app, ["experiments", "ring", *words])
        assert isinstance(result.exception, UsageError), words


@pytest.mark.slow
@pytest.mark.parametrize("figure", ["fig9", "fig10"])
def test_figures_are_as_in_the_paper(figure: str) -> None:
    code, text = run(figure, "--scale", "ci")
    assert code == 0, text


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["figure-6", "no-resend", "smallest-first", "drop-tail"])
def test_a_broken_rule_shows(broken: str) -> None:
    code, text = run("fig9", "--scale", "ci", "--break", broken)
    assert code == 0, text
