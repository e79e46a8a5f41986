"""Dispatch: each group's events come to the node of their home, whole, once and in order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from cumulus.catalog.partition import bucket_of
from cumulus.cluster.node_programs.program import Group, node_program
from cumulus.cluster.placement.dispatch import Dispatch
from cumulus.cluster.placement.grid_homes import plain_home
from cumulus.cluster.placement.regions import AxisCut
from cumulus.m3 import parse


def group(relation: str, home: str | None, *columns: str) -> Group:
    return Group(relation, home, columns, relation, "", (), (), (), False)


def dispatch(groups: Sequence[Group], nodes: int) -> Dispatch:
    """Return the dispatch of groups whose homes are columns."""
    return Dispatch(groups, [plain_home(each.home, AxisCut(nodes)).place for each in groups], nodes)


GROUPS = [
    group("r", "a", "a", "b"),
    group("r", "b", "b"),
    group("s", "a", "a"),
    group("r", None),
    group("r", "a", "c"),
]


@pytest.mark.parametrize("seed", range(8))
def test_rows_come_to_the_node_of_their_home(seed):
    rng = random.Random(seed)
    nodes, count = rng.randint(1, 5), rng.choice([0, 1, 30])
    rows = [(rng.choice([1, 2, 3, None]), rng.choice(["x", "y", None]), rng.random()) for _ in range(count)]
    columns = [pa.int32(), pa.string(), pa.float64()]
    arrays = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(columns)]
    table = pa.table(arrays, names=["a", "b", "c"])
    signs = np.array([rng.choice([1, -1]) for _ in rows], np.int8)
    found = dispatch(GROUPS, nodes).route("r", table, signs)
    assert [(each.node, each.group) for each in found] == sorted({(each.node, each.group) for each in found})
    for number, one in enumerate(GROUPS):
        for node in range(nodes):
            at = {"a": 0, "b": 1}.get(one.home)
            expected = [
                place
                for place, row in enumerate(rows)
                if one.relation == "r" and (0 if at is None else bucket_of(row[at], nodes)) == node
            ]
            mine = [each for each in found if (each.node, each.group) == (node, number)]
            if not expected:
                assert mine == []
                continue
            [found_here] = mine
            assert found_here.rows.tolist() == expected
            assert found_here.signs.tolist() == [signs[place] for place in expected]
            assert found_here.columns.column_names == list(one.columns)
            assert found_here.columns.to_pylist() == table.select(list(one.columns)).take(expected).to_pylist()


def test_nobody_hears_of_a_table_that_no_statement_uses():
    assert dispatch(GROUPS, 3).route("t", pa.table({"a": [1]}), np.array([1], np.int8)) == ()


def test_a_line_item_goes_to_the_node_of_its_order():
    text = "RELATION lineitem(oid INT, price INT, tax INT); MAP m[oid INT](s HUGEINT);"
    program = parse(f"{text} ON +lineitem(o, p, t) {{ m[o] += p }}")
    found = dispatch(node_program(program, {(0, 0): "oid"}).groups, 4)
    rows = pa.table({"oid": [1, 2, 1], "price": [5, 6, 7], "tax": [0, 0, 0]})
    blocks = found.route("lineitem", rows, np.array([1, 1, 1], np.int8))
    assert {each.node: each.columns.to_pydict() for each in blocks} == {
        bucket_of(1, 4): {"oid": [1, 1], "price": [5, 7]},
        bucket_of(2, 4): {"oid": [2], "price": [6]},
    }
