"""Source aggregation of the papers on grids: who computes what, and where copies lie."""

from __future__ import annotations

from typing import Any

import pytest

from cumulus import m3
from cumulus.cluster.mode import RULES, Mode
from cumulus.cluster.planning.cluster_plan import ClusterPlan, plan_cluster
from support.paper_programs import PROGRAMS
from support.spread_cases import Block
from support.told_in_order import CentralNodes

SOURCE = [mode for mode, rules in RULES.items() if rules.has_replicas and rules.is_spread]
FIGURE_3B = """RELATION R(A INT); RELATION S(B INT); RELATION T(C INT);
MAP m1[A INT, B INT, C INT](n BIGINT); MAP m2[B INT](n BIGINT); MAP m3[C INT](n BIGINT);
ON +R(A) { m1[A, B, C] += m2[B] * m3[C]; } ON +S(B) { m2[B] += 1; } ON +T(C) { m3[C] += 1; }
"""
STAR = """RELATION Date(datekey INT, year INT); RELATION Part(partkey INT, partcat INT);
RELATION LineOrder(datekey INT, partkey INT, revenue INT);
MAP m[partcat INT, year INT](v BIGINT); MAP mDL[partkey INT, partcat INT](n BIGINT);
MAP mPL[datekey INT, year INT](n BIGINT);
ON +Date(datekey, year) { mPL[datekey, year] += 1; }
ON +Part(partkey, partcat) { mDL[partkey, partcat] += 1; }
ON +LineOrder(datekey, partkey, revenue) {
  m[partcat, year] += revenue * mDL[partkey, partcat] * mPL[datekey, year]; }
"""


def one(relation: str, *rows: tuple[Any, ...]) -> list[Block]:
    return [Block(0, relation, ((1, row),)) for row in rows]


def homes(plan: ClusterPlan) -> dict[str, set[str | None]]:
    """Return relation → where its statements are computed, in words."""
    found: dict[str, set[str | None]] = {}
    for each in plan.layout.additions():
        found.setdefault(each.flow.relation, set()).add(each.home.label)
    return found


@pytest.mark.parametrize("mode", SOURCE)
def test_figure_3_with_replicas(mode: Mode) -> None:
    """ "A replica of the map segment is created at each node that reads from the segment": a part of m2 is read by five
    nodes, one of m3 by two. An R is computed on all ten, and sends nothing.
    """
    world = CentralNodes(m3.read(FIGURE_3B), mode, 10, 0, cuts=["m1.B=2", "m1.C=5"])
    layout = world.plan.layout
    assert {len(layout.nodes_of("m2", (b,))) for b in range(20)} == {5}
    assert {len(layout.nodes_of("m3", (c,))) for c in range(20)} == {2}
    assert {layout.nodes_of("m1", (7, b, c)) for b in range(40) for c in range(40)} == {(node,) for node in range(10)}
    assert homes(world.plan)["R"] == {"every m1.B, every m1.C"}
    world.run([*one("S", *((b,) for b in range(6))), *one("T", *((c,) for c in range(6)))])
    before = world.sent.copy()
    world.run(one("R", (7,)))
    told = world.sent - before
    assert world.entries()["m1"] == {(7, b, c): (1,) for b in range(6) for c in range(6)}
    if mode is Mode.EVENTUAL:
        assert (told["Events"], told["Deltas"]) == (10, 0)
    else:
        assert (told["Evaluate"], told["Expect"], told["Push"]) == (10, 10, 0), "each expects what is its own"


