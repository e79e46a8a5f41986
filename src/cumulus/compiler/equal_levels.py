"""Levels of cubes that nobody asked to keep, and whose sums are kept all the same, for other views.

A view over the same join that groups by some of a cube's grouping columns has the sums of one of its levels. Which
columns these are is read off the canonical forms of the two joins; whether all measures of the level are there is then
seen where the compiler keeps its columns, by their definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import Atom, Lift, Term
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.maps.canonical_forms import canonical
from cumulus.compiler.maps.trusted_keys import without_lookups
from cumulus.compiler.materialize import Materializer
from cumulus.sql.binding.translation import BoundView


def shared_groupings(
    finest: BoundView, views: Iterable[BoundView], tables: Mapping[str, Table]
) -> Iterator[tuple[str, ...]]:
    """Iterate over the variables of a view's group by which other views over its join group, in their order."""
    for view in views:
        if view is not finest and len(view.group) < len(finest.group):
            # A join that only looks up what a row refers to may be left out, and one of both views may not have it.
            for reduced in (False, True):
                found = _matched(finest, view, tables if reduced else {})
                if found is not None:
                    yield found
                    break


def _matched(finest: BoundView, view: BoundView, tables: Mapping[str, Table]) -> tuple[str, ...] | None:
    """Return the variables that the group of a view is in another; None if their joins are not one."""
    mine, theirs = _join(finest, tables), _join(view, tables)
    if mine is None or theirs is None:
        return None
    (own_lifts, own_rest), (lifts, rest) = mine, theirs
    own_form, form = canonical((), own_rest), canonical((), rest)
    if (own_form.skeleton, own_form.values) != (form.skeleton, form.values):
        return None
    names = dict(zip(form.names, own_form.names, strict=True))
    computed = {lift.term: lift.variable for lift in own_lifts}
    found: dict[str, None] = {}
    for variable in view.group:
        lift = next((each for each in lifts if each.variable == variable), None)
        if lift is None:
            meant = names.get(variable)
        else:
            meant = computed.get(rename(lift.term, names)) if variables_of(lift.term) <= names.keys() else None
        if meant is None or meant not in finest.group:
            return None
        found[meant] = None
    return tuple(found)


def _join(view: BoundView, tables: Mapping[str, Table]) -> tuple[list[Lift], list[Term]] | None:
    """Return what computes the group of a view, and the rest of its join; None if it is a sum of several."""
    products = list(monomials(view.sums[0].term))
    if len(products) != 1 or products[0].coefficient != 1:
        return None
    factors = products[0].factors
    lifts = [factor for factor in factors if isinstance(factor, Lift) and factor.variable in view.group]
    rest = [factor for factor in factors if factor not in lifts]
    if tables and all(factor.name in tables for factor in rest if isinstance(factor, Atom)):
        used = frozenset[str]().union(*(variables_of(lift.term) for lift in lifts))
        rest = without_lookups(tuple(sorted(used)), rest, tables)
    return lifts, rest


def is_kept(level: BoundView, materializer: Materializer, order: int | None) -> bool:
    """Whether all that a level adds up is a column already, its sums in one map of a view."""
    sums = [materializer.find(level.group, list(monomials(each.term)), order) for each in level.sums]
    home = sums[0]
    if home is None or not home.group.of_view or level.lookups:
        return False
    ends = (materializer.find((*level.group, each.variable), list(monomials(each.term)), order) for each in level.ends)
    return all(each is not None and each.group is home.group for each in sums) and None not in ends
