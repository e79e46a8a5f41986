"""A query over base tables, as DuckDB parses it: what it groups by, what it adds up, on which conditions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from cumulus.algebra.printing import quoted
from cumulus.catalog.names import folded
from cumulus.catalog.utf8 import half_character
from cumulus.m3.program import Program
from cumulus.views.duckdb_sql.functions import set_utc
from cumulus.views.duckdb_sql.limits import NOTHING_ELSE
from cumulus.views.duckdb_sql.trees import (
    Tree,
    everything,
    expression_text,
    function_name,
    inner_queries,
    is_call,
    is_column,
    names_of,
    own,
    parsed,
    tables_in,
)


class Unanswerable(Exception):  # noqa: N818 - it is an answer, not a failure
    """No view answers, for the reason that it says."""


def connected(program: Program) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB that has the base tables of a program, without rows."""
    connection = duckdb.connect(config=dict(NOTHING_ELSE))
    set_utc(connection)
    for table in program.relations:
        columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
        connection.execute(f"CREATE TABLE {quoted(table.name)} ({columns})")
    return connection


@dataclass(frozen=True, slots=True)
class QueryShape:
    """One SELECT over base tables.

    Parameters
    ----------
    tree
        The statement.
    node
        Its SELECT, without aliases in GROUP BY.
    columns
        Names and types of what it returns.
    groups
        The expressions that it groups by.
    conditions
        The conditions that WHERE joins by AND.
    aggregates
        The names of functions that aggregate.
    is_grouped
        Whether it has groups or aggregates; otherwise it returns a row for each row.
    """

    tree: Tree
    node: Tree
    columns: tuple[tuple[str, str], ...]
    groups: tuple[Tree, ...]
    conditions: tuple[Tree, ...]
    aggregates: frozenset[str]
    is_grouped: bool

    def is_aggregate(self, tree: Tree) -> bool:
        """Whether a tree is the call of an aggregate."""
        return is_call(tree) and function_name(tree) in self.aggregates

    @property
    def aggregate_calls(self) -> list[Tree]:
        """The calls of aggregates in it, each once."""
        found: dict[str, Tree] = {}
        for part in self.outside:
            for each in own(part):
                if self.is_aggregate(each):
                    found.setdefault(same(each), without_alias(each))
        return [*found.values()]

    @property
    def outside(self) -> list[Tree]:
        """All expressions that are computed of groups, or of rows: SELECT, HAVING, ORDER BY."""
        found = [*self.node["select_list"]]
        if "having" in self.node:
            found.append(self.node["having"])
        for modifier in self.node.get("modifiers", []):
            found += [order["expression"] for order in modifier.get("orders", [])]
        return found


def table_names(sql: str) -> frozenset[str]:
    """Return the folded names that a SELECT reads from, WITHs among them; none of what is no SELECT.

    Examples
    --------
    >>> sorted(table_names("WITH w AS (FROM R) SELECT a FROM w JOIN s USING (a)"))
    ['r', 's', 'w']
    """
    if not isinstance(sql, str) or half_character(sql) >= 0:
        return frozenset()
    connection = duckdb.connect(config=dict(NOTHING_ELSE))
    try:
        tree = parsed(connection, sql)
    finally:
        connection.close()
    tables = (each for each in everything(tree or {}) if each.get("type") == "BASE_TABLE")
    return frozenset(folded(str(each.get("table_name", ""))) for each in tables)


def shape_of(
    connection: duckdb.DuckDBPyConnection, program: Program, sql: str, functions: Collection[str] = ()
) -> QueryShape:
    """Return the shape of a query.

    Parameters
    ----------
    connection
        As `connected` makes it.
    functions
        The names of functions of the user, beside the program's.

    Raises
    ------
    Unanswerable
        With the reason, for what is not compared with views.
    """
    try:
        tree = parsed(connection, sql)
        if tree is None:  # before anything runs: a second statement may change things
            connection.extract_statements(sql)
            raise Unanswerable("only a single SELECT is compared with views")
        described = connection.execute(f"DESCRIBE {sql}").fetchall()
    except duckdb.Error as problem:
        raise Unanswerable(f"it is no query over the base tables: {str(problem).splitlines()[0]}") from None
    if tree["statements"][0]["node"]["type"] != "SELECT_NODE":
        raise Unanswerable("only a single SELECT is compared with views, not one made of several")
    node = tree["statements"][0]["node"]
    _check_clauses(node)
    _check_calls(connection, {*functions, *(each.name for each in program.functions)}, tree)
    rows = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'")
    aggregates = frozenset(folded(row[0]) for row in rows.fetchall())
    _plain_names(node, _columns_of(program, node))
    _without_places(tree)
    groups = _groups(node, aggregates)
    has_calls = any(
        is_call(each) and function_name(each) in aggregates for part in _outside(node) for each in own(part)
    )
    shape = QueryShape(
        tree,
        node,
        tuple((str(row[0]), str(row[1])) for row in described),
        groups,
        tuple(conjuncts(node.get("where_clause"))),
        aggregates,
        bool(groups) or has_calls,
    )
    if node.get("having") and not shape.is_grouped:
        raise Unanswerable("it has HAVING without groups")
    return shape


