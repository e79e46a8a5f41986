"""A protocol with a log, snapshots and replicas: clean under all faults, and each planted fault is found and shrunk."""

from __future__ import annotations

from collections import Counter

import pytest

from cumulus_lab.simulation import FAULTS, Conditions, SimulatedRun, repeated, shrunk, simulated
from support.ledger_machines import BREAKS, broken_ledger, ledger

CONDITIONS = Conditions(faults={**FAULTS, "crash": 1 / 30})


def test_nothing_acknowledged_is_lost_under_all_faults() -> None:
    counts: Counter[str] = Counter()
    for seed in range(200):
        result = simulated(ledger, seed, CONDITIONS)
        assert result.failure is None, f"seed {seed}: {result.failure.traceback}"
        counts.update(result.counts)
    expected = {*FAULTS, "message lost", "record lost", "task lost", "paid again", "recovered"}
    assert expected <= counts.keys()


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_fault_can_be_had_alone(name: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(40):
        result = simulated(ledger, seed, Conditions(faults={name: 1 / 10}))
        assert result.failure is None
        counts.update(result.counts)
    assert counts[name] > 0
    assert not (FAULTS.keys() - {name}) & counts.keys()


def found(name: str) -> SimulatedRun:
    for seed in range(200):
        result = simulated(broken_ledger(name), seed, CONDITIONS)
        if result.failure is not None:
            return result
    pytest.fail(f"{name}: not found")


@pytest.mark.parametrize(("name", "steps"), [("acknowledges first", 25), ("forgets first", 10), ("hears no loss", 25)])
def test_a_planted_fault_is_found_and_made_small(name: str, steps: int) -> None:
    result = found(name)
    small = shrunk(broken_ledger(name), result, CONDITIONS, attempts=500)
    assert small.attempts <= 500
    assert small.run.failure is not None
    assert result.failure is not None
    assert small.run.failure.is_of == result.failure.is_of
    assert small.run.steps <= steps
    assert small.run.trace, "what is left is told message by message"
    again = repeated(broken_ledger(name), small.run.choices, CONDITIONS)
    assert again.failure is not None
    assert (again.failure.message, again.failure.step) == (small.run.failure.message, small.run.failure.step)


@pytest.mark.parametrize("name", list(BREAKS))
def test_a_failure_is_the_same_when_it_is_repeated(name: str) -> None:
    result = found(name)
    assert simulated(broken_ledger(name), result.seed, CONDITIONS) == result
    again = repeated(broken_ledger(name), result.choices, CONDITIONS)
    assert again.failure == result.failure
    assert (again.steps, again.counts, again.choices) == (result.steps, result.counts, result.choices)
