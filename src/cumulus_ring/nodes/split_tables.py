"""Which tables of a query can be split: those whose rows each give rows of the result for themselves.

A query over a table T is a function of T's rows. If it is additive (the rows for T1 ∪ T2 are those for T1 and those for
T2), nodes can compute it over parts of T. Filters, projections and inner joins are additive, and so are outer joins in
the rows that they keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb

from cumulus.catalog.names import folded
from cumulus.views.duckdb_sql.trees import Tree, own
from cumulus_ring.nodes.occurrences import Mentions, RingTable
from cumulus_ring.nodes.stable_functions import is_aggregate


@dataclass(frozen=True, slots=True)
class SplitTable:
    """A table that can be split, or the reason why it cannot.

    Parameters
    ----------
    obstacle
        Empty if it can be split.
    """

    table: RingTable
    alias: str
    obstacle: str


def split_tables(connection: duckdb.DuckDBPyConnection, top: Tree, mentions: Mentions) -> list[SplitTable]:
    """Return the tables of a query, largest first; of equally large ones, the first mention first.

    Parameters
    ----------
    top
        The outermost SELECT.
    """
    walk = _Walk(connection, mentions)
    obstacles = dict(walk.places(top["from_table"], "", walk.scope_of(top, {})))
    names = [folded(table.name) for _, table in mentions.mentions]
    found: dict[str, SplitTable] = {}
    for (part, table), name in zip(mentions.mentions, names, strict=True):
        obstacle = obstacles.get(id(part), "is in a sub-query or a WITH")
        if names.count(name) > 1:
            obstacle = f"is mentioned {names.count(name)} times"
        found.setdefault(name, SplitTable(table, part["alias"], obstacle))
    return sorted(found.values(), key=lambda each: -each.table.rows)


@dataclass(frozen=True, slots=True)
class _With:
    """A WITH, and the WITHs that its own query can read."""

    part: Tree
    scope: Mapping[str, _With]


_Scope = Mapping[str, _With]
"""Folded name of a WITH that can be read → the WITH."""


class _Walk:
    """Goes down a FROM as far as each row's fate is its own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, mentions: Mentions) -> None:
        self._connection = connection
        self._readers = mentions.readers
        self._tables = {id(part) for part, _ in mentions.mentions}

    def scope_of(self, node: Tree, outside: _Scope) -> _Scope:
        """Return the WITHs that can be read in a query."""
        scope = dict(outside)
        for each in node["cte_map"]["map"]:
            scope[folded(each["key"])] = _With(each, dict(scope))
        return scope

    def places(self, source: Tree, obstacle: str, scope: _Scope) -> Iterator[tuple[int, str]]:
        """Yield the ``id`` of each mention of a table in a part of FROM, and why it cannot be split."""
        match source:
            case {"type": "BASE_TABLE"} if id(source) in self._tables:
                yield id(source), obstacle
            case {"type": "BASE_TABLE", "table_name": name} if folded(name) in scope:
                yield from self._with(scope[folded(name)], obstacle)
            case {"type": "JOIN"}:
                for side in ("left", "right"):
                    yield from self.places(source[side], obstacle or _join_obstacle(source, side), scope)
            case {"type": "SUBQUERY", "subquery": {"node": node}}:
                yield from self._block(node, obstacle, scope)

    def _with(self, common: _With, obstacle: str) -> Iterator[tuple[int, str]]:
        count = self._readers[id(common.part)].count
        if count != 1:
            obstacle = obstacle or f"is in a WITH that is read {count} times"
        yield from self._block(common.part["value"]["query_node"], obstacle, common.scope)

    def _block(self, node: Tree, obstacle: str, scope: _Scope) -> Iterator[tuple[int, str]]:
        if node["type"] != "SELECT_NODE":
            return
        obstacle = obstacle or self._block_obstacle(node)
        yield from self.places(node["from_table"], obstacle, self.scope_of(node, scope))

    def _block_obstacle(self, node: Tree) -> str:
        """Return why a query in FROM is no plain filter and projection of its rows."""
        if node["group_expressions"] or node["group_sets"] or node["having"] is not None:
            return "is grouped in a sub-query"
        if node["aggregate_handling"] != "STANDARD_HANDLING":
            return "is grouped in a sub-query"
        if any(is_aggregate(self._connection, each) for each in own(node["select_list"])):
            return "is aggregated in a sub-query"
        if node["modifiers"]:
            return "is in a sub-query with ORDER BY, LIMIT or DISTINCT"
        return ""


def _join_obstacle(join: Tree, side: str) -> str:
    """Return why the rows of one side of a join cannot be joined part by part."""
    kind, way = join["join_type"], join["ref_type"]
    if way == "POSITIONAL":
        return "is joined by position"
    if way not in ("REGULAR", "NATURAL", "CROSS", "DEPENDENT", "ASOF") or join["ranking_expression"] is not None:
        return "is a side of a join whose rows compete"
    if kind == "INNER" and (way != "ASOF" or side == "left"):
        return ""
    if kind in ("LEFT", "SEMI", "ANTI") and side == "left" and way in ("REGULAR", "NATURAL", "ASOF"):
        return ""
    if kind == "RIGHT" and side == "right" and way in ("REGULAR", "NATURAL"):
        return ""
    if kind in ("SEMI", "ANTI"):
        return f"is the right side of a {kind} JOIN"
    if way == "ASOF":
        return "is a side of an ASOF JOIN whose rows compete"
    return f"is on the side of a {'FULL' if kind == 'OUTER' else kind} JOIN whose rows it does not keep alone"
