"""Random clusters over random files, with faults: as the embedded host; and broken rules are found."""

from __future__ import annotations

from functools import partial

import pytest

from cumulus.experiments import Seeds, run_seeds
from cumulus.experiments.cluster_counts import NEEDED
from cumulus.experiments.cluster_seeds import BREAKS, cluster_case, cluster_conditions
from cumulus.simulation import FAULTS

CONDITIONS = cluster_conditions(list(FAULTS))


@pytest.mark.parametrize(("faults", "count"), [((), 12), (tuple(FAULTS), 24)])
def test_each_epoch_is_as_the_embedded_host_leaves_it(faults: tuple[str, ...], count: int) -> None:
    seeds = Seeds(count=count, needed=("epoch", "task CommitEpoch", "deltas sent"))
    summary = run_seeds(cluster_case, seeds, cluster_conditions(faults))
    assert summary.is_clean, summary.lines(str)


@pytest.mark.slow
def test_hundreds_of_seeds_are_clean_and_everything_happens() -> None:
    summary = run_seeds(cluster_case, Seeds(first=1000, count=500, needed=NEEDED), CONDITIONS)
    assert summary.is_clean, summary.lines(str)


@pytest.mark.parametrize("seed", [101, 155])
def test_an_epoch_that_was_logged_in_two_lives_counts_once(seed: int) -> None:
    """A crash after the record of an epoch and before its manifest: it is logged again, and both records are there."""
    assert run_seeds(cluster_case, Seeds(seed, 1), CONDITIONS).is_clean


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_rule_is_found(name: str) -> None:
    seeds = Seeds(count=200, most_failures=1, stops=True)
    assert run_seeds(partial(cluster_case, broken=name), seeds, CONDITIONS).failed
