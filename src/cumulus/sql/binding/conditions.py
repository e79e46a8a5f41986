"""Scalars to the ring: a condition becomes a term that is 1 or 0, a summand a term that adds up.

SQL's rules for NULL are put in here. A condition counts where it is TRUE, so `a = b` of two nullable columns gets a
guard (the calculus takes NULL for an ordinary value), and a sum `a + b` counts only where both are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cumulus.algebra.terms import (
    NULL_VALUE,
    ONE,
    TRUE,
    ZERO,
    Apply,
    Cast,
    Compare,
    Const,
    Scalar,
    Term,
    Var,
    factors_of,
    negate,
    product_of,
    sum_of,
)
from cumulus.catalog.types import Kind
from cumulus.scalars.python_code import COMPARISONS
from cumulus.scalars.typing import Typed, can_fail, is_nullable, is_users, scalar_type, widens
from cumulus.sql.syntax.chains import join_conditions, links_of

MAX_BRANCHES = 16
"""A CASE with more branches stays one scalar: taken apart, its size grows with their square."""

NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
"""Each comparison's opposite."""


def conjuncts(scalar: Scalar) -> list[Scalar]:
    """Split a condition at its ANDs; what all branches of an OR share comes to the front.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number
    >>> from cumulus.algebra.printing import print_scalar
    >>> a, b, c = (Apply("eq", (Var(name), number(1))) for name in "abc")
    >>> both = Apply("or", (Apply("and", (a, b)), Apply("and", (a, c))))
    >>> [print_scalar(part) for part in conjuncts(both)]
    ['a = 1', 'b = 1 OR c = 1']
    """
    if isinstance(scalar, Apply) and scalar.function == "and":
        return [part for arg in scalar.args for part in conjuncts(arg)]
    if isinstance(scalar, Apply) and scalar.function == "or":
        branches = [conjuncts(branch) for branch in links_of("or", scalar)]
        shared = [part for part in dict.fromkeys(branches[0]) if all(part in branch for branch in branches[1:])]
        if shared:
            rests = [[part for part in branch if part not in shared] for branch in branches]
            if not all(rests):
                return shared
            return [*shared, join_conditions("or", [join_conditions("and", rest) for rest in rests])]
    return [scalar]


def is_not_null(scalar: Scalar, variables: Mapping[str, Typed], *, expand: bool = False) -> Term:
    """Return the term that is 1 where a scalar is not NULL.

    It fails where the scalar does, so that an aggregate counts what it adds: see `can_fail`.

    Parameters
    ----------
    expand
        Take CASE apart, as a sum over its branches. Only for numbers that are added up: in a condition of the join a
        sum would pass for a number of the row.
    """
    if not is_nullable(scalar, variables) and not can_fail(scalar, variables):
        return ONE
    match scalar:
        case Apply(function, args) if function in ("add", "sub", "mul", "neg"):
            return product_of(dict.fromkeys(is_not_null(arg, variables, expand=expand) for arg in args))
        case Cast(arg, target) if not is_users(arg) and widens(scalar_type(arg, variables), target):
            return is_not_null(arg, variables, expand=expand)
        case Apply("case", args) if expand and len(args) < MAX_BRANCHES * 2:
            return _cases(scalar, variables, _is_there)
        case _:
            return Compare("<>", scalar, NULL_VALUE)


def _is_there(scalar: Scalar, variables: Mapping[str, Typed]) -> Term:
    return is_not_null(scalar, variables, expand=True)


def condition(scalar: Scalar, variables: Mapping[str, Typed]) -> Term:
    """Return the term that is 1 where a condition is TRUE, 0 where it is FALSE or NULL.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> from cumulus.catalog.types import INTEGER
    >>> maybe = {"a": Typed(INTEGER, True), "b": Typed(INTEGER, True)}
    >>> str(condition(Apply("eq", (Var("a"), Var("b"))), maybe))
    '{a = b} * {a <> NULL}'
    """
    parts: list[Term] = []
    for part in conjuncts(scalar):
        parts += _condition(part, variables)
    return product_of(dict.fromkeys(parts))


