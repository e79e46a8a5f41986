"""Many seeds in processes: the summary does not depend on their number, and says what failed and what never was."""

from __future__ import annotations

from functools import partial

from cumulus_lab.experiments import Seeds, SeedSummary, failure_lines, run_seeds
from cumulus_lab.simulation import FAULTS, Conditions, recording_of, repeated
from support.ledger_machines import ledger

CONDITIONS = Conditions(faults={**FAULTS, "crash": 1 / 30})
forgetful = partial(ledger, broken="forgets first")


def test_the_summary_is_the_same_for_any_number_of_processes() -> None:
    alone = run_seeds(ledger, Seeds(first=5, count=45), CONDITIONS)
    together = run_seeds(ledger, Seeds(first=5, count=45, jobs=2), CONDITIONS)
    assert alone == together
    assert alone.seeds == 45
    assert alone.is_clean
    assert alone.steps > 45
    assert alone.counts["crash"] > 0
    parts = [run_seeds(ledger, Seeds(first=first, count=15), CONDITIONS) for first in (5, 20, 35)]
    assert sum(part.steps for part in parts) == alone.steps
    assert sum(part.counts["crash"] for part in parts) == alone.counts["crash"]


def test_failures_are_listed_with_a_command() -> None:
    summary = run_seeds(forgetful, Seeds(count=40, most_failures=2), CONDITIONS)
    assert summary.failed > 2
    assert not summary.is_clean
    assert [each.seed for each in summary.failures] == sorted(each.seed for each in summary.failures)
    assert len(summary.failures) == 2
    lines = summary.lines(lambda seed: f"again --seed {seed}")
    assert lines[0].startswith(f"{40 - summary.failed} of 40 seeds clean: ")
    for each in summary.failures:
        place = lines.index(f"seed {each.seed}: {each.failure}")
        assert lines[place + 1] == f"  again --seed {each.seed}"


def test_it_stops_at_enough_failures() -> None:
    progress: list[SeedSummary] = []
    summary = run_seeds(forgetful, Seeds(count=1000, most_failures=1, stops=True), CONDITIONS, progress.append)
    assert summary.seeds < 1000
    assert len(summary.failures) == 1
    assert progress[-1] == summary


def test_what_never_happened_is_no_success() -> None:
    summary = run_seeds(ledger, Seeds(count=5, needed=("crash", "flood")), CONDITIONS)
    assert summary.failed == 0
    assert summary.missing == ("flood",)
    assert not summary.is_clean
    assert [line.split() for line in summary.lines(str) if "flood" in line] == [["flood", "never"]]


def test_a_failure_can_be_read_and_kept() -> None:
    failed = run_seeds(forgetful, Seeds(count=40, most_failures=1, stops=True), CONDITIONS).failures[0]
    lines = failure_lines(forgetful, failed.seed, CONDITIONS, attempts=200)
    assert lines[0] == f"seed {failed.seed}: {failed.failure}"
    assert any(line.endswith("keeper starts, life 1") for line in lines)
    assert "Traceback (most recent call last):" in lines
    again = repeated(forgetful, recording_of(lines[-1]), CONDITIONS)
    assert again.failure is not None
    assert again.failure.is_of == failed.failure.is_of
    assert failure_lines(ledger, 1, CONDITIONS)[0].startswith("seed 1 is clean: ")
