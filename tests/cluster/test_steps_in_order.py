"""What has come within a step is taken in by version: nothing is corrected that has come in time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cumulus.catalog.arrow import table_of
from cumulus.cluster.intake import BlockMaker
from cumulus.cluster.messages import Block, Deltas, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.eventual import EventualNode, EventualSwitch
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.versions import Numbering, VersionOrder
from cumulus.compiler.pipeline import compile_sql
from cumulus.epochs.stages.judge import TableDelta

PROGRAM = compile_sql(
    """
    CREATE TABLE r (a INTEGER, b INTEGER); CREATE TABLE s (b INTEGER, c INTEGER); CREATE TABLE t (c INTEGER, x INTEGER);
    CREATE VIEW v AS SELECT a, SUM(x) AS q, COUNT(*) AS n FROM r, s, t WHERE r.b = s.b AND s.c = t.c GROUP BY a;
    """,
    rely=False,
    enforced=False,
)
ROWS = {
    "r": [(each, each % 3) for each in range(6)],
    "s": [(each % 3, each % 4) for each in range(12)],
    "t": [(each % 4, each) for each in range(8)],
}
TABLES = ("s", "t", "r", "s", "r", "t")


def blocks_by_node(plan_nodes: int) -> tuple[list[EventualNode], list[list[list[Block]]]]:
    """Return empty nodes, and the blocks that each gets of one change of a table after the other."""
    plan = plan_cluster(PROGRAM, plan_nodes, 1, Mode.EVENTUAL)
    maker = BlockMaker(Numbering(VersionOrder.CLOCK, 0), EventualSwitch(plan), frozenset())
    sent: list[list[list[Block]]] = []
    for table in TABLES:
        net = TableDelta(table, table_of(PROGRAM.relation(table).columns, ROWS[table]), np.full(len(ROWS[table]), 1))
        by_node: list[list[Block]] = [[] for _ in range(plan_nodes)]
        for node, events in maker.make(1, [net]):
            assert isinstance(events, Events)
            by_node[node] += events.blocks
        sent.append(by_node)
    return [EventualNode(NodeLife(plan, node, "interpreter")) for node in range(plan_nodes)], sent


def take(node: EventualNode, blocks: Sequence[Block], deltas: Sequence[Deltas] = ()) -> None:
    """Let a node take what has come in one step."""
    node.take(-1, Events(blocks))
    for each in deltas:
        node.take(0, each)


def settle(nodes: Sequence[EventualNode], inbox: Sequence[list[Deltas]]) -> None:
    """Let deltas go round until there are none."""
    while any(inbox):
        for node, deltas in zip(nodes, inbox, strict=True):
            take(node, [], deltas)
            deltas.clear()
        for node in nodes:
            for target, sent in node.drain():
                inbox[target].append(sent)


def entries(nodes: Sequence[EventualNode]) -> list[object]:
    return [
        sorted(
            (key, values)
            for node in nodes
            for key, values in node.state.engine.items(name)
            if node.maps.owns(name, key)
        )
        for name in nodes[0].maps.names
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_deltas_that_come_with_later_blocks_are_in_time(count: int) -> None:
    """Each step has the blocks of a change, latest group first, and the deltas of all changes before."""
    nodes, sent = blocks_by_node(count)
    inbox: list[list[Deltas]] = [[] for _ in nodes]
    for by_node in sent:
        taken = [list(each) for each in inbox]
        for deltas in inbox:
            deltas.clear()
        for node, blocks, deltas in zip(nodes, by_node, taken, strict=True):
            take(node, blocks[::-1], deltas)
        for node in nodes:
            for target, found in node.drain():
                inbox[target].append(found)
    settle(nodes, inbox)
    in_order, _ = blocks_by_node(count)
    quiet: list[list[Deltas]] = [[] for _ in in_order]
    for by_node in sent:
        for node, blocks in zip(in_order, by_node, strict=True):
            take(node, blocks)
        for node in in_order:
            for target, found in node.drain():
                quiet[target].append(found)
        settle(in_order, quiet)
    assert entries(nodes) == entries(in_order)
    assert sum(node.state.shares.deltas_late + node.state.shares.rows_late for node in in_order) == 0
    assert sum(node.state.shares.rows_late for node in nodes) == 0
    first = [node.state.shares.deltas_late for node in nodes]
    assert sum(first) == 0, first


def test_blocks_of_a_step_are_fired_by_version() -> None:
    nodes, sent = blocks_by_node(1)
    others, _ = blocks_by_node(1)
    blocks = [block for by_node in sent for block in by_node[0]]
    take(nodes[0], blocks)
    take(others[0], blocks[::-1])
    for node in (*nodes, *others):
        assert not list(node.drain())
    assert entries(nodes) == entries(others)
    assert nodes[0].state.shares == others[0].state.shares
