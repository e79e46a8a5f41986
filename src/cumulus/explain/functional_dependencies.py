"""What follows from what in the definition of a map: primary keys, computed variables and equalities.

Used to see that a slice has one entry at most, and to bound how many entries a map can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, product

from cumulus.algebra.scope import outputs, relations_of, rename, variables_of
from cumulus.algebra.terms import AggSum, Atom, Compare, Exists, Lift, Product, Range, Sum, Term, Var, children
from cumulus.catalog.schema import Relation as Table
from cumulus.m3.program import MapDef

MAX_CONJUNCTIONS = 64
"""A definition that is the sum of more joins than these is not looked into."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """Where the variables `needs` are fixed, so are those of `gives`."""

    needs: frozenset[str]
    gives: frozenset[str]


def conjunctions(definition: Term) -> list[tuple[Term, ...]]:
    """Return the joins that a definition adds up, each as its factors; variables of inner sums get names of their own.

    Examples
    --------
    >>> from cumulus.algebra.terms import product_of, sum_of
    >>> r, s = Atom("r", ("x",)), Atom("s", ("x", "y"))
    >>> [[str(factor) for factor in one] for one in conjunctions(AggSum(("x",), product_of([r, sum_of([r, s])])))]
    [['r(x)', 'r(x)'], ['r(x)', 's(x, y)']]
    """
    return joins_of(definition.term if isinstance(definition, AggSum) else definition, (f"'{n}" for n in count(1)))


def joins_of(term: Term, fresh: Iterator[str]) -> list[tuple[Term, ...]]:
    """Return the joins that a term adds up; variables of inner sums get the next ending of `fresh`."""
    match term:
        case Product(parts):
            choices = [joins_of(part, fresh) for part in parts]
            return [tuple(factor for one in choice for factor in one) for choice in product(*choices)]
        case Sum(parts) if relations_of(term):
            return [one for part in parts for one in joins_of(part, fresh)]
        case Exists(inner) if relations_of(inner):
            return joins_of(inner, fresh)
        case AggSum(group, inner) if relations_of(inner):
            ending = next(fresh)
            own = {name: name + ending for name in variables_of(inner) if name not in group}
            return joins_of(rename(inner, own), fresh)
        case _:
            return [(term,)]


def dependencies(factors: Iterable[Term], tables: Mapping[str, Table]) -> list[Dependency]:
    """Return what follows from what in a join.

    Examples
    --------
    >>> from cumulus.catalog.schema import Column
    >>> table = Table("c", (Column("cid"), Column("n")), key=("cid",))
    >>> [found] = dependencies([Atom("c", ("x", "y"))], {"c": table})
    >>> sorted(found.needs), sorted(found.gives)
    (['x'], ['x', 'y'])
    """
    result = []
    parts = list(factors)
    for factor in parts:
        match factor:
            case Atom(name, variables) if name in tables and tables[name].key:
                key = frozenset(variables[place] for place in tables[name].key_positions)
                result.append(Dependency(key, frozenset(variables)))
            case Lift(variable, inner):
                # A variable that stands nowhere else is the nested term's own; for the others it must be the same.
                others = frozenset[str]().union(*(_visible(part) for part in parts if part is not factor))
                needed = variables_of(inner) & (others | frozenset(outputs(inner)))
                result.append(Dependency(needed, frozenset((variable,))))
            case Compare("=", left, right):
                for one, other in ((left, right), (right, left)):
                    if isinstance(one, Var):
                        result.append(Dependency(variables_of(other), frozenset((one.name,))))
            case _:
                pass
    return result


def _visible(term: Term | Range) -> frozenset[str]:
    """Return the variables of a term without those that only an inner sum of it has."""
    match term:
        case AggSum(group, _):
            return frozenset(group)
        case Lift(variable, inner):
            return _visible(inner) | {variable}
        case Product() | Sum() | Exists():
            return frozenset[str]().union(*(_visible(child) for child in children(term)))
        case _:
            return variables_of(term)


def closure(known: Iterable[str], found: Iterable[Dependency]) -> frozenset[str]:
    """Return `known` with all that follows from it."""
    result = frozenset(known)
    waiting = list(found)
    while True:
        new = [each for each in waiting if each.needs <= result and not each.gives <= result]
        if not new:
            return result
        result = result.union(*(each.gives for each in new))


def is_determined(definition: MapDef, bound: Iterable[str], tables: Mapping[str, Table]) -> bool:
    """Whether few entries of a map can agree on the keys `bound`: one for each join that its definition adds up.

    It follows from the primary keys of the base tables; without a definition nothing is known.
    """
    if not definition.definitions:
        return False
    keys, known = {key.name for key in definition.keys}, frozenset(bound)
    for term in definition.definitions:
        joins = conjunctions(term)
        if len(joins) > MAX_CONJUNCTIONS:
            return False
        if not all(keys <= closure(known, dependencies(factors, tables)) for factors in joins):
            return False
    return True
