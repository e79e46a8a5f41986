"""Random clusters over random files, with faults: as the embedded host; and broken rules are found."""

from __future__ import annotations

from functools import partial

import pytest

from cumulus.cluster.mode import Mode
from cumulus_lab.experiments import Seeds, run_seeds
from cumulus_lab.experiments.cluster_breaks import BREAKS
from cumulus_lab.experiments.cluster_counts import NEEDED
from cumulus_lab.experiments.cluster_programs import PROGRAMS, REFUSED
from cumulus_lab.experiments.cluster_seeds import cluster_case, cluster_conditions, planned, refusal
from cumulus_lab.simulation import FAULTS, simulated
from support.tiers import sampled

CONDITIONS = cluster_conditions(list(FAULTS))
GATED = ("DISTINCT and outer join", "nested", "ranges", "ends inside", "STDDEV", "divisions and casts", "functions")
BOTH = ("EXISTS", "kept rows, spread and gated", "errors", "evaluated again")
KINDS = dict.fromkeys(GATED, ("gated",)) | dict.fromkeys(BOTH, ("spread", "gated"))


@pytest.mark.parametrize(("faults", "count"), [pytest.param((), 4, marks=pytest.mark.slow), (tuple(FAULTS), 8)])
def test_each_epoch_is_as_the_embedded_host_leaves_it(faults: tuple[str, ...], count: int) -> None:
    seeds = Seeds(count=count, needed=("epoch", "task CommitEpoch", "deltas sent"))
    summary = run_seeds(cluster_case, seeds, cluster_conditions(faults))
    assert summary.is_clean, summary.lines(str)


def test_a_cluster_that_had_other_nodes_and_switches_before_goes_on() -> None:
    seeds = Seeds(first=300, count=6, needed=("dealt out anew", "epoch commit after a crash"))
    summary = run_seeds(partial(cluster_case, is_grown=True), seeds, CONDITIONS)
    assert summary.is_clean, summary.lines(str)


@pytest.mark.slow
def test_hundreds_of_seeds_are_clean_and_everything_happens() -> None:
    summary = run_seeds(cluster_case, Seeds(first=1000, count=500, needed=NEEDED), CONDITIONS)
    assert summary.is_clean, summary.lines(str)


@pytest.mark.parametrize("seed", [2026114296, 2026115492, 281])
def test_equal_rows_that_fail_are_as_many_errors_in_batches_as_one_by_one(seed: int) -> None:
    assert run_seeds(cluster_case, Seeds(seed, 1), CONDITIONS).is_clean


@pytest.mark.parametrize("seed", sampled([93, 98], of=2))
def test_an_epoch_that_was_logged_in_two_lives_counts_once(seed: int) -> None:
    """A crash after the record of an epoch and before its manifest: it is logged again, and both records are there."""
    assert run_seeds(cluster_case, Seeds(seed, 1), CONDITIONS).is_clean


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_no_cluster_takes_is_refused(name: str) -> None:
    run = simulated(lambda choices: refusal(name), 0, CONDITIONS)
    assert run.failure is None, run.failure
    assert run.counts["program refused"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_is_planned_as_one_of_its_kind(name: str) -> None:
    """Nothing that a program is there for is lost: spread, gated, or both."""
    division = planned(name, 3, 2, Mode.EVENTUAL).division
    kinds = {"spread": bool(division.spread.views), "gated": bool(division.gated.views)}
    assert tuple(kind for kind, is_there in kinds.items() if is_there) == KINDS.get(name, ("spread",))


@pytest.mark.parametrize(
    ("name", "why"),
    sampled([("net rows lost", "are in no net change"), ("errors dropped", "and the manifest tells")], of=2),
)
def test_the_ledger_finds_rows_and_errors_that_are_not_told(name: str, why: str) -> None:
    seeds = Seeds(count=200, most_failures=4, stops=True)
    found = run_seeds(partial(cluster_case, broken=name), seeds, cluster_conditions([])).failures
    assert any(why in str(each.failure) for each in found)  # some are seen sooner by comparing views


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_found(name: str) -> None:
    seeds = Seeds(count=200, most_failures=1, stops=True)
    assert run_seeds(partial(cluster_case, broken=name), seeds, CONDITIONS).failed
