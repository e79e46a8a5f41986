"""Terms as sums of monomials, and monomials as connected components.

A monomial is a literal coefficient and a list of factors. A sum of bare scalars, such as `1 - discount`, is one
factor as long as all its variables come from one place: taking it apart would double the maps for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from cumulus.algebra.scope import outputs, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Atom,
    Batch,
    Lift,
    MapRead,
    Number,
    Product,
    Sum,
    Term,
    factors_of,
    multiply,
    number,
    product_of,
    split_coefficient,
)


@dataclass(frozen=True, slots=True)
class Monomial:
    """`coefficient` times the product of `factors`, none of which is a literal or a product."""

    coefficient: Number
    factors: tuple[Term, ...]

    def term(self) -> Term:
        """Return the monomial as a term."""
        return product_of([number(self.coefficient), *self.factors])


def monomials(term: Term) -> list[Monomial]:
    """Return `term` as a sum of monomials; products are distributed over sums that bind variables.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, number, sum_of
    >>> r, s = Atom("r", ("x",)), Atom("s", ("x",))
    >>> scalar = sum_of([number(1), Var("x")])
    >>> [str(m.term()) for m in monomials(product_of([sum_of([r, s]), scalar]))]
    ['r(x) * (1 + x)', 's(x) * (1 + x)']
    """
    if isinstance(term, Sum) and _binds(term):
        return [found for part in term.parts for found in monomials(part)]
    coefficient, rest = split_coefficient(term)
    if not coefficient:
        return []
    if rest is None:
        return [Monomial(coefficient, ())]
    factors = factors_of(rest)
    if not any(isinstance(factor, Sum) and _binds(factor) for factor in factors):
        return [Monomial(coefficient, factors)]
    partial = [Monomial(coefficient, ())]
    for factor in factors:
        choices = [Monomial(1, (factor,))]
        if isinstance(factor, Sum) and _binds(factor):
            choices = monomials(factor)
        partial = [
            Monomial(multiply(left.coefficient, right.coefficient), left.factors + right.factors)
            for left in partial
            for right in choices
        ]
    return partial


def split_scalars(monomial: Monomial, bound: Iterable[str]) -> list[Monomial]:
    """Distribute over scalar sums whose variables do not all come from one atom.

    `bound` have a value already: a sum over one of them and something else is split too.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, sum_of
    >>> r, s = Atom("r", ("x",)), Atom("s", ("y",))
    >>> both = Monomial(1, (r, s, sum_of([Var("x"), Var("y")])))
    >>> [str(m.term()) for m in split_scalars(both, ())]
    ['r(x) * s(y) * x', 'r(x) * s(y) * y']
    """
    fixed = frozenset(bound)
    for index, factor in _to_split(monomial, fixed):
        result: list[Monomial] = []
        for part in factor.parts:
            coefficient, rest = split_coefficient(part)
            middle = () if rest is None else factors_of(rest)
            one = Monomial(
                multiply(monomial.coefficient, coefficient),
                monomial.factors[:index] + middle + monomial.factors[index + 1 :],
            )
            result += split_scalars(one, fixed)
        return result
    return [monomial]


def _to_split(monomial: Monomial, fixed: frozenset[str]) -> Iterator[tuple[int, Sum]]:
    """Yield the scalar sums over which `split_scalars` distributes, each with its place."""
    places = [frozenset(outputs(factor)) - fixed for factor in monomial.factors if is_atom(factor)]
    for index, factor in enumerate(monomial.factors):
        if isinstance(factor, Sum):
            free = variables_of(factor) - fixed
            together = any(free <= place for place in places) and not variables_of(factor) & fixed
            if free and not together:
                yield index, factor


def count_split(monomial: Monomial, bound: Iterable[str]) -> int:
    """Return how many monomials `split_scalars` makes at least, without making them.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var, sum_of
    >>> both = sum_of([Var("x"), Var("y")])
    >>> count_split(Monomial(1, (Atom("r", ("x",)), Atom("s", ("y",)), *[both] * 30)), ())
    1073741824
    """
    return prod(len(sum_.parts) for _, sum_ in _to_split(monomial, frozenset(bound)))


def is_atom(factor: Term) -> bool:
    """Whether a factor binds variables from data: a relation, a batch, a map, or an aggregate of them."""
    if isinstance(factor, AggSum):
        return bool(outputs(factor)) or any(map(is_atom, factors_of(factor.term)))
    return isinstance(factor, (Atom, Batch, MapRead))


def _binds(term: Term) -> bool:
    """Whether a term binds variables; one that does not is a number over variables that others bind."""
    match term:
        case Sum(parts) | Product(parts):
            return any(map(_binds, parts))
        case _:
            return isinstance(term, (Atom, Batch, MapRead, AggSum, Lift))


def components(factors: Iterable[Term], bound: Iterable[str]) -> list[list[Term]]:
    """Split factors into groups that share no unbound variable, each in its original order.

    Examples
    --------
    >>> r, s, t = Atom("r", ("e", "x")), Atom("s", ("x",)), Atom("t", ("e", "y"))
    >>> [[str(f) for f in group] for group in components([r, t, s], ["e"])]
    [['r(e, x)', 's(x)'], ['t(e, y)']]
    """
    known = frozenset(bound)
    groups: list[tuple[frozenset[str], list[tuple[int, Term]]]] = []
    for index, factor in enumerate(factors):
        free = variables_of(factor) - known
        touching = [group for group in groups if group[0] & free]
        merged = (
            free.union(*(group[0] for group in touching)),
            sorted([item for group in touching for item in group[1]] + [(index, factor)], key=lambda item: item[0]),
        )
        groups = [group for group in groups if group not in touching] + [merged]
    groups.sort(key=lambda group: group[1][0][0])
    return [[factor for _, factor in group[1]] for group in groups]
