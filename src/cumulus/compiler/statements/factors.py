"""The factors of a statement: what stands together, what has a value, and in which order they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cumulus.algebra.scope import outputs, variables_of
from cumulus.algebra.terms import MIRRORED, Atom, Batch, Compare, Lift, Term, Var
from cumulus.calculus.derived_relations import Registry

Names = frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class FactorBlock:
    """Factors that stay together, in order: a row of a derived relation, the keys that changed, or one factor."""

    factors: tuple[Term, ...]
    needs: Names
    rank: int
    """What goes first among blocks whose needs are there."""
    wider: tuple[Term, ...] | None = None
    """Factors that do as well, though they may bind more keys; they need nothing."""


class Alternative(NamedTuple):
    """One of the products whose sum a monomial is."""

    sign: int
    blocks: tuple[FactorBlock, ...]


def bound_variables(factors: Iterable[Term], bound: Names, derived: Registry, loose: Names = frozenset()) -> Names:
    """Return the variables that have one value, or are looped over first: the trigger's, and what follows from them.

    Parameters
    ----------
    loose
        Keys of changed relations that their changes do not bind.

    Examples
    --------
    >>> lifts = [Lift("z", Var("y")), Lift("y", Var("x")), Lift("v", Var("u"))]
    >>> sorted(bound_variables(lifts, frozenset("x"), Registry()))
    ['x', 'y', 'z']
    """
    found = set(bound)
    rest = list(factors)
    while True:
        before = len(found)
        for factor in rest:
            match factor:
                case Batch(name, variables) if derived.get(name) is None:
                    found |= set(variables)
                case Batch(name, variables) | Atom(name, variables) if (what := derived.get(name)) is not None:
                    keys, given, columns = what.split(Atom(name, variables))
                    if isinstance(factor, Batch):
                        found |= keys - loose
                    if keys | given <= found:
                        found |= columns
                case Lift(variable, inner) if variables_of(inner) <= found:
                    found.add(variable)
                case _:
                    pass
        if len(found) == before:
            return frozenset(found)


def compared_with(key: Var, condition: Term) -> tuple[Term, str] | None:
    """Return what a condition compares a variable with by order: the other side and, with the key behind, the operator.

    Examples
    --------
    >>> compared_with(Var("k"), Compare("<", Var("k"), Var("x")))
    (Var(name='x'), '>')
    """
    match condition:
        case Compare(op, other, right) if op in MIRRORED and right is key:
            return other, op
        case Compare(op, left, other) if op in MIRRORED and left is key:
            return other, MIRRORED[op]
        case _:
            return None


def used_beside(part: Term, parts: Iterable[Term], wanted: Names) -> Names:
    """Return the variables that matter besides a part itself, which may stand there twice."""
    others = list(parts)
    others.remove(part)
    return wanted.union(*(variables_of(other) for other in others))


def order_blocks(blocks: Iterable[FactorBlock], bound: Names) -> list[Term]:
    """Order blocks so that each finds its variables bound: conditions as early as they can stand, values last."""
    waiting = list(blocks)
    there = set(bound)
    result: list[Term] = []

    def binds(block: FactorBlock) -> bool:
        """Whether a block that is not ready says by its wider form what something else would have to loop over."""
        return block.wider is not None and any(name not in there for f in block.wider for name in outputs(f))

    def rank(block: FactorBlock) -> tuple[bool, int, int]:
        free = sum(len(set(variables_of(f)) - there) for f in block.factors) if block.rank == 5 else 0
        # A look-up in a map goes with the conditions.
        return (
            not block.needs <= there and not binds(block),
            1 if block.rank == 5 and not free else block.rank,
            free,
        )

    while waiting:
        ready = next((block for block in waiting if rank(block) == (False, 0, 0)), None)  # none goes before it
        chosen = ready or min(waiting, key=rank)
        if not chosen.needs <= there and not binds(chosen):
            # What a change depends on may be a matter of the row that it leads to.
            chosen = next((block for block in waiting if block.wider is not None), chosen)
        waiting.remove(chosen)
        factors = chosen.factors
        if not chosen.needs <= there and chosen.wider is not None:
            factors = chosen.wider
            rest = tuple(factor for factor in chosen.factors if factor not in factors)
            waiting += [FactorBlock(rest, chosen.needs, 0)] if rest else []
        result += factors
        there.update(name for factor in factors for name in outputs(factor))
    return result
