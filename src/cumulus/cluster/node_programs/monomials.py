"""Terms as sums of products over maps: what a term adds for each combination of entries that it reads.

A term is *polynomial in maps* if it reads them in products, sums and `SUM` only. Then it is a sum of monomials, each a
product of reads and of factors that read nothing, and the change that a delta of a map makes follows by the product
rule (`cumulus.cluster.node_programs.program`). The order of factors stays: what stands to the left binds variables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import count
from typing import TypeAlias

from cumulus.algebra.scope import maps_of, outputs, rename
from cumulus.algebra.terms import (
    AggSum,
    MapRead,
    Number,
    Product,
    Sum,
    Term,
    add,
    factors_of,
    negate,
    product_of,
    split_coefficient,
)

Monomial: TypeAlias = tuple[Term, ...]
"""The factors of a product; those that are no `MapRead` read no map."""


def monomials(term: Term, bound: Collection[str], taken: set[str]) -> list[Monomial]:
    """Return the monomials whose sum over all variables that are not `bound` is that of `term`.

    Parameters
    ----------
    term
        Polynomial in maps.
    bound
        The variables that the event, or what stands to the left, binds.
    taken
        Names that variables of inner sums must not get; those that they get are put in.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> m, n = MapRead("m", "v", (Var("a"), Var("x"))), MapRead("n", "v", (Var("a"),))
    >>> [" * ".join(map(str, each)) for each in monomials(product_of([Var("b"), Sum((m, n))]), "ab", set())]
    ['b * m[a, x].v', 'b * n[a].v']
    """
    if not maps_of(term):
        return [factors_of(term)]
    match term:
        case MapRead():
            return [(term,)]
        case Sum(parts):
            return [each for part in parts for each in monomials(part, bound, taken)]
        case Product(parts):
            found: list[Monomial] = [()]
            known = set(bound)
            for part in parts:
                found = [(*left, *right) for left in found for right in monomials(part, known, taken)]
                known |= set(outputs(part))
            return found
        case AggSum(group, inner):
            own = [name for name in outputs(inner) if name not in group and name not in bound]
            names = {name: _unused(name, taken) for name in own if name in taken}
            taken |= {names.get(name, name) for name in own}
            return monomials(rename(inner, names), bound, taken)
        case _:
            raise AssertionError(f"{term} is not polynomial in maps")


def is_negation(one: Iterable[Monomial], other: Iterable[Monomial]) -> bool:
    """Whether the sum of some monomials is minus that of others.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> is_negation([(Var("a"),), (Var("b"),)], [(negate(Var("b")),), (negate(Var("a")),)])
    True
    """
    return _counted(one) == _counted((negate(product_of(each)),) for each in other)


def _counted(sums: Iterable[Monomial]) -> dict[Term | None, Number]:
    found: dict[Term | None, Number] = {}
    for each in sums:
        number, rest = split_coefficient(product_of(each))
        found[rest] = add(found.get(rest, 0), number)
    return {rest: number for rest, number in found.items() if number}


def _unused(name: str, taken: Collection[str]) -> str:
    return next(each for each in (f"{name}_{number}" for number in count(2)) if each not in taken)