@pytest.mark.parametrize("mode", SOURCE)
def test_example_3_of_the_introduction_by_what_is_grouped(mode: Mode) -> None:
    """mDL[partkey, x] goes "to nodes maintaining m[x, *]", and mPL[datekey, y] to those of m[*, y]: before it is asked
    for, as a LineOrder is computed by all nodes, each for its x and y.
    """
    world = CentralNodes(m3.read(STAR), mode, 6, 0, cuts=["m.partcat=2", "m.year@1995,1997"])
    layout = world.plan.layout
    for cat in range(10):
        for year in (1990, 1996, 2000):
            (node,) = layout.nodes_of("m", (cat, year))
            assert node in layout.nodes_of("mDL", (4, cat))
            assert node in layout.nodes_of("mPL", (7, year))
            assert len(layout.nodes_of("mDL", (4, cat))) == 3
            assert len(layout.nodes_of("mPL", (7, year))) == 2
    assert homes(world.plan)["LineOrder"] == {"every m.partcat, every m.year"}
    world.run([*one("Date", (7, 1996), (8, 1998)), *one("Part", (4, 1), (5, 2))])
    before = world.sent.copy()
    world.run(one("LineOrder", (7, 4, 100), (8, 5, 30), (9, 4, 1000)))
    assert world.entries()["m"] == {(1, 1996): (100,), (2, 1998): (30,)}
    assert not (world.sent - before)["Push" if mode is Mode.CENTRAL_SOURCE else "Deltas"]


@pytest.mark.parametrize("mode", SOURCE)
def test_example_3_by_what_is_joined(mode: Mode) -> None:
    """A LineOrder is computed on one node, by both of its keys; Dates lie on all nodes of their column."""
    cuts = ["LineOrder.datekey=2", "LineOrder.partkey=5"]
    world = CentralNodes(m3.read(STAR), mode, 10, 0, cuts=cuts)
    layout = world.plan.layout
    assert homes(world.plan)["LineOrder"] == {"datekey, partkey"}
    assert {len(layout.nodes_of("mPL", (key, 1996))) for key in range(9)} == {5}
    assert {len(layout.nodes_of("mDL", (key, 1))) for key in range(9)} == {2}
    world.run([*one("Date", (7, 1996), (8, 1998)), *one("Part", (4, 1), (5, 2))])
    world.run(one("LineOrder", (7, 4, 100), (8, 5, 30), (9, 4, 1000)))
    assert world.entries()["m"] == {(1, 1996): (100,), (2, 1998): (30,)}


def test_example_2_1_by_customer_and_order() -> None:
    """Only m3, which has both keys, lies in all regions; what has one of them is copied along the other, if it is read
    by orders.
    """
    plan = plan_cluster(m3.read(PROGRAMS["consistency paper, example 2.1"]), 10, cuts=["ORDERS.CID=2", "ORDERS.OID=5"])
    assert homes(plan) == {
        "ORDERS": {"CID, OID"},
        "LINEITEMS": {"OID", "OID, every ORDERS.CID"},
        "CUSTOMERS": {"CID", "CID, every ORDERS.OID"},
    }
    assert {name: len(plan.layout.nodes_of(name, key)) for name, key in KEYS.items()} == COPIES


KEYS = {"m1": (1, 2), "m2": (1,), "m3": (1, 2), "m4": (2,), "m5": (1, 3)}
COPIES = {"m1": 1, "m2": 1, "m3": 1, "m4": 2, "m5": 5}


def test_a_part_that_would_compute_the_values_of_others_leaves_all_to_the_first() -> None:
    """Rows of u are computed by x, and want all that m has of b there: so no part has its own values of x alone."""
    text = """RELATION r(a INT); RELATION s(a INT, x INT); RELATION u(x INT, b INT);
        MAP m[a INT, x INT](n BIGINT); MAP q[x INT](n BIGINT); MAP p[x INT](n BIGINT);
        ON +r(a) { q[x] += m[a, x]; } ON +s(a, x) { m[a, x] += 1; } ON +u(x, b) { p[x] += m[b, x] * m[b, c] * c; }"""
    cuts = ["q.x=3"]
    plan = plan_cluster(m3.read(text), 3, cuts=cuts)
    alone = plan_cluster(m3.read(text.replace(" ON +u(x, b) { p[x] += m[b, x] * m[b, c] * c; }", "")), 3, cuts=cuts)
    assert homes(alone)["r"] == {"every q.x"}
    assert homes(plan)["r"] == {"a"}
    world = CentralNodes(m3.read(text), Mode.EVENTUAL, 3, 0, cuts=cuts)
    world.run([*one("s", *((1, x) for x in range(5))), *one("r", (1,)), *one("u", (2, 1))])
    assert world.entries()["q"] == {(x,): (1,) for x in range(5)}
    assert world.entries()["p"] == {(2,): (10,)}
