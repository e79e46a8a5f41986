"""What a random view contains: the constructs of the SQL surface, and how many tables it refers to."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.tree import Derived, Expr, Join, Key, Node, Query, Select, SetQuery, TableRef, View, With, children, walk

JOINS = (
    "comma join", "JOIN ON", "USING", "NATURAL", "CROSS JOIN", "self join", "theta join", "LEFT JOIN", "RIGHT JOIN",
    "FULL JOIN",
)  # fmt: skip
CONDITIONS = (
    "AND", "OR", "NOT", "comparison", "BETWEEN", "IN list", "LIKE", "ILIKE", "IS NULL", "IS NOT NULL",
    "IS DISTINCT FROM",
)  # fmt: skip
SCALARS = (
    "CASE", "COALESCE", "NULLIF", "CAST", "arithmetic", "string function", "SUBSTRING", "UPPER/LOWER", "||",
    "date function", "EXTRACT", "DATE_TRUNC", "INTERVAL",
)  # fmt: skip
GROUPS = (
    "GROUP BY column", "GROUP BY expression", "GROUP BY alias", "GROUP BY position", "GROUP BY ALL", "CUBE", "ROLLUP",
    "GROUPING SETS", "GROUPING()", "HAVING", "one group",
)  # fmt: skip
AGGREGATES = (
    "SUM", "COUNT(*)", "COUNT", "AVG", "MIN", "MAX", "COUNT(DISTINCT)", "SUM(DISTINCT)", "AVG(DISTINCT)", "STDDEV_SAMP",
    "STDDEV_POP", "VAR_SAMP", "VAR_POP", "BOOL_AND", "BOOL_OR", "COUNT_IF", "FILTER",
)  # fmt: skip
SUBQUERIES = (
    "scalar sub-query", "EXISTS", "NOT EXISTS", "IN (SELECT)", "NOT IN (SELECT)", "ANY", "ALL", "correlated",
    "sub-query in SELECT", "sub-query in WHERE", "sub-query in HAVING", "sub-query in a sub-query",
)  # fmt: skip
QUERIES = (
    "plain SELECT", "SELECT DISTINCT", "derived table (plain)", "derived table (aggregated)", "CTE", "CTE used twice",
    "UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL", "view over view", "ORDER BY", "LIMIT",
)  # fmt: skip
CONSTRUCTS = (*JOINS, *CONDITIONS, *SCALARS, *GROUPS, *AGGREGATES, *SUBQUERIES, *QUERIES)
_BLOCKS = (Select, SetQuery, With)


def relation_count(view: View) -> int:
    """Return how many references to tables and views stand in all blocks of a view."""
    return sum(isinstance(node, TableRef) and node.origin != "cte" for node in walk(view))


def constructs(view: View) -> frozenset[str]:
    """Return the constructs that a view contains."""
    found = set(_of_nodes(view)) | set(_of_subqueries(view.query, "", 0))
    if view.order:
        found.add("ORDER BY")
    if view.limit:
        found.add("LIMIT")
    assert found <= set(CONSTRUCTS), found - set(CONSTRUCTS)
    return frozenset(found)


def _of_nodes(view: View) -> Iterator[str]:
    for node in walk(view):
        match node:
            case Expr():
                yield from node.marks
            case TableRef(origin="view"):
                yield "view over view"
            case Derived():
                yield f"derived table ({'aggregated' if is_aggregated(node.query) else 'plain'})"
            case Join():
                yield from _of_join(node)
            case SetQuery():
                yield node.op
            case With():
                yield "CTE"
                used = [each.name for each in walk(node) if isinstance(each, TableRef) and each.origin == "cte"]
                if len(used) > len(set(used)):
                    yield "CTE used twice"
            case Select():
                yield from _of_select(node)


def _of_join(join: Join) -> Iterator[str]:
    if join.natural:
        yield "NATURAL"
    if join.using:
        yield "USING"
    if join.kind != "JOIN":
        yield join.kind
    elif join.on:
        yield "JOIN ON"
    if len(join.on) > 1:
        yield "AND"


def _of_select(select: Select) -> Iterator[str]:
    tables = [node.name for source in select.sources for node in _tables(source)]
    if len(tables) > len(set(tables)):
        yield "self join"
    if len(select.sources) > 1:
        yield "comma join"
    if len(select.where) > 1 or len(select.having) > 1:
        yield "AND"
    if select.distinct:
        yield "SELECT DISTINCT"
    if select.having:
        yield "HAVING"
    match select.grouping:
        case "" if is_aggregated(select):
            yield "one group"
        case "":
            yield "plain SELECT"
        case "keys":
            for key, way in zip(select.keys, select.ways(), strict=True):
                yield f"GROUP BY {'column' if way == 'expression' and not key.expr.parts else way}"
        case kind:
            yield {"all": "GROUP BY ALL", "sets": "GROUPING SETS"}.get(kind, kind.upper())


def _tables(source: Node) -> Iterator[TableRef]:
    """Yield the tables of one FROM clause."""
    match source:
        case TableRef():
            yield source
        case Join():
            yield from _tables(source.left)
            yield from _tables(source.right)


def is_aggregated(query: Query) -> bool:
    """Whether (the first block of) a query aggregates."""
    match query:
        case With():
            return is_aggregated(query.body)
        case SetQuery():
            return is_aggregated(query.left)
        case Select():
            return bool(query.grouping) or any(_calls(item.expr) for item in (*query.items, *query.having))


def _calls(node: Node) -> bool:
    """Whether an expression calls an aggregate, sub-queries aside."""
    if isinstance(node, _BLOCKS):
        return False
    return (isinstance(node, Expr) and not set(AGGREGATES).isdisjoint(node.marks)) or any(map(_calls, children(node)))


def _of_subqueries(node: Node, clause: str, depth: int) -> Iterator[str]:
    """Yield where sub-queries stand, and whether they look outside."""
    if isinstance(node, Select):
        for name, parts in (("SELECT", node.items), ("WHERE", node.where), ("HAVING", node.having)):
            for part in parts:
                yield from _of_subqueries(part, name, depth)
        for part in (*node.sources, *node.keys):
            yield from _of_subqueries(part, "", depth)
        return
    for child in children(node):
        if isinstance(node, Expr) and isinstance(child, _BLOCKS):
            if clause:
                yield f"sub-query in {clause}"
            if depth:
                yield "sub-query in a sub-query"
            if is_correlated(child):
                yield "correlated"
            yield from _of_subqueries(child, "", depth + 1)
        else:
            yield from _of_subqueries(child, "" if isinstance(node, (Derived, Key)) else clause, depth)


def is_correlated(query: Query) -> bool:
    """Whether a query names a table that stands outside of it."""
    nodes = list(walk(query))
    inside = {node.alias for node in nodes if isinstance(node, (TableRef, Derived))}
    return any(isinstance(node, Expr) and node.alias and node.alias not in inside for node in nodes)
