"""Equalities that are looked up: what the event says binds a key, or the value of an expression that is made a key.

In `b.x % 10 = s.key` an event of b says the key of s. An event of s says the value of an expression over b: the map of
b that it meets gets that value as a key. Otherwise every entry would be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Compare, Lift, Term, Var
from cumulus.catalog.types import SqlType
from cumulus.compiler.statements.factors import Names
from cumulus.scalars.typing import Typed, scalar_type


def bind_by_equalities(
    factors: Iterable[Term],
    there: Names,
    free: Names,
    types: Mapping[str, Typed],
    fresh: Callable[[], str] | None,
) -> tuple[list[Term], list[Lift]]:
    """Return factors with lifts for equalities between what has a value and what is looked for.

    Parameters
    ----------
    there
        Variables that have a value.
    free
        Variables of what is looked for.
    types
        Those of variables; an equality of types whose equal values are not one value stays as it is.
    fresh
        Names a variable for an expression that is made a key; None if none may be.

    Returns
    -------
    factors, inside
        `inside` are those of the factors that say what a new key is: they belong to what is looked for.

    Examples
    --------
    >>> from cumulus.algebra.terms import Apply, number
    >>> from cumulus.catalog.types import BIGINT
    >>> types = {name: Typed(BIGINT, False) for name in "xy"}
    >>> remainder = Compare("=", Apply("mod", (Var("x"), number(10))), Var("y"))
    >>> for there, free in (("x", "y"), ("y", "x")):
    ...     found = bind_by_equalities([remainder], frozenset(there), frozenset(free), types, lambda: "k")
    ...     print([[str(factor) for factor in part] for part in found])
    [['(y := mod(x, 10))'], []]
    [['(y := mod(x, 10))'], ['(y := mod(x, 10))']]
    """
    known, result, inside = set(there), list(factors), list[Lift]()
    are_bound = False  # first all variables that get a value: what a new key is made of must not be one of them
    while True:
        for place, factor in enumerate(result):
            if not isinstance(factor, Compare) or factor.op != "=":
                continue
            for given, wanted in ((factor.left, factor.right), (factor.right, factor.left)):
                sides = variables_of(given), variables_of(wanted)
                if not (all(sides) and sides[0] <= known and sides[1] <= free - known and _alike(given, wanted, types)):
                    continue
                if isinstance(wanted, Var):
                    result[place] = Lift(wanted.name, given)
                    known.add(wanted.name)
                    break
                if fresh is not None and are_bound:
                    is_name = isinstance(given, Var) and all(lift.variable != given.name for lift in inside)
                    name = given.name if isinstance(given, Var) and is_name else fresh()
                    inside.append(Lift(name, wanted))
                    result[place : place + 1] = [inside[-1]] if is_name else [Lift(name, given), inside[-1]]
                    break
            else:
                continue
            break
        else:
            if are_bound:
                return result, inside
            are_bound = True


def _alike(left: Term, right: Term, types: Mapping[str, Typed]) -> bool:
    """Whether equal values of two scalars are one value, so that the one finds the other as a key."""
    if not variables_of(left) | variables_of(right) <= types.keys():
        return False
    one, other = _type(left, types), _type(right, types)
    return one is not None and other is not None and (one == other or (one.is_integer and other.is_integer))


def _type(scalar: Term, types: Mapping[str, Typed]) -> SqlType | None:
    try:
        return scalar_type(scalar, types)
    except TypeError:
        return None
