"""Every map equals its definition's SQL, and every view its SELECT, on DuckDB, after every event."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from support.differential import run
from support.random_sql import scripts
from support.random_tables import streams
from support.tiers import examples, sampled


@pytest.mark.parametrize("batch", sampled([False, True], of=2))
@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts(), streams())
def test_views_and_maps_are_exact_after_every_event(batch, script, events):
    run(script, events, batch=batch)