def _outside(node: Tree) -> list[Tree]:
    return [*node["select_list"], node.get("having", {}), *node.get("modifiers", [])]


def _check_clauses(node: Tree) -> None:
    source = node.get("from_table", {})
    if node.get("cte_map", {}).get("map"):
        raise Unanswerable("it has WITH, which is not compared with views")
    if "qualify" in node or "sample" in node or "windows" in node:
        raise Unanswerable("it has QUALIFY, a named window or a sample, which are not compared with views")
    tables = [table for table, _ in tables_in(source)]
    if not tables or any(each.get("type") not in ("BASE_TABLE", "JOIN") for each in _sources(source)):
        raise Unanswerable("its FROM has something else than base tables, which is not compared with views")
    if any(len(table.get("qualified_name", {}).get("path", [""])) > 1 for table in tables):
        raise Unanswerable("it names a table with its schema, which is not compared with views")
    if any("sample" in table or "at_clause" in table or "column_name_alias" in table for table in tables):
        raise Unanswerable("its FROM has a sample or names for columns, which are not compared with views")
    if len(node.get("group_sets", [[]])) > 1:
        raise Unanswerable("it groups in several ways at once, which is not compared with views")
    kinds = {modifier["type"] for modifier in node.get("modifiers", [])}
    if not kinds <= {"DISTINCT_MODIFIER", "ORDER_MODIFIER", "LIMIT_MODIFIER"}:
        raise Unanswerable("its LIMIT is a percentage, which is not compared with views")
    if any("distinct_on_targets" in modifier for modifier in node.get("modifiers", [])):
        raise Unanswerable("it has DISTINCT ON, which is not compared with views")
    if any(next(inner_queries(part), None) for part in _outside(node)):
        raise Unanswerable("it has a sub-query outside of WHERE, which is not compared with views")


def _sources(source: Tree) -> list[Tree]:
    if source.get("type") != "JOIN":
        return [source]
    return [source, *_sources(source["left"]), *_sources(source["right"])]


_WITHOUT_MEANING = ("STAR", "PARAMETER", "WINDOW", "LAMBDA", "POSITIONAL_REFERENCE", "DEFAULT")


def _check_calls(connection: duckdb.DuckDBPyConnection, functions: Collection[str], tree: Tree) -> None:
    own_functions = {folded(each) for each in functions}
    rows = connection.execute(_UNSTABLE)
    unstable = {folded(row[0]) for row in rows.fetchall()} | {"age"}  # of one time: since today
    for each in everything(tree):
        kind = each.get("class")
        if kind == "PARAMETER":
            raise Unanswerable("it has parameters, whose values are not known when it is compared with views")
        if kind == "STAR":
            raise Unanswerable("it has *, and only queries that name their columns are compared with views")
        if kind in _WITHOUT_MEANING:
            raise Unanswerable(f"it has a {str(kind).lower()} expression, which is not compared with views")
        if is_call(each) and function_name(each) in own_functions:
            raise Unanswerable(f"it calls {function_name(each)}, a function of the user's")
        if is_call(each) and function_name(each) in unstable:
            raise Unanswerable(f"it calls {function_name(each)}, whose value changes from call to call")


# Some functions depend on the time zone, which is UTC here, for one type of many: those are stable.
_UNSTABLE = """
    SELECT function_name FROM duckdb_functions() WHERE stability IS NOT NULL GROUP BY function_name
    HAVING bool_or(stability = 'VOLATILE') OR NOT bool_or(stability = 'CONSISTENT')
"""


def _columns_of(program: Program, node: Tree) -> dict[str, list[tuple[str, str]]]:
    """Return what each column name of the tables in FROM may mean: the table's alias and the column."""
    found: dict[str, list[tuple[str, str]]] = {}
    for table, _ in tables_in(node["from_table"]):
        try:
            relation = program.relation(table["table_name"])
        except KeyError:
            raise Unanswerable(f"{table['table_name']} is no base table") from None
        for column in relation.columns:
            alias = table.get("alias") or relation.name
            found.setdefault(folded(column.name), []).append((alias, column.name))
    return found


