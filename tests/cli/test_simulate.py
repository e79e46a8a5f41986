"""`cumulus simulate`: what it prints, its exit codes, and the command that runs a failure again."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus.errors import UsageError

EARLY = "checkpoint before deltas"


def run(*words: str, what: str = "cluster") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", what, *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_clean_seeds_are_counted() -> None:
    code, text = run("--seeds", "2", "--nodes", "2", "--switches", "1")
    assert code == 0
    assert text.startswith("2 of 2 seeds clean: ")
    assert any(line.split()[:1] == ["epoch"] for line in text.splitlines())


def test_the_summary_is_json_on_wish() -> None:
    code, text = run("--seeds", "1", "--faults", "", "--json")
    found = json.loads(text)
    assert (code, found["seeds"], found["failed"], found["failures"]) == (0, 1, 0, [])
    assert "crash" not in found["counts"]


@pytest.mark.slow
def test_a_broken_rule_is_caught_and_its_seed_can_be_run_again() -> None:
    code, text = run("--break", EARLY, "--faults", "")
    assert code == 0
    seed = text.split()[-1]
    assert text.endswith(f"{EARLY!r} was caught at seed {seed}\n")
    again = next(line for line in text.splitlines() if line.startswith("  cumulus simulate"))
    assert again.strip() == f"cumulus simulate cluster --seed {seed} --faults '' --break {shlex.quote(EARLY)}"
    code, text = run(*shlex.split(again)[3:], "--attempts", "2")
    assert code == 1
    assert text.startswith(f"seed {seed}: same as embedded fails at step ")


def test_a_seed_can_be_traced() -> None:
    code, text = run("--seed", "0", "--faults", "", "--trace")
    assert code == 0
    assert any("publisher → switch0: EpochTurn" in line for line in text.splitlines())
    assert text.splitlines()[-1].startswith("seed 0 is clean: ")


def test_what_is_not_known_is_told_with_what_is() -> None:
    for what in ("cluster", "ring"):
        for words in (["--faults", "crash,flood"], ["--break", "everything"], ["--trace"]):
            result = CliRunner().invoke(app, ["simulate", what, *words])
            assert isinstance(result.exception, UsageError)
            assert result.exception.hint


def test_rings_are_simulated_as_clusters_are() -> None:
    code, text = run("--seeds", "3", "--first", "7", "--json", what="ring")
    found = json.loads(text)
    assert (code, found["seeds"], found["failed"]) == (0, 3, 0)
    assert found["counts"]["query finished"]
    code, text = run("--break", "E4", "--nodes", "4", what="ring")
    assert code == 0
    seed = text.split()[-1]
    assert text.endswith(f"'E4' was caught at seed {seed}\n")
    again = next(line for line in text.splitlines() if line.startswith("  cumulus simulate"))
    assert again.strip() == f"cumulus simulate ring --seed {seed} --nodes 4 --break E4"
    code, text = run(*shlex.split(again)[3:], "--attempts", "2", what="ring")
    assert code == 1
    assert text.startswith(f"seed {seed}: step fails at step ")
