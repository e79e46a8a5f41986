"""Random rings with faults: queries get their chunks, nothing is left, all that matters happens, breaks are found."""

from __future__ import annotations

from functools import partial

import pytest

from cumulus_lab.experiments import Seeds, run_seeds
from cumulus_lab.experiments.ring_seeds.breaks import RING_BREAKS
from cumulus_lab.experiments.ring_seeds.case import POLICIES, RING_FAULTS, RING_NEEDED, ring_case, ring_conditions
from cumulus_lab.simulation import repeated, shrunk, simulated
from cumulus_ring.machine.policies.intermediates import Intermediates
from cumulus_ring.machine.policies.questions import OpenQuestions

CONDITIONS = ring_conditions(RING_FAULTS)
LATE = ("E42",)
"""Are found after some dozen rings; the others in the first few."""


@pytest.mark.parametrize(("faults", "count"), [((), 15), (RING_FAULTS, 25)])
def test_rings_serve_their_queries_and_are_empty_afterwards(faults: tuple[str, ...], count: int) -> None:
    needed = ("query finished", "scan asked again", "pin by copy", "warm load", "request held for a refresh")
    seeds = Seeds(count=count, needed=(*needed, *(("node lost with a query", "chunk lost") if faults else ())))
    summary = run_seeds(partial(ring_case, faults=faults), seeds, ring_conditions(faults))
    assert summary.is_clean, summary.lines(str)


@pytest.mark.parametrize("policy", [each for each in POLICIES if each])
def test_rings_with_a_policy_are_clean(policy: str) -> None:
    summary = run_seeds(partial(ring_case, policies=[policy]), Seeds(first=2000, count=20), CONDITIONS)
    assert summary.is_clean, summary.lines(str)


@pytest.mark.slow
def test_hundreds_of_rings_are_clean_and_everything_happens() -> None:
    summary = run_seeds(ring_case, Seeds(first=1000, count=500, needed=RING_NEEDED), CONDITIONS)
    assert summary.is_clean, summary.lines(str)


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each in LATE else each for each in RING_BREAKS]
)
def test_a_broken_rule_of_a_node_is_found(name: str) -> None:
    seeds = Seeds(count=500, most_failures=1, stops=True)
    assert run_seeds(partial(ring_case, broken=name), seeds, CONDITIONS).failed


def test_a_failing_ring_is_made_small_and_can_be_run_again() -> None:
    case = partial(ring_case, broken="E39")
    failed = simulated(case, 1, CONDITIONS)
    small = shrunk(case, failed, CONDITIONS, attempts=300).run
    assert small.steps < failed.steps / 2
    assert any(": chunk 0 of node" in line for line in small.trace)
    assert repeated(case, small.choices, CONDITIONS).failure == small.failure


@pytest.mark.parametrize("policy", ["eager", "lazy"])
def test_results_that_are_never_given_up_are_found(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intermediates, "sweep", lambda self: None)
    seeds = Seeds(count=50, most_failures=1, stops=True)
    assert run_seeds(partial(ring_case, policies=[policy]), seeds, CONDITIONS).failed


@pytest.mark.parametrize("policy", ["nomads", "lazy"])
def test_a_query_that_waits_for_ever_for_an_answer_is_found(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenQuestions, "overdue", lambda self, now: [])
    seeds = Seeds(count=50, most_failures=1, stops=True)
    assert run_seeds(partial(ring_case, policies=[policy]), seeds, CONDITIONS).failed
