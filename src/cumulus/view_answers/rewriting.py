"""The query over a view's rows that says what one over base tables says."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from cumulus.algebra.printing import quoted
from cumulus.catalog.names import folded
from cumulus.m3.program import ViewDef
from cumulus.view_answers.query_shape import QueryShape, Unanswerable, replaced, same, without_alias
from cumulus.views.duckdb_sql.trees import Tree, both, expressions, is_call, is_column, names_of, parsed, printed

ROWS = "cumulus view"
"""What the view's rows are called in the rewritten query."""

WHOLE = {"sum": "CAST(sum({0}) AS {1})", "count": "CAST(coalesce(sum({0}), 0) AS {1})"}
ENDS = {"min": "min({0})", "max": "max({0})"}
ROLLED_UP = {**WHOLE, **ENDS, "count_star": WHOLE["count"]}
"""How numbers of groups become those of larger groups, for the aggregates that can."""

MEAN = "(CAST(sum({0}) AS DOUBLE) / sum({1}))"


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """Which columns of a view have what the query names.

    Parameters
    ----------
    keys
        Grouping columns: the place in the view of each expression, by its tree as text.
    numbers
        The same for aggregates; for AVG without a column of its own, the places of sum and count.
    """

    keys: Mapping[str, int]
    numbers: Mapping[str, tuple[int, ...]]


def rewritten(
    connection: duckdb.DuckDBPyConnection,
    shape: QueryShape,
    view: ViewDef,
    columns: ViewColumns,
    extra: Sequence[Tree],
    *,
    is_rolled_up: bool,
    has_same_having: bool = False,
) -> str:
    """Return the query over a view's rows.

    Parameters
    ----------
    extra
        The conditions that the view does not have.
    is_rolled_up
        Whether groups are put together; otherwise each row is one.
    has_same_having
        Whether the view's rows are only those that HAVING keeps.
    """
    aliases = {folded(each["alias"]) for each in shape.node["select_list"] if each.get("alias")}
    change = _Change(connection, view, columns, is_rolled_up, aliases)
    node = dict(shape.node)
    names = [name for name, _ in shape.columns]
    node["select_list"] = [
        {**change.of(each), "alias": name} for each, name in zip(shape.node["select_list"], names, strict=True)
    ]
    node["from_table"] = _rows(connection, view)
    node.pop("where_clause", None)
    condition: Tree | None = None
    for each in extra:
        condition = both(condition, change.of(each))
    having = node.pop("having", None)
    if having and not has_same_having:
        if is_rolled_up:
            node["having"] = change.of(having)
        else:
            condition = both(condition, change.of(having))
    if condition:
        node["where_clause"] = condition
    for clause in ("group_expressions", "group_sets"):
        node.pop(clause, None)
    node["aggregate_handling"] = "STANDARD_HANDLING"
    if is_rolled_up and shape.groups:
        node["group_expressions"] = [change.of(each) for each in shape.groups]
        node["group_sets"] = [[*range(len(shape.groups))]]
    node["modifiers"] = [_modifier(each, change) for each in node.get("modifiers", [])]
    statement = {"error": False, "statements": [{**shape.tree["statements"][0], "node": node}]}
    return printed(connection, statement)


def _modifier(modifier: Tree, change: _Change) -> Tree:
    if "orders" not in modifier:
        return modifier
    orders = [{**order, "expression": change.of(order["expression"])} for order in modifier["orders"]]
    return {**modifier, "orders": orders}


def _rows(connection: duckdb.DuckDBPyConnection, view: ViewDef) -> Tree:
    """Return FROM: the view's columns under names that no query has, in the types that the view says."""
    listed = ", ".join(
        f'CAST({quoted(column.name)} AS {column.type}) AS "column {place}"' for place, column in enumerate(view.columns)
    )
    tree = parsed(connection, f'SELECT 1 FROM (SELECT {listed} FROM {quoted(view.name)}) AS "{ROWS}"')
    assert tree is not None, "what is written here is SQL"
    source: Tree = tree["statements"][0]["node"]["from_table"]
    return source


class _Change:
    """Puts columns of the view in the place of grouping expressions and aggregates."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        view: ViewDef,
        columns: ViewColumns,
        is_rolled_up: bool,
        aliases: Collection[str],
    ) -> None:
        self.connection = connection
        self.view = view
        self.columns = columns
        self.is_rolled_up = is_rolled_up
        self.aliases = aliases

    def of(self, tree: Tree) -> Tree:
        """Return an expression over the view's rows."""
        self._check_floats(tree)
        found: Tree = replaced(without_alias(tree), self._one)
        return found

    def _one(self, tree: Tree) -> Tree | None:
        text = same(tree)
        if text in self.columns.keys:
            return self._text(self._column(self.columns.keys[text]))
        if text in self.columns.numbers:
            return self._text(self._number(tree, self.columns.numbers[text]))
        if is_column(tree) and (len(names_of(tree)) > 1 or folded(names_of(tree)[0]) not in self.aliases):
            raise Unanswerable(f"{'.'.join(names_of(tree))} is no grouping column that {self.view.name} has")
        return None

    def _number(self, tree: Tree, places: tuple[int, ...]) -> str:
        if len(places) > 1:
            total, count = (self._column(place) for place in places)
            # One row for each group: the same division, without the sums around it.
            return MEAN.format(total, count) if self.is_rolled_up else f"(CAST({total} AS DOUBLE) / {count})"
        column = self._column(places[0])
        if not self.is_rolled_up:
            return column
        return ROLLED_UP[folded(tree["function_name"])].format(column, self.view.columns[places[0]].type)

    def _column(self, place: int) -> str:
        return f'"{ROWS}"."column {place}"'

    def _text(self, sql: str) -> Tree:
        return expressions(self.connection, [sql])[0]

    def _check_floats(self, tree: Any, *, computes: bool = False) -> None:
        """Refuse to compute with floats that are grouping columns: groups do not tell 0.0 from -0.0."""
        if isinstance(tree, list):
            for each in tree:
                self._check_floats(each, computes=computes)
        if not isinstance(tree, dict):
            return
        text = same(tree)
        if text in self.columns.numbers:
            return
        if text in self.columns.keys:
            kind = self.view.columns[self.columns.keys[text]].type
            if computes and str(kind) in ("DOUBLE", "FLOAT", "REAL"):
                raise Unanswerable("it computes with a grouping column of floats, where 0.0 and -0.0 are one group")
            return
        computes = computes or is_call(tree) or tree.get("class") in ("CAST", "OPERATOR", "CASE")
        for each in tree.values():
            self._check_floats(each, computes=computes)
