"""Equality of map definitions up to renaming, by canonical forms.

A definition is a set of keys and a list of factors. Its canonical form numbers the variables in an order that depends
only on structure, so two definitions are equal up to renaming iff their forms are equal; finding a map for a
definition is then one look-up. The order is found by colour refinement; where that leaves a tie (self-joins), the tied
factors are tried in every order, up to a limit beyond which sharing may be missed but nothing goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial, prod

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import Apply, Cast, Compare, Const, Lift, Sum, Term, Var, product_of

MAX_ORDERS = 5040
"""How many orders of tied factors are tried."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """A definition up to renaming.

    Parameters
    ----------
    skeleton
        The form of the join and its conditions, with the keys: what decides which entries there are.
    values
        The form of the numbers that are added up, over the same numbering.
    keys
        The definition's own key variables, in canonical order.
    """

    skeleton: str
    values: str
    keys: tuple[str, ...]


def is_value(factor: Term) -> bool:
    """Whether a factor is a number of each row, rather than a part of the join or a condition on it."""
    return isinstance(factor, (Var, Apply, Cast, Const, Sum))


def canonical(keys: Iterable[str], factors: Iterable[Term]) -> Canonical:
    """Return the canonical form of `AggSum(keys, product of factors)`.

    Examples
    --------
    >>> from cumulus.algebra.terms import Relation
    >>> one = canonical(["n"], [Relation("r", ("c", "n")), Relation("s", ("c",))])
    >>> two = canonical(["a"], [Relation("s", ("b",)), Relation("r", ("b", "a"))])
    >>> one.skeleton == two.skeleton, two.keys
    (True, ('a',))
    """
    parts = list(factors)
    wanted = frozenset(keys)
    colours = _refined(parts, wanted)
    signed = sorted(
        ((is_value(part), _signature(part, colours), index) for index, part in enumerate(parts)),
        key=lambda item: item[:2],
    )
    ties: list[list[int]] = []
    previous: tuple[bool, str] | None = None
    for value, text, index in signed:
        if previous == (value, text):
            ties[-1].append(index)
        else:
            ties.append([index])
        previous = (value, text)
    orders: Iterable[tuple[int, ...]]
    if prod(factorial(len(tie)) for tie in ties) <= MAX_ORDERS:
        orders = (tuple(i for tie in choice for i in tie) for choice in product(*(permutations(t) for t in ties)))
    else:
        orders = [tuple(index for tie in ties for index in tie)]
    return min((_numbered([parts[index] for index in order], wanted, colours) for order in orders), key=_rank)


def _rank(form: Canonical) -> tuple[str, str]:
    return form.skeleton, form.values


def _signature(part: Term, colours: Mapping[str, str]) -> str:
    return str(rename(part, {name: colours[name] for name in variables_of(part)}))


def _refined(parts: list[Term], keys: frozenset[str]) -> dict[str, str]:
    """Colour variables by where they stand, until no colour splits any more."""
    names = sorted(frozenset[str]().union(*(variables_of(part) for part in parts)) | keys)
    colours = {name: "k" if name in keys else "x" for name in names}
    for _ in range(len(names)):
        places: dict[str, list[str]] = {name: [] for name in names}
        for part in parts:
            for name in variables_of(part):
                marked = {other: colours[other] for other in variables_of(part)}
                marked[name] = "here"
                places[name].append(str(rename(part, marked)))
        described = {name: (colours[name], tuple(sorted(places[name]))) for name in names}
        ranks = {text: index for index, text in enumerate(sorted(set(described.values())))}
        refined = {name: f"{described[name][0][0]}{ranks[described[name]]}" for name in names}
        if len(set(refined.values())) == len(set(colours.values())):
            return refined
        colours = refined
    return colours


def _numbered(parts: list[Term], keys: frozenset[str], colours: Mapping[str, str]) -> Canonical:
    numbers: dict[str, str] = {}
    for part in parts:
        for name in _in_order(part):
            if name not in numbers:
                numbers[name] = f"v{len(numbers)}"
    for name in sorted(keys - set(numbers), key=lambda name: colours[name]):
        numbers[name] = f"v{len(numbers)}"
    skeleton = product_of(rename(part, numbers) for part in parts if not is_value(part))
    values = product_of(rename(part, numbers) for part in parts if is_value(part))
    ordered_keys = tuple(sorted(keys, key=lambda name: int(numbers[name][1:])))
    shown = ",".join(numbers[name] for name in ordered_keys)
    return Canonical(f"[{shown}] {skeleton}", str(values), ordered_keys)


def _in_order(part: Term) -> tuple[str, ...]:
    """Return the variables of a factor in the order in which its text names them."""
    from cumulus.algebra.terms import AggSum, Batch, Relation, children

    match part:
        case Relation(_, variables) | Batch(_, variables):
            return variables
        case Var(name):
            return (name,)
        case Lift(variable, inner):
            return (variable, *_in_order(inner))
        case AggSum(group, inner):
            return (*group, *_in_order(inner))
        case Compare() | Apply() | Cast() | Sum():
            return tuple(name for child in children(part) for name in _in_order(child))  # type: ignore[arg-type]
        case _:
            return tuple(name for child in children(part) for name in _in_order(child))  # type: ignore[arg-type]
