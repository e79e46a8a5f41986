"""Dispatch: each group's events come to the node of their home, whole, once and in order."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from cumulus.catalog.partition import bucket_of
from cumulus.cluster.dispatch import Dispatch


@dataclass(frozen=True)
class Home:
    """A group of statements, as far as dispatch knows it."""

    base: str
    home: str | None
    columns: tuple[str, ...]


GROUPS = [
    Home("r", "a", ("a", "b")),
    Home("r", "b", ("b",)),
    Home("s", "a", ("a",)),
    Home("r", None, ()),
    Home("r", "a", ("c",)),
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
    found = Dispatch(GROUPS, nodes).route("r", table, signs)
    assert [(each.node, each.group) for each in found] == sorted({(each.node, each.group) for each in found})
    for number, group in enumerate(GROUPS):
        for node in range(nodes):
            at = {"a": 0, "b": 1}.get(group.home)
            expected = [
                place
                for place, row in enumerate(rows)
                if group.base == "r" and (0 if at is None else bucket_of(row[at], nodes)) == node
            ]
            mine = [each for each in found if (each.node, each.group) == (node, number)]
            if not expected:
                assert mine == []
                continue
            [one] = mine
            assert one.rows.tolist() == expected
            assert one.signs.tolist() == [signs[place] for place in expected]
            assert one.columns.column_names == list(group.columns)
            assert one.columns.to_pylist() == table.select(list(group.columns)).take(expected).to_pylist()


def test_nobody_hears_of_a_table_that_no_statement_uses():
    assert Dispatch(GROUPS, 3).route("t", pa.table({"a": [1]}), np.array([1], np.int8)) == ()
