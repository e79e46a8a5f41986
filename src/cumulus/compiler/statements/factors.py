"""The factors of a statement: in which order they stand, and what is left out because other factors say it already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cumulus.algebra.scope import ordered, outputs, rename, variables_of
from cumulus.algebra.terms import (
    MIRRORED,
    ONE,
    AggSum,
    Atom,
    Batch,
    Compare,
    Exists,
    Lift,
    MapRead,
    Product,
    Range,
    Sum,
    Term,
    Var,
    children,
    product_of,
    rebuild,
)
from cumulus.calculus.delta import aggregate
from cumulus.calculus.derived_relations import Registry
from cumulus.calculus.simplify import fold

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


def known(factors: Iterable[Term], bound: Names, derived: Registry, loose: Names = frozenset()) -> Names:
    """Return the variables that have one value, or are looped over first: the trigger's, and what follows from them.

    Parameters
    ----------
    loose
        Keys of changed relations that their changes do not bind.

    Examples
    --------
    >>> sorted(known([Lift("z", Var("y")), Lift("y", Var("x")), Lift("v", Var("u"))], frozenset("x"), Registry()))
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


def in_order(blocks: Iterable[FactorBlock], bound: Names) -> list[Term]:
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
        chosen = min(waiting, key=rank)
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


def ranged(factors: list[Term], bound: Names, wanted: Names) -> list[Term]:
    """Read a range of a key where all that is asked of it is that it lies between two ends.

    Parameters
    ----------
    bound, wanted
        Variables that have a value outside, and those that are asked for.

    Examples
    --------
    >>> read = MapRead("m", "n", (Var("a"), Var("x")))
    >>> [str(factor) for factor in ranged([read, Compare("<", Var("y"), Var("x"))], frozenset("y"), frozenset("a"))]
    ['m[a, > y].n']
    """
    for index, read in enumerate(factors):
        if not isinstance(read, MapRead) or read.state == "CHANGED" or any(isinstance(key, Range) for key in read.keys):
            continue
        for place, key in enumerate(read.keys):
            if not isinstance(key, Var) or key.name in bound | wanted or read.keys.count(key) > 1:
                continue
            there = bound.union(*(outputs(factor) for factor in factors[:index]))
            others = [factor for factor in factors if factor is not read and key.name in variables_of(factor)]
            found = _range_of(key, others, there)
            if found is not None:
                keys = (*read.keys[:place], found, *read.keys[place + 1 :])
                new = MapRead(read.map, read.column, keys, read.state)
                return ranged([new if f is read else f for f in factors if f not in others], bound, wanted)
    return factors


def _range_of(key: Var, conditions: list[Term], there: Names) -> Range | None:
    """Return the range that conditions on a key say, None if they say something else or its ends are not `there`."""
    ends: dict[str, tuple[Term, bool]] = {}
    for condition in conditions:
        if not isinstance(condition, Compare) or condition.op not in MIRRORED:
            return None
        op, other = condition.op, condition.right
        if condition.left is not key:
            op, other = MIRRORED[op], condition.left
            if condition.right is not key:
                return None
        if not variables_of(other) <= there or op[0] in ends:
            return None
        ends[op[0]] = other, "=" in op
    return Range(ends.get(">"), ends.get("<")) if ends else None


def certain(factors: list[Term]) -> list[Term]:
    """Leave conditions out of sums that stand behind the same conditions."""
    tests: set[Term] = set()

    def without(term: Term | Range) -> Term | Range:
        if term in tests:
            return ONE
        return rebuild(term, without) if children(term) else term

    result: list[Term] = []
    for factor in factors:
        if isinstance(factor, Lift) and tests and isinstance(factor.term, (Sum, Product, Compare, AggSum)):
            factor = Lift(factor.variable, without(factor.term))  # type: ignore[arg-type]
        elif isinstance(factor, Compare):
            tests.add(factor)
        result.append(factor)
    return result


def inlined(
    factors: list[Term], keys: tuple[str, ...], bound: Names, wanted: Names = frozenset()
) -> tuple[list[Term], tuple[str, ...]]:
    """Put the event's variables in the place of those that are only other names of them, and decide what follows.

    The variables in `wanted` keep their names.
    """
    for factor in factors:
        if not isinstance(factor, Lift) or not isinstance(factor.term, Var) or factor.variable in bound | wanted:
            continue
        if factor.term.name in bound:
            names = {factor.variable: factor.term.name}
            rest = [fold(rename(f, names), frozenset(), bound) for f in factors if f is not factor]
            rest = [
                f
                for place, f in enumerate(rest)
                if f is not ONE and not (isinstance(f, (Compare, Exists)) and f in rest[:place])
            ]
            return inlined(rest, tuple(names.get(key, key) for key in keys), bound, wanted)
    return factors, keys


def pre_aggregated(factors: list[Term], keys: tuple[str, ...]) -> list[Term]:
    """Add a batch up to the columns that the rest of the statement needs, before it meets any map."""
    batches = [factor for factor in factors if isinstance(factor, Batch)]
    if len(batches) != 1:
        return factors
    mine = set(batches[0].variables)
    inner: list[Term] = [batches[0]]
    rest: list[Term] = []
    for factor in factors:
        if factor is batches[0]:
            continue
        uses = variables_of(factor.term) if isinstance(factor, Lift) else variables_of(factor)
        if isinstance(factor, MapRead) or not uses <= mine:
            rest.append(factor)
            continue
        inner.append(factor)
        mine |= variables_of(factor)
    needed = ordered(
        name
        for factor in inner
        for name in outputs(factor)
        if name in keys or any(name in variables_of(f) for f in rest)
    )
    return [aggregate(needed, product_of(inner)), *rest]
