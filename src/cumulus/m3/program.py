"""An M3 program: the waist between the compiler and every host.

Plain, frozen data, with what a program says of cubes: how grouping columns of a view lead from coarse to fine, and
which totals are kept. `cumulus.m3.parse` reads it from text, `str(program)` prints it, `cumulus.m3.validate` checks it;
hosts take it as it is. docs/m3.md is the reference of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from html import escape
from typing import Any, TypeAlias, TypeVar

from cumulus.algebra.scope import maps_of
from cumulus.algebra.terms import Number, Scalar, Term
from cumulus.catalog.functions import FunctionSignature
from cumulus.catalog.names import find_name
from cumulus.catalog.schema import Column, Relation


@dataclass(frozen=True, slots=True)
class DimensionDef:
    """A dimension: columns of the cube's view, coarse to fine. A member is a path of their values."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LevelDef:
    """Fewer levels than the finest, for which there are maps.

    The level of no columns is what SQL says without GROUP BY: its view has one row, also over no rows, where a count is
    0 and a sum NULL. Folding the finest rows gives no row there: no group, no total. Whoever shows totals of nothing
    must choose one of both for all maps that may answer.

    Parameters
    ----------
    columns
        The grouping columns, in the order of the cube's view.
    view
        The view with these grouping columns and the cube's measures; it is not shown (`Program.shown_views`).
    kept
        Whether KEEP asks for it; False for maps of equal sums that are there for other views.
    """

    columns: tuple[str, ...]
    view: str
    kept: bool = True


@dataclass(frozen=True, slots=True)
class CubeDef:
    """A view with dimensions: the view of the same name has its finest rows."""

    name: str
    dimensions: tuple[DimensionDef, ...]
    levels: tuple[LevelDef, ...] = ()


Entry: TypeAlias = tuple[tuple[Any, ...], tuple[Number, ...]]
"""The key and the values of an entry of a map."""


class On(StrEnum):
    """What fires a trigger."""

    INSERT = "+"
    DELETE = "-"
    BATCH = "BATCH"

    def event(self, relation: str) -> str:
        """Return the event as M3 writes it, such as ``+r`` or ``BATCH r``."""
        return f"{self.value}{' ' if self is On.BATCH else ''}{relation}"


