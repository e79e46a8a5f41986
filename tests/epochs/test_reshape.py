"""A reshape in the middle of a random stream is not seen: the same views, refusals and counts after each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulus.epochs.layouts import polled_tables, unchecked_keys
from cumulus.epochs.plan import BucketPlan, layout_of
from cumulus.explain.layout.co_partitioning import Layout
from cumulus.m3.program import Program
from support.engines import engine_of
from support.reshaped_streams import ASKED, JUDGED, OF_KEPT, PLANS, PROGRAM, UNASKED, Epoch, Run, epochs
from support.tiers import examples

pytestmark = pytest.mark.usefixtures("each_engine")
CHECKED = [plan for plan in [*PLANS, *JUDGED] if not unchecked_keys(PROGRAM, plan.partitioned)]
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def laws(plans: Sequence[BucketPlan]) -> st.SearchStrategy[list[BucketPlan]]:
    return st.lists(st.sampled_from(plans), min_size=2, max_size=4)


def test_the_layouts_are_right_and_differ() -> None:
    for program in (PROGRAM, UNASKED):
        for name in (each.name for each in program.maps):
            found = {layout_of(program, plan).tag_text(name) for plan in PLANS}
            assert found != {"same"}, name
        assert not any(unchecked_keys(program, plan.partitioned) for plan in ASKED)
    assert all(polled_tables(PROGRAM, plan.partitioned) for plan in ASKED)
    assert not any(polled_tables(UNASKED, plan.partitioned) for plan in PLANS)


def check(
    folder: Path, program: Program, given_epochs: list[Epoch], first: BucketPlan, plans: list[BucketPlan], late: int
) -> None:
    """Check that buckets of plans, one after the other, say after each epoch what those of the first plan say."""
    one = Run(folder, first, engine_of, late, program)
    run = Run(folder, plans[0], engine_of, late, program)
    for at, rows in enumerate(given_epochs):
        if 0 < at < len(plans):
            run.reshape(plans[at])
            run.reshape(plans[at])  # twice at one place
        assert run.step(rows) == one.step(rows), at


@settings(max_examples=examples(320), deadline=None, suppress_health_check=CHECKS)
@given(given_epochs=epochs(), plans=laws([*PLANS, *JUDGED]), late=st.integers(0, 3))
def test_a_reshape_is_not_seen(tmp_path: Path, given_epochs: list[Epoch], plans: list[BucketPlan], late: int) -> None:
    check(tmp_path, UNASKED, given_epochs, PLANS[0], plans, late)


@settings(max_examples=examples(320), deadline=None, suppress_health_check=CHECKS)
@given(given_epochs=epochs(), plans=laws([*ASKED, JUDGED[1]]), late=st.integers(0, 3))
def test_a_reshape_is_not_seen_where_buckets_vote(
    tmp_path: Path, given_epochs: list[Epoch], plans: list[BucketPlan], late: int
) -> None:
    check(tmp_path, PROGRAM, given_epochs, ASKED[0], plans, late)


@settings(max_examples=examples(320), deadline=None, suppress_health_check=CHECKS)
@given(given_epochs=epochs(), plans=laws(CHECKED), late=st.integers(0, 3))
def test_votes_begin_and_end_with_a_layout(
    tmp_path: Path, given_epochs: list[Epoch], plans: list[BucketPlan], late: int
) -> None:
    """A deletion that waits for a vote is done an epoch later, so there is no run to compare with. Each row has one
    fate all the same, keys and references hold, and views are those of the rows that are in.
    """
    run = Run(tmp_path, plans[0], engine_of, late, PROGRAM)
    for at, rows in enumerate(given_epochs):
        if 0 < at < len(plans):
            run.reshape(plans[at])
        told = run.step(rows)
        again = Run(tmp_path, PLANS[0], engine_of, late, PROGRAM).step(run.rows())
        assert (again.refused, again.counts["waiting"]) == ([], 0)
        assert {name: again.views[name] for name in OF_KEPT} == {name: told.views[name] for name in OF_KEPT}


def test_the_law_sees_a_part_that_is_summed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Epoch] = [{"visits": [{"place": "p", "n": "1"}, {"place": "q", "n": "2"}], "items": []}] * 3
    plans = [ASKED[0], ASKED[1], PLANS[1]]
    check(tmp_path, UNASKED, rows, PLANS[0], plans, 0)
    right = Layout.stored

    def twice(layout: Layout, name: str, buckets: object) -> object:
        found = list(map(list, buckets))  # type: ignore[call-overload]  # any entries
        return right(layout, name, [*found, *found])

    monkeypatch.setattr(Layout, "stored", twice)
    with pytest.raises(AssertionError):
        check(tmp_path, UNASKED, rows, PLANS[0], plans, 0)
