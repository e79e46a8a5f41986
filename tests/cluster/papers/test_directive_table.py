"""Directive tables of the consistency paper, section 3.2 and figure 4, by hand, and figure 3 by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cumulus import m3
from cumulus.catalog.arrow import table_of
from cumulus.cluster.mode import Mode
from cumulus.cluster.placement.directives import ClassedColumn, StatementDirectives, directive_tables
from cumulus.cluster.placement.distribution_tree import DistributionTree
from cumulus.cluster.placement.node_directives import Directed, NodeDirectives
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.planning.central_options import CentralOptions, central_options
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.protocol import NumberedRows
from cumulus.cluster.protocols.table import switch_protocol
from support.spread_cases import Block
from support.told_in_order import CentralNodes

TREE = central_options("directives")

STATEMENT = """RELATION R(A INT, B INT); RELATION S(A INT); RELATION T(B INT);
MAP m1[A INT, B INT](v BIGINT); MAP m2[A INT](v BIGINT); MAP m3[B INT](v BIGINT);
ON +R(A, B) { m1[A, B] += m2[A] * m3[B]; }
ON +S(A) { m2[A] += 1; } ON +T(B) { m3[B] += 1; }
"""
UNEQUAL = {
    "m1": Regions(((0, AxisCut(2, 3)), (1, AxisCut(3, 1)))),
    "m2": Regions(((0, AxisCut(4, 1)),)),
    "m3": Regions(((0, AxisCut(2, 1)),)),
}
"""m1 in a grid of 2 × 3 nodes; m2 in 4 parts on nodes 0 to 3, m3 in 2 on nodes 0 and 1."""

BY_HAND = """
A  B | m2 from | m3 from | m1 to
0  0 |    0    |    0    |   0
0  1 |    0    |    1    |   1
0  2 |    0    |    0    |   2
0  3 |    0    |    1    |   0
0  4 |    0    |    0    |   1
0  5 |    0    |    1    |   2
1  0 |    1    |    0    |   3
1  1 |    1    |    1    |   4
1  2 |    1    |    0    |   5
1  3 |    1    |    1    |   3
1  4 |    1    |    0    |   4
1  5 |    1    |    1    |   5
2  0 |    2    |    0    |   0
2  1 |    2    |    1    |   1
2  2 |    2    |    0    |   2
2  3 |    2    |    1    |   0
2  4 |    2    |    0    |   1
2  5 |    2    |    1    |   2
3  0 |    3    |    0    |   3
3  1 |    3    |    1    |   4
3  2 |    3    |    0    |   5
3  3 |    3    |    1    |   3
3  4 |    3    |    0    |   4
3  5 |    3    |    1    |   5
"""
"""partitions[A] = lcm(2, 4) = 4 and partitions[B] = lcm(3, 2) = 6. A class is a rest of the hash, so its part of C is
the rest by C, where the figure has ranges and C · P / partitions. Nodes of m1 are 3 · (A mod 2) + B mod 3."""


def statement_of(program: str, regions: Mapping[str, Regions], relation: str) -> StatementDirectives:
    (found,) = directive_tables(m3.read(program), regions)[relation]
    return found


def test_the_table_of_figure_4() -> None:
    table = statement_of(STATEMENT, UNEQUAL, "R")
    assert [(column.name, column.parts) for column in table.grid.columns] == [("A", 4), ("B", 6)]
    lines = ["", "A  B | m2 from | m3 from | m1 to"]
    for a, b in table.grid.cells():
        found = table.of((a, b))
        (m2,), (m3_,), (m1,) = *found.reads, found.writes
        assert m2[1] == m3_[1] == m1, "what is read goes to the one who writes"
        lines.append(f"{a}  {b} |    {m2[0]}    |    {m3_[0]}    |   {m1}")
    assert "\n".join([*lines, ""]) == BY_HAND


def test_each_map_has_a_table_of_its_own_columns() -> None:
    """A cell of the figure is the union of theirs: m2 needs A for itself, and A and B for who writes."""
    table = statement_of(STATEMENT, UNEQUAL, "R")
    assert [tuple(column.name for column in each.grid.columns) for each in table.reads] == [("A", "B"), ("A", "B")]
    one = statement_of(STATEMENT, {**UNEQUAL, "m1": Regions(((0, AxisCut(6, 1)),))}, "R")
    assert [tuple(column.name for column in each.grid.columns) for each in one.reads] == [("A",), ("A", "B")]
    assert [each.grid.size for each in one.reads] == [12, 24]


@pytest.mark.parametrize("parts", [(2, 3), (4, 6), (1, 5), (2, 2), (3, 5, 2)])
def test_ranges_of_the_figure_and_rests_of_ours_are_the_same_partition(parts: Sequence[int]) -> None:
    """`slice[V] = C · P / partitions[V]` gives each part of C as many classes as the rest by C, and refines all."""
    column = ClassedColumn.of("A", [AxisCut(each) for each in parts])
    for each in parts:
        ours = [column.part_of(number, AxisCut(each)) for number in range(column.classes)]
        theirs = [int(Fraction(each * number, column.classes)) for number in range(column.classes)]
        assert sorted(ours) == sorted(theirs)


def test_ranges_with_free_bounds_use_their_common_refinement() -> None:
    coarse, fine, hashed = AxisCut(2, 1, (10,)), AxisCut(3, 1, (5, 20)), AxisCut(2, 1)
    column = ClassedColumn.of("A", [coarse, fine, hashed])
    assert (column.bounds, column.parts, column.classes) == ((5, 10, 20), 2, 8)
    values = [None, -(1 << 31), 0, 4, 5, 9, 10, 19, 20, (1 << 31) - 1]
    classes = column.classes_of(pa.array(values, pa.int32())).tolist()
    for cut in (coarse, fine, hashed):
        assert [column.part_of(each, cut) for each in classes] == [cut.part_of(value) for value in values]
    assert [column.part_of(each, fine) for each in range(0, 8, 2)] == [0, 1, 1, 2]


SPECIAL = {
    pa.float64(): [None, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1e300],
    pa.string(): [None, "", "a", "ü", "\x00", "z" * 100],
    pa.int64(): [None, -(2**63), 2**63 - 1, 0],
}


@pytest.mark.parametrize("type_", SPECIAL, ids=str)
def test_special_values_have_a_class_of_their_part(type_: pa.DataType) -> None:
    values = SPECIAL[type_]
    cuts = [AxisCut(3), AxisCut(4), AxisCut(2, 1, ("b",) if type_ == pa.string() else (0,))]
    column = ClassedColumn.of("A", cuts)
    for array in (pa.array(values, type_), pa.array(values, type_).dictionary_encode()):
        classes = column.classes_of(array).tolist()
        for cut in cuts:
            assert [column.part_of(each, cut) for each in classes] == cut.parts_of(array).tolist()


# --- what a node does -----------------------------------------------------------------------------------------------


def directed(node: int, rows: list[tuple[Any, ...]], regions: Mapping[str, Regions] = UNEQUAL) -> Directed:
    program = m3.read(STATEMENT)
    tables = directive_tables(program, regions)
    numbers = {("R", "m2", ("A",)): 0, ("R", "m3", ("B",)): 1}
    return NodeDirectives(tables, numbers, node).of("R", table_of(program.relation("R").columns, rows)).whole()


def test_a_node_finds_its_part_of_the_table() -> None:
    """Rows whose values have the hashes of two cells; what node 1 sends, gets and writes follows from `BY_HAND`."""
    column = {name: ClassedColumn(name, parts) for name, parts in (("A", 4), ("B", 6))}
    numbers = pa.array(range(100), pa.int32())
    of_class = {
        (name, each): int(np.flatnonzero(column[name].classes_of(numbers) == each)[0])
        for name in column
        for each in range(column[name].classes)
    }
    rows = [(of_class["A", a], of_class["B", b]) for a, b in ((1, 1), (2, 4))]
    found = {node: directed(node, rows) for node in range(6)}
    assert {node: each.writes.tolist() for node, each in found.items()} == {0: [], 1: [1], 2: [], 3: [], 4: [0], 5: []}
    sent = {node: {pair: places.tolist() for pair, places in each.sends.items()} for node, each in found.items()}
    assert sent == {0: {(1, 1): [1]}, 1: {(4, 0): [0], (4, 1): [0]}, 2: {(1, 0): [1]}, 3: {}, 4: {}, 5: {}}
    assert {node: each.senders for node, each in found.items()} == {0: 0, 1: 2, 2: 0, 3: 0, 4: 1, 5: 0}


# --- the tree -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arity", [1, 2, 3, 7, 100])
def test_a_block_reaches_each_node_on_one_path(arity: int) -> None:
    for nodes in (1, 2, 5, 10, 64):
        tree = DistributionTree(nodes, arity)
        edges = [(node, child) for node in range(nodes) for child in tree.children(node)]
        assert sorted(child for _, child in edges) == list(range(1, nodes)), "N − 1 edges, one to each but the root"
        assert all(tree.parent(child) == node for node, child in edges)
        assert max(len(tree.children(node)) for node in range(nodes)) <= arity
        most, reached = 0, 1  # ⌈log N⌉ by the arity; of a chain N − 1
        while reached < nodes:
            most, reached = most + 1, reached * arity if arity > 1 else reached + 1
        assert tree.hops <= most


# --- figure 3 -------------------------------------------------------------------------------------------------------

SOURCES = "RELATION R(A INT); RELATION S(B INT, x INT); RELATION T(C INT, x INT);"
FIGURE_3A = f"""{SOURCES}
MAP m1[A INT, B INT](v BIGINT); MAP m2[B INT](v BIGINT);
ON +R(A) {{ m1[A, B] += m2[B]; }} ON +S(B, x) {{ m2[B] += x; }}
"""
FIGURE_3B = f"""{SOURCES}
MAP m1[A INT, B INT, C INT](v BIGINT); MAP m2[B INT](v BIGINT); MAP m3[C INT](v BIGINT);
ON +R(A) {{ m1[A, B, C] += m2[B] * m3[C]; }} ON +S(B, x) {{ m2[B] += x; }} ON +T(C, x) {{ m3[C] += x; }}
"""


def one(relation: str, *rows: tuple[Any, ...]) -> list[Block]:
    return [Block(at, relation, ((1, row),)) for at, row in enumerate(rows)]


def table_in(text: str, nodes: int, cuts: list[str]) -> StatementDirectives:
    plan = plan_cluster(m3.read(text), nodes, 1, Mode.CENTRAL_TARGET, cuts=cuts)
    return directive_tables(plan.division.spread, plan.layout.regions)["R"][0]


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_figure_3a_by_directives(nodes: int) -> None:
    """Each node reads its segment of m2 for itself: blocks are sent on, and nothing else is."""
    (cell,) = (table := table_in(FIGURE_3A, nodes, [f"m1.B={nodes}"])).grid.cells()
    assert table.of(cell).reads == (tuple((node, node) for node in range(nodes)),)
    world = CentralNodes(m3.read(FIGURE_3A), Mode.CENTRAL_TARGET, nodes, 0, cuts=[f"m1.B={nodes}"], central=TREE)
    world.run([*one("S", (1, 5), (2, 6), (3, 9)), *one("R", (7,))])
    assert world.entries()["m1"] == {(7, 1): (5,), (7, 2): (6,), (7, 3): (9,)}
    assert +world.sent == {"RootBlock": 4} | ({"ForwardedBlock": 4 * (nodes - 1)} if nodes > 1 else {})


@pytest.mark.parametrize("central", [TREE, central_options("directives", 1), central_options("directives", 9)])
def test_figure_3b_by_directives(central: CentralOptions) -> None:
    """m2 goes from each of 2 nodes to 5, m3 from each of 5 to 2: the same 13 PUSHes as by a dispatch table."""
    cuts = ["m1.B=2", "m1.C=5"]
    (cell,) = (table := table_in(FIGURE_3B, 10, cuts)).grid.cells()
    m2, m3_ = table.of(cell).reads
    assert m2 == tuple((5 * part, 5 * part + other) for part in range(2) for other in range(5))
    assert m3_ == tuple((part, part + 5 * other) for part in range(5) for other in range(2))
    assert table.of(cell).writes == tuple(range(10))
    world = CentralNodes(m3.read(FIGURE_3B), Mode.CENTRAL_TARGET, 10, 0, cuts=cuts, central=central)
    world.run([*one("S", (1, 2), (2, 3)), *one("T", (1, 10), (2, 20), (3, 30))])
    before = world.sent.copy()
    world.run(one("R", (7,)))
    assert world.entries()["m1"] == {
        (7, b, c): (m2 * m3_,) for b, m2 in ((1, 2), (2, 3)) for c, m3_ in ((1, 10), (2, 20), (3, 30))
    }
    assert world.sent - before == {"RootBlock": 1, "ForwardedBlock": 9, "Push": 13}


def test_the_switch_sends_a_block_once() -> None:
    plan = plan_cluster(m3.read(FIGURE_3B), 10, 1, Mode.CENTRAL_TARGET, central=TREE)
    rows = table_of(plan.program.relation("S").columns, [(1, 2), (2, 3)])
    ((node, _),) = switch_protocol(plan).dispatch(NumberedRows("S", 1, rows, np.ones(2, np.int8)))
    assert node == 0
