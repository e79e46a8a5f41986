"""Equality of map definitions up to renaming, by canonical forms.

A definition is a set of keys and a list of factors. Its canonical form numbers the variables in an order that depends
only on structure, so two definitions are equal up to renaming iff their forms are equal; finding a map for a
definition is then one look-up. The order is found by colour refinement; where that leaves a tie (self-joins), the tied
factors are tried in every order, up to a limit beyond which sharing may be missed but nothing goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, permutations, product, zip_longest
from math import factorial, prod
from operator import attrgetter

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import Apply, Cast, Const, Sum, Term, Var, memoised

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
    names, keys
        The definition's own variables, and those that are keys, in canonical order.
    """

    skeleton: str
    values: str
    names: tuple[str, ...]
    keys: tuple[str, ...]

    def text_of(self, factor: Term) -> str:
        """Return a factor over the definition's variables in its numbering."""
        return _filled(factor, {name: f"v{place}" for place, name in enumerate(self.names)})


def is_value(factor: Term) -> bool:
    """Whether a factor is a number of each row, rather than a part of the join or a condition on it."""
    return isinstance(factor, (Var, Apply, Cast, Const, Sum))


def canonical(keys: Iterable[str], factors: Iterable[Term]) -> Canonical:
    """Return the canonical form of `AggSum(keys, product of factors)`.

    Examples
    --------
    >>> from cumulus.algebra.terms import Atom
    >>> one = canonical(["n"], [Atom("r", ("c", "n")), Atom("s", ("c",))])
    >>> two = canonical(["a"], [Atom("s", ("b",)), Atom("r", ("b", "a"))])
    >>> one.skeleton == two.skeleton, two.keys
    (True, ('a',))
    """
    parts = list(factors)
    wanted = frozenset(keys)
    # The join alone decides the numbering, so that columns that add up different numbers of it share their keys' order.
    join = [part for part in parts if not is_value(part)]
    values = [part for part in parts if is_value(part)]
    named = wanted.union(*(variables_of(part) for part in join))
    colours = _refined(tuple(join), wanted, frozenset[str]().union(*(variables_of(part) for part in values)) - named)
    ties: dict[str, list[Term]] = {}
    for part in join:
        ties.setdefault(_filled(part, colours), []).append(part)
    tied = [ties[text] for text in sorted(ties)]
    orders: Iterable[list[Term]]
    if prod(factorial(len(tie)) for tie in tied) <= MAX_ORDERS:
        orders = ([part for tie in choice for part in tie] for choice in product(*(permutations(t) for t in tied)))
    else:
        orders = [[part for tie in tied for part in tie]]
    return min((_numbered(order, values, wanted, colours) for order in orders), key=attrgetter("skeleton", "values"))


@memoised
def _template(part: Term) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a factor's text in pieces, and the variables between them: printing once is enough for all names."""
    names = sorted(variables_of(part))
    mark, text = "z_", str(part)
    while mark in text:
        mark += "z_"
    pieces = str(rename(part, {name: f"{mark}{place}{mark}" for place, name in enumerate(names)})).split(mark)
    return tuple(pieces[::2]), tuple(names[int(place)] for place in pieces[1::2])


def _filled(part: Term, colours: Mapping[str, str]) -> str:
    """Return a factor's text with other names for its variables."""
    pieces, names = _template(part)
    return "".join(chain.from_iterable(zip_longest(pieces, (colours[name] for name in names), fillvalue="")))


def _marked(part: Term, colours: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable of a factor, with the factor's text in which that one is marked, and others are colours."""
    pieces, names = _template(part)
    written = [pieces[0]]
    spans: dict[str, list[tuple[int, int]]] = {}
    end = len(pieces[0])
    for name, piece in zip(names, pieces[1:], strict=True):
        written += (colours[name], piece)
        spans.setdefault(name, []).append((end, end + len(colours[name])))
        end += len(colours[name]) + len(piece)
    text = "".join(written)
    for name, mine in spans.items():
        marked, rest = "", 0
        for start, end in mine:
            marked, rest = f"{marked}{text[rest:start]}here", end
        yield name, marked + text[rest:]


@lru_cache(maxsize=64)  # numbers that are added up of one join come one after the other
def _refined(parts: tuple[Term, ...], keys: frozenset[str], others: frozenset[str]) -> Mapping[str, str]:
    """Colour variables by where they stand, until no colour splits any more."""
    names = sorted(frozenset[str]().union(*(variables_of(part) for part in parts)) | keys | others)
    colours = {name: "k" if name in keys else "x" for name in names}
    for _ in range(len(names)):
        places: dict[str, list[str]] = {name: [] for name in names}
        for part in parts:
            for name, text in _marked(part, colours):
                places[name].append(text)
        described = {name: (colours[name], tuple(sorted(places[name]))) for name in names}
        ranks = {text: index for index, text in enumerate(sorted(set(described.values())))}
        refined = {name: f"{described[name][0][0]}{ranks[described[name]]}" for name in names}
        if len(set(refined.values())) == len(set(colours.values())):
            return refined
        colours = refined
    return colours


def _numbered(join: list[Term], values: list[Term], keys: frozenset[str], colours: Mapping[str, str]) -> Canonical:
    names = dict.fromkeys(name for part in join for name in _template(part)[1])
    names |= dict.fromkeys(sorted(colours.keys() - names.keys(), key=lambda name: (colours[name], name)))
    numbers = {name: f"v{place}" for place, name in enumerate(names)}
    skeleton = " * ".join(_filled(part, numbers) for part in join)
    summed = sorted(_filled(part, numbers) for part in values)
    ordered_keys = tuple(name for name in numbers if name in keys)
    shown = ",".join(numbers[name] for name in ordered_keys)
    return Canonical(f"[{shown}] {skeleton}", " * ".join(summed), tuple(names), ordered_keys)
