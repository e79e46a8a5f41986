"""Random files and tables of extreme values; the seeds that once were wrong are among them."""

from __future__ import annotations

import pytest

from fuzz.inputs import examine
from support.tiers import sampled


@pytest.mark.parametrize("seed", sampled([1, 5, 5000018], of=3))
def test_hosts_take_of_files_what_fits_value_by_value(seed: int) -> None:
    _, seen, failures = examine(seed, 40)
    assert failures == []
    assert seen["run"] == 1
    assert {"arrow", "parquet", "csv", "json"} <= set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 200, 20))
def test_hosts_take_of_many_files_what_fits_value_by_value(start: int) -> None:
    assert [failure for seed in range(start, start + 20) for failure in examine(seed)[2]] == []
