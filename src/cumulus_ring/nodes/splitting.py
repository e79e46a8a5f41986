"""Partial evaluation of one query: which table can be split over nodes, what each of them computes, how it is merged.

For a query over tables T, U, … in which T can be split (`split_tables`), nodes evaluate a *partial* query, each over
some rows of T and all rows of the other tables. A *merging* query over the union of their results, which it calls
``partials``, gives the rows of the whole query, with the same names and types.

- A filter: partials are rows of the result and the values by which they are ordered. ORDER BY and LIMIT are merged.
- An aggregate: partials are groups with partial aggregates (`merged_aggregates`); HAVING and all expressions over
  aggregates are computed in the merging query.

All that a node computes over the other tables must be the same at each node, so functions that are not deterministic,
and sub-queries that choose among rows, are computed as a whole (`stable_functions`).
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
from duckdb.sqltypes import DuckDBPyType

from cumulus.algebra.printing import quoted
from cumulus.catalog.names import folded
from cumulus.views.duckdb_sql.trees import Tree, own, printed
from cumulus_ring.nodes.occurrences import (
    Mentions,
    RingTable,
    TablesByName,
    find_mentions,
    first_paragraph,
    same_meaning,
)
from cumulus_ring.nodes.scan import OccurrenceSource, registered
from cumulus_ring.nodes.split_groups import GroupedSelect
from cumulus_ring.nodes.split_order import SplitOrder
from cumulus_ring.nodes.split_subqueries import check_subqueries
from cumulus_ring.nodes.split_tables import split_tables
from cumulus_ring.nodes.split_text import NotSplitError, QueryBinder, statement
from cumulus_ring.nodes.stable_functions import instability, is_aggregate
from cumulus_ring.nodes.travelling_types import received, sent, travels

PARTIALS = "partials"
"""The name of the union of all partial results in a merging query."""


@dataclass(frozen=True, slots=True)
class SplitQuery:
    """A query in parts.

    Parameters
    ----------
    table
        Nodes have parts of its rows.
    alias
        What the query calls it.
    partial
        The query that each node answers, over tables.
    merging
        The query over `PARTIALS` that gives the rows of the whole query.
    has_sets
        Whether partial results have all distinct values of something.
    others
        Names of the tables that each node reads whole.
    """

    table: RingTable
    alias: str
    partial: str
    merging: str
    has_sets: bool
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WholeQuery:
    """A query that one node answers.

    Parameters
    ----------
    reason
        Why it is not split, as the rest of a sentence after "because".
    """

    reason: str


def split_query(cursor: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName) -> SplitQuery | WholeQuery:
    """Return a query in parts, or why it is to be answered as a whole.

    Parameters
    ----------
    cursor
        As for `plan_query`.
    tables
        Folded name → table.

    Raises
    ------
    SqlError
        If the query is not a SELECT over these tables. Some errors are only found by `plan_query`.
    duckdb.InterruptException
        If another thread interrupts the cursor.
    """
    try:
        tree, mentions = find_mentions(cursor, sql, tables)
        parts = {folded(table.name) for _, table in mentions.mentions} - tables.keys()  # of published tables
        if parts & set(map(folded, mentions.common_names)):
            raise NotSplitError("a WITH has the name of a part of a table")
        for part, table in mentions.mentions:
            part["table_name"], part["qualified_name"] = table.name, {"path": [table.name]}
        sources = {
            table.name: OccurrenceSource(0, table.schema, table.rows)
            for table in {id(table): table for _, table in mentions.mentions}.values()
        }
        with registered(cursor, sources):
            return _Splitter(cursor, sql, tree, mentions).split()
    except NotSplitError as problem:
        return WholeQuery(problem.reason)
    except RecursionError:
        return WholeQuery("it is nested too deeply")
    except duckdb.InterruptException:
        raise
    except duckdb.Error as problem:
        return WholeQuery(f"DuckDB refuses its parts: {first_paragraph(problem).splitlines()[0]}")


class _Splitter:
    """Splits one query, whose tables the cursor knows."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, sql: str, tree: Tree, mentions: Mentions) -> None:
        self._cursor = cursor
        self._binder = QueryBinder(cursor)
        self._tree = tree
        self._top: Tree = tree["statements"][0]["node"]
        self._mentions = mentions
        self._empty = ""
        self._mark = "_"
        while self._mark in folded(sql):
            self._mark += "_"

    def split(self) -> SplitQuery | WholeQuery:
        """Return the parts.

        Raises
        ------
        NotSplitError
            If there are none.
        """
        self._check()
        found = split_tables(self._cursor, self._top, self._mentions)
        chosen = next((each for each in found if not each.obstacle), None)
        if chosen is None:
            raise NotSplitError("; ".join(f"{each.table.name} {each.obstacle}" for each in found[:_TOLD]))
        names, kinds = self._binder.columns(printed(self._cursor, self._tree))
        partial, merging, has_sets = self._grouped(names) if self._is_grouped() else self._filtered(names)
        merged_names, merged_kinds = self._binder.columns(f"{self._empty} {merging}")
        if merged_names != names or list(map(str, merged_kinds)) != list(map(str, kinds)):
            raise NotSplitError(f"its parts have other types: {merged_kinds} for {kinds}")
        others = tuple(each.table.name for each in found if each is not chosen)
        return SplitQuery(chosen.table, chosen.alias, partial, merging, has_sets, others)

    def _check(self) -> None:
        """Refuse all that is no plain SELECT."""
        top = self._top
        if not self._mentions.mentions:
            raise NotSplitError("it reads no table")
        if top["type"] != "SELECT_NODE":
            raise NotSplitError("it is not one SELECT: UNION, INTERSECT, EXCEPT and WITH RECURSIVE are computed whole")
        if top["qualify"] is not None:
            raise NotSplitError("QUALIFY looks at other rows")
        if any(each["type"] == "DISTINCT_MODIFIER" for each in top["modifiers"]):
            raise NotSplitError("DISTINCT looks at other rows")
        hidden = {folded(table.name) for _, table in self._mentions.mentions} & set(
            map(folded, self._mentions.common_names)
        )
        if hidden:
            raise NotSplitError(f"a WITH has the name of a table, {min(hidden)}")
        if reason := instability(self._cursor, top, top):
            raise NotSplitError(reason)
        check_subqueries(self._binder, self._cursor, self._top, self._mentions)

    def _is_grouped(self) -> bool:
        top = self._top
        if top["group_expressions"] or top["group_sets"] or top["having"] is not None:
            return True
        visible = [top["select_list"], top["modifiers"]]
        is_forced: bool = top["aggregate_handling"] != "STANDARD_HANDLING"
        return is_forced or any(is_aggregate(self._cursor, each) for each in own(visible))

    def _filtered(self, names: list[str]) -> tuple[str, str, bool]:
        order = SplitOrder(self._top, names)
        inner = {**self._top, "select_list": [*self._top["select_list"], *order.extra], "modifiers": []}
        inner_text, columns, kinds = self._rows(inner, len(names) + len(order.extra))
        rows = f"{self._mark}rows"
        partial = self._sent(inner_text, columns, kinds) + order.pushed(rows, columns)
        merging = self._merging(self._received(columns, kinds), columns, names, order)
        return partial, merging, False

    def _grouped(self, names: list[str]) -> tuple[str, str, bool]:
        order = SplitOrder(self._top, names)
        grouped = GroupedSelect(self._cursor, self._binder, self._top, self._mark, order.extra)
        inner_text, columns, kinds = self._rows(grouped.partial(), grouped.width)
        node = grouped.merging(self._received(columns, kinds), columns, kinds)
        text = self._text(node)
        outer = [f"{self._mark}c{number}" for number in range(len(names) + len(order.extra))]
        merging = self._merging(f"({text}) AS {self._mark}rows({', '.join(outer)})", outer, names, order)
        return self._sent(inner_text, columns, kinds), merging, grouped.has_sets

    def _rows(self, node: Tree, width: int) -> tuple[str, list[str], list[DuckDBPyType]]:
        """Return the text of a SELECT of partial rows, names for its columns, and their types."""
        text = self._text(node)
        _, kinds = self._binder.columns(text)
        for kind in kinds:
            if not travels(kind):
                raise NotSplitError(f"values of type {kind} cannot be sent from node to node")
        if len(kinds) != width:
            raise NotSplitError("a choice of columns stands beside aggregates")
        return text, [f"{self._mark}{number}" for number in range(width)], kinds

    def _text(self, node: Tree) -> str:
        tree = statement(node)
        text = printed(self._cursor, tree)
        if not same_meaning(self._cursor, text, tree):
            raise NotSplitError("DuckDB cannot say its parts again with the same meaning")
        return text.removesuffix(";")

    def _sent(self, inner: str, columns: list[str], kinds: list[DuckDBPyType]) -> str:
        rows = f"{self._mark}rows"
        nothing = (sent(f"CAST(NULL AS {kind})", kind) for kind in kinds)
        self._empty = f"WITH {PARTIALS}({', '.join(columns)}) AS (SELECT {', '.join(nothing)})"
        items = (f"{sent(f'{rows}.{name}', kind)} AS {name}" for name, kind in zip(columns, kinds, strict=True))
        return f"SELECT {', '.join(items)} FROM ({inner}) AS {rows}({', '.join(columns)})"

    def _received(self, columns: list[str], kinds: list[DuckDBPyType]) -> str:
        items = (f"{received(name, kind)} AS {name}" for name, kind in zip(columns, kinds, strict=True))
        return f"(SELECT {', '.join(items)} FROM {PARTIALS}) AS {self._mark}rows"

    def _merging(self, source: str, columns: list[str], names: list[str], order: SplitOrder) -> str:
        rows = f"{self._mark}rows"
        items = (f"{rows}.{column} AS {quoted(name)}" for column, name in zip(columns, names, strict=False))
        return f"SELECT {', '.join(items)} FROM {source}{order.merged(rows, columns)}"


_TOLD = 3
"""Tables in a reason, at most."""
