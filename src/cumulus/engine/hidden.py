"""Inner sums made independent of where they stand, so that the factors of a product may be put in any order.

An inner sum sees what is bound to the left of it: such a variable becomes part of its group. A variable that it sums
away is its own: it gets another name if something further right, or another inner sum, has that name.
"""

from __future__ import annotations

from cumulus.algebra.scope import outputs, rename
from cumulus.algebra.terms import AggSum, Product, Range, Term, product_of, rebuild


def separated(term: Term, bound: frozenset[str]) -> Term:
    """Return `term` with bound variables of inner sums in their groups, and hidden ones renamed where names clash.

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
                seen = [name for name in outputs(inner) if name not in group and name in bound]
                hidden = [name for name in outputs(inner) if name not in group and name not in bound]
                names = {name: self._fresh(name) for name in hidden if name in self._taken}
                self._taken.update(hidden)
                return AggSum((*group, *seen), self.walk(rename(inner, names), bound))
            case _:
                walked_term: Term = rebuild(term, lambda child: self._child(child, bound))
                return walked_term

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
