"""Cuts that a user asks for: ``orders.oid=4``, ``lineitem.price@10,100``; several make a grid.

A cut is of a column of a table, or of a key of a map, and goes for all keys of maps that have its values: those that
an event's column is, and those that loop together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

from cumulus.catalog.names import find_name
from cumulus.catalog.types import Kind, SqlType, coerce
from cumulus.cluster.placement.correspondence import named_flows
from cumulus.cluster.placement.regions import AxisCut, Regions
from cumulus.cluster.placement.segments import hashed_alike, lies_by
from cumulus.epochs.formats.cells import value_of_text
from cumulus.errors import UsageError
from cumulus.m3.program import Program

At: TypeAlias = tuple[str, str, int]
""""table" or "map", its name, and the place of the column or key."""
_HOW = "Write --cut TABLE.COLUMN=N, MAP.KEY=N, or TABLE.COLUMN@VALUE,VALUE."


@dataclass(frozen=True, slots=True)
class AskedCut:
    """A cut as a user asks for it: of what, into how many parts, or at which values."""

    at: At
    parts: int
    bounds: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class GridDimension:
    """One dimension of a grid.

    Parameters
    ----------
    name
        The column or key that it was asked for by.
    columns, keys
        The columns of tables, and the keys of maps by their places, that have its values.
    """

    name: str
    cut: AxisCut
    columns: frozenset[tuple[str, str]]
    keys: frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class MapGrid:
    """How maps are cut.

    Parameters
    ----------
    regions
        Map → where its entries lie if each lies on one node; others lie by their owners.
    dimensions
        By which they are cut.
    """

    regions: Mapping[str, Regions]
    dimensions: tuple[GridDimension, ...] = ()


def grid_asked_for(program: Program, texts: Sequence[str], nodes: int) -> MapGrid:
    """Return the grid of cuts; without any it has no dimension.

    Parameters
    ----------
    program
        The spread program.
    texts
        The cuts, the first of which has neighbouring parts farthest apart.

    Raises
    ------
    UsageError
        If a cut is none, two are of the same values, or there are not as many regions as nodes.
    """
    if not texts:
        return MapGrid({})
    asked = [_asked(program, text) for text in texts]
    regions = prod(each.parts for each in asked)
    if regions != nodes:
        sizes = " × ".join(str(each.parts) for each in asked)
        raise UsageError(
            f"the cuts make {sizes} = {regions} regions, and there are {nodes} nodes",
            hint=f"Take --nodes {regions}, or other cuts: each node has one region.",
        )
    alike = _alike(program)
    axes: dict[str, list[tuple[int, AxisCut]]] = {}
    dimensions: list[GridDimension] = []
    taken: dict[At, str] = {}
    stride = regions
    for text, each in zip(texts, asked, strict=True):
        stride //= each.parts
        root = alike.root(each.at)
        if root in taken:
            told = f"--cut {text} is of the same values as --cut {taken[root]}"
            raise UsageError(told, hint="Leave one of them out.")
        taken[root] = text
        name = text.partition("@" if each.bounds else "=")[0].strip()
        dimension = _dimension(program, alike, root, name, AxisCut(each.parts, stride, each.bounds))
        if not dimension.keys:
            raise UsageError(f"--cut {text}: no map lies by that", hint="Cut a column that views group or join by.")
        dimensions.append(dimension)
        for map_, axis in dict(sorted(dimension.keys, reverse=True)).items():  # the first key of each map
            axes.setdefault(map_, []).append((axis, dimension.cut))
    return MapGrid({name: Regions(tuple(own)) for name, own in axes.items()}, tuple(dimensions))


def _dimension(program: Program, alike: _Alike, root: At, name: str, cut: AxisCut) -> GridDimension:
    """Return a dimension.

    Parameters
    ----------
    root
        What stands for all that have its values.
    """
    columns = (
        (table.name, column)
        for table in program.relations
        for place, column in enumerate(table.column_names)
        if alike.root(("table", table.name, place)) == root
    )
    keys = (
        (definition.name, axis)
        for definition in program.maps
        for axis in range(len(definition.keys))
        if alike.root(("map", definition.name, axis)) == root
    )
    return GridDimension(name, cut, frozenset(columns), frozenset(keys))


def _asked(program: Program, text: str) -> AskedCut:
    name, by_value, values = text.partition("@")
    parts = ""
    if not by_value:
        name, _, parts = text.partition("=")
    at, type_ = _place(program, text, name)
    if by_value:
        if type_ is None:
            raise UsageError(f"--cut {text}: nothing is known of the type of {name}", hint="Cut it by hash: NAME=N.")
        try:
            bounds = tuple(_value(value.strip(), type_) for value in values.split(","))
        except (ValueError, TypeError, ArithmeticError) as problem:
            raise UsageError(f"--cut {text}: {problem}", hint=_HOW) from None
        if any(bound != bound for bound in bounds):
            raise UsageError(f"--cut {text}: nothing is above NaN", hint="It is in the first part, as NULL.")
        if any(not one < other for one, other in pairwise(bounds)):
            raise UsageError(f"--cut {text}: the values do not ascend", hint="Write the least one first.")
        return AskedCut(at, len(bounds) + 1, bounds)
    if not parts.isdecimal() or int(parts) < 1:
        raise UsageError(f"--cut {text}: {parts or 'nothing'!r} is no number of parts", hint=_HOW)
    return AskedCut(at, int(parts), ())


def _value(text: str, type_: SqlType) -> Any:
    return text if type_.kind is Kind.VARCHAR else coerce(value_of_text(text, type_), type_)


def _place(program: Program, text: str, name: str) -> tuple[At, SqlType | None]:
    before, _, behind = name.rpartition(".")
    tables = {relation.name: relation.columns for relation in program.relations}
    maps = {definition.name: definition.keys for definition in program.maps}
    kinds: tuple[tuple[str, Mapping[str, Any]], ...] = (("table", tables), ("map", maps))
    for kind, known in kinds:
        found = find_name(before, known)
        if found is not None:
            columns = [column.name for column in known[found]]
            column = find_name(behind, columns)
            if column is None:
                raise UsageError(
                    f"--cut {text}: {found} has no column {behind!r}", hint=f"It has {', '.join(columns)}."
                )
            place = columns.index(column)
            return (kind, found, place), known[found][place].type
    wrong = f"there is no table or map {before!r}" if before else "it names no column of a table, and no key of a map"
    raise UsageError(f"--cut {text}: {wrong}", hint=f"{_HOW} There are: {', '.join((*tables, *maps))}.")


class _Alike:
    """Which columns and keys have the same values."""

    def __init__(self) -> None:
        self._above: dict[At, At] = {}

    def root(self, at: At) -> At:
        """Return what stands for all that have the values of one."""
        while at in self._above:
            at = self._above[at]
        return at

    def join(self, one: At, other: At) -> None:
        """Note that two have the same values."""
        first, second = self.root(one), self.root(other)
        if first != second:
            self._above[first] = second


def _alike(program: Program) -> _Alike:
    found = _Alike()
    for flow in named_flows(program):
        table = program.relation(flow.relation)
        by_loop: dict[str, At] = {}
        for named in (flow.writes, *flow.reads):
            for axis, (column, loop) in enumerate(zip(named.columns, named.loops, strict=True)):
                at: At = ("map", named.map, axis)
                type_ = program.map(named.map).keys[axis].type
                if column is not None:
                    if lies_by(program, flow.relation, column, named.map, axis):
                        found.join(at, ("table", table.name, table.position(column)))
                elif loop is not None:
                    other = by_loop.setdefault(loop, at)
                    if hashed_alike(program.map(other[1]).keys[other[2]].type, type_):
                        found.join(at, other)
    return found
