"""The views of the levels of all cubes of a script, declared and bound behind all other views.

A level that nobody asked to keep is kept all the same if another view has its sums: a view over the same join that
groups by some of the cube's grouping columns. Which columns these are is read off the canonical forms of the two joins;
whether all measures of the level are there is then seen where the compiler keeps its columns, by their definitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from cumulus.algebra.scope import rename, variables_of
from cumulus.algebra.terms import Atom, Lift, Term
from cumulus.calculus.derived_relations import Registry
from cumulus.calculus.polynomial import monomials
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.cubes import BoundCube
from cumulus.compiler.declarations import Declarations
from cumulus.compiler.maps.canonical_forms import canonical
from cumulus.compiler.maps.trusted_keys import without_lookups
from cumulus.compiler.materialize import Materializer
from cumulus.errors import BindError, SqlError
from cumulus.m3.program import CubeDef, LevelDef
from cumulus.sql.ast import CreateView
from cumulus.sql.binding.translation import BoundView, bind_view


class Levels:
    """Binds the levels of cubes: those that KEEP names, and those whose sums other views may have.

    Parameters
    ----------
    cubes
        Their finest rows are bound.
    declared
        The views of levels that are kept are added to it; what is wrong with one, to its errors.
    """

    def __init__(self, cubes: list[BoundCube], declared: Declarations, derived: Registry) -> None:
        self._cubes = cubes
        self._declared = declared
        self._derived = derived
        self._shown = dict(declared.views)
        self._levels: dict[str, list[LevelDef]] = {cube.finest.name: [] for cube in cubes}

    def bind_kept(self) -> list[BoundView]:
        """Return the views of the levels that are kept, if nothing is wrong with any view so far."""
        bound: list[BoundView] = []
        if self._declared.errors:
            return bound
        for cube in self._cubes:
            try:
                for view in cube.kept():
                    if self._is_taken(view):
                        raise BindError(
                            f"{view.name} is there already, and is what the view of this level is called",
                            hint="Give the other one another name.",
                            **self._declared.source.place(view.at),
                        )
                    bound.append(self._bind(cube, view, kept=True))
                    self._declared.views[view.name] = view
            except SqlError as problem:
                self._declared.errors.append(problem)
        return bound

    def bind_equal(self, bound: list[BoundView], tables: Mapping[str, Table]) -> list[tuple[BoundView, str]]:
        """Return views of further levels by which other views group, too, each with the name of its cube.

        Whether their measures are kept is for the caller to see.

        Parameters
        ----------
        tables
            With references that may be relied upon.
        """
        found: list[tuple[BoundView, str]] = []
        for cube in self._cubes:
            done = {frozenset(cube.grouping), *(frozenset(level.columns) for level in self._levels[cube.finest.name])}
            for keys in shared_groupings(cube.finest, bound, tables):
                columns = frozenset(cube.columns(keys))
                if columns in done or cube.lacking(keys):
                    continue
                done.add(columns)
                view = cube.level(keys, cube.view.at)
                if not self._is_taken(view):
                    found.append((self._bind(cube, view, kept=False), cube.finest.name))
        return found

    def definitions(self, views: Collection[str]) -> tuple[CubeDef, ...]:
        """Return what the program says of the cubes, with those levels whose views it has."""
        return tuple(
            CubeDef(name, cube.dimensions, tuple(level for level in self._levels[name] if level.view in views))
            for cube in self._cubes
            for name in (cube.finest.name,)
        )

    def _is_taken(self, view: CreateView) -> bool:
        return view.name in self._declared.views or view.name in self._declared.tables

    def _bind(self, cube: BoundCube, view: CreateView, *, kept: bool) -> BoundView:
        """Bind the view of a level where its cube stands: it reads the views before it."""
        names = list(self._shown)
        before = {name: self._shown[name] for name in names[: names.index(cube.view.name)]}
        source = replace(self._declared.source, first=view.at)
        bound = bind_view(view, self._declared.tables, source, before, self._derived)
        columns = tuple(name for name in cube.grouping if name in map(str, view.columns))
        self._levels[cube.finest.name].append(LevelDef(columns, bound.name, kept))
        return bound


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
