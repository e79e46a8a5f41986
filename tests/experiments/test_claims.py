"""What the papers claim of a cluster: the numbers behind the sentences, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cumulus.cli.main import app
from cumulus_lab.claims.claims import ClaimFound, ClaimScale, PaperClaim
from cumulus_lab.claims.constant import constant_updates
from cumulus_lab.claims.costs import NodeCosts, fitted_costs
from cumulus_lab.claims.pictures import draw_claim
from cumulus_lab.claims.scaling import _where_it_stops, broadcast
from cumulus_lab.claims.table import CLAIMS
from support.tiers import examples

TINY = ClaimScale(2_000, 4, 0.5, largest=16)
costs = st.floats(0, 100, allow_subnormal=False).map(lambda each: round(each, 2))


@settings(max_examples=examples(200), deadline=None)
@given(costs, costs, costs, st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=3, unique=True))
def test_costs_are_found_in_what_they_make(
    event: float, delta: float, message: float, runs: list[tuple[int, int]]
) -> None:
    """Where runs tell them apart; where they do not, the costs explain the runs all the same, and none is negative."""
    made = NodeCosts(event, delta, message)
    found = fitted_costs([(deltas, messages, made.per_event(deltas, messages)) for deltas, messages in runs])
    assert min(found.event, found.delta, found.message) >= 0
    for deltas, messages in runs:
        assert found.per_event(deltas, messages) == pytest.approx(made.per_event(deltas, messages), abs=1e-4)


def test_it_stops_where_twice_the_nodes_are_not_worth_it() -> None:
    def row(nodes: int, nodes_us: float) -> dict[str, float]:
        return {"nodes": nodes, "nodes_us": nodes_us, "events_per_s": round(1e6 / max(nodes_us / nodes, 1.0))}

    rows = [row(1, 4.0), row(2, 4.0), row(4, 4.0), row(8, 4.0)]
    assert _where_it_stops(rows, 1.0) == "behind 4 nodes, where the one switch has no more time"
    rows = [row(1, 40.0), row(2, 80.0)]
    assert _where_it_stops(rows, 1.0) == "behind 1 nodes, where deltas and messages grow as fast"
    assert _where_it_stops(rows[:1], 1.0) == "not up to 1 nodes"


def test_what_needs_no_cluster_is_measured(tmp_path: Path) -> None:
    found = constant_updates(TINY, tmp_path)
    assert [row["rows"] > 0 and row["us_per_event"] > 0 for row in found.rows] == [True] * 4
    assert f"{found.rows[-1]['us_per_event']} µs" in found.sentence
    told = broadcast(TINY, tmp_path)
    assert [row["ms"] > 0 for row in told.rows if row["kind"] == "measured"] == [True] * 3
    picture = tmp_path / "claim.svg"
    draw_claim(CLAIMS["broadcast"], told, picture)
    assert "one broadcast among" in picture.read_text() or picture.stat().st_size > 5_000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*CLAIMS} - {"constant", "broadcast", "elision"}))
def test_each_claim_is_measured_on_a_cluster(name: str, tmp_path: Path) -> None:
    claim: PaperClaim = CLAIMS[name]
    found: ClaimFound = claim.run(TINY, tmp_path)
    across, up, by = claim.axes
    assert all({across, up, *filter(None, [by])} <= row.keys() for row in found.rows)
    assert found.sentence.endswith(".")
    assert found.until.endswith(".")


def test_the_command_tells_what_it_knows() -> None:
    runner = CliRunner()
    told = runner.invoke(app, ["experiments", "cluster", "everything"])
    assert "there is no claim 'everything'" in str(told.exception)
    told = runner.invoke(app, ["experiments", "cluster", "all", "--plot", "x.png"])
    assert "a picture has one claim" in str(told.exception)
    told = runner.invoke(app, ["experiments", "cluster", "broadcast", "--scale", "ci", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["source"] == "semester paper, section 2"
