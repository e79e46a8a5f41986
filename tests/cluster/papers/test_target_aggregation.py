"""Target aggregation of the consistency paper, section 3.1, and the architecture's update, with values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from cumulus import m3
from cumulus.catalog.arrow import table_of
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.central_messages import Fetch, Put
from cumulus.cluster.protocols.protocol import NumberedRows
from cumulus.cluster.protocols.table import switch_protocol
from support.spread_cases import Block
from support.told_in_order import CentralNodes

FETCHING_MODES = (Mode.CENTRAL_TARGET, Mode.FOUR_LOGS, Mode.TICKS)
SOURCES = "RELATION R(A INT); RELATION S(B INT, x INT); RELATION T(C INT, x INT);"
FIGURE_3A = f"""{SOURCES}
MAP m1[A INT, B INT](v BIGINT); MAP m2[B INT](v BIGINT);
VIEW m1(A INT, B INT, v BIGINT) FROM m1 SELECT A, B, v;
ON +R(A) {{ m1[A, B] += m2[B]; }}
ON +S(B, x) {{ m2[B] += x; }}
"""
FIGURE_3B = f"""{SOURCES}
MAP m1[A INT, B INT, C INT](v BIGINT); MAP m2[B INT](v BIGINT); MAP m3[C INT](v BIGINT);
VIEW m1(A INT, B INT, C INT, v BIGINT) FROM m1 SELECT A, B, C, v;
ON +R(A) {{ m1[A, B, C] += m2[B] * m3[C]; }}
ON +S(B, x) {{ m2[B] += x; }}
ON +T(C, x) {{ m3[C] += x; }}
"""
SLICE = """RELATION R(A INT); RELATION S(A INT, B INT, x INT);
MAP m1[B INT](v BIGINT); MAP m2[A INT, B INT](v BIGINT);
VIEW m1(B INT, v BIGINT) FROM m1 SELECT B, v;
ON +R(A) { m1[B] += m2[A, B]; }
ON +S(A, B, x) { m2[A, B] += x; }
"""
LINEITEMS = """RELATION lineitems(oid INT); RELATION joined(cid INT, oid INT);
MAP m1[cid INT](n BIGINT); MAP m5[cid INT, oid INT](n BIGINT);
VIEW m1(cid INT, n BIGINT) FROM m1 SELECT cid, n;
ON +lineitems(oid) { m1[cid] += m5[cid, oid]; }
ON +joined(cid, oid) { m5[cid, oid] += 1; }
"""


def one(relation: str, *rows: tuple[Any, ...]) -> list[Block]:
    """Return rows, each a block of its own."""
    return [Block(at, relation, ((1, row),)) for at, row in enumerate(rows)]


def told(text: str, nodes: int, cuts: list[str], relation: str, row: tuple[Any, ...]) -> list[tuple[int, Fetch | Put]]:
    """Return what the switch sends for a row."""
    plan = plan_cluster(m3.read(text), nodes, 1, Mode.CENTRAL_TARGET, cuts=cuts)
    rows = table_of(plan.program.relation(relation).columns, [row])
    block = NumberedRows(relation, 1, rows, np.ones(1, np.int8))
    found = list(switch_protocol(plan).dispatch(block))
    assert all(isinstance(message, Fetch | Put) for _, message in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("mode", FETCHING_MODES)
def test_figure_3a_each_node_sends_its_segment_to_exactly_one(mode: Mode) -> None:
    """ "Each m2 node will send its entire segment to exactly one m1 node. … If the same node stores corresponding
    partitions of m2 and m1, no actual data transmission occurs."
    """
    for nodes in (1, 2, 5):
        sent = told(FIGURE_3A, nodes, [f"m1.B={nodes}"], "R", (7,))
        assert [(node, list(message.targets)) for node, message in sent if isinstance(message, Fetch)] == [
            (node, [node]) for node in range(nodes)
        ]
        world = CentralNodes(m3.read(FIGURE_3A), mode, nodes, 0, cuts=[f"m1.B={nodes}"])
        world.run([*one("S", (1, 5), (2, 6), (3, 9)), *one("R", (7,))])
        assert world.entries()["m1"] == {(7, 1): (5,), (7, 2): (6,), (7, 3): (9,)}
        assert world.sent["Push"] == 0


def test_figure_3a_with_m1_cut_by_a_too() -> None:
    """ "Even if m1 is also partitioned over A, … a node storing a segment of m2 is still only required to send the
    segment to one m1 node."
    """
    sent = told(FIGURE_3A, 6, ["R.A=3", "m1.B=2"], "R", (7,))
    targets = [list(message.targets) for _, message in sent if isinstance(message, Fetch)]
    assert [len(each) for each in targets] == [1, 1]


@pytest.mark.parametrize("mode", FETCHING_MODES)
def test_figure_3b_the_grid_of_two_by_five(mode: Mode) -> None:
    """ "Each m2 node sends its segment to each of the corresponding 5 m1 nodes, while each m3 node will send its
    segment to each of the corresponding 2 m1 nodes": 20, of which 7 stay, since ours are of the same ten nodes.
    """
    cuts = ["m1.B=2", "m1.C=5"]
    sent = told(FIGURE_3B, 10, cuts, "R", (7,))
    plan = plan_cluster(m3.read(FIGURE_3B), 10, 1, Mode.CENTRAL_TARGET, cuts=cuts)
    maps = [each.map for each in plan.nodes_program.slices]
    pairs = [
        (maps[each.slice], node, each.target)
        for node, message in sent
        if isinstance(message, Fetch)
        for each in message.asked
    ]
    assert Counter(name for name, _, _ in pairs) == {"m2": 2 * 5, "m3": 5 * 2}
    assert len(pairs) == 20
    assert set(Counter((name, node) for name, node, _ in pairs if name == "m2").values()) == {5}
    assert set(Counter((name, node) for name, node, _ in pairs if name == "m3").values()) == {2}
    assert sum(isinstance(message, Put) for _, message in sent) == 10
    world = CentralNodes(m3.read(FIGURE_3B), mode, 10, 0, cuts=cuts)
    world.run([*one("S", (1, 2), (2, 3)), *one("T", (1, 10), (2, 20), (3, 30))])
    before = world.sent["Push"]
    world.run(one("R", (7,)))
    assert world.entries()["m1"] == {
        (7, b, c): (m2 * m3_,) for b, m2 in ((1, 2), (2, 3)) for c, m3_ in ((1, 10), (2, 20), (3, 30))
    }
    assert world.sent["Push"] - before == len({(node, target) for _, node, target in pairs if node != target}) == 13


@pytest.mark.parametrize("mode", FETCHING_MODES)
def test_only_the_slice_of_an_event_is_sent(mode: Mode) -> None:
    """ "In this instance, only the slice m2'[B] = m2[A, B] is sent." """
    cuts = ["m2.A=2", "m1.B=3"]
    sent = told(SLICE, 6, cuts, "R", (4,))
    readers = [node for node, message in sent if isinstance(message, Fetch)]
    assert len({node // 3 for node in readers}) == 1, "all have the part of A = 4"
    world = CentralNodes(m3.read(SLICE), mode, 6, 0, cuts=cuts)
    world.run([*one("S", (4, 1, 10), (4, 2, 20), (5, 1, 99)), *one("R", (4,))])
    assert world.entries()["m1"] == {(1,): (10,), (2,): (20,)}


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("key", ["cid", "oid"])
def test_the_update_of_the_architecture(nodes: int, key: str) -> None:
    """An item of an order counts for its customer: PUT to the nodes of m1, FETCH to those of m5, PUSH between them."""
    cuts = [f"m5.{key}={nodes}"]
    world = CentralNodes(m3.read(LINEITEMS), Mode.CENTRAL_TARGET, nodes, nodes, cuts=cuts)
    world.run(one("joined", (1, 10), (1, 11), (2, 12)))
    before = world.sent.copy()
    world.run(one("lineitems", (10,), (12,), (12,), (99,)))
    assert world.entries()["m1"] == {(1,): (1,), (2,): (2,)}
    told_ = world.sent - before
    assert told_["Put"] == 4 * nodes, "cid loops: an entry may be on each node"
    assert told_["Fetch"] == (4 * nodes if key == "cid" else 4)
    assert told_["Push"] == (0 if key == "cid" else 4 * (nodes - 1)), "by cid, m1 and m5 correspond"


STAR = """RELATION Date(datekey INT, year INT); RELATION Part(partkey INT, partcat INT);
RELATION LineOrder(datekey INT, partkey INT, revenue INT);
MAP m[partcat INT, year INT](v BIGINT); MAP mDL[partkey INT, partcat INT](n BIGINT);
MAP mPL[datekey INT, year INT](n BIGINT);
VIEW m(partcat INT, year INT, v BIGINT) FROM m SELECT partcat, year, v;
ON +Date(datekey, year) { mPL[datekey, year] += 1; }
ON +Part(partkey, partcat) { mDL[partkey, partcat] += 1; }
ON +LineOrder(datekey, partkey, revenue) {
  m[partcat, year] += revenue * mDL[partkey, partcat] * mPL[datekey, year]; }