def _plain_names(node: Tree, columns: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Write columns with their tables; refuse names that are both a column and an alias."""
    aliases = {folded(each["alias"]): each for each in node["select_list"] if each.get("alias")}

    def qualify(part: Any, allowed: set[str]) -> None:
        for each in own(part):
            if not is_column(each):
                continue
            path = [folded(name) for name in names_of(each)]
            if len(path) == 1:
                name = path[0]
                means = columns.get(name, [])
                if name in aliases and not (means and _is_bare(aliases[name], name)):
                    if means or name not in allowed:
                        raise Unanswerable(f"{names_of(each)[0]} may be a column or an alias of the query")
                    continue
                if len(means) == 1:
                    each["column_names"] = list(means[0])
                elif not means:
                    raise Unanswerable(f"{names_of(each)[0]} is no column of the tables that it reads")
                elif name in aliases:
                    raise Unanswerable(f"{names_of(each)[0]} may be a column or an alias of the query")
            elif len(path) == 2:
                for alias, column in columns.get(path[1], []):
                    if folded(alias) == path[0]:
                        each["column_names"] = [alias, column]
            else:
                raise Unanswerable("it has a column with a longer path than table and column")

    for each in node["select_list"]:
        qualify(each, set())
    qualify(node.get("where_clause"), set())
    qualify(node.get("having"), set(aliases))
    for each in node.get("group_expressions", []):
        qualify(each, set(aliases))
    for modifier in node.get("modifiers", []):
        for order in modifier.get("orders", []):
            qualify(order["expression"], set(aliases) if is_column(order["expression"]) else set())


def _is_bare(tree: Tree, name: str) -> bool:
    return is_column(tree) and folded(names_of(tree)[-1]) == name


def _without_places(tree: Any) -> None:
    """Forget where in the text everything stands."""
    for each in everything(tree):
        each.pop("query_location", None)
        each.pop("query_location_length", None)


def _groups(node: Tree, aggregates: frozenset[str]) -> tuple[Tree, ...]:
    selected = node["select_list"]
    aliases = {folded(each["alias"]): each for each in selected if each.get("alias")}
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":
        if any(own_modifier.get("orders") for own_modifier in node.get("modifiers", [])):
            raise Unanswerable("it has GROUP BY ALL with ORDER BY, which is not compared with views")
        groups = [
            each
            for each in selected
            if not any(is_call(part) and function_name(part) in aggregates for part in own(each))
        ]
    else:
        groups = [*node.get("group_expressions", [])]
    found: list[Tree] = []
    for each in groups:
        if each.get("class") == "CONSTANT":
            place = str(each.get("literal", each.get("value", {})).get("text", ""))
            if not place.isdigit() or not 0 < int(place) <= len(selected):
                raise Unanswerable("it groups by a constant")
            each = selected[int(place) - 1]
        elif is_column(each) and len(names_of(each)) == 1 and folded(names_of(each)[0]) in aliases:
            each = aliases[folded(names_of(each)[0])]
        if not any(is_column(part) for part in own(each)):
            raise Unanswerable("it groups by a constant")
        found.append(without_alias(each))
    return tuple(each for place, each in enumerate(found) if same(each) not in map(same, found[:place]))


def without_alias(tree: Tree) -> Tree:
    """Return an expression without its alias."""
    return {name: part for name, part in tree.items() if name != "alias"}


def same(tree: Tree) -> str:
    """Return a text that equal expressions share."""
    return json.dumps(without_alias(tree), sort_keys=True)


def conjuncts(condition: Tree | None) -> list[Tree]:
    """Return the conditions that one joins by AND."""
    if not condition:
        return []
    if condition.get("type") == "CONJUNCTION_AND":
        return [part for child in condition["children"] for part in conjuncts(child)]
    return [condition]


def replaced(tree: Any, change: Callable[[Tree], Tree | None]) -> Any:
    """Return a tree in which parts are replaced, from the outside in; sub-queries stay."""
    if isinstance(tree, list):
        return [replaced(each, change) for each in tree]
    if not isinstance(tree, dict):
        return tree
    changed = change(tree)
    if changed is not None:
        return {**changed, "alias": tree["alias"]} if tree.get("alias") else changed
    return {name: replaced(part, change) for name, part in tree.items()}


def text_of(connection: duckdb.DuckDBPyConnection, tree: Tree) -> str:
    """Return an expression as text that our compiler reads."""

    def change(part: Tree) -> Tree | None:
        if is_call(part) and function_name(part) == "count_star":
            star = {"class": "STAR", "type": "STAR", "relation_name": ""}
            kept = {k: v for k, v in part.items() if k != "qualified_name"}
            counted = {**kept, "function_name": "count", "qualified_name": {"path": ["count"]}}
            return {**counted, "arguments": [{"expression": star}]}
        return None

    return expression_text(connection, replaced(without_alias(tree), change))


_JOINS = {"INNER": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "OUTER": "FULL JOIN", "FULL": "FULL JOIN"}


def source_text(connection: duckdb.DuckDBPyConnection, source: Tree) -> str:
    """Return FROM as text that our compiler reads: DuckDB puts all joins into brackets."""
    if source["type"] == "BASE_TABLE":
        alias = f" AS {quoted(source['alias'])}" if source.get("alias") else ""
        return f"{quoted(source['table_name'])}{alias}"
    left, right = (source_text(connection, source[side]) for side in ("left", "right"))
    if source["right"]["type"] == "JOIN":
        right = f"({right})"
    kind, reference = source.get("join_type", "INNER"), source.get("ref_type", "REGULAR")
    if reference == "CROSS":
        return f"{left} CROSS JOIN {right}"
    if reference != "REGULAR" or kind not in _JOINS:
        raise Unanswerable("it has a join of a kind that is not compared with views")
    if source.get("using_columns"):
        return f"{left} {_JOINS[kind]} {right} USING ({', '.join(map(quoted, source['using_columns']))})"
    return f"{left} {_JOINS[kind]} {right} ON {text_of(connection, source['condition'])}"
