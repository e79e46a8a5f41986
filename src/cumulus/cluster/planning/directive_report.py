"""The directive tables of a plan as text for people, and as plain data for programs; both say the same.

References
----------
Cumulus consistency paper, figure 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

from cumulus.cluster.placement.correspondence import NamedSlice
from cumulus.cluster.placement.directives import ClassedColumn, Directives, StatementDirectives, directive_tables
from cumulus.cluster.placement.distribution_tree import DistributionTree
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.explain.explanation import counted

MOST_CELLS = 32
"""So many cells of a table are printed; JSON has all."""


def directive_lines(plan: ClusterPlan) -> Iterator[list[str]]:
    """Yield the tree of a plan, and the tables of its statements, each as lines."""
    tree = DistributionTree(plan.nodes, plan.central.arity)
    sent = [f"{node} to {_listed(tree.children(node))}" for node in range(plan.nodes) if tree.children(node)]
    hops = f"{counted(tree.hops, 'hop')} behind the root, node 0"
    yield [f"tree: along which nodes send blocks on, {hops}", f"  {'; '.join(sent) or 'to no other node'}"]
    yield ["directives: for the classes of a row's values, which nodes send what to whom, and which add"]
    for table in _tables(plan):
        columns = ", ".join(map(_column_text, table.grid.columns)) or "the same for all rows"
        lines = [f"  {table.flow.relation} → {_slice_text(table.flow.writes)}: {columns}"]
        cells = [(" ".join(map(str, cell)), _cell_text(table, table.of(cell))) for cell in _first_cells(table)]
        wide = max(len(cell) for cell, _ in cells)
        lines += [f"    {cell:<{wide}}  {text}" if wide else f"    {text}" for cell, text in cells]
        left = table.grid.size - len(cells)
        yield [*lines, f"    and {counted(left, 'cell')} more; --json has all"] if left else lines


def directive_data(plan: ClusterPlan) -> list[dict[str, Any]]:
    """Return the tables of the statements as plain data."""
    return [
        {
            "table": table.flow.relation,
            "adds_to": _slice_text(table.flow.writes),
            "columns": [
                {"name": each.name, "parts": each.parts, "bounds": list(map(str, each.bounds))}
                for each in table.grid.columns
            ],
            "cells": [_cell_data(table, cell) for cell in table.grid.cells()],
        }
        for table in _tables(plan)
    ]


def _tables(plan: ClusterPlan) -> Iterator[StatementDirectives]:
    for statements in directive_tables(plan.division.spread, plan.layout.regions).values():
        yield from statements


def _first_cells(table: StatementDirectives) -> Sequence[tuple[int, ...]]:
    return list(islice(table.grid.cells(), MOST_CELLS))


def _column_text(column: ClassedColumn) -> str:
    if not column.bounds:
        return f"{column.name} in {counted(column.parts, 'part')}"
    by_hash = f", each in {column.parts} by hash" if column.parts > 1 else ""
    return f"{column.name} in {len(column.bounds) + 1} parts at {', '.join(map(str, column.bounds))}{by_hash}"


def _slice_text(named: NamedSlice) -> str:
    return f"{named.map}[{', '.join(column or '*' for column in named.columns)}]"


def _cell_text(table: StatementDirectives, found: Directives) -> str:
    sent = [
        f"{_slice_text(each.read)} {', '.join(f'{reader}→{_listed(targets)}' for reader, targets in _by_reader(pairs))}"
        for each, pairs in zip(table.reads, found.reads, strict=True)
    ]
    return "; ".join([*sent, f"add on {_listed(found.writes)}"])


def _cell_data(table: StatementDirectives, cell: Sequence[int]) -> dict[str, Any]:
    found = table.of(cell)
    return {
        "classes": list(cell),
        "reads": [
            {"entries": _slice_text(each.read), "from": reader, "to": list(targets)}
            for each, pairs in zip(table.reads, found.reads, strict=True)
            for reader, targets in _by_reader(pairs)
        ],
        "adds_on": list(found.writes),
    }


def _by_reader(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    for reader, of in groupby(pairs, key=lambda pair: pair[0]):
        yield reader, [target for _, target in of]


def _listed(nodes: Sequence[int]) -> str:
    return " ".join(map(str, nodes))
