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

from cumulus.algebra.scope import in_text_order, rename, variables_of
from cumulus.algebra.terms import (
    Apply,
    Cast,
    Const,
    Relation,
    Sum,
    Term,
    Var,
    product_of,
)

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
    # The join alone decides the numbering, so that columns that add up different numbers of it share their keys' order.
    join = [part for part in parts if not is_value(part)]
    values = [part for part in parts if is_value(part)]
    colours = _refined(join, wanted, frozenset[str]().union(*(variables_of(part) for part in values)))
    ties: dict[str, list[Term]] = {}
    for part in join:
        ties.setdefault(_signature(part, colours), []).append(part)
    tied = [ties[text] for text in sorted(ties)]
    orders: Iterable[list[Term]]
    if prod(factorial(len(tie)) for tie in tied) <= MAX_ORDERS:
        orders = ([part for tie in choice for part in tie] for choice in product(*(permutations(t) for t in tied)))
    else:
        orders = [[part for tie in tied for part in tie]]
    return min((_numbered(order, values, wanted, colours) for order in orders), key=_rank)


def _rank(form: Canonical) -> tuple[str, str]:
    return form.skeleton, form.values


def _signature(part: Term, colours: Mapping[str, str]) -> str:
    return str(rename(part, {name: colours[name] for name in variables_of(part)}))


def _refined(parts: list[Term], keys: frozenset[str], others: frozenset[str]) -> dict[str, str]:
    """Colour variables by where they stand, until no colour splits any more."""
    names = sorted(frozenset[str]().union(*(variables_of(part) for part in parts)) | keys | others)
    colours = {name: "k" if name in keys else "x" for name in names}
    for _ in range(len(names)):
        places: dict[str, list[str]] = {name: [] for name in names}
        for part in parts:
            for name in variables_of(part):
                places[name].append(_place(part, name, colours))
        described = {name: (colours[name], tuple(sorted(places[name]))) for name in names}
        ranks = {text: index for index, text in enumerate(sorted(set(described.values())))}
        refined = {name: f"{described[name][0][0]}{ranks[described[name]]}" for name in names}
        if len(set(refined.values())) == len(set(colours.values())):
            return refined
        colours = refined
    return colours


def _place(part: Term, name: str, colours: Mapping[str, str]) -> str:
    """Return a factor with the colours of its variables, but for one, which is marked."""
    if isinstance(part, Relation):  # quickly: a table of many columns is asked for each of them
        shown = ["here" if other == name else colours[other] for other in part.variables]
        return f"{str(Relation(part.name, ())).removesuffix(')')}{', '.join(shown)})"
    return str(rename(part, {other: "here" if other == name else colours[other] for other in variables_of(part)}))


def _numbered(join: list[Term], values: list[Term], keys: frozenset[str], colours: Mapping[str, str]) -> Canonical:
    numbers: dict[str, str] = {}
    for part in join:
        for name in in_text_order(part):
            if name not in numbers:
                numbers[name] = f"v{len(numbers)}"
    for name in sorted(set(colours) - set(numbers), key=lambda name: (colours[name], name)):
        numbers[name] = f"v{len(numbers)}"
    skeleton = product_of(rename(part, numbers) for part in join)
    summed = sorted(str(rename(part, numbers)) for part in values)
    ordered_keys = tuple(sorted(keys, key=lambda name: int(numbers[name][1:])))
    shown = ",".join(numbers[name] for name in ordered_keys)
    return Canonical(f"[{shown}] {skeleton}", " * ".join(summed), ordered_keys)