def _condition(scalar: Scalar, variables: Mapping[str, Typed]) -> list[Term]:
    match scalar:
        case Const(value, _):
            return [ONE if value is True else ZERO]
        case Apply("not", (Apply("is_null", (inner,)),)):
            return [is_not_null(inner, variables)]
        case Apply("not", (Apply("is_distinct", (left, right)),)):
            return [Compare("=", left, right)]
        case Apply("is_distinct", (left, right)):
            return [Compare("<>", left, right)]
        case Apply("is_null", (inner,)):
            return [Compare("=", inner, NULL_VALUE)] if is_nullable(inner, variables) else [ZERO]
        case Apply("not", (Apply(inner, (left, right)),)) if inner in NEGATED:
            return _condition(Apply(NEGATED[inner], (left, right)), variables)
        case Apply("not", (Apply("not", (inner,)),)):
            return [condition(inner, variables)]
        case Apply(function, (left, right)) if function in COMPARISONS:
            guards = [side for side in (left, right) if is_nullable(side, variables)]
            if function == "eq":
                guards = guards[:1] if len(guards) == 2 else []  # NULL is equal to NULL only
            elif function != "ne":
                guards = []  # an order comparison with NULL is 0 by itself
            return [Compare(COMPARISONS[function], left, right), *(is_not_null(side, variables) for side in guards)]
        case _:
            return [Compare("=", scalar, TRUE)]


def summand(scalar: Scalar, variables: Mapping[str, Typed]) -> Term:
    """Return the term that adds a scalar up: its number, 0 where it is NULL.

    Exact arithmetic becomes ring operations, so that the compiler can take it apart. Floating point stays in one piece
    under `finite`: its rounding depends on the order of operations, and NaN and the infinities are counted apart.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number
    >>> from cumulus.catalog.types import decimal
    >>> money = {"price": Typed(decimal(15, 2), False), "discount": Typed(decimal(15, 2), False)}
    >>> net = Apply("mul", (Var("price"), Apply("sub", (number(1), Var("discount")))))
    >>> str(summand(net, money))
    'price * (1 - discount)'
    """
    found = scalar_type(scalar, variables)
    if found.is_float:
        return Apply("finite", (scalar,))
    if found.kind is Kind.BOOLEAN:
        return condition(scalar, variables)
    match scalar:
        case Const(value, _):
            return ZERO if value is None else scalar
        case Apply("mul", (left, right)) if _is_exact(scalar, variables):
            return product_of([summand(left, variables), summand(right, variables)])
        case Apply("add" | "sub" as function, (left, right)) if _is_exact(scalar, variables):
            guard = _is_there(scalar, variables)
            inner = _known_behind(guard, variables)
            first, second = summand(left, inner), summand(right, inner)
            return product_of([guard, sum_of([first, second if function == "add" else negate(second)])])
        case Apply("neg", (inner,)) if _is_exact(scalar, variables):
            return negate(summand(inner, variables))
        case Apply("case", args) if len(args) < MAX_BRANCHES * 2:
            return _cases(scalar, variables, summand)
        case Apply("coalesce", (first, *rest)) if rest:
            absent = Compare("=", first, NULL_VALUE)
            last = summand(rest[0] if len(rest) == 1 else Apply("coalesce", tuple(rest)), variables)
            return sum_of([summand(first, variables), product_of([absent, last])])
        case _:
            return scalar


def _known_behind(guard: Term, variables: Mapping[str, Typed]) -> Mapping[str, Typed]:
    """Return what is known of variables behind a guard: those that it wants there are, and need no second guard."""
    there = {
        part.left.name
        for part in factors_of(guard)
        if isinstance(part, Compare) and part.right is NULL_VALUE and isinstance(part.left, Var)
    }
    return {**variables, **{name: Typed(variables[name].type, False) for name in there}} if there else variables


def _is_exact(scalar: Apply, variables: Mapping[str, Typed]) -> bool:
    return all(scalar_type(arg, variables).is_exact for arg in scalar.args)


def _cases(
    scalar: Apply, variables: Mapping[str, Typed], branch: Callable[[Scalar, Mapping[str, Typed]], Term]
) -> Term:
    """Return Σ [this condition, and none before it] · branch(value)."""
    terms: list[Term] = []
    before: list[Term] = []
    for index in range(0, len(scalar.args) - 1, 2):
        test, value = scalar.args[index], scalar.args[index + 1]
        terms.append(product_of([*before, condition(test, variables), branch(value, variables)]))
        before.append(negated_condition(test, variables))
    terms.append(product_of([*before, branch(scalar.args[-1], variables)]))
    return sum_of(terms)


def negated_condition(scalar: Scalar, variables: Mapping[str, Typed]) -> Term:
    """Return the term that is 1 where a condition is FALSE or NULL."""
    if not is_nullable(scalar, variables):
        return condition(Apply("not", (scalar,)), variables)
    return Compare("<>", scalar, TRUE)
