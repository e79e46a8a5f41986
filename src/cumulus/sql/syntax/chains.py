"""Chains of AND and OR: as trees that are not as deep as the chain is long, and as lists.

Equalities of one thing with literals are a list: `a = 1 OR a = 2 OR …` is `a IN (1, 2, …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from cumulus.algebra.terms import Apply, Const, Scalar
from cumulus.catalog.types import SqlType

Link = TypeVar("Link")
SHORT = 16
"""Chains up to this length lean to the left, as they are written."""


def join_links(links: Sequence[Link], join: Callable[[Link, Link], Link]) -> Link:
    """Return the links of an associative operator, joined in order.

    Examples
    --------
    >>> join_links("abc", lambda a, b: f"({a}{b})")
    '((ab)c)'
    """
    if len(links) > SHORT:
        middle = len(links) // 2
        return join(join_links(links[:middle], join), join_links(links[middle:], join))
    joined = links[0]
    for link in links[1:]:
        joined = join(joined, link)
    return joined


FEWEST = 4
"""As many literals make a list; fewer stay comparisons."""

_Found = tuple[Scalar, SqlType]


def links_of(function: str, scalar: Scalar) -> list[Scalar]:
    """Return what a chain of AND or OR connects.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> a, b, c = map(Var, "abc")
    >>> [link.name for link in links_of("or", Apply("or", (a, Apply("or", (b, c)))))]
    ['a', 'b', 'c']
    """
    found: list[Scalar] = []
    waiting = [scalar]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Apply) and each.function == function:
            waiting += reversed(each.args)
        else:
            found.append(each)
    return found


def join_conditions(function: str, parts: Sequence[Scalar]) -> Scalar:
    """Return conditions joined by AND or OR."""
    return join_links(parts, lambda left, right: Apply(function, (left, right)))


def join_with_lists(function: str, parts: Sequence[Scalar], type_of: Callable[[Scalar], SqlType]) -> Scalar:
    """Return parts joined by AND or OR, where equalities of one thing with literals stand as a list.

    In an OR these are `a = 1` and `a IN (1, 2)`, in an AND their negations. A NULL is no literal here, and literals of
    different types are in different lists: the list compares as each equality did.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number
    >>> from cumulus.algebra.printing import print_scalar
    >>> from cumulus.catalog.types import INTEGER
    >>> tests = [Apply("eq", (Var("a"), number(n))) for n in (3, 1, 2, 1, 4)] + [Apply("is_null", (Var("a"),))]
    >>> print_scalar(join_with_lists("or", tests, lambda scalar: INTEGER))
    'in(a, 3, 1, 2, 4) OR a IS NULL'
    """
    lists: dict[_Found, dict[Scalar, None]] = {}
    told = [_comparison_with_literals(part, type_of, negated=function == "and") for part in parts]
    for each in told:
        if each is not None:
            lists.setdefault(each[0], {}).update(dict.fromkeys(each[1]))
    result: list[Scalar] = []
    for part, each in zip(parts, told, strict=True):
        if each is None or len(lists[each[0]]) < FEWEST:
            result.append(part)
        else:
            among = Apply("in", (each[0][0], *lists[each[0]]))
            result.append(Apply("not", (among,)) if function == "and" else among)
    return join_conditions(function, list(dict.fromkeys(result)))


def _comparison_with_literals(
    scalar: Scalar, type_of: Callable[[Scalar], SqlType], *, negated: bool
) -> tuple[_Found, tuple[Const, ...]] | None:
    """Return what a condition compares with which literals, None if it is another condition."""
    literals: tuple[Scalar, ...]
    match scalar:
        case Apply("not", (Apply("eq" | "in") as inner,)) if negated:
            return _comparison_with_literals(inner, type_of, negated=False)
        case Apply("ne" | "eq" as function, (left, right)) if (function == "ne") == negated:
            subject, literals = (right, (left,)) if isinstance(left, Const) else (left, (right,))
        case Apply("in", (subject, *others)) if not negated:
            literals = tuple(others)
        case _:
            return None
    if isinstance(subject, Const):
        return None
    types = {type_of(literal) for literal in literals}
    known = [literal for literal in literals if isinstance(literal, Const) and literal.value is not None]
    return ((subject, types.pop()), tuple(known)) if len(known) == len(literals) and len(types) == 1 else None
