"""Nomadic queries: bids, hops, where a query settles, and questions that do not come home (section 7.1)."""

from __future__ import annotations

import pytest

from cumulus_ring.machine.policies.nomads import Nomad, bid_ms
from cumulus_ring.machine.policies.questions import OpenQuestions


def settled(bids: dict[str, float | None], hops: int) -> str:
    nomad = Nomad("d", 7, 1, {1: 10}, hops, "d", 50.0)
    for name, price in bids.items():
        if nomad.is_done:
            break
        nomad = nomad.with_bid(name, price)
    return nomad.node


@pytest.mark.parametrize(
    ("bids", "hops", "node"),
    [
        ({"c": 40.0, "b": 30.0, "a": 20.0}, 3, "a"),
        ({"c": 40.0, "b": 30.0, "a": 20.0}, 2, "b"),
        ({"c": 60.0, "b": 70.0}, 3, "d"),
        ({"c": None, "b": 45.0}, 3, "b"),
        ({"c": None}, 1, "d"),
        ({"c": 50.0, "e": 50.0, "b": 50.0}, 3, "b"),
    ],
)
def test_a_query_settles_at_the_cheapest_of_the_nodes_that_it_reaches(
    bids: dict[str, float | None], hops: int, node: str
) -> None:
    assert settled(bids, hops) == node


def test_a_price_grows_with_what_must_come_and_with_the_queries_of_a_node() -> None:
    assert bid_ms(0, 1e-8, 0, 0.5) == 0
    assert bid_ms(1_000_000, 1e-8, 0, 0.5) == pytest.approx(10)
    assert bid_ms(1_000_000, 1e-8, 2, 0.5) == pytest.approx(1_010)


def test_a_question_is_closed_once_whatever_comes_home() -> None:
    questions = OpenQuestions()
    for query, due in ((1, 100), (2, 50), (3, 80)):
        questions.open(query, due)
    assert [questions.close(2), questions.close(2), questions.close(9)] == [True, False, False]
    assert (questions.overdue(79), questions.overdue(80), questions.overdue(80)) == ([], [3], [])
    assert (questions.close_all(), len(questions), questions.close(1)) == ([1], 0, False)
