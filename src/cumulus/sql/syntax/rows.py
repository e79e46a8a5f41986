"""Row values: `(a, b) = (c, d)` and `(a, b) IN ((1, 2), …)`, taken apart into comparisons of their parts.

DuckDB compares rows part by part from the left, and NULL is a part like any other: equal to itself, greater than
all else. So a comparison of rows is never NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cumulus.catalog.types import BOOLEAN
from cumulus.sql.ast import Expr, Literal, SqlCall
from cumulus.sql.source import SqlText
from cumulus.sql.syntax.chains import join_links

_ORDERS = {"lt": ("lt", False), "le": ("lt", True), "gt": ("gt", False), "ge": ("gt", True)}


def is_row(expr: Expr) -> bool:
    """Whether an expression is `(a, b, …)` or `row(a, …)`."""
    return isinstance(expr, SqlCall) and expr.name == "row"


def compare_rows_by(source: SqlText, name: str, args: tuple[Expr, ...], at: int) -> SqlCall:
    """Return the comparison of two rows by an operator of `cumulus.scalars.registry`.

    Raises
    ------
    BindError
        If only one side is a row, or they have different lengths.
    UnsupportedError
        If the operator is no comparison.
    """
    return replace(_compare(source, name, args, at), shown=(name, args))


def _compare(source: SqlText, name: str, args: tuple[Expr, ...], at: int) -> SqlCall:
    left, right = _parts(source, args[0], args[1], at)
    if name == "eq":
        return _equal(left, right, at)
    if name in ("ne", "is_distinct"):
        return SqlCall("not", (_equal(left, right, at),), at)
    if name not in _ORDERS:
        raise source.unsupported("rows are compared, nothing else", at, feature="row value")
    order, equal = _ORDERS[name]
    ways: list[SqlCall] = []
    for place in range(len(left)):
        before = [_same(mine, yours, at) for mine, yours in zip(left[:place], right[:place], strict=True)]
        ways.append(_joined("and", [*before, _order(order, left[place], right[place], at)], at))
    if equal:
        ways.append(_equal(left, right, at))
    return _joined("or", ways, at)


def row_in(source: SqlText, wanted: Expr, choices: Sequence[Expr], at: int) -> SqlCall:
    """Return `row IN (row, …)`."""
    tests = [_equal(*_parts(source, wanted, choice, at), at) for choice in choices]
    return replace(_joined("or", tests, at), shown=("in", (wanted, *choices)))


def _parts(source: SqlText, left: Expr, right: Expr, at: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    if not (isinstance(left, SqlCall) and isinstance(right, SqlCall) and is_row(left) and is_row(right)):
        raise source.bind_error("a row compares with a row", at, hint="Write as many parts in brackets on both sides.")
    if len(left.args) != len(right.args):
        raise source.bind_error(f"a row of {len(left.args)} parts does not compare with one of {len(right.args)}", at)
    return left.args, right.args


def _same(left: Expr, right: Expr, at: int) -> SqlCall:
    return SqlCall("not", (SqlCall("is_distinct", (left, right), at),), at)


def _equal(left: tuple[Expr, ...], right: tuple[Expr, ...], at: int) -> SqlCall:
    return _joined("and", [_same(mine, yours, at) for mine, yours in zip(left, right, strict=True)], at)


def _joined(name: str, parts: list[SqlCall], at: int) -> SqlCall:
    return join_links(parts, lambda first, second: SqlCall(name, (first, second), at))


def _order(order: str, left: Expr, right: Expr, at: int) -> SqlCall:
    """Return `left < right` (or >) of two parts, never NULL: NULL is the greatest."""
    least, greatest = (left, right) if order == "lt" else (right, left)
    both = SqlCall("coalesce", (SqlCall(order, (left, right), at), Literal(False, BOOLEAN, at)), at)
    up_to_null = SqlCall(
        "and", (SqlCall("not", (SqlCall("is_null", (least,), at),), at), SqlCall("is_null", (greatest,), at)), at
    )
    return SqlCall("or", (both, up_to_null), at)
