"""Random scripts in warehouses that are filled, saved, loaded, and get views while they live."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.ways import compare


def test_views_are_what_duckdb_says_however_they_came(tmp_path: Path) -> None:
    assert compare(4, tmp_path) is not None


def test_views_over_tables_that_refer_to_each_other_are_what_duckdb_says(tmp_path: Path) -> None:
    steps = [compare(seed, tmp_path / str(seed), keyed=True) for seed in (200, 201)]
    assert any(each is not None for each in steps)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(200, 260, 10))
def test_views_are_what_duckdb_says_however_they_came_for_longer(start: int, tmp_path: Path) -> None:
    steps = [compare(seed, tmp_path / str(seed)) for seed in range(start, start + 10)]
    assert sum(each is not None for each in steps) > 5
