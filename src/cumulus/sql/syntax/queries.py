"""SELECTs of sqlglot's tree to `cumulus.sql.ast`; expressions are in `expressions.py`.

CUBE, ROLLUP and GROUPING SETS are spelled out as sets of expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import combinations, islice
from typing import Any

from sqlglot import exp

from cumulus.errors import UnsupportedError
from cumulus.sql import ast
from cumulus.sql.ast import Expr
from cumulus.sql.source import SqlText, identifier, offset_of
from cumulus.sql.syntax.advice import QUERIES
from cumulus.sql.syntax.expressions import ExpressionReader
from cumulus.sql.syntax.known_clauses import check_name, check_taken
from cumulus.sql.syntax.names import default_name

# Clauses of sqlglot's Select that have a meaning here; anything else that is set is refused by its name.
_TAKEN = {
    "kind", "hint", "distinct", "expressions", "limit", "operation_modifiers", "from_", "joins", "where", "group",
    "having", "order", "offset", "with_", "laterals", "pivots",
}  # fmt: skip


def query_of(source: SqlText, tree: exp.Expression) -> ast.Query:
    """Return the query that `tree` is; UnsupportedError names a clause that has no place here."""
    match tree:
        case exp.Subquery():
            check_taken(source, tree)
            inner = query_of(source, tree.this)
            if any(tree.args.get(clause) for clause in ("order", "limit", "offset", "joins")):
                raise _refuse(source, tree, "ORDER BY or LIMIT on a parenthesised query")
            return inner
        case exp.Select():
            return _select(source, tree)
        case exp.SetOperation():
            check_taken(source, tree)
            names = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}
            limit, offset = _limits(source, tree)
            return ast.SetOperation(
                op=names[type(tree)],
                all=not tree.args.get("distinct"),
                left=query_of(source, tree.this),
                right=query_of(source, tree.expression),
                order_by=_order_by(source, tree),
                limit=limit,
                offset=offset,
                ctes=_ctes(source, tree),
                limit_at=_limit_at(tree),
                at=offset_of(tree),
            )
        case _:
            raise _refuse(source, tree, type(tree).__name__.upper())


def expression_of(source: SqlText, tree: exp.Expression) -> ast.Expr:
    """Return the expression that `tree` is; UnsupportedError names what has no place here."""
    return ExpressionReader(source, query_of).expression(tree)


def _refuse(source: SqlText, tree: exp.Expression, what: str) -> UnsupportedError:
    return source.unsupported(
        f"{what} is not supported in a view",
        offset_of(tree),
        feature=what,
        hint=QUERIES.get(what, "docs/sql.md says what to write instead."),
    )


def _select(source: SqlText, tree: exp.Select) -> ast.Select:
    for clause, value in tree.args.items():
        if value and clause not in _TAKEN:
            raise _refuse(source, tree, clause.rstrip("_").upper())
    for clause in ("laterals", "pivots", "operation_modifiers"):
        if tree.args.get(clause):
            raise _refuse(source, tree, clause.upper())
    distinct = tree.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise _refuse(source, tree, "DISTINCT ON")
    sources: list[ast.FromItem] = []
    if tree.args.get("from_") is not None:
        sources.append(_from_item(source, tree.args["from_"].this))
    for join in tree.args.get("joins") or ():
        _join(source, sources, join)
    where = tree.args.get("where")
    having = tree.args.get("having")
    group = tree.args.get("group")
    group_all = group is not None and bool(group.args.get("all"))
    grouped, sets = (None, None) if group is None else group_by(source, group, partial(expression_of, source))
    order = tree.args.get("order")
    order_all = order is not None and _is_all(order)
    limit, offset = _limits(source, tree)
    return ast.Select(
        items=tuple(_item(source, item) for item in tree.expressions),
        sources=tuple(sources),
        where=None if where is None else expression_of(source, where.this),
        group_by=grouped,
        grouping_sets=sets,
        having=None if having is None else expression_of(source, having.this),
        order_by=() if order_all else _order_by(source, tree),
        limit=limit,
        offset=offset,
        distinct=distinct is not None,
        ctes=_ctes(source, tree),
        group_all=group_all,
        order_all=order_all,
        limit_at=_limit_at(tree),
        at=offset_of(tree),
    )


def _item(source: SqlText, item: exp.Expression) -> ast.SelectItem:
    if isinstance(item, exp.Alias):
        return ast.SelectItem(expression_of(source, item.this), identifier(item.args["alias"]), aliased=True)
    expr = expression_of(source, item)
    return ast.SelectItem(expr, default_name(expr))


def _from_item(source: SqlText, tree: exp.Expression) -> ast.FromItem:
    if isinstance(tree, (exp.Table, exp.Subquery)):
        check_taken(source, tree)
    match tree:
        case exp.Table():
            if tree.args.get("db") or tree.args.get("catalog"):
                raise _refuse(source, tree, "a schema in front of a table's name")
            if not isinstance(tree.this, exp.Identifier):
                raise _refuse(source, tree, "a function in FROM")
            if tree.args.get("alias") and tree.args["alias"].columns:
                raise _refuse(source, tree, "column names in the alias of a table")
            check_name(source, tree.this)
            name = identifier(tree.this)
            item: ast.FromItem = ast.TableRef(name, _alias(tree) if tree.args.get("alias") else name, offset_of(tree))
        case exp.Subquery(this=exp.Table()) if not tree.args.get("alias"):
            item = _from_item(source, tree.this)
        case exp.Subquery():
            columns = tree.args["alias"].columns if tree.args.get("alias") else []
            item = ast.Derived(
                query_of(source, tree.this),
                _alias(tree) if tree.args.get("alias") else "",
                tuple(identifier(column) for column in columns),
                offset_of(tree),
            )
        case exp.Paren():
            item = _from_item(source, tree.this)
        case exp.Select() | exp.SetOperation():
            raise source.syntax_error(
                "not valid SQL: a query in FROM without brackets",
                offset_of(tree),
                hint="Write FROM (SELECT …) AS name, or one FROM only.",
            )
        case _:
            raise _refuse(source, tree, f"{type(tree).__name__} in FROM")
    items: list[ast.FromItem] = [item]
    for join in tree.args.get("joins") or ():
        _join(source, items, join)
    return reduce(lambda left, right: ast.Join(left, right, kind="cross", at=offset_of(tree)), items)


def _alias(tree: exp.Expression) -> str:
    return identifier(tree.args["alias"].this)


def _join(source: SqlText, sources: list[ast.FromItem], tree: exp.Join) -> None:
    """Add one join to `sources`: a comma starts a new item, JOIN extends the last one."""
    check_taken(source, tree)
    right = _from_item(source, tree.this)
    side = str(tree.args.get("side") or "").lower()
    kind = str(tree.args.get("kind") or "").lower()
    method = str(tree.args.get("method") or "").lower()
    on = tree.args.get("on")
    using = tuple(identifier(column) for column in tree.args.get("using") or ())
    if kind in ("semi", "anti", "straight_join", "positional") or method in ("asof", "positional"):
        raise _refuse(source, tree, f"{(method or kind).upper()} JOIN")
    if not (side or kind or method or on is not None or using):
        sources.append(right)
        return
    if not sources:
        raise source.syntax_error("FROM is missing", offset_of(tree), hint="Write FROM t JOIN u …")
    left = sources.pop()
    sources.append(
        ast.Join(
            left,
            right,
            kind=side or ("cross" if kind == "cross" else "inner"),
            on=None if on is None else expression_of(source, on),
            using=using,
            natural=method == "natural",
            at=offset_of(tree),
        )
    )


def _is_all(order: exp.Expression) -> bool:
    """Whether ORDER BY is ORDER BY ALL, upwards."""
    items = order.expressions
    return (
        len(items) == 1
        and isinstance(items[0].this, exp.Var)
        and str(items[0].this.this).upper() == "ALL"
        and not items[0].args.get("desc")
        and not items[0].args.get("nulls_first")
    )


def _order_by(source: SqlText, tree: exp.Expression) -> tuple[ast.OrderBy, ...]:
    order = tree.args.get("order")
    if order is None:
        return ()
    items: list[ast.OrderBy] = []
    for item in order.expressions:
        check_taken(source, item)
        # DuckDB puts NULLs last unless told otherwise, in both directions, and so does its dialect in sqlglot.
        flags = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
        items.append(ast.OrderBy(expression_of(source, item.this), *flags))
    return tuple(items)


def _limits(source: SqlText, tree: exp.Expression) -> tuple[int | None, int]:
    numbers: list[Any] = []
    for clause in ("limit", "offset"):
        node = tree.args.get(clause)
        if node is None:
            numbers.append(None if clause == "limit" else 0)
            continue
        options = node.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise _refuse(source, tree, "LIMIT with PERCENT or WITH TIES")
        given = node.args["count"] if isinstance(node, exp.Fetch) else node.expression
        value = expression_of(source, given)
        if not isinstance(value, ast.Literal) or not isinstance(value.value, int) or value.value < 0:
            raise source.bind_error(f"{clause.upper()} must be a whole number", offset_of(tree))
        numbers.append(value.value)
    return numbers[0], numbers[1]


def _limit_at(tree: exp.Expression) -> int:
    """Return the offset of the number behind LIMIT, or behind OFFSET where that stands alone."""
    places = [offset_of(node) for node in (tree.args.get("limit"), tree.args.get("offset")) if node is not None]
    return next((at for at in places if at >= 0), offset_of(tree))


def _ctes(source: SqlText, tree: exp.Expression) -> tuple[ast.NamedQuery, ...]:
    clause = tree.args.get("with_")
    if clause is None:
        return ()
    if clause.args.get("recursive"):
        raise _refuse(source, tree, "WITH RECURSIVE")
    return tuple(
        ast.NamedQuery(_alias(cte), query_of(source, cte.this), tuple(identifier(c) for c in cte.args["alias"].columns))
        for cte in clause.expressions
    )


MAX_SETS = 256
"""How many grouping sets a view may have: each is a statement of every event. A CUBE of n columns has 2ⁿ."""

Read = Callable[[exp.Expression], Expr]
"""What reads an expression."""


def group_by(
    source: SqlText, group: exp.Expression, read: Read
) -> tuple[tuple[Expr, ...], tuple[tuple[Expr, ...], ...] | None]:
    """Return the expressions of GROUP BY, and its grouping sets if it has any but the one of plain GROUP BY."""
    check_taken(source, group)
    items = list(group.expressions)
    _check_words(source, group, items)
    sets: list[tuple[Expr, ...]] = [()]
    plain = True
    for item in items:
        plain = plain and not isinstance(item, (exp.Cube, exp.Rollup, exp.GroupingSets, exp.Tuple))
        more = list(islice(_sets(item, read), MAX_SETS + 1))
        if len(sets) * len(more) > MAX_SETS:
            raise source.unsupported(
                f"GROUP BY makes more than {MAX_SETS} grouping sets",
                offset_of(group),
                feature="wide CUBE",
                hint="Name the sets that are needed with GROUPING SETS, or write several views.",
            )
        sets = [tuple(dict.fromkeys((*one, *other))) for one in sets for other in more]
    every = tuple(dict.fromkeys(expr for one in sets for expr in one))
    return every, None if plain else tuple(sets)


def _check_words(source: SqlText, group: exp.Expression, items: list[exp.Expression]) -> None:
    """Refuse what other systems write here and DuckDB does not, such as WITH ROLLUP: sqlglot reads it all."""
    problem = ""
    if group.args.get("all") and items:
        problem = "ALL beside other expressions"
    elif group.args.get("all") is False:
        problem = "DISTINCT"
    elif any(group.args.get(clause) for clause in ("cube", "rollup", "grouping_sets")):
        problem = "CUBE, ROLLUP or GROUPING SETS behind the expressions"
    elif any(isinstance(item, (exp.Cube, exp.Rollup)) and not item.expressions for item in items):
        problem = "CUBE or ROLLUP without expressions"
    if problem:
        at = offset_of(group)
        raise source.unsupported(
            f"{problem} in GROUP BY is not supported",
            offset_of(group.parent) if at < 0 and isinstance(group.parent, exp.Expression) else at,
            feature=f"{problem} in GROUP BY",
            hint="Write ROLLUP (a, b), CUBE (a, b) or GROUPING SETS, or the expressions alone.",
        )


def _sets(item: exp.Expression, read: Read) -> Iterator[tuple[Expr, ...]]:
    match item:
        case exp.Cube():
            parts = [_one(part, read) for part in item.expressions]
            for size in range(len(parts), -1, -1):
                for chosen in combinations(parts, size):
                    yield tuple(expr for part in chosen for expr in part)
        case exp.Rollup():
            parts = [_one(part, read) for part in item.expressions]
            for size in range(len(parts), -1, -1):
                yield tuple(expr for part in parts[:size] for expr in part)
        case exp.GroupingSets():
            for part in item.expressions:
                yield from _sets(part, read)
        case _:
            yield _one(item, read)


def _one(item: exp.Expression, read: Read) -> tuple[Expr, ...]:
    if isinstance(item, exp.Tuple):
        return tuple(read(part) for part in item.expressions)
    if isinstance(item, exp.Paren):
        return _one(item.this, read)
    return (read(item),)
