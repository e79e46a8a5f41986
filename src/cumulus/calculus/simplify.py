"""Simplification: small passes, each of which keeps the value of the aggregate that it works inside.

A pass gets a term, the variables that are aggregated to (`keys`) and those that are bound from outside (`bound`);
`AggSum(keys, pass(term))` has the value of `AggSum(keys, term)`. `PASSES` is the order in which `simplify` applies
them until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import localcontext
from typing import TypeAlias

from cumulus.algebra.scope import outputs, rename, variables_of
from cumulus.algebra.terms import (
    ONE,
    ZERO,
    AggSum,
    Compare,
    Const,
    Exists,
    Lift,
    Product,
    Sum,
    Term,
    Var,
    factors_of,
    product_of,
    rebuild,
    sum_of,
)
from cumulus.calculus.delta import aggregate
from cumulus.calculus.evaluate import compare
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.types import EXACT

Names: TypeAlias = frozenset[str]
Pass: TypeAlias = Callable[[Term, Names, Names], Term]


def distribute(term: Term, keys: Names, bound: Names) -> Term:
    """Make the term a sum of products, and cancel.

    Examples
    --------
    >>> from cumulus.algebra.terms import Atom, negate
    >>> r, s = Atom("r", ("x",)), Atom("s", ("x",))
    >>> str(distribute(sum_of([product_of([sum_of([r, s]), r]), negate(product_of([s, r]))]), Names(), Names()))
    'r(x) * r(x)'
    """
    return sum_of(monomial.term() for monomial in monomials(term))


def unify(term: Term, keys: Names, bound: Names) -> Term:
    """Put the value of a lift in the place of its variable.

    A lifted key keeps its lift, since it is asked for outside.

    Examples
    --------
    >>> from cumulus.algebra.terms import Atom
    >>> lifted = product_of([Lift("x", Var("e")), Atom("r", ("x", "y"))])
    >>> str(unify(lifted, frozenset("y"), frozenset("e"))), str(unify(lifted, frozenset("xy"), frozenset("e")))
    ('r(e, y)', '(x := e) * r(e, y)')
    """
    return _each_product(term, lambda parts: _unify(parts, keys, bound))


def _unify(parts: tuple[Term, ...], keys: Names, bound: Names) -> Term:
    """Unify lift after lift until none is left to do; those that nobody asks for outside, all at once."""
    while True:
        parts = _unify_hidden(parts, keys, bound)
        changed = _unify_one(parts, keys, bound)
        if changed is None:
            return product_of(parts)
        if not isinstance(changed, Product):
            return changed
        parts = changed.parts


def _unify_hidden(parts: tuple[Term, ...], keys: Names, bound: Names) -> tuple[Term, ...]:
    """Unify the lifts of bound variables to variables that are no keys: an event has one for each of its columns."""
    values: dict[str, str] = {}
    others: list[Term] = []
    for part in parts:
        match part:
            case Lift(variable, Var(value)) if value in bound and not (
                variable in keys or variable in bound or variable in values
            ):
                values[variable] = value
            case _:
                others.append(part)
    return factors_of(product_of(rename(other, values) for other in others)) if values else parts


def _unify_one(parts: tuple[Term, ...], keys: Names, bound: Names) -> Term | None:
    for index, part in enumerate(parts):
        if not isinstance(part, Lift) or not isinstance(part.term, Var):
            continue
        variable, value = part.variable, part.term.name
        others = parts[:index] + parts[index + 1 :]
        if variable in bound or value not in bound:
            if variable in bound and value in bound:
                return product_of([*parts[:index], Compare("=", Var(variable), Var(value)), *parts[index + 1 :]])
            continue
        if not any(variable in variables_of(other) for other in others):
            if variable in keys:
                continue
            return product_of(others)
        renamed = [rename(other, {variable: value}) for other in others]
        return product_of([part, *renamed] if variable in keys else renamed)
    return None


def filter_bound_lifts(term: Term, keys: Names, bound: Names) -> Term:
    """Make a lift of a bound variable the comparison that it is.

    Examples
    --------
    >>> from cumulus.algebra.terms import number
    >>> str(filter_bound_lifts(Lift("e", number(3)), Names(), frozenset("e")))
    '{e = 3}'
    """

    def change(parts: tuple[Term, ...]) -> Term:
        return product_of(
            Compare("=", Var(part.variable), part.term)
            if isinstance(part, Lift) and part.variable in bound and not outputs(part.term)
            else part
            for part in parts
        )

    return _each_product(term, change)


def fold(term: Term, keys: Names, bound: Names) -> Term:
    """Decide comparisons of literals, and of a thing with itself.

    Examples
    --------
    >>> from cumulus.algebra.terms import number
    >>> str(fold(product_of([Compare("<", number(1), number(2)), Compare("=", Var("x"), Var("x"))]), Names(), Names()))
    '1'
    """

    def change(part: Term) -> Term:
        match part:
            case Compare(op, Const(left), Const(right)):
                with localcontext(EXACT):
                    return ONE if compare(op, left, right) else ZERO
            case Compare("=", left, right) if left is right:
                return ONE
            case Compare("<>" | "<" | ">", left, right) if left is right:
                return ZERO
            case Exists(Const(value)):
                return ONE if value else ZERO
            case Sum() | Product() | Lift() | Exists() | AggSum():
                changed: Term = rebuild(part, change)
                return changed
            case _:
                return part

    return change(term)


def _each_product(term: Term, change: Callable[[tuple[Term, ...]], Term]) -> Term:
    if isinstance(term, Sum):
        return sum_of(_each_product(part, change) for part in term.parts)
    return change(factors_of(term))


PASSES: tuple[tuple[str, Pass], ...] = (
    ("distribute", distribute),
    ("unify", unify),
    ("filter bound lifts", filter_bound_lifts),
    ("fold", fold),
)

MAX_ROUNDS = 1000


Trace: TypeAlias = Callable[[str, Term], None]
"""Is told the name of every pass that has changed a term, and the term after it."""


def simplify(term: Term, keys: Names, bound: Names, trace: Trace | None = None) -> Term:
    """Apply the passes until nothing changes; `AggSum(keys, …)` keeps its value.

    Parameters
    ----------
    term
        The term.
    keys
        The variables of the result.
    bound
        The variables that are bound outside.
    trace
        Called with the name and the result of each pass that changed the term.

    Examples
    --------
    >>> def tell(step, term):
    ...     print(f"{step}: {term}")
    >>> from cumulus.algebra.terms import Atom
    >>> lifted = product_of([Lift("x", Var("e")), sum_of([Atom("r", ("x",)), Compare("<>", Var("x"), Var("x"))])])
    >>> simplified = simplify(lifted, Names(), frozenset("e"), tell)
    distribute: (x := e) * r(x) + (x := e) * {x <> x}
    unify: r(e) + {e <> e}
    fold: r(e)
    """
    for _ in range(MAX_ROUNDS):
        before = term
        for name, one in PASSES:
            changed = one(term, keys, bound)
            if trace is not None and changed is not term:
                trace(name, changed)
            term = changed
        if term is before:
            return term
    raise AssertionError(f"simplification does not end: {aggregate(tuple(sorted(keys)), term)}")
