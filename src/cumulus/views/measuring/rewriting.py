"""`SELECT y, MEASURE(mean_delay) FROM sales GROUP BY y`: the query that DuckDB answers from parts.

In a SELECT that calls MEASURE, the view in FROM is a table of its parts, folded over the grouping columns that the
SELECT names anywhere, and MEASURE(x) is the view's own expression over sums of parts. Joins come before sums, as SQL
has it: a row of the view that finds two rows counts twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from cumulus.algebra.terms import Const
from cumulus.catalog.names import find_name, folded
from cumulus.errors import UsageError
from cumulus.m3.program import Program
from cumulus.scalars.duckdb_text import literal
from cumulus.views.duckdb_sql import trees
from cumulus.views.duckdb_sql.trees import Tree
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Partial
from cumulus.views.folding.plan import FoldPlan, plan_fold
from cumulus.views.measuring.functions import create_finishing
from cumulus.views.measuring.parts import PartsTable
from cumulus.views.measuring.scopes import Mention, check_select, is_measure, refuse_aggregates

Fold: TypeAlias = Callable[[str, Sequence[str], Sequence[Bound], Sequence[str]], Partial]
"""From a view, the grouping columns that are left, which groups, and which measures, to the parts."""

_MEASURE = re.compile(r"\bmeasure\b", re.IGNORECASE)
_AGGREGATES = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"


def may_measure(sql: str) -> bool:
    """Whether a query may call MEASURE: the word is in it."""
    return _MEASURE.search(sql) is not None


_PARTS = re.compile(r"parts \d+ of .+", re.DOTALL)


def parts_in(connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    """Return the parts that the query reads which is answered now, by their names in it."""
    names = [name for (name,) in connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()]
    found = [name for name in names if _PARTS.fullmatch(name)]
    return {name: connection.table(name).to_arrow_table() for name in found}


class Measuring:
    """Rewrites queries that call MEASURE.

    Parameters
    ----------
    connection
        That answers them; it gets tables of parts, and functions.
    program, finishers
        Of all its views.
    fold
        Gives parts of the views.
    shown
        The names of those that may be asked.
    turn
        Entered while parts are read.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        program: Program,
        finishers: Mapping[str, Finisher],
        fold: Fold,
        shown: Collection[str],
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._connection, self._program = connection, program
        self._finishers, self._fold = finishers, fold
        self._shown = {name: finishers[name] for name in shown}
        self._cubes = {cube.name for cube in program.cubes if cube.name in self._shown}
        names = "|".join(re.escape(name) for name in sorted(self._cubes))
        self._cube_names = re.compile(names, re.IGNORECASE) if names else None
        self._aggregates: frozenset[str] = frozenset()
        self._turn = turn
        self.tables: dict[str, pa.Table] = {}
        """The parts that the query of `answering` reads, by their names in it."""
        self.read: set[str] = set()
        """The views of which the last query took parts."""

    @contextmanager
    def answering(self, sql: str) -> Iterator[str]:
        """Let DuckDB answer another query instead of one that has measures: the value of the block.

        Raises
        ------
        UsageError
            For a MEASURE that cannot be computed, and for aggregates of a cube's measures.
        """
        self.read.clear()
        tree = None
        if may_measure(sql) or (self._cube_names is not None and self._cube_names.search(sql)):
            tree = trees.parsed(self._connection, sql)
        if tree is None:
            yield sql
            return
        self._prepare()
        try:
            self._query(tree["statements"][0]["node"], frozenset())
            for call in trees.everything(tree):
                if is_measure(call):
                    raise UsageError(
                        f"{self._said(call)} has no view to be of: none of its SELECT's FROM has such a measure",
                        hint="Name the view itself in FROM, not a sub-query of it: "
                        "SELECT …, MEASURE(x) FROM view GROUP BY ….",
                    )
            if not self.tables:
                yield sql
                return
            try:
                yield trees.printed(self._connection, tree)
            except duckdb.Error as problem:
                # The place is one in a text that nobody wrote.
                raise type(problem)(str(problem).partition("\n\nLINE ")[0]) from None
        finally:
            for table in self.tables:
                self._connection.unregister(table)
            self.tables.clear()

    def _prepare(self) -> None:
        if not self._aggregates:
            self._aggregates = frozenset(name for (name,) in self._connection.sql(_AGGREGATES).fetchall())
            create_finishing(self._connection)

    # --- scopes -----------------------------------------------------------------------------------------------------

    def _query(self, query: Tree, hidden: frozenset[str]) -> None:
        """Rewrite a query, innermost first; names in `hidden` are those of WITH."""
        for entry in query.get("cte_map", {}).get("map", ()):
            name, inner = folded(entry["key"]), entry["value"]["query_node"]
            # A WITH that is not recursive may have the name of the view that it asks.
            self._query(inner, hidden | {name} if inner.get("type") == "RECURSIVE_CTE_NODE" else hidden)
            hidden = hidden | {name}
        parts = {key: value for key, value in query.items() if key != "cte_map"}
        for inner in trees.inner_queries(parts):
            self._query(inner, hidden)
        if query["type"] == "SELECT_NODE":
            self._select(query, hidden)

    def _select(self, select: Tree, hidden: frozenset[str]) -> None:
        mentions = [
            Mention(tree, name, self._shown[name], joins)
            for tree, joins in trees.tables_in(select.get("from_table", {}))
            if folded(tree["table_name"]) not in hidden
            and tree.get("schema_name", "main") == "main"
            and (name := find_name(tree["table_name"], self._shown)) is not None
        ]
        parts = {key: value for key, value in select.items() if key != "cte_map"}
        calls = [each for value in parts.values() for each in trees.own(value) if is_measure(each)]
        for mention in mentions:
            if mention.name in self._cubes:
                refuse_aggregates(parts, mention, self._aggregates)
        if calls and mentions:
            measured = self._measured(calls, mentions)
            if measured is not None:
                check_select(select, measured, self._aggregates, self._said)
                self._rewrite(select, measured, calls)

    def _measured(self, calls: Sequence[Tree], mentions: Sequence[Mention]) -> Mention | None:
        """Return the view of which all measures are."""
        found: dict[int, Mention] = {}
        for call in calls:
            column = self._argument(call)
            name = trees.names_of(column)[-1]
            having = [
                each
                for each in mentions
                if each.is_of(column)
                and find_name(name, [column.name for column in each.finisher.view.columns]) is not None
            ]
            if len(having) > 1:
                raise UsageError(
                    f"{self._said(call)} may be of {' or '.join(each.alias for each in having)}",
                    hint=f"Say of which: MEASURE({having[0].alias}.{name}).",
                )
            if not having:
                known = "; ".join(f"{each.alias}: {', '.join(each.others()) or 'none'}" for each in mentions)
                raise UsageError(f"there is no measure {name} in FROM", hint=f"Measures of {known}.")
            found[id(having[0].tree)] = having[0]
        if len(found) > 1:
            names = " and ".join(each.alias for each in found.values())
            raise UsageError(
                f"a SELECT has measures of one view, and this one of {names}: each row of one would count as often as "
                "it finds rows of the other",
                hint="Ask for the measures of each in a sub-query of its own, and join these.",
            )
        return next(iter(found.values()), None)

    def _argument(self, call: Tree) -> Tree:
        """Return the column of a MEASURE."""
        given = [each["expression"] for each in call.get("arguments", ())]
        if len(given) != 1 or not trees.is_column(given[0]) or call.get("distinct") or _orders(call):
            raise UsageError(
                f"{self._said(call)}: MEASURE takes the name of a measure, and nothing else",
                hint="Compute with it outside: MEASURE(a) / MEASURE(b).",
            )
        column: Tree = given[0]
        return column

    # --- rewriting --------------------------------------------------------------------------------------------------

    def _rewrite(self, select: Tree, measured: Mention, calls: Sequence[Tree]) -> None:
        view = measured.finisher.view
        known = [column.name for column in view.columns]
        asked = [find_name(trees.names_of(self._argument(call))[-1], known) or "" for call in calls]
        for name in dict.fromkeys(asked):
            self._check_measure(measured, name)
        self._name_columns(select)
        by = self._needed(select, measured)
        with self._turn():
            partial = self._fold(measured.name, by, (), list(dict.fromkeys(asked)))
            parts = PartsTable(partial, self._finishers[partial.choice.view].values, measured.alias)
            rows, has_gaps = parts.table(), parts.has_gaps
        table = f"parts {len(self.tables)} of {measured.name}"
        self._connection.register(table, rows)
        self.tables[table] = rows
        self.read.add(measured.name)
        texts = [parts.measure(name, self._nothing(measured, name)) for name in asked]
        is_grouped = bool(select.get("group_expressions")) or select.get("aggregate_handling") == "FORCE_AGGREGATES"
        shows_less = is_grouped and has_gaps
        if shows_less:
            texts.append(f"COALESCE({parts.count} > 0, TRUE)")
        made = trees.expressions(self._connection, texts)
        if shows_less:
            select["having"] = trees.both(select.get("having"), made.pop())
        for call, expression in zip(calls, made, strict=True):
            self._replace(call, expression)
        for each in trees.everything(select):
            if trees.is_column(each) and len(trees.names_of(each)) > 2 and measured.is_of(each):
                each["column_names"] = trees.names_of(each)[-2:]
        tree, alias = measured.tree, measured.alias
        tree.pop("catalog_name", None)
        tree.pop("schema_name", None)
        tree.update(alias=alias, table_name=table, qualified_name={"path": [table]})

    def _check_measure(self, measured: Mention, name: str) -> None:
        if name in measured.grouping:
            raise UsageError(
                f"{name} is a grouping column of {measured.name}, and no measure", hint=f"Write {name} alone."
            )
        plan = plan_fold(measured.finisher, (), [name])
        if not isinstance(plan, FoldPlan):
            raise plan.error()
        untyped = [number for number in plan.numbers if number.type is None]
        if plan.fixed or untyped or measured.finisher.view.columns[0].type is None:
            why = "its numbers are declared without types" if not plan.fixed else "it is no sum over rows"
            raise UsageError(
                f"{measured.name}.{name} cannot be measured in SQL: {why}",
                hint="Declare them; or read the view's rows as they are.",
            )

    def _nothing(self, measured: Mention, name: str) -> str:
        """Return what a measure is over no rows: known where a level of the cube has no grouping columns."""
        for cube in self._program.cubes:
            for level in cube.levels:
                if cube.name == measured.name and not level.columns:
                    finisher = self._finishers[level.view]
                    (row,) = finisher.rows(lambda map: [])
                    column = [each.name for each in finisher.view.columns].index(name)
                    kind = finisher.view.columns[column].type
                    assert kind is not None
                    return literal(Const(row[column], kind))
        return "NULL"

    def _needed(self, select: Tree, measured: Mention) -> list[str]:
        """Return the grouping columns that a SELECT names, perhaps in a query inside of it."""
        named = set[str]()
        for each in trees.everything(select):
            if trees.is_column(each):
                named.update(map(folded, trees.names_of(each)))
            named.update(folded(name) for name in each.get("using_columns", ()))
        return [name for name in measured.grouping if folded(name) in named]

    def _name_columns(self, select: Tree) -> None:
        """Give columns with measures the names that they would have had."""
        for item in select["select_list"]:
            if not item.get("alias") and any(is_measure(each) for each in trees.own(item)):
                item["alias"] = self._said(item)

    def _replace(self, call: Tree, expression: Tree) -> None:
        """Put an expression where a MEASURE stands: its aggregates take only what the call's FILTER takes."""
        condition, alias = call.get("filter"), call.get("alias")
        if condition:
            for each in trees.own(expression):
                if trees.is_call(each) and trees.function_name(each) in self._aggregates:
                    each["filter"] = trees.both(each.get("filter"), condition)
        call.clear()
        call.update(expression)
        if alias:
            call["alias"] = alias

    def _said(self, expression: Tree) -> str:
        return trees.expression_text(self._connection, {**expression, "alias": ""})


def _orders(call: Tree) -> Any:
    return call.get("order_bys", {}).get("orders")
