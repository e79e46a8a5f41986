"""Where a change is: the factors that bind the keys at which a row may be another than before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cumulus.algebra.scope import inputs, outputs, relations_of, rename, variables_of
from cumulus.algebra.terms import Atom, Compare, Exists, Lift, MapRead, Term, product_of, sum_of
from cumulus.calculus.delta import aggregate
from cumulus.calculus.derived_relations import DerivedRelation, ExtremumRelation, Registry, SumRelation
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.compiler.maps.columns import HIDDEN
from cumulus.compiler.statements.definitions import variables_needed
from cumulus.compiler.statements.factors import FactorBlock, Names


class KeyBinding(NamedTuple):
    """Factors that bind keys; `wider` are others that do as well, if there are, and need less of what is given."""

    factors: tuple[Term, ...]
    wider: tuple[Term, ...] | None


def place_of_blocks(blocks: Iterable[FactorBlock]) -> KeyBinding:
    """Return the factors of blocks as a place."""
    listed = list(blocks)
    wider = [block.factors if not block.needs else block.wider for block in listed]
    return KeyBinding(
        tuple(factor for block in listed for factor in block.factors),
        None if None in wider else tuple(factor for each in wider for factor in each or ()),
    )


def numbers_asked(what: DerivedRelation, atom: Atom, used: Names) -> list[SumRelation | ExtremumRelation]:
    """Return the numbers on which a row depends, of whose columns some variables are used."""
    outer = dict(zip(what.parameters, atom.variables, strict=True))
    return what.numbers_in(scalar for mine, scalar in what.columns if is_asked(outer[mine], atom, used))


def is_asked(column: str, atom: Atom, used: Names) -> bool:
    """Whether a column of an atom matters: it is used, or equal to another."""
    return column in used or atom.variables.count(column) > 1


def join_for_all(given: Names, factors: Iterable[Term], derived: Registry) -> tuple[Term, ...]:
    """Return a join for all values of some variables: what needs their values is left out.

    Examples
    --------
    >>> from cumulus.algebra.terms import Var
    >>> join = [Atom("r", ("x", "y")), Compare("<", Var("x"), Var("z")), Lift("u", Var("x"))]
    >>> [str(factor) for factor in join_for_all(frozenset("z"), join, Registry())]
    ['r(x, y)', '(u := x)']
    """
    parts = [factor for factor in factors if not is_value(factor)]
    bound = frozenset[str]().union(*(outputs(part) for part in parts if isinstance(part, Atom)))
    needed = frozenset[str]().union(*(variables_needed(part, derived) for part in parts if isinstance(part, Atom)))
    free = {name: f"{name}{HIDDEN}any" for name in (given & bound) - needed}
    kept = [rename(part, free) for part in parts if not variables_of(part) & (given - free.keys())]
    while True:
        bound = frozenset[str]().union(*(outputs(factor) for factor in kept if not variables_needed(factor, derived)))
        bound = bound.union(*(outputs(factor) for factor in kept if variables_needed(factor, derived) <= bound))
        rest = [factor for factor in kept if variables_needed(factor, derived) <= bound]
        if len(rest) == len(kept):
            return tuple(kept)
        kept = rest


def place_values(groups: Iterable[list[Term]], values: Iterable[Term], near: Names) -> tuple[list[list[Term]], Names]:
    """Return the components of a join with the values that are about one of them, and what other values are about.

    The rows of a join may be as many as before, and their values others. The variables `near` have one value.
    """
    valued = [list(group) for group in groups]
    several = Names()
    for value in values:
        free = variables_of(value) - near
        homes = [group for group in valued if any(not free.isdisjoint(outputs(factor)) for factor in group)]
        if len(homes) == 1 and free <= frozenset[str]().union(*(outputs(factor) for factor in homes[0])):
            homes[0].append(value)
        elif homes:
            several |= free
    return valued, several


def event_place(factors: Iterable[Term], keys: tuple[str, ...], there: Names) -> tuple[Term, ...] | None:
    """Return the lifts that bind keys to values of the event, and the conditions on them; None if a key has none."""
    lifts = {f.variable: f for f in factors if isinstance(f, Lift) and not relations_of(f)}
    kept: dict[str, Lift] = {}

    def bind(name: str) -> bool:
        if name in there or name in kept:
            return True
        if name not in lifts or not all(bind(inner) for inner in sorted(variables_of(lifts[name].term))):
            return False
        kept[name] = lifts[name]
        return True

    if not all(bind(key) for key in keys):
        return None
    tests = (
        f for f in factors if isinstance(f, Compare) and not is_value(f) and variables_of(f) <= there | kept.keys()
    )
    return tuple(dict.fromkeys((*kept.values(), *tests)))


def complete_place(
    start: tuple[Term, ...], loops: list[MapRead], tests: list[Term], keys: Names, there: Names
) -> tuple[Term, ...] | None:
    """Return `start` with what else is needed to bind all keys: entries of other maps, and conditions.

    None if the keys cannot be bound so.
    """
    place: list[Term] = []
    bound = there
    waiting = [*start, *tests]
    unused = [loop for loop in loops if loop not in start]
    while True:
        ready = [factor for factor in waiting if inputs(factor) <= bound]
        for factor in ready:
            waiting.remove(factor)
            place.append(factor)
            bound = bound.union(outputs(factor))
        if ready:
            continue
        missing = keys.union(*(inputs(factor) for factor in waiting if factor in start)) - bound
        if not missing:
            return tuple(place)
        loop = next((loop for loop in unused if not missing.isdisjoint(outputs(loop))), None)
        if loop is None:
            return None
        unused.remove(loop)
        place.append(old_or_changed(loop))
        bound = bound.union(outputs(loop))


def old_or_changed(read: MapRead) -> Term:
    """Return the entries of a map that were there before the event, or have changed."""
    before = Exists(MapRead(read.map, read.column, read.keys))
    return Exists(sum_of([before, read])) if read.state == "CHANGED" else before


def merge_places(places: list[tuple[Term, ...]], keys: tuple[str, ...], there: Names) -> tuple[Term, ...]:
    """Return factors that bind the keys of all places, each key once."""
    if len(places) == 1 and {name for factor in places[0] for name in outputs(factor)} - there <= set(keys):
        return places[0]
    return (Exists(sum_of(aggregate(keys, product_of(place)) for place in places)),)


def merge_wider(
    places: Iterable[tuple[Term, ...] | None], keys: tuple[str, ...], bound: Names
) -> tuple[Term, ...] | None:
    """Return factors that bind the keys of all places and need no more than `bound`; None if there are none."""
    wider = [None if place is None else _unconditioned(place, keys, bound) for place in places]
    found = [place for place in wider if place is not None]
    if len(found) < len(wider):
        return None
    return () if () in found else merge_places(found, keys, bound)


def _unconditioned(place: tuple[Term, ...], keys: tuple[str, ...], bound: Names) -> tuple[Term, ...] | None:
    """Return a place without what needs more than `bound`; None if that leaves keys unbound."""
    there = bound
    kept: list[Term] = []
    for factor in place:
        if inputs(factor) <= there:
            kept.append(factor)
            there = there.union(outputs(factor))
    return tuple(kept) if there.issuperset(keys) else None
