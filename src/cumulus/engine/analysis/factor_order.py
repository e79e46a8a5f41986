"""In which order the factors of a product are written, so that each finds its variables bound."""

from __future__ import annotations

from collections.abc import Collection

from cumulus.algebra.scope import inputs, outputs, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Batch,
    Cast,
    Compare,
    Const,
    Exists,
    Lift,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    children,
    memoised,
)
from cumulus.m3.infer import nodes
from cumulus.scalars.python_code import may_raise

Names = frozenset[str]
Candidate = tuple[int, Term]
"""A factor with its place in the product."""


def next_factor(pending: list[Candidate], bound: Collection[str], batch: Collection[str]) -> Candidate | None:
    """Return the factor to write next, None if none of those left finds its variables bound.

    Parameters
    ----------
    pending
        The factors that are left, in the order of the product.
    bound
        The variables that have a value.
    batch
        The relation whose net change the trigger is fired with, if any.
    """
    return min(
        (candidate for candidate in pending if _is_ready(candidate, pending, bound)),
        key=lambda candidate: (_cost(candidate[1], bound, batch), candidate[0]),
        default=None,
    )


def _is_ready(candidate: Candidate, pending: list[Candidate], bound: Collection[str]) -> bool:
    place, term = candidate
    if not all(name in bound for name in inputs(term)):
        return False
    if place == pending[0][0]:
        return True
    if _has_lift(term):  # it holds for every value of a variable, so what restricts the variable goes first
        mine = {name for name in outputs(term) if name not in bound}
        if any(earlier < place and not mine.isdisjoint(outputs(other)) for earlier, other in pending):
            return False
    return not may_raise(term)


def _cost(term: Term, bound: Collection[str], batch: Collection[str]) -> tuple[int, int]:
    """Rank a factor that is ready: cheap and selective first."""
    free = [name for name in outputs(term) if name not in bound]
    match term:
        case Compare() if may_raise(term):
            return 3, 0  # after look-ups: what finds no partner need not be told as an error
        case Const() | Var() | Compare():
            return 0, 0
        case Lift(_, inner) if not isinstance(inner, (AggSum, Sum, Product, Exists)):
            return 1, len(free)
        case Apply() | Cast():
            return 3, 0
        case MapRead(_, _, keys) if not free and not any(isinstance(key, Range) for key in keys):
            return 2, 0
        case Batch() | Atom() if not free:
            return 2, 0
        case Batch() | Atom() | MapRead(state="CHANGED"):
            return 5, len(free)
        case MapRead(_, _, keys):
            return (7 if len(keys) > len(free) else 9), len(free)
        case _ if not free:
            return 4, 0
        case _:
            return (6 if mentions(term, batch) else 8), len(free)


def is_shareable(term: Term, bound: Collection[str], batch: Collection[str], in_loop: bool) -> bool:
    """Whether `term` is worth evaluating once per firing.

    It is if it needs no variable from outside, and it reads the batch or is a mere number inside a loop.
    """
    inner = variables_of(term).difference(outputs(term))
    if inputs(term) or not inner.isdisjoint(bound) or not isinstance(term, (AggSum, Sum)):
        return False
    if not lifted(term).isdisjoint(bound):
        return False
    return mentions(term, batch) or (in_loop and not outputs(term))


def lifted(term: Term | Range, bound: Names = frozenset()) -> Names:
    """Return the variables for each of whose values a nested lift in `term` holds, 0 included.

    Where such a variable is bound, the lift is about its value; a loop over the lift would leave out those that are 0.
    """
    match term:
        case Product(parts):
            found = Names()
            for part in parts:
                found |= lifted(part, bound)
                bound = bound.union(outputs(part))
            return found
        case Lift(_, inner):
            return lifted(inner, bound) | (frozenset(outputs(inner)) - bound)
        case _:
            return Names().union(*(lifted(child, bound) for child in children(term)))


def mentions(term: Term | Range, relations: Collection[str]) -> bool:
    """Whether `term` reads one of some relations."""
    return any(isinstance(node, (Batch, Atom)) and node.name in relations for node in nodes(term))


@memoised
def _has_lift(term: Term | Range) -> bool:
    return isinstance(term, Lift) or any(_has_lift(child) for child in children(term))