"""


@pytest.mark.parametrize("mode", FETCHING_MODES)
def test_example_3_of_the_introduction_sends_to_rows_and_columns_of_a_grid(mode: Mode) -> None:
    """mDL[partkey, x] goes to the nodes of m[x, *] and mPL[datekey, y] to those of m[*, y], "but at least an empty
    message": m[1, 1996] receives both, and all others what is nothing.
    """
    cuts = ["m.partcat=2", "m.year@1995,1997"]
    world = CentralNodes(m3.read(STAR), mode, 6, 0, cuts=cuts, switches=1)
    grid = {world.plan.layout.owner_of("m", (cat, year)) for cat in (1, 2) for year in (1994, 1996, 1998)}
    assert len(grid) == 6, "m lies on two axes, an entry of each region on a node of its own"
    world.run([*one("Date", (7, 1996), (8, 1998)), *one("Part", (4, 1), (5, 2))])
    before = world.sent.copy()
    world.run(one("LineOrder", (7, 4, 100)))
    assert world.entries()["m"] == {(1, 1996): (100,)}
    told_ = world.sent - before
    assert told_["Push"] == 2 * 2 + 3 * 1, "two parts of mDL to three nodes, three of mPL to two, and some stay"
    world.run(one("LineOrder", (8, 5, 30), (7, 5, 1), (9, 4, 1000), (7, 9, 1000)))
    assert world.entries()["m"] == {(1, 1996): (100,), (2, 1998): (30,), (2, 1996): (1,)}