@dataclass(frozen=True, slots=True)
class MapDef:
    """A map from key tuples to one or more independent value columns.

    Parameters
    ----------
    name, keys, values
        Keys may be NULL; values are numbers.
    count
        The value column that decides whether an entry exists (it does iff ≠ 0). "" if there is none: then an entry
        exists iff some value ≠ 0.
    ordered
        The key on which ranges and ends are read, or "".
    definitions
        One calculus term per value column, over the keys and base relations; empty in hand-written maps.
    sql
        The same as a SELECT over the base tables (keys, then values), or "".
    declared
        False for a map that a hand-written program uses without declaring it.
    initial
        The entries that it has before the first event, key and values: what the definitions are over empty tables.
    """

    name: str
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    count: str = ""
    ordered: str = ""
    definitions: tuple[Term, ...] = ()
    sql: str = ""
    declared: bool = True
    initial: tuple[Entry, ...] = ()

    def column_index(self, column: str) -> int:
        """Return the position of a value column; "" means the only one. KeyError if there is none."""
        if column == "" and len(self.values) == 1:
            return 0
        for index, value in enumerate(self.values):
            if value.name == column:
                return index
        raise KeyError(column)


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One item of ORDER BY."""

    expression: Scalar
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True)
class ViewDef:
    """How the rows of a view are made from map entries when it is read: the finishing step.

    Parameters
    ----------
    columns
        Names and types of the result, in order.
    maps
        The first map's entries are the rows; the others have the same keys and are looked up. A first map without keys
        gives exactly one row, entry or not.
    select
        One scalar per column, over the names of the keys and of the value columns. A value column of the second and
        further maps, or one whose name stands in several, is written `map.column`.
    where
        HAVING: rows for which it is TRUE; None keeps all.
    repeat
        Each row stands this many times (a bag); None means once.
    order_by, limit, offset
        Applied when the view is read.

    The expressions may read single entries of any map, and ends of slices, by keys made of the view's own: an entry
    is its number, 0 if it is not there.
    """

    name: str
    columns: tuple[Column, ...]
    maps: tuple[str, ...]
    select: tuple[Scalar, ...]
    where: Scalar | None = None
    repeat: Scalar | None = None
    order_by: tuple[OrderItem, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def expressions(self) -> tuple[Scalar, ...]:
        """Everything that is computed of a row: SELECT, WHERE, REPEAT, ORDER BY."""
        conditions = (scalar for scalar in (self.where, self.repeat) if scalar is not None)
        return (*self.select, *conditions, *(item.expression for item in self.order_by))

    def rewritten(self, change: Callable[[Scalar], Scalar]) -> ViewDef:
        """Return the view with every expression changed."""
        return replace(
            self,
            select=tuple(change(scalar) for scalar in self.select),
            where=None if self.where is None else change(self.where),
            repeat=None if self.repeat is None else change(self.repeat),
            order_by=tuple(replace(item, expression=change(item.expression)) for item in self.order_by),
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """All maps on which the view depends: `maps`, then those that its expressions read, by name."""
        others = frozenset[str]().union(*(maps_of(scalar) for scalar in self.expressions))
        return (*self.maps, *sorted(others.difference(self.maps)))


@dataclass(frozen=True, slots=True)
class Statement:
    """`map[keys].column op term`.

    `column` "" means the map's only value column. `parse` and `canonical` always put its name, here and in every
    `MapRead`; hosts take either (`MapDef.column_index`).

    A key that the trigger does not bind is a loop variable, bound by the term. `op` is "+=" (reads the state
    before the event) or ":=" (replaces the whole map, after all "+=").
    """

    map: str
    column: str
    keys: tuple[str, ...]
    op: str
    term: Term


@dataclass(frozen=True, slots=True)
class Trigger:
    """The statements that one kind of event fires. `variables` is empty for `ON BATCH`."""

    on: On
    relation: str
    variables: tuple[str, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Relations, maps, views and triggers.

    Parameters
    ----------
    kept
        Relation name → map that keeps its rows (keys: all columns in order; one value: the multiplicity).
    functions
        What it calls beside the built-in functions, and whoever runs it must give.
    cubes
        The views that have dimensions.
    """

    relations: tuple[Relation, ...] = ()
    maps: tuple[MapDef, ...] = ()
    views: tuple[ViewDef, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    functions: tuple[FunctionSignature, ...] = ()
    cubes: tuple[CubeDef, ...] = ()

    def __str__(self) -> str:
        from cumulus.m3.printer import print_program

        return print_program(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def relation(self, name: str) -> Relation:
        """Return the relation called `name`; KeyError if there is none."""
        return _named(self.relations, name)

    def map(self, name: str) -> MapDef:
        """Return the map called `name`; KeyError if there is none."""
        return _named(self.maps, name)

    def view(self, name: str) -> ViewDef:
        """Return the view called `name`; KeyError if there is none."""
        return _named(self.views, name)

    def trigger(self, on: On, relation: str) -> Trigger | None:
        """Return the trigger for a kind of event, or None."""
        return next((each for each in self.triggers if each.on is on and each.relation == relation), None)

    @property
    def shown_views(self) -> tuple[ViewDef, ...]:
        """The views that somebody asked for by name: all but those of the levels of cubes."""
        hidden = {level.view for cube in self.cubes for level in cube.levels}
        return tuple(view for view in self.views if view.name not in hidden)

    @property
    def only_columns(self) -> dict[str, str]:
        """The value column of every map that has only one."""
        return {each.name: each.values[0].name for each in self.maps if len(each.values) == 1}

    def is_batch_form(self, trigger: Trigger) -> bool:
        """Whether a trigger does for a batch what others do for its events one by one."""
        single = (self.trigger(on, trigger.relation) for on in (On.INSERT, On.DELETE))
        return trigger.on is On.BATCH and any(each is not None for each in single)

    def statements(self) -> Iterator[tuple[Trigger, Statement]]:
        """Yield all statements with their triggers, in order."""
        return ((trigger, statement) for trigger in self.triggers for statement in trigger.statements)


Named = TypeVar("Named", Relation, MapDef, ViewDef)


def _named(items: tuple[Named, ...], name: str) -> Named:
    """Return the item called `name`, or else the one whose name differs in case; KeyError if there is none."""
    for item in items:
        if item.name == name:
            return item
    found = find_name(name, [item.name for item in items])
    if found is None:
        raise KeyError(name)
    return _named(items, found)
