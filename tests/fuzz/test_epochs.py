"""Random scripts in epochs; the seeds that once were wrong are among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import clusters
from fuzz.epochs import compare
from support.tiers import WHOLE, sampled


@pytest.mark.parametrize("seed", sampled([2, 4, 24], of=3))
def test_epochs_leave_what_duckdb_says(seed: int, tmp_path: Path) -> None:
    assert compare(seed, tmp_path) is not None


@pytest.mark.slow
def test_epochs_of_tables_that_refer_to_each_other_leave_what_duckdb_says(tmp_path: Path) -> None:
    plans = [compare(seed, tmp_path / str(seed), keyed=True) for seed in (120, 121)]
    assert any(plan is not None for plan in plans)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 180, 10))
def test_epochs_leave_what_duckdb_says_for_longer(start: int, tmp_path: Path) -> None:
    plans = [compare(seed, tmp_path / str(seed)) for seed in range(start, start + 10)]
    assert sum(plan is not None for plan in plans) > 5


@pytest.mark.parametrize("seed", sampled([7, *range(100, 110)], of=11))
def test_clusters_say_of_epochs_what_the_embedded_host_says(seed: int, tmp_path: Path) -> None:
    ways = clusters.WAYS if WHOLE else clusters.WAYS[:1]
    assert clusters.compare(seed, tmp_path, ways)["ways"] == len(ways)
