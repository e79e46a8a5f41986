"""Views and maps against the oracle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cumulus.algebra.scope import relations_of, variables_of
from cumulus.algebra.terms import (
    AggSum,
    Apply,
    Atom,
    Product,
    Sum,
    Term,
    Var,
    is_number,
    number,
    product_of,
    rebuild,
)
from cumulus.catalog.comparison import RowMismatch, compare_rows
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGDECIMAL
from cumulus.compiler.maps.canonical_forms import is_value
from cumulus.errors import CumulusError, EvaluationError, UsageError
from cumulus.m3.dataflow import bases_of, maps_of_view
from cumulus.m3.program import Program, ViewDef
from cumulus.recheck.oracle import Entries, Oracle
from cumulus.recheck.report import Checked
from cumulus.views import Finisher

Functions = Mapping[str, Callable[..., Any]]
WITNESSES = 5


def tables_behind(program: Program, views: Iterable[ViewDef]) -> frozenset[str]:
    """Return the tables whose rows some views are made from.

    Raises
    ------
    UsageError
        If a view shows a map without a definition: nobody can say what it should be.
    """
    tables: set[str] = set()
    for view in views:
        for name in sorted(maps_of_view(program, view.name)):
            definition = program.map(name)
            if name in view.maps and not definition.definitions:
                raise UsageError(
                    f"view {view.name} cannot be recomputed: map {name} has no definition",
                    hint="Give the map one (`= term`), or check another view.",
                )
            tables |= bases_of(definition)
    return frozenset(tables)


def check_views(
    program: Program,
    stored: Mapping[str, Callable[[], list[Row]]],
    oracle: Oracle,
    *,
    limit: int = WITNESSES,
    functions: Functions | None = None,
) -> tuple[Checked, ...]:
    """Compare views, given their rows as they are kept, with what they should be.

    Parameters
    ----------
    program
        The program of the views.
    stored
        View → function that returns its rows as they are kept.
    oracle
        Computes the expected rows.
    limit
        The most mismatches that are reported for a view.
    functions
        The user's scalar functions that views of M3 programs may call.
    """
    return tuple(
        _ViewCheck(program, program.view(name), oracle, functions).checked(rows, limit) for name, rows in stored.items()
    )


@dataclass(frozen=True, slots=True)
class _ViewCheck:
    """A view, and what it is compared with."""

    program: Program
    view: ViewDef
    oracle: Oracle
    functions: Functions | None

    def checked(self, stored: Callable[[], list[Row]], limit: int) -> Checked:
        """Compare the rows that are kept with those that should be."""
        view, key = self.view, self._key_places()
        by = "SQL" if self.oracle.has_sql(view.name) else "definition"
        columns = tuple(column.name for column in view.columns)
        rows: list[Row] = []
        try:
            rows = stored()
            try:
                wanted = self.oracle.view(view.name, view.columns) if by == "SQL" else self._finished(view)
            except EvaluationError:
                # What a row cannot give is left out of a view, where DuckDB refuses the whole query.
                by = "definition"
                wanted = self._finished(view, failures_are_zero=True)
            found = compare_rows(rows, wanted, key=key)
            if found and any(column.type is None or column.type.is_float for column in view.columns):
                found = compare_rows(rows, wanted, key=key, magnitudes=self._magnitudes())
            if found and view.limit is not None and self._are_ties(rows, wanted, found):
                found = []
        except CumulusError as problem:
            return Checked(view.name, len(rows), columns=columns, by=by, problem=problem.message)
        return Checked(view.name, len(rows), len(found), tuple(found[:limit]), columns, by)

    def _finished(self, view: ViewDef, *, failures_are_zero: bool = False) -> list[Row]:
        """Return the rows of a view, from recomputed maps by the finishing step."""

        def entries(name: str) -> Entries:
            return self.oracle.entries(self.program.map(name), failures_are_zero=failures_are_zero)

        return Finisher(self.program, view, self.functions).rows(entries)

    def _key_places(self) -> list[int] | None:
        """Return where the keys of the view's entries stand among its columns; None if they are not all shown."""
        if self.view.repeat is not None:
            return None
        keys = [key.name for key in self.program.map(self.view.maps[0]).keys]
        select = reversed(list(enumerate(self.view.select)))
        shown = {scalar.name: place for place, scalar in select if isinstance(scalar, Var)}
        return [shown[name] for name in keys] if all(name in shown for name in keys) else None

    def _are_ties(self, stored: list[Row], wanted: list[Row], found: list[RowMismatch]) -> bool:
        """Whether rows differ only because ORDER BY leaves open which of several equal ones LIMIT takes."""
        if len(stored) != len(wanted):
            return False
        view, width = self.view, len(self.view.columns)
        order = tuple(item.expression for item in view.order_by)
        columns = (*view.columns, *(Column(f"order {place}") for place in range(len(order))))
        keys: dict[Row, Counter[Row]] = {}
        every = replace(view, select=(*view.select, *order), columns=columns, limit=None, offset=0)
        for row in self._finished(every):
            keys.setdefault(row[:width], Counter())[row[width:]] += 1
        kept = [each.stored for each in found if each.stored is not None]
        if any(row not in keys or stored.count(row) > keys[row].total() for row in kept):
            return False
        ours = Counter(key for row in kept for key in list(keys[row])[:1])
        missing = [each.recomputed for each in found if each.recomputed in keys]
        theirs = Counter(key for row in missing for key in list(keys[row or ()])[:1])
        return ours == theirs

    def _magnitudes(self) -> dict[int, float]:
        """Return for the columns of floats the greatest Σ|x| of the sums that they are made from."""
        sizes: dict[int, float] = {}
        for place, scalar in enumerate(self.view.select):
            for name in sorted(variables_of(scalar)):
                map_name, _, column = name.rpartition(".")
                definition = self.program.map(map_name or self.view.maps[0])
                values = [value.name for value in definition.values]
                if column not in values or not definition.definitions:
                    continue
                value = definition.values[values.index(column)]
                if value.type is None or not value.type.is_float:
                    continue
                size = _magnitude(definition.definitions[values.index(column)], self.oracle)
                sizes[place] = max(sizes.get(place, 0.0), size)
        return sizes


