"""What may stand beside MEASURE in a SELECT, and what aggregates of a cube's rows are refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from cumulus.catalog.names import find_name, folded
from cumulus.errors import UsageError
from cumulus.views.duckdb_sql import trees
from cumulus.views.duckdb_sql.trees import Tree
from cumulus.views.finishing import Finisher

_WHOLE = frozenset({"min", "max", "bool_and", "bool_or", "any_value"})
"""Aggregates to which it does not matter how often a row stands."""
_JOINS = frozenset({"INNER", "LEFT", "RIGHT", "OUTER"})
_NO_GROUPS = {"where_clause": "WHERE", "group_expressions": "GROUP BY", "from_table": "FROM"}


@dataclass(slots=True)
class Mention:
    """A view in FROM: what it is called there, and the joins that it is in."""

    tree: Tree
    name: str
    finisher: Finisher
    joins: tuple[Tree, ...]

    @property
    def alias(self) -> str:
        """What the query calls it."""
        return str(self.tree.get("alias") or self.tree["table_name"])

    @property
    def grouping(self) -> dict[str, int]:
        """Its grouping columns."""
        return self.finisher.grouping

    def others(self) -> list[str]:
        """Return its columns that are not for grouping."""
        grouping = self.grouping
        return [column.name for column in self.finisher.view.columns if column.name not in grouping]

    def is_of(self, column: Tree) -> bool:
        """Whether a column may be of the view, by what it is said to be of."""
        path = trees.names_of(column)
        return len(path) == 1 or folded(path[-2]) == folded(self.alias)


def refuse_aggregates(parts: Tree, mention: Mention, aggregates: Collection[str]) -> None:
    """Raise UsageError for an aggregate of a cube's measures."""
    for call in trees.own(list(parts.values())):
        is_window = call.get("type") == "WINDOW_AGGREGATE"
        if not (trees.is_call(call) or is_window) or trees.function_name(call) not in aggregates:
            continue
        for inside in outside_measures(call):
            if trees.is_column(inside) and mention.is_of(inside):
                name = find_name(trees.names_of(inside)[-1], mention.others())
                if name is not None:
                    function = trees.function_name(call).upper()
                    raise UsageError(
                        f"{function}({name}) would put rows of the cube {mention.name} together, and {name} is "
                        "made of sums already",
                        hint=f"Write MEASURE({name}); or, to take its rows as they are, FROM (SELECT * FROM "
                        f"{mention.name}).",
                    )


def check_select(select: Tree, measured: Mention, aggregates: Collection[str], said: Callable[[Tree], str]) -> None:
    """Raise UsageError for what has no meaning beside a measure; `said` gives the text of an expression."""
    for clause, name in _NO_GROUPS.items():
        for call in trees.own(select.get(clause)):
            if is_measure(call):
                raise UsageError(f"{said(call)} stands in {name}, where there are no groups yet", hint="Use HAVING.")
    for join in measured.joins:
        kind = str(join.get("join_type", "INNER"))
        may_be = kind in _JOINS or (kind in ("SEMI", "ANTI") and join["side"] == "left")
        if join.get("ref_type", "REGULAR") not in ("REGULAR", "CROSS") or not may_be:
            raise UsageError(
                f"{measured.alias} stands in a join ({join.get('ref_type', kind)}) that depends on which rows "
                "there are, and MEASURE takes parts of them",
                hint="Use JOIN … ON or USING, or join what a sub-query with MEASURE gives.",
            )
    if measured.tree.get("column_name_alias") or measured.tree.get("sample") or measured.tree.get("at_clause"):
        raise UsageError(
            f"{measured.alias} has columns with other names, or is a sample, and MEASURE takes parts of its rows",
            hint=f"Write FROM {measured.name}, and its own names.",
        )
    _check_columns(select, measured, aggregates)


def _check_columns(select: Tree, measured: Mention, aggregates: Collection[str]) -> None:
    aliases = [str(item.get("alias", "")) for item in select["select_list"]]
    others = measured.others()
    for item in select["select_list"]:
        if any(each.get("class") == "STAR" for each in outside_measures(item)):
            raise UsageError("* has no meaning beside MEASURE", hint="Name the columns, and group by them.")
    for each in outside_measures([value for key, value in select.items() if key not in ("cte_map", "type")]):
        if trees.is_call(each) and trees.function_name(each) in aggregates:
            if not each.get("distinct") and trees.function_name(each) not in _WHOLE:
                function = trees.function_name(each).removesuffix("_star").upper()
                raise UsageError(
                    f"{function} beside MEASURE would count parts of {measured.alias}, not rows",
                    hint="Ask for it in a sub-query; or make it a column of the view.",
                )
        elif trees.is_column(each) and measured.is_of(each):
            path = trees.names_of(each)
            name = find_name(path[-1], others)
            if name is not None and not (len(path) == 1 and find_name(name, aliases) is not None):
                grouping = ", ".join(measured.grouping) or "none"
                raise UsageError(
                    f"{name} is no grouping column of {measured.name}: beside MEASURE it has no value",
                    hint=f"Write MEASURE({name}); its grouping columns are {grouping}.",
                )


def is_measure(tree: Tree) -> bool:
    """Whether a tree is a call of MEASURE."""
    return trees.is_call(tree) and trees.function_name(tree) == "measure"


def outside_measures(tree: Any) -> Iterator[Tree]:
    """Iterate over what is in a tree and in no MEASURE, and in no query inside."""
    if isinstance(tree, dict):
        if trees.is_query(tree):
            return
        if is_measure(tree):
            yield from outside_measures(tree.get("filter"))
            return
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from outside_measures(child)
