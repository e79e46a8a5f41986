"""What a cube is made of: dimensions with levels, measures, the levels for which maps are kept."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from cumulus.algebra.scope import maps_of, variables_of
from cumulus.algebra.terms import Scalar
from cumulus.catalog.names import find_name, known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.text_values import value_of
from cumulus.catalog.types import Kind, coerce
from cumulus.errors import UnknownNameError, UsageError
from cumulus.m3.program import LevelDef, On, Program
from cumulus.scalars.python_code import canonical
from cumulus.views import Finisher
from cumulus.views.folding.plan import measure_kinds

CONSTANT = "constant"
"""The kind of a measure that is made of no map."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """Levels from coarse to fine; a member is a path of their values."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """A column that is folded.

    Parameters
    ----------
    type
        As SQL calls it; "" if it is not known.
    kind
        How groups become one: "additive", "end", "distinct", or several of them with a plus between; "fixed" where
        they do not: then it is shown at kept levels alone.
    maps
        The maps that its view reads.
    """

    name: str
    type: str
    kind: str
    maps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptLevel:
    """Levels by which there is a map.

    Parameters
    ----------
    entries
        How many it has; None where the source does not tell. Reading the level costs these.
    statements
        How many statements insertions fire to keep it, all tables together.
    asked_for
        Whether it is the finest, or KEEP asked for it; others are there for other views.
    """

    levels: tuple[str, ...]
    map: str
    entries: int | None
    statements: int
    asked_for: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a dimension: the values of its levels down to `level`, as they were `at` a transaction or epoch."""

    path: tuple[Any, ...]
    level: str
    at: Any


@dataclass(frozen=True, slots=True)
class Axis:
    """A dimension as it is shown: down to its level number `depth`, counted from 1."""

    dimension: Dimension
    depth: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are shown: the path to the level."""
        return self.dimension.levels[: self.depth]

    @property
    def name(self) -> str:
        """The level's name, with its dimension."""
        return f"{self.dimension.name}.{self.dimension.levels[self.depth - 1]}"


@dataclass(frozen=True, slots=True)
class CubeShape:
    """A cube's dimensions, measures and kept levels; `columns` are the grouping columns, with their types."""

    name: str
    columns: tuple[Column, ...]
    dimensions: tuple[Dimension, ...]
    measures: tuple[Measure, ...]

    def dimension(self, name: str) -> Dimension:
        """Return a dimension; UnknownNameError if there is none of the name."""
        known = {each.name: each for each in self.dimensions}
        return known[known_name(name, known, "dimension")]

    def measure(self, name: str) -> Measure:
        """Return a measure; UnknownNameError if there is none of the name."""
        known = {each.name: each for each in self.measures}
        return known[known_name(name, known, "measure")]

    def column(self, name: str) -> Column:
        """Return a level's column; it may be given with its dimension, as in ``date.y``."""
        known = {each.name: each for each in self.columns}
        found = find_name(name, known)
        if found is None and isinstance(name, str) and "." in name:
            axis = self.axis(name)
            return known[axis.columns[-1]]
        return known[found or known_name(name, known, "level")]

    def axis(self, name: str) -> Axis:
        """Return the axis that ``date.m``, ``m`` or ``date`` is; of a dimension alone, its coarsest level.

        Raises
        ------
        UnknownNameError
            If there is none.
        UsageError
            If several dimensions have a level of the name.
        """
        known = {each.name: each for each in self.dimensions}
        found = find_name(name, known)
        if found is not None:
            return Axis(known[found], 1)
        if not isinstance(name, str):
            raise UsageError(f"{name!r} is no level of {self.name}", hint=f"Levels: {', '.join(self.level_names)}.")
        head, dot, level = name.partition(".")
        places = [
            Axis(each, each.levels.index(column) + 1)
            for each in ([self.dimension(head)] if dot and find_name(head, known) else self.dimensions)
            if (column := find_name(level if dot and find_name(head, known) else name, each.levels)) is not None
        ]
        if not places:
            raise UnknownNameError(
                f"there is no level {name} of {self.name}", hint=f"Levels: {', '.join(self.level_names) or 'none'}."
            )
        if len(places) > 1:
            names = " and ".join(each.name for each in places)
            raise UsageError(f"{name} may be {names}", hint=f"Say which one, such as {places[0].name}.")
        return places[0]

    @property
    def level_names(self) -> tuple[str, ...]:
        """All levels, each with its dimension unless it is its only one of the same name."""
        return tuple(
            each.name if each.levels == (each.name,) else f"{each.name}.{level}"
            for each in self.dimensions
            for level in each.levels
        )

    def value(self, column: Column, value: Any) -> Any:
        """Return a value as the column has it; a text may stand for a number or a time.

        Raises
        ------
        UsageError
            If it is none.
        """
        if column.type is None:
            return canonical(value)
        try:
            if isinstance(value, str) and column.type.kind is not Kind.VARCHAR:
                value = value_of(value, column.type)
            return canonical(coerce(value, column.type))
        except (TypeError, ValueError) as problem:
            raise UsageError(f"{self.name}.{column.name}: {problem}", hint=f"It is a {column.type}.") from None


def shape_of(program: Program, view: str, finisher_of: Callable[[str], Finisher]) -> CubeShape:
    """Return the shape of a cube, or of a view that groups: each grouping column is a dimension of its own.

    Raises
    ------
    UnknownNameError
        If there is no such view.
    UsageError
        If it cannot be folded.
    """
    name = known_name(view, [each.name for each in program.shown_views], "cube")
    finisher = finisher_of(name)
    kinds = measure_kinds(finisher)
    grouping = finisher.grouping
    columns = tuple(column for column in finisher.view.columns if column.name in grouping)
    cube = next((each for each in program.cubes if each.name == name), None)
    dimensions = (
        tuple(Dimension(column.name, (column.name,)) for column in columns)
        if cube is None
        else tuple(Dimension(each.name, each.levels) for each in cube.dimensions)
    )
    keys = {key.name for key in finisher.maps[0].keys}
    measures = tuple(
        Measure(
            column.name,
            "" if column.type is None else str(column.type),
            "+".join(sorted(kinds[column.name])) or CONSTANT,
            finisher.view.reads,
        )
        for column, scalar in zip(finisher.view.columns, finisher.view.select, strict=True)
        if column.name in kinds and not _tells_of_keys(scalar, keys)
    )
    return CubeShape(name, columns, dimensions, measures)


def kept_levels(program: Program, shape: CubeShape, entries: Callable[[str], int | None]) -> tuple[KeptLevel, ...]:
    """Return the levels of a cube for which there are maps, the finest first."""
    cube = next((each for each in program.cubes if each.name == shape.name), None)
    finest = LevelDef(tuple(column.name for column in shape.columns), shape.name)
    found = []
    for level in (finest, *(() if cube is None else cube.levels)):
        name = program.view(level.view).maps[0]
        statements = sum(
            statement.map == name for trigger, statement in program.statements() if trigger.on is On.INSERT
        )
        found.append(KeptLevel(level.columns, name, entries(name), statements, level.kept))
    return tuple(found)


def _tells_of_keys(scalar: Scalar, keys: Collection[str]) -> bool:
    """Whether a column is made of grouping columns alone, which makes it no measure."""
    names = variables_of(scalar)
    return bool(names) and names <= set(keys) and not maps_of(scalar)
