"""The fuzzer itself: what it makes, that it finds what is wrong, how small it makes it; and a short run of it."""

from __future__ import annotations

import pytest

from fuzz.case import Case, case_of, parse_case
from fuzz.compare import compare
from fuzz.constructs import CONSTRUCTS, constructs
from fuzz.examine import examine
from fuzz.generator import script_of
from fuzz.report import Tally
from fuzz.shrink import shrunk


def test_a_seed_is_a_script():
    assert script_of(7) == script_of(7) != script_of(8)


@pytest.mark.slow
def test_views_are_valid_dense_and_show_every_construct():
    """What `make fuzz` promises of 10,000 views, on the first few."""
    tally = Tally(dry=True)
    for seed in range(60):
        assert list(tally.add(examine(seed, dry=True))) == []
    every = tally.counts["all views"]
    assert tally.invalid <= 0.03 * tally.generated
    assert every["three"] >= 0.3 * every["accepted"]
    assert every["shown"] >= 0.6 * every["accepted"]
    assert [name for name in CONSTRUCTS if not tally.counts[name]["accepted"]] == []


def test_wanted_constructs_are_met_and_others_are_not():
    for seed in range(5):
        wanted = script_of(seed, only=("FULL JOIN",))
        assert sum("FULL JOIN" in constructs(view) for view in wanted.views) >= 0.8 * len(wanted.views)
        without = script_of(seed, without=frozenset(("COALESCE", "UNION")))
        assert not any(constructs(view) & {"COALESCE", "UNION"} for view in without.views)


@pytest.mark.slow
def test_twenty_views_are_exact():
    tally = Tally(dry=False)
    seed = 0
    while tally.generated < 20:
        assert list(tally.add(examine(seed, seconds=60))) == []
        seed += 1
    assert tally.accepted >= 18


def test_a_difference_is_found_with_its_moment():
    """A DECIMAL(2,2) as text is one of the differences that docs/functions.md owns up to."""
    text = """-- A documented difference.
CREATE TABLE t (d DECIMAL(2,2));
CREATE VIEW v AS SELECT CAST(d AS VARCHAR) AS s FROM t;
CREATE VIEW w AS SELECT COUNT(*) AS n FROM t;
-- events
begin
+t (NULL)
+t (0.05)
commit
-t (0.05)
"""
    case = parse_case(text)
    assert case.text("A documented difference.") == text
    for mode in ("event", "call", "batch"):
        (failure,) = compare(parse_case(text, mode)).failures
        assert (failure.kind, failure.view) == ("difference", "v")
        assert failure.message.startswith("after transaction 1\n")


def test_refused_and_invalid_views_are_no_failures():
    views = (
        ("v", "SELECT a, ROW_NUMBER() OVER (ORDER BY a) AS n FROM t"),
        ("w", "SELECT a FROM v"),
        ("x", "SELECT nothing FROM t"),
        ("y", "SELECT SUM(a) AS s FROM t"),
    )
    found = compare(Case(("CREATE TABLE t (a INTEGER)",), views, (((1, "t", (1,)),),)))
    assert (list(found.refused), list(found.invalid), found.failures) == (["v", "w"], ["x"], [])
    assert found.shown == {"y"}


def test_an_error_is_a_failure():
    view = ("v", "SELECT 1 / SUM(a) AS x FROM t")
    found = compare(Case(("CREATE TABLE t (a INTEGER)",), (view,), (((1, "t", (0,)),),)))
    assert [failure.kind for failure in found.failures] == ["error"]


@pytest.mark.slow
def test_a_script_shrinks_to_what_matters():
    """Here it "fails" while a view that DuckDB takes has an outer join and comes to show a row."""

    def fails(script):
        found = compare(case_of(script), dry=True)
        return any("LEFT JOIN" in constructs(view) and view.name in found.changed for view in script.views)

    seed = next(seed for seed in range(100) if fails(script_of(seed)))
    smaller = shrunk(script_of(seed), fails)
    assert smaller == shrunk(script_of(seed), fails)
    (view,) = smaller.views
    assert len(smaller.transactions) <= 2
    assert len(smaller.tables) <= 2
    assert "LEFT JOIN" in view.sql()
    assert len(view.sql()) < 90


@pytest.mark.parametrize("seed", range(5))
def test_a_case_of_tables_that_refer_to_each_other_is_its_text(seed):
    case = case_of(script_of(seed, keyed=True))
    again = parse_case(case.text("Note."), case.mode)
    assert case.refers
    assert (again.tables, again.views) == (case.tables, case.views)
    assert again.transactions == case.transactions
