"""Node program, dispatch and layout together: many nodes, messages in any order, end as one engine does."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cumulus.algebra import float_sums
from cumulus.catalog.types import arrow_type
from cumulus.cluster.node_programs.program import node_program
from cumulus.cluster.placement.dispatch import Dispatch
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.statement_placement import choose_homes
from cumulus.engine.frames.entries import frame_of
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.interpreter.engine import Interpreter
from cumulus.m3.program import Program
from support.random_homes import random_homes, random_statistics
from support.spread_cases import SMALL, Block, approximately, random_blocks, spread_program, states
from support.tiers import examples, one_mode_each


class Node:
    """An engine of the node program, what it has been sent, and the latest versions that it has seen."""

    def __init__(self, program: Program) -> None:
        self.engine = Interpreter(program)
        self.sums: dict[str, dict[Any, Any]] = {}
        """Map → key → numbers: the deltas that have come."""
        self.newest = Counter[str]()
        self.seen = Counter[str]()


class ManyNodes:
    """The nodes of a layout; whatever is under way comes in an order of chance."""

    def __init__(self, program: Program, homes, nodes: int, rng: random.Random) -> None:
        self.program, self.rng = program, rng
        self.made = node_program(program, homes)
        self.layout = ClusterLayout(program, homes, nodes)
        self.dispatch = Dispatch(self.made.groups, self.layout.homes_of(self.made.groups), nodes)
        self.nodes = [Node(self.made.program) for _ in range(nodes)]
        self.under_way: list[tuple[Any, ...]] = []
        self.counts = Counter[str]()

    def send(self, block: Block) -> None:
        """Do as a switch: give each node what it must evaluate."""
        columns = self.program.relation(block.relation).columns
        rows = table_of(columns, [row for _, row in block.rows])
        signs = np.array([sign for sign, _ in block.rows], np.int8)
        for each in self.dispatch.route(block.relation, rows, signs):
            group = self.made.groups[each.group]
            values = list(zip(*(column.to_pylist() for column in each.columns.columns), strict=True))
            events = [
                (sign, (*row, block.first + place * group.has_row_versions))
                for sign, row, place in zip(
                    each.signs.tolist(), values or [()] * len(each.rows), each.rows.tolist(), strict=True
                )
            ]
            self.under_way.append(("events", each.node, group, events))

    def deliver(self) -> None:
        kind, number, *rest = self.under_way.pop(self.rng.randrange(len(self.under_way)))
        node = self.nodes[number]
        if kind == "events":
            self._evaluate(node, *rest)
        else:
            self._add(node, *rest)
        self._take(number)

    def _evaluate(self, node: Node, group, events) -> None:
        is_late = any(node.newest[name] >= events[0][1][-1] for name in group.reads)
        self.counts["late block"] += is_late
        for sign, row in events:
            fire(node, sign, group.late if is_late else group.in_order, row)
        for name in group.reads:
            node.seen[name] = max(node.seen[name], events[-1][1][-1])

    def _add(self, node: Node, name: str, key, values, version: int) -> None:
        sums = node.sums.setdefault(name, {})
        sums[key] = tuple(one + other for one, other in zip(sums.get(key, [0] * len(values)), values, strict=True))
        if self.made.overlays[name].late:
            self.counts["late delta"] += version < node.seen[name]
            node.newest[name] = max(node.newest[name], version)
            fire(node, 1, self.made.overlays[name].late, (*key, *values, version))

    def _take(self, number: int) -> None:
        """Send what a node has put out to the nodes that the layout names, itself among them."""
        engine = self.nodes[number].engine
        for name, overlay in self.made.overlays.items():
            definition = self.program.map(name)
            stored = list(engine.stored(overlay.out))
            deltas = frame_of(layout_of(engine.program.map(overlay.out)), stored)
            for target, places in enumerate(self.layout.targets(name, deltas)):
                for key, values in (stored[place] for place in places.tolist()):
                    self.counts["sent"] += target != number
                    self.under_way.append(("delta", target, name, key[:-1], numbers_of(definition, values), key[-1]))
            engine.load(overlay.out, ())

    def owned(self, name: str) -> dict[Any, Any]:
        """Return the entries of a map that exist, each from the node that owns it."""
        definition, found = self.program.map(name), {}
        for number, node in enumerate(self.nodes):
            entries = dict(definition.initial)
            for key, values in node.sums.get(name, {}).items():
                old = entries.get(key, [0] * len(values))
                entries[key] = tuple(one + other for one, other in zip(old, values, strict=True))
            found |= {key: values for key, values in entries.items() if self.layout.owner_of(name, key) == number}
        count = definition.column_index(definition.count) if definition.count else None
        return {key: values for key, values in found.items() if (any(values) if count is None else values[count])}


def fire(node: Node, sign: int, relation: str, row) -> None:
    node.engine.begin()
    node.engine.on_event(sign, relation, row)
    node.engine.commit()


def table_of(columns, rows) -> pa.Table:
    types = [pa.int64() if column.type is None else arrow_type(column.type) for column in columns]
    arrays = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(types)]
    return pa.table(arrays, names=[column.name for column in columns])


def numbers_of(definition, values) -> tuple[Any, ...]:
    return tuple(
        float_sums.read_cell(value) if column.type is not None and column.type.is_float else value
        for value, column in zip(values, definition.values, strict=True)
    )


@pytest.mark.parametrize(("name", "how"), one_mode_each(SMALL, ("chosen", "any")))
def test_many_nodes_end_as_one_engine(name, how):
    counts = Counter[str]()
    for seed in range(examples(15)):
        program, rng = spread_program(name), random.Random(seed)
        homes = (
            choose_homes(program, random_statistics(rng, program)) if how == "chosen" else random_homes(rng, program)
        )
        cluster = ManyNodes(program, homes, rng.randint(2, 4), rng)
        blocks = random_blocks(program, rng, 12)
        waiting = list(blocks)
        while waiting or cluster.under_way:
            if waiting and (not cluster.under_way or rng.random() < 0.3):
                cluster.send(waiting.pop(0 if rng.random() < 0.7 else rng.randrange(len(waiting))))
            else:
                cluster.deliver()
        for map_, entries in states(program, blocks).items():
            assert cluster.owned(map_) == approximately(entries), (seed, map_)
        counts += cluster.counts
    assert counts["sent"] > 0
    assert counts["late delta"] > 0
