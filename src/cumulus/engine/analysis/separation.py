"""Inner sums and ends made independent of where they stand, so that the factors of a product may be put in any order.

An inner sum sees what is bound to the left of it: such a variable becomes part of its group. A variable that it sums
away is its own: it gets another name if something further right, or another inner sum, has that name. The same holds
for an end; it has no group, so what it sees is lifted from itself, which makes it an input.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import TypeGuard

from cumulus.algebra.scope import outputs, own_variable, rename, scalar_inputs
from cumulus.algebra.terms import (
    AggSum,
    Extremum,
    Lift,
    MapRead,
    Product,
    Range,
    Term,
    Var,
    factors_of,
    product_of,
    rebuild,
)


def separated(term: Term, bound: frozenset[str]) -> Term:
    """Return `term` with bound variables of inner sums in their groups, and hidden ones renamed where names clash.

    Ends need what they see as inputs.

    Parameters
    ----------
    bound
        The variables that the trigger binds.

    Examples
    --------
    >>> from cumulus.algebra.terms import MapRead, Var
    >>> inner = AggSum((), MapRead("m", "", (Var("x"),)))
    >>> str(separated(product_of([inner, MapRead("q", "", (Var("x"),))]), frozenset()))
    'SUM[](m[x_1]) * q[x]'
    >>> str(separated(Extremum("MIN", "x", MapRead("m", "", (Var("g"), Var("x")))), frozenset({"g", "x"})))
    'MIN[x_1]((g := g) * m[g, x_1])'
    """
    return _Separation(bound | frozenset(outputs(term))).walk(term, bound)


class _Separation:
    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = set(taken)

    def walk(self, term: Term, bound: frozenset[str]) -> Term:
        match term:
            case Product(parts):
                walked = []
                for part in parts:
                    walked.append(self.walk(part, bound))
                    bound = bound.union(outputs(part))
                return product_of(walked)
            case AggSum(group, inner):
                walked_inner = self._inside(inner, bound, frozenset(group))
                # Also what only sums inside the sum see: they have it in their groups by now.
                seen = [name for name in outputs(walked_inner) if name not in group and name in bound]
                return AggSum((*group, *seen), walked_inner)
            case Extremum():
                own = own_variable(term, self._taken)
                self._taken.add(own.variable)
                walked_inner = self._inside(own.term, bound, frozenset((own.variable,)))
                marks: list[Term] = [Lift(name, Var(name)) for name in outputs(walked_inner) if name in bound]
                return Extremum(own.end, own.variable, product_of([*marks, walked_inner]))
            case _:
                walked_term: Term = rebuild(term, lambda child: self._child(child, bound))
                return walked_term

    def _inside(self, inner: Term, bound: frozenset[str], shown: frozenset[str]) -> Term:
        """Walk the term of a sum or end; what it binds beside `shown` and `bound` is hidden."""
        hidden = [name for name in outputs(inner) if name not in shown and name not in bound]
        names = {name: self._fresh(name) for name in hidden if name in self._taken}
        self._taken.update(hidden)
        return self.walk(rename(inner, names), bound)

    def _child(self, child: Term | Range, bound: frozenset[str]) -> Term | Range:
        if isinstance(child, Range):
            changed: Range = rebuild(child, lambda end: self.walk(end, bound))
            return changed
        return self.walk(child, bound)

    def _fresh(self, name: str) -> str:
        count = 1
        while f"{name}_{count}" in self._taken:
            count += 1
        self._taken.add(f"{name}_{count}")
        return f"{name}_{count}"


def without_marks(term: Term, env: Container[str]) -> Term:
    """Take away the lifts of bound variables from themselves."""
    parts = factors_of(term)
    return product_of(
        part
        for part in parts
        if not (isinstance(part, Lift) and part.variable in env and part.term is Var(part.variable))
    )


def axis_of(term: Term, variable: str, env: Collection[str]) -> int | None:
    """Return the place of the key `variable` in a read whose other keys are bound; None for any other term."""
    if not isinstance(term, MapRead):
        return None
    places = [place for place, key in enumerate(term.keys) if key is Var(variable)]
    others = [key for key in term.keys if key is not Var(variable)]
    if len(places) == 1 and all(is_scalar(key) and all(name in env for name in scalar_inputs(key)) for key in others):
        return places[0]
    return None


def is_scalar(key: Term | Range) -> TypeGuard[Term]:
    """Whether a key of a read is a scalar, not a range."""
    return not isinstance(key, Range)
