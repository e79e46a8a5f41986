"""The passes over an ordered product: what other factors say already is left out, and less is read.

A pass keeps the value of the product. `STATEMENT_PASSES` are those of a statement, `SUM_PASSES` those of a product of a
sum inside one, in the order in which `apply_passes` takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from cumulus.algebra.scope import ordered, outputs, rename, variables_of
from cumulus.algebra.terms import (
    ONE,
    AggSum,
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
from cumulus.calculus.simplify import fold
from cumulus.compiler.statements.factors import Names, compared_with


class OrderedProduct(NamedTuple):
    """Factors, each of which finds its variables bound.

    Parameters
    ----------
    bound
        Variables that have a value outside.
    keys
        The keys of the entries that a statement changes.
    wanted
        Variables that are asked for outside, and keep their names.
    """

    factors: list[Term]
    bound: Names
    keys: tuple[str, ...] = ()
    wanted: Names = frozenset()


Pass: TypeAlias = Callable[[OrderedProduct], OrderedProduct]


def inline_names(product: OrderedProduct) -> OrderedProduct:
    """Put the event's variables in the place of those that are only other names of them, and decide what follows."""
    factors, bound = product.factors, product.bound
    for factor in factors:
        if not isinstance(factor, Lift) or not isinstance(factor.term, Var):
            continue
        if factor.variable not in bound | product.wanted and factor.term.name in bound:
            names = {factor.variable: factor.term.name}
            rest = [fold(rename(f, names), frozenset(), bound) for f in factors if f is not factor]
            rest = [
                f
                for place, f in enumerate(rest)
                if f is not ONE and not (isinstance(f, (Compare, Exists)) and f in rest[:place])
            ]
            keys = tuple(names.get(key, key) for key in product.keys)
            return inline_names(product._replace(factors=rest, keys=keys))
    return product


def drop_known_conditions(product: OrderedProduct) -> OrderedProduct:
    """Leave conditions out of sums that stand behind the same conditions."""
    tests: set[Term] = set()

    def without(term: Term | Range) -> Term | Range:
        if term in tests:
            return ONE
        return rebuild(term, without) if children(term) else term

    result: list[Term] = []
    for factor in product.factors:
        if isinstance(factor, Lift) and tests and isinstance(factor.term, (Sum, Product, Compare, AggSum)):
            factor = Lift(factor.variable, without(factor.term))  # type: ignore[arg-type]
        elif isinstance(factor, Compare):
            tests.add(factor)
        result.append(factor)
    return product._replace(factors=result)


def read_ranges(product: OrderedProduct) -> OrderedProduct:
    """Read a range of a key where all that is asked of it is that it lies between two ends.

    Examples
    --------
    >>> read = MapRead("m", "n", (Var("a"), Var("x")))
    >>> factors = [read, Compare("<", Var("y"), Var("x"))]
    >>> shown = read_ranges(OrderedProduct(factors, bound=frozenset("y"), wanted=frozenset("a")))
    >>> [str(factor) for factor in shown.factors]
    ['m[a, > y].n']
    """
    factors = product.factors
    asked = product.bound | product.wanted
    mentions: dict[str, list[Term]] = {}
    for factor in factors:
        for name in variables_of(factor):
            mentions.setdefault(name, []).append(factor)
    for index, read in enumerate(factors):
        if not isinstance(read, MapRead) or read.state == "CHANGED" or any(isinstance(key, Range) for key in read.keys):
            continue
        there = product.bound.union(*(outputs(factor) for factor in factors[:index]))
        for place, key in enumerate(read.keys):
            if not isinstance(key, Var) or key.name in asked or read.keys.count(key) > 1:
                continue
            others = [factor for factor in mentions[key.name] if factor is not read]
            found = _range_of(key, others, there)
            if found is not None:
                keys = (*read.keys[:place], found, *read.keys[place + 1 :])
                new = MapRead(read.map, read.column, keys, read.state)
                rest = [new if f is read else f for f in factors if f not in others]
                return read_ranges(product._replace(factors=rest))
    return product


def _range_of(key: Var, conditions: list[Term], there: Names) -> Range | None:
    """Return the range that conditions on a key say, None if they say something else or its ends are not `there`."""
    ends: dict[str, tuple[Term, bool]] = {}
    for condition in conditions:
        compared = compared_with(key, condition)
        if compared is None:
            return None
        other, op = compared
        if not variables_of(other) <= there or op[0] in ends:
            return None
        ends[op[0]] = other, "=" in op
    return Range(ends.get("<"), ends.get(">")) if ends else None


def pre_aggregate_batch(product: OrderedProduct) -> OrderedProduct:
    """Add a batch up to the columns that the rest of the statement needs, before it meets any map."""
    batches = [factor for factor in product.factors if isinstance(factor, Batch)]
    if len(batches) != 1:
        return product
    mine = set(batches[0].variables)
    inner: list[Term] = [batches[0]]
    rest: list[Term] = []
    for factor in product.factors:
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
        if name in product.keys or any(name in variables_of(f) for f in rest)
    )
    return product._replace(factors=[aggregate(needed, product_of(inner)), *rest])


STATEMENT_PASSES: tuple[Pass, ...] = (inline_names, drop_known_conditions, pre_aggregate_batch)
SUM_PASSES: tuple[Pass, ...] = (inline_names, drop_known_conditions, read_ranges)


def apply_passes(product: OrderedProduct, passes: tuple[Pass, ...]) -> OrderedProduct:
    """Return the product after all passes."""
    for each in passes:
        product = each(product)
    return product