# --- how far sums of floats may differ -------------------------------------------------------------------------------


def _magnitude(term: Term, oracle: Oracle) -> float:
    """Return the greatest Σ|x| over the keys of a definition; 0 if it cannot be told: then floats agree closely."""
    return oracle.greatest(AggSum(term.group, _absolute(term.term)) if isinstance(term, AggSum) else _absolute(term))


def _absolute(term: Term) -> Term:
    """Return a definition whose summands are the absolute values of those of `term`."""
    match term:
        case Sum() if relations_of(term):
            changed: Term = rebuild(term, _absolute)
            return changed
        case Product(parts):
            return product_of(_absolute(part) for part in parts)
        case Atom():
            return term
        case Apply("finite" | "exactly" | "float_rest" as function, (inner,)):
            return Apply(function, (Apply("abs", (inner,)),))
        case _ if is_number(term):
            return number(abs(term.value))  # type: ignore[union-attr]  # a number is a Const
        case _ if is_value(term):
            return Apply("abs", (term,))
        case _:
            return term


# --- maps ------------------------------------------------------------------------------------------------------------


def check_maps(
    program: Program,
    stored: Callable[[str], Iterable[tuple[Row, tuple[Any, ...]]]],
    oracle: Oracle,
    *,
    limit: int = WITNESSES,
) -> tuple[Checked, ...]:
    """Compare every map that has a definition, given its existing entries by its name, with what it should be.

    Parameters
    ----------
    program
        The program of the maps.
    stored
        Function from the name of a map to its entries: keys, values.
    oracle
        Computes the expected entries.
    limit
        The most mismatches that are reported for a map.
    """
    result = []
    for definition in program.maps:
        if not definition.definitions:
            continue
        width = len(definition.keys)
        columns = tuple(column.name for column in (*definition.keys, *definition.values))
        rough = [
            value.type is not None and (value.type.is_float or value.type == BIGDECIMAL) for value in definition.values
        ]
        rows = [(*key, *_as_floats(values, rough)) for key, values in stored(definition.name)]
        try:
            wanted = [(*key, *_as_floats(values, rough)) for key, values in oracle.entries(definition)]
            witnesses = compare_rows(rows, wanted, key=range(width))
            if witnesses and any(rough):
                sizes = {
                    width + place: _magnitude(term, oracle)
                    for place, (term, is_rough) in enumerate(zip(definition.definitions, rough, strict=True))
                    if is_rough
                }
                witnesses = compare_rows(rows, wanted, key=range(width), magnitudes=sizes)
        except CumulusError as problem:
            result.append(
                Checked(definition.name, len(rows), columns=columns, by="definition", problem=problem.message)
            )
            continue
        result.append(
            Checked(definition.name, len(rows), len(witnesses), tuple(witnesses[:limit]), columns, "definition")
        )
    return tuple(result)


def _as_floats(values: tuple[Any, ...], rough: list[bool]) -> tuple[Any, ...]:
    """Return values with floats for those that DuckDB adds up as floats."""
    return tuple(_as_float(value) if is_rough else value for value, is_rough in zip(values, rough, strict=True))


def _as_float(value: Any) -> float:
    """Return a number as a float; a sum of what is not finite is kept as a large number, whatever it is."""
    found = float(value)
    return found if math.isfinite(found) else math.inf
