"""Sub-queries in the select list, HAVING and ORDER BY of a query in parts.

DuckDB takes an aggregate in a sub-query for one of the outer query if it has only columns of the outer query:
``SELECT (SELECT sum(t.x)) FROM t`` has one row. Such a query looks like a filter and is none.
"""

from __future__ import annotations

import duckdb

from cumulus.catalog.names import folded
from cumulus.views.duckdb_sql.trees import Tree, everything, inner_queries
from cumulus_ring.nodes.occurrences import Mentions
from cumulus_ring.nodes.split_text import NotSplitError, QueryBinder, path
from cumulus_ring.nodes.stable_functions import is_aggregate


def check_subqueries(binder: QueryBinder, connection: duckdb.DuckDBPyConnection, top: Tree, mentions: Mentions) -> None:
    """Refuse a query in whose sub-queries an aggregate may be of the outer query.

    Raises
    ------
    NotSplitError
        If there is one.
    """
    tables = {id(part): table for part, table in mentions.mentions}
    for query in inner_queries([top["select_list"], top["having"], top["modifiers"]]):
        parts = list(everything(query))
        calls = [each for each in parts if is_aggregate(connection, each)]
        if not calls or binder.binds(query):
            continue
        aliases = {folded(each.get("alias") or each.get("table_name") or "") for each in parts if _is_source(each)}
        columns = {folded(name) for each in parts if id(each) in tables for name in tables[id(each)].schema.names}
        columns |= {folded(item["alias"]) for each in parts for item in each.get("select_list", ())}
        for call in calls:
            paths = [path(each) for each in everything(call["arguments"]) if path(each)]
            if paths and not any(of[0] in aliases if len(of) > 1 else of[0] in columns for of in paths):
                raise NotSplitError("an aggregate in a sub-query may be one of the outer query")


def _is_source(part: Tree) -> bool:
    return part.get("type") in ("BASE_TABLE", "TABLE_FUNCTION", "EXPRESSION_LIST") or (
        part.get("type") == "SUBQUERY" and "class" not in part
    )
