"""GROUP BY of sqlglot's tree: CUBE, ROLLUP and GROUPING SETS spelled out as sets of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, islice

from sqlglot import exp

from cumulus.sql.ast import Expr
from cumulus.sql.source import SqlText, offset_of
from cumulus.sql.syntax.known_clauses import check_taken

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
