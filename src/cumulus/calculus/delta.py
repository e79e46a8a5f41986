"""Deltas of calculus terms.

The delta of a term for a change is what must be added to the term's old value to get its new one. `delta` is the
only place that knows this; the compiler decides what to do with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from cumulus.algebra.scope import ordered, outputs, relations_of
from cumulus.algebra.terms import (
    ZERO,
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Extremum,
    Lift,
    MapExtremum,
    MapRead,
    Product,
    Sum,
    Term,
    Var,
    negate,
    number,
    product_of,
    sum_of,
)
from cumulus.errors import ArityError


@dataclass(frozen=True, slots=True)
class RelationChange:
    """A change of one relation: a single event with bound variables, or a batch.

    Parameters
    ----------
    relation
        Whose rows change.
    sign
        +1 or -1 for an event; 0 for a batch, whose multiplicities carry their own signs.
    variables
        The event's variables, bound in the delta; empty for a batch.
    derived
        Relations that are computed from `relation` and so change with it: their delta is their `Batch`.
    lookups
        Those of them that have one row for every key: they can be read after the change too (`after`).
    """

    relation: str
    sign: int
    variables: tuple[str, ...] = ()
    derived: frozenset[str] = frozenset()
    lookups: frozenset[str] = frozenset()

    def touches(self, term: Term) -> bool:
        """Whether `term` mentions what changes."""
        names = relations_of(term)
        return self.relation in names or not names.isdisjoint(self.derived)


AFTER = "'"
"""Marks a derived relation that is read after the change."""


def after(atom: Atom) -> Atom:
    """Return the atom of a derived relation as it is after the change."""
    return Atom(atom.name + AFTER, atom.variables)


def delta(term: Term, change: RelationChange) -> Term:
    """Return the change in a term without map reads that `change` causes.

    It is free of the relation whenever `term` mentions it once.

    Raises
    ------
    ArityError
        If the change and the relation disagree on the number of columns.

    References
    ----------
    Koch, "Incremental query evaluation in a ring of databases", PODS 2010, §4.

    Examples
    --------
    >>> orders = Atom("orders", ("cid", "oid"))
    >>> str(delta(orders, RelationChange("orders", -1, ("c", "o"))))
    '-(cid := c) * (oid := o)'
    >>> str(delta(orders, RelationChange("customers", +1, ("c",))))
    '0'
    """
    if not change.touches(term):
        return ZERO
    match term:
        case Atom(name, variables):
            return _of_relation(name, variables, change)
        case Sum(parts):
            return sum_of(delta(part, change) for part in parts)
        case AggSum(group, inner):
            return aggregate(group, delta(inner, change))
        case Product(parts):
            head, tail = parts[0], product_of(parts[1:])
            d_head, d_tail = delta(head, change), delta(tail, change)
            if isinstance(head, Atom) and head.name in change.lookups:
                return sum_of([product_of([d_head, tail]), product_of([after(head), d_tail])])
            # The third product is what makes self-joins right.
            return sum_of([product_of([d_head, tail]), product_of([head, d_tail]), product_of([d_head, d_tail])])
        case Lift(variable, inner):
            d_inner = delta(inner, change)
            new: Term = Lift(variable, sum_of([inner, d_inner]))
            return product_of([_domain(outputs(inner), d_inner), sum_of([new, negate(term)])])
        case Exists(inner):
            d_inner = delta(inner, change)
            new = Exists(sum_of([inner, d_inner]))
            return product_of([_domain(outputs(inner), d_inner), sum_of([new, negate(term)])])
        case Const() | Var() | Apply() | Cast() | Compare() | Batch() | MapRead() | MapExtremum():
            return ZERO
        case Extremum():
            raise AssertionError(f"an end has no delta: keep its term in a map before {term} is derived")
        case _:
            assert_never(term)


@lru_cache(maxsize=64)  # a table of hundreds of columns is asked for by one number of it after the other
def _of_relation(name: str, variables: tuple[str, ...], change: RelationChange) -> Term:
    if change.sign == 0 or name in change.derived:
        return Batch(name, variables)
    if len(variables) != len(change.variables):
        raise ArityError(f"{name} has {len(variables)} columns, the event {len(change.variables)}", relation=name)
    bindings = [Lift(mine, Var(theirs)) for mine, theirs in zip(variables, change.variables, strict=True)]
    return product_of([number(change.sign), *bindings])


def _domain(names: tuple[str, ...], changed: Term) -> Term:
    """Return where a delta that binds `names` is not zero: a term that binds them, too, and is 1 or 0.

    A correlated term, which binds nothing, is not everywhere changed either: there the domain is a condition.
    """
    return ZERO if changed is ZERO else Exists(aggregate(names, changed))


def aggregate(group: tuple[str, ...], term: Term) -> Term:
    """Return AggSum(group, term), or what it is when it does nothing.

    Examples
    --------
    >>> str(aggregate(("x",), Atom("r", ("x",))))
    'r(x)'
    """
    if term is ZERO:
        return ZERO
    if isinstance(term, AggSum) and set(group) <= set(term.group):
        return aggregate(group, term.term)
    if _binds_exactly(term, frozenset(group)):
        return term
    return AggSum(ordered(group), term)


def _binds_exactly(term: Term, names: frozenset[str]) -> bool:
    """Whether every summand of `term` binds `names` and nothing else, so that projecting to them does nothing."""
    if isinstance(term, Sum):
        return all(_binds_exactly(part, names) for part in term.parts)
    return frozenset(outputs(term)) == names
