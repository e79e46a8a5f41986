"""Random clusters over random files, with faults: as the embedded host; and broken rules are found."""

from __future__ import annotations

from functools import partial

import pytest

from cumulus.experiments import Seeds, run_seeds
from cumulus.experiments.cluster_seeds import BREAKS, cluster_case
from cumulus.simulation import FAULTS, Conditions

CONDITIONS = Conditions(faults={**FAULTS, "crash": 1 / 60}, most_steps=20_000)


@pytest.mark.parametrize("faults", ["none", "all"])
def test_each_epoch_is_as_the_embedded_host_leaves_it(faults: str) -> None:
    conditions = CONDITIONS if faults == "all" else Conditions()
    summary = run_seeds(cluster_case, Seeds(count=5, needed=("epoch", "task CommitEpoch")), conditions)
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
