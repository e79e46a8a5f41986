"""Aggregates of a query in parts: groups with partial aggregates, and the same query over these.

Each node groups by all expressions of GROUP BY. The merging query groups by the columns that these have become, with
the grouping sets of the whole query, and has in place of each aggregate what makes one value of its parts.
"""

from __future__ import annotations

import json
from typing import Any

import duckdb

from cumulus.catalog.names import folded
from cumulus.views.duckdb_sql.trees import Tree, own, parsed_whole
from cumulus_ring.nodes.merged_aggregates import MergedAggregate, merged_aggregate
from cumulus_ring.nodes.occurrences import meaning
from cumulus_ring.nodes.split_text import NotSplitError, QueryBinder, column, number, parsed_expressions, path, position
from cumulus_ring.nodes.stable_functions import is_aggregate


class GroupedSelect:
    """A SELECT with aggregates, in parts.

    Parameters
    ----------
    mark
        With it begin the names of columns that the query does not have.
    extra
        Expressions by which the rows are ordered.

    Raises
    ------
    NotSplitError
        If it has no parts.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, binder: QueryBinder, top: Tree, mark: str, extra: list[Tree]
    ) -> None:
        self._connection = connection
        self._binder = binder
        self._top = top
        self._mark = mark
        self._groups = self._grouped_by()
        self._keys = [_key(each) for each in self._groups]
        if len(set(self._keys)) < len(self._keys) and len(top["group_sets"]) > 1:
            raise NotSplitError("it groups by one expression twice")
        self._parts: list[Tree] = list(self._groups)
        self._aggregates: dict[str, tuple[MergedAggregate, list[int]]] = {}
        self._blanks: list[tuple[Tree, str]] = []
        self._subqueries: dict[str, int] = {}
        self._items = [self._item(each) for each in top["select_list"]]
        self._items += [self._replaced(each) for each in extra]
        self._having = None if top["having"] is None else self._replaced(top["having"])
        if not self._parts:
            self._parts.append(parsed_expressions(connection, ["count(*)"])[0])

    @property
    def width(self) -> int:
        """How many columns partial rows have."""
        return len(self._parts)

    @property
    def has_sets(self) -> bool:
        """Whether partial rows have sets of distinct values."""
        return any(aggregate.is_set for aggregate, _ in self._aggregates.values())

    def partial(self) -> Tree:
        """Return the SELECT that each node answers."""
        count = len(self._groups)
        return {
            **self._top,
            "select_list": [{**each, "alias": f"{self._mark}{at}"} for at, each in enumerate(self._parts)],
            "modifiers": [],
            "group_expressions": [number(at + 1) for at in range(count)],
            "group_sets": [list(range(count))] if count else [],
            "aggregate_handling": "STANDARD_HANDLING",
            "having": None,
        }

    def merging(self, source: str, names: list[str], kinds: list[Any]) -> Tree:
        """Return the SELECT over partial rows.

        Parameters
        ----------
        source
            What it stands for in FROM.
        names, kinds
            Of the columns of partial rows.
        """
        merged: dict[str, str] = {}
        for key, (aggregate, places) in self._aggregates.items():
            merged[key] = aggregate.merged([names[at] for at in places], [kinds[at] for at in places])
            if not merged[key]:
                call = aggregate.parts[0]["function_name"]
                raise NotSplitError(f"{call}() of this type is computed whole")
        for key, at in self._subqueries.items():
            merged[key] = f"any_value({names[at]})"
        trees = dict(zip(merged, parsed_expressions(self._connection, list(merged.values())), strict=True))
        for blank, key in self._blanks:
            blank.update({**trees[key], "alias": blank["alias"]})
        found: Tree = parsed_whole(self._connection, f"SELECT 1 FROM {source}")["statements"][0]["node"]
        groups = [column(names[at]) for at in range(len(self._groups))]
        is_all = self._top["aggregate_handling"] != "STANDARD_HANDLING"
        sets = [list(range(len(groups)))] if is_all and groups else self._top["group_sets"]
        return {
            **found,
            "select_list": self._items,
            "group_expressions": groups,
            "group_sets": sets,
            "having": self._having,
        }

    # --- groups -----------------------------------------------------------------------------------------------------

    def _grouped_by(self) -> list[Tree]:
        """Return what is grouped by: positions and aliases are the expressions that they stand for."""
        top = self._top
        items = top["select_list"]
        if top["aggregate_handling"] != "STANDARD_HANDLING":
            given = [each for each in items if not any(is_aggregate(self._connection, part) for part in own(each))]
        else:
            given = [self._group(each) for each in top["group_expressions"]]
        for each in given:
            for part in own(each):
                if part.get("class") == "COLLATE":
                    raise NotSplitError("it groups by texts under a collation")
                if part.get("class") in ("STAR", "POSITIONAL_REFERENCE"):
                    raise NotSplitError("it groups by a choice of columns")
        return [{**each, "alias": ""} for each in given]

    def _group(self, expression: Tree) -> Tree:
        items = self._top["select_list"]
        at = position(expression)
        if at is not None:
            if any(part.get("class") == "STAR" for part in own(items)):
                raise NotSplitError("it groups by a choice of columns")
            chosen: Tree = items[at - 1]
            return chosen
        if len(of := path(expression)) == 1:
            named = [each for each in items if folded(each["alias"]) == of[0]]
            if named and not self._is_column(expression):
                alias: Tree = named[0]
                return alias
        return expression

    def _is_column(self, expression: Tree) -> bool:
        """Whether a name is a column of FROM: then it is no alias."""
        asked = {"select_list": [expression], "modifiers": [], "group_expressions": [], "group_sets": []}
        rest = {"having": None, "aggregate_handling": "STANDARD_HANDLING"}
        return self._binder.binds({**self._top, **asked, **rest})

    # --- expressions over groups and aggregates ---------------------------------------------------------------------

    def _item(self, item: Tree) -> Tree:
        replaced = self._replaced(item)
        replaced["alias"] = item["alias"]
        return replaced

    def _replaced(self, expression: Tree) -> Tree:
        """Return an expression over columns of partial rows; aggregates are blanks until their types are known."""
        key = _key(expression)
        if key in self._keys:
            return {**column(f"{self._mark}{self._keys.index(key)}"), "alias": expression["alias"]}
        if is_aggregate(self._connection, expression):
            return self._aggregate(key, expression)
        match expression.get("class"):
            case "COLUMN_REF":
                return self._column(expression)
            case "SUBQUERY":
                return self._subquery(key, expression)
            case "STAR" | "LAMBDA" | "POSITIONAL_REFERENCE" as kind:
                raise NotSplitError(f"{_SAID[kind]} stands beside aggregates")
        return {name: self._inside(part) for name, part in expression.items()}

    def _inside(self, part: Any) -> Any:
        if isinstance(part, list):
            return [self._inside(each) for each in part]
        if isinstance(part, dict):
            return self._replaced(part)
        return part

    def _column(self, expression: Tree) -> Tree:
        """Return the group that a column is, however it is qualified; what is left may be an alias."""
        of = path(expression)
        near = [at for at, each in enumerate(self._groups) if (to := path(each)) and _may_be_same(of, to)]
        if len(near) != 1:
            return {**expression}
        return {**column(f"{self._mark}{near[0]}"), "alias": expression["alias"]}

    def _aggregate(self, key: str, call: Tree) -> Tree:
        if key not in self._aggregates:
            found = merged_aggregate(call)
            if found is None:
                word = f"{call['function_name']}(DISTINCT …)" if call["distinct"] else f"{call['function_name']}()"
                raise NotSplitError(f"{word} does not merge")
            self._aggregates[key] = found, [self._part(each) for each in found.parts]
        return self._blank(key, call)

    def _subquery(self, key: str, expression: Tree) -> Tree:
        """Let nodes compute a sub-query: it has one value for each group."""
        if any(is_aggregate(self._connection, each) for each in own(expression["child"])):
            raise NotSplitError("a sub-query is compared with an aggregate")
        if len(self._top["group_sets"]) > 1:
            raise NotSplitError("a sub-query stands beside grouping sets")
        if key not in self._subqueries:
            self._subqueries[key] = self._part(expression)
        return self._blank(key, expression)

    def _part(self, expression: Tree) -> int:
        keys = [_key(each) for each in self._parts]
        key = _key(expression)
        if key not in keys[len(self._groups) :]:
            self._parts.append(expression)
            return len(self._parts) - 1
        return keys.index(key, len(self._groups))

    def _blank(self, key: str, expression: Tree) -> Tree:
        blank: Tree = {"alias": expression["alias"]}  # the name of a field, in a struct
        self._blanks.append((blank, key))
        return blank


_SAID = {"STAR": "a *", "LAMBDA": "a lambda", "POSITIONAL_REFERENCE": "a column by its number"}


def _key(expression: Tree) -> str:
    """Return what two expressions share if they are the same."""
    return json.dumps(_folded(meaning({**expression, "alias": ""})), sort_keys=True)


def _folded(part: Any) -> Any:
    match part:
        case {"class": "COLUMN_REF", "column_names": names}:
            return {"class": "COLUMN_REF", "column_names": [folded(name) for name in names]}
        case dict():
            return {key: _folded(each) for key, each in part.items()}
        case list():
            return [_folded(each) for each in part]
        case _:
            return part


def _may_be_same(one: list[str], other: list[str]) -> bool:
    """Whether two paths may be of one column: one of them is the other's end."""
    short, long = sorted((one, other), key=len)
    return len(short) < len(long) and long[-len(short) :] == short
