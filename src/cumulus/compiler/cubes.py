"""Cubes: what CREATE CUBE says beside its SELECT, and the views that keep its levels.

The finest rows of a cube are a view of its name. Each level that it keeps is a view as well: the same SELECT with fewer
grouping columns, which `Program.shown_views` leaves out. They are compiled together with all others, so what they
share is shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from cumulus.algebra.scope import variables_of
from cumulus.algebra.terms import Scalar
from cumulus.catalog.names import Name, find_name
from cumulus.catalog.schema import Column
from cumulus.catalog.types import INTEGER
from cumulus.errors import SqlError
from cumulus.m3.program import DimensionDef, MapDef, ViewDef
from cumulus.m3.view_reads import grouping_columns
from cumulus.sql.ast import ColumnRef, CreateView, CubeClauses, Literal, Select
from cumulus.sql.binding.translation import BoundView
from cumulus.sql.source import SqlText

MAX_ALL = 256
"""How many levels KEEP ALL may mean."""


def check_cube(view: CreateView, source: SqlText) -> Select:
    """Return the query of a cube.

    Raises
    ------
    UnsupportedError
        If it has what is not true of a roll-up.
    """
    query = view.query
    outside = f"Do it when the cube is read, or in a view over it: CREATE VIEW v AS SELECT … FROM {view.name}."
    inside = "Put it into a view, and make the cube of that: CREATE CUBE … AS SELECT … FROM v GROUP BY ALL."
    if not isinstance(query, Select):
        raise _not_of_rollups(query.op.upper(), query.at, source, inside)
    grouped = query.group_by or ()
    ordered = query.order_by[0].expr.at if query.order_by else query.at
    for has, what, at, way_out in (
        (query.distinct, "SELECT DISTINCT", query.at, "Leave DISTINCT out: a row of groups stands once."),
        (
            query.grouping_sets is not None,
            "GROUPING SETS",
            grouped[0].at if grouped else query.at,
            "Group by the finest columns; KEEP (…), (…) keeps coarser levels.",
        ),
        (query.having is not None, "HAVING", -1 if query.having is None else query.having.at, outside),
        (bool(query.order_by) or query.order_all, "ORDER BY", ordered, outside),
        (query.limit is not None or query.offset > 0, "LIMIT", query.limit_at, outside),
    ):
        if has:
            raise _not_of_rollups(what, at, source, way_out)
    return query


def _not_of_rollups(what: str, at: int, source: SqlText, way_out: str) -> SqlError:
    return source.unsupported(
        f"{what} at the top of a cube is not true of its coarser levels", at, feature=f"{what} in a cube", hint=way_out
    )


@dataclass(frozen=True)
class BoundCube:
    """A cube whose finest view is bound.

    Parameters
    ----------
    view
        As it is declared.
    finest
        Its finest rows.
    """

    view: CreateView
    finest: BoundView
    source: SqlText

    @property
    def clauses(self) -> CubeClauses:
        """What it says beside its SELECT."""
        assert self.view.cube is not None
        return self.view.cube

    @cached_property
    def grouping(self) -> Mapping[str, str]:
        """The columns that are keys: name → variable of the group."""
        finest, group = self.finest, self.finest.group
        keys = tuple(Column(name, finest.variables[name].type) for name in group)
        shown = ViewDef(finest.name, finest.columns, ("",), finest.select)
        return {name: group[place] for name, place in grouping_columns(shown, MapDef("", keys, ())).items()}

    def check(self) -> None:
        """Refuse what cannot be a cube.

        Raises
        ------
        BindError, UnsupportedError
            With a place.
        """
        finest, query = self.finest, check_cube(self.view, self.source)
        if finest.repeat is not None and query.group_by is not None:
            raise self.source.unsupported(
                f"a sub-query in the SELECT list of cube {finest.name} needs more than its groups",
                query.at,
                feature="a sub-query in the SELECT list of a cube",
                hint="Put the sub-query into a view, and make the cube of that.",
            )
        if not self.grouping:
            told = f"cube {finest.name} has no grouping columns"
            raise self.source.bind_error(told, query.at, hint="Say GROUP BY, and SELECT its columns.")
        for variable in finest.group:
            if variable not in self.grouping.values():
                raise self.source.bind_error(
                    f"cube {finest.name} groups by {variable}, which it does not show",
                    query.group_by[0].at if query.group_by else query.at,
                    hint="SELECT each column of GROUP BY as it is, or leave it out of both.",
                )
        if not any(self._is_measure(scalar) for scalar in finest.select):
            told = f"cube {finest.name} has no measures"
            raise self.source.bind_error(told, query.at, hint="SELECT an aggregate, such as COUNT(*) AS n.")

    @cached_property
    def dimensions(self) -> tuple[DimensionDef, ...]:
        """Its dimensions; a grouping column that is in none is one of its own, after the others."""
        found: dict[str, DimensionDef] = {}
        for clause in self.clauses.dimensions:
            levels = [self._column(reference) for reference in clause.levels]
            repeated = next((name for place, name in enumerate(levels) if name in levels[:place]), None)
            if repeated is not None:
                raise self.source.bind_error(
                    f"dimension {clause.name} has the level {repeated} twice", clause.at, hint="Name each once."
                )
            if find_name(clause.name, found) is not None:
                raise self.source.bind_error(
                    f"two dimensions are called {clause.name}", clause.at, hint="Give one another name."
                )
            found[str(clause.name)] = DimensionDef(str(clause.name), tuple(levels))
        declared = {level for dimension in found.values() for level in dimension.levels}
        for name in self.grouping:
            if name not in declared:
                if find_name(name, found) is not None:
                    raise self.source.bind_error(
                        f"{name} is a dimension, and a grouping column that is in no dimension",
                        self.view.at,
                        hint=f"Give one another name, or make the column a level: DIMENSION other ({name}).",
                    )
                found[name] = DimensionDef(name, (name,))
        return tuple(found.values())

    def kept(self) -> Iterator[CreateView]:
        """Iterate over the views that keep its levels, each once, without the finest.

        Raises
        ------
        BindError, UnsupportedError
            With a place.
        """
        finest = self.finest
        done = {frozenset(finest.group)}
        for levels, at in self._asked():
            keys = frozenset(self.grouping[name] for name in levels)
            if keys not in done:
                done.add(keys)
                yield self.level([key for key in finest.group if key in keys], at)

    def _asked(self) -> Iterator[tuple[Collection[str], int]]:
        """Iterate over the levels that KEEP names, and where."""
        clauses = self.clauses
        for entry in clauses.keep:
            yield [self._column(reference) for reference in entry.levels], entry.at
        if clauses.keep_all:
            count = prod(len(dimension.levels) + 1 for dimension in self.dimensions)
            if count > MAX_ALL:
                raise self.source.unsupported(
                    f"KEEP ALL of cube {self.view.name} means {count:,} combinations of levels; {MAX_ALL} is the most",
                    clauses.keep_at,
                    feature="KEEP ALL of many levels",
                    hint="List the levels that are read often: KEEP (a, b), (c). The others are folded from them.",
                )
            prefixes = [[each.levels[:size] for size in range(len(each.levels), -1, -1)] for each in self.dimensions]
            for combination in product(*prefixes):
                yield [name for levels in combination for name in levels], clauses.keep_at

    def level(self, keys: Collection[str], at: int) -> CreateView:
        """Return the view that groups by some variables of the group; their order is that of the keys of its maps."""
        finest, places = self.finest, range(len(self.finest.select))
        lacking = self.lacking(keys)
        if lacking:
            measure, columns = lacking
            raise self.source.bind_error(
                f"{measure} needs {', '.join(columns)}, which level ({', '.join(self.columns(keys))}) of cube "
                f"{finest.name} does not have",
                at,
                hint="Keep levels that have it, or SELECT what is made of it in a view over the cube.",
            )
        shown = tuple(place for place in places if self._needed(finest.select[place]).issubset(keys))
        names = [column.name for column in finest.columns]
        positions = {key: names.index(name) + 1 for name, key in self.grouping.items()}
        grouped = tuple(Literal(positions[key], INTEGER) for key in keys)
        query = replace(check_cube(self.view, self.source), group_by=grouped or None, group_all=False, shown=shown)
        return replace(
            self.view,
            name=Name(level_name(finest.name, self.columns(keys))),
            query=query,
            columns=tuple(Name(names[place]) for place in shown),
            cube=None,
            at=at,
        )

    def lacking(self, keys: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
        """Return a measure that cannot be shown by some variables of the group alone, and the columns that it needs."""
        for column, scalar in zip(self.finest.columns, self.finest.select, strict=True):
            missing = self._needed(scalar).difference(keys)
            if missing and self._is_measure(scalar):
                return column.name, self.columns(missing)
        return None

    def columns(self, keys: Collection[str]) -> tuple[str, ...]:
        """Return the grouping columns that show some variables of the group."""
        return tuple(name for name, key in self.grouping.items() if key in keys)

    def _column(self, reference: ColumnRef) -> str:
        """Return the grouping column that a level is."""
        within = self.grouping
        if reference.table:
            named = {clause.name: clause for clause in self.clauses.dimensions}
            name = find_name(reference.table, named)
            if name is None:
                told = f"cube {self.view.name} has no dimension {reference.table}"
                raise self.source.bind_error(told, reference.at, hint=f"It has {', '.join(named) or 'none'}.")
            of = {str(level.name): level for level in named[name].levels}
            if find_name(reference.name, of) is None:
                told = f"dimension {name} has no level {reference.name}"
                raise self.source.bind_error(told, reference.at, hint=f"Its levels are {', '.join(of)}.")
        found = find_name(reference.name, within)
        if found is not None:
            return found
        shown = [column.name for column in self.finest.columns]
        known = find_name(reference.name, shown)
        told = f"cube {self.view.name} has no column {reference.name}"
        if known is not None:
            told = f"{known} is no grouping column of cube {self.view.name}"
        raise self.source.bind_error(told, reference.at, hint=f"Levels are columns of GROUP BY: {', '.join(within)}.")

    def _needed(self, scalar: Scalar) -> frozenset[str]:
        """Return the variables of the group that a column tells of, through sub-queries, too."""
        names = set(variables_of(scalar))
        for lookup in reversed(self.finest.lookups):
            if not names.isdisjoint(lookup.outs):
                names.update(*(variables_of(arg) for arg in lookup.args))
        return frozenset(names).intersection(self.finest.group)

    def _is_measure(self, scalar: Scalar) -> bool:
        """Whether a column is made of more than the group's variables."""
        return not variables_of(scalar).issubset(self.finest.group)


def level_name(cube: str, columns: Collection[str]) -> str:
    """Return the name of the view of a level.

    Examples
    --------
    >>> level_name("sales", ["y", "region"]), level_name("sales", [])
    ('sales by y, region', 'sales by ()')
    """
    return f"{cube} by {', '.join(columns) or '()'}"
