"""The views of the levels of all cubes of a script, declared and bound behind all other views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cumulus.calculus.derived_relations import Registry
from cumulus.catalog.schema import Relation as Table
from cumulus.compiler.cubes import BoundCube
from cumulus.compiler.declarations import Declarations
from cumulus.compiler.equal_levels import shared_groupings
from cumulus.errors import BindError, SqlError
from cumulus.m3.cubes import CubeDef, LevelDef
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
