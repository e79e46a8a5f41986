"""Which rows and columns a request wants: from the parameters of an address, or a JSON body, to bounds and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import QueryParams

from cumulus.catalog.names import find_name, known_name
from cumulus.catalog.schema import Column
from cumulus.catalog.text_values import value_of
from cumulus.catalog.types import Kind, coerce
from cumulus.epochs.trigger import parse_trigger
from cumulus.errors import UnknownNameError, UsageError
from cumulus.m3.program import ViewDef
from cumulus.server.intake.json_slices import parsed_json
from cumulus.views.folding import Between, Bound

_LONGEST_S = 86_400.0


def seconds_of(name: str, text: str) -> float:
    """Return how many seconds a parameter gives; UsageError if it is no time of up to a day."""
    try:
        found = parse_trigger(text).every_s
    except UsageError:
        found = None
    if found is None or found > _LONGEST_S:
        raise UsageError(f"{name}={text!r} is no time of up to a day", hint="Write such as 2s or 500ms.")
    return found


def typed_value(view: str, column: Column, value: Any) -> Any:
    """Return a value of JSON, or a text, as one of a column.

    Raises
    ------
    UsageError
        If it is none.
    """
    if value is None or column.type is None:
        return value
    try:
        if isinstance(value, str) and column.type.kind is not Kind.VARCHAR:
            value = value_of(value, column.type)
        return coerce(value, column.type)
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise UsageError(f"{view}.{column.name}: {problem}", hint=f"It is a {column.type}.") from None


def wanted_columns(view: ViewDef, text: str | None) -> list[str] | None:
    """Return the columns that ``columns=a,b`` names; None is all."""
    if text is None:
        return None
    known = [column.name for column in view.columns]
    return [known_name(name.strip(), known, f"column of {view.name}") for name in text.split(",")]


def wanted_rows(view: ViewDef, parameters: QueryParams, options: Sequence[str]) -> list[Bound]:
    """Return the bounds of ``where=JSON``, and of ``column=value`` for all parameters that are no options.

    Raises
    ------
    UnknownNameError
        If a parameter is neither an option nor a column.
    UsageError
        If a value is not of its column's type.
    """
    where = parameters.get("where")
    bounds = [] if where is None else json_bounds(view, parsed_json(where, "where"))
    known = {column.name: column for column in view.columns}
    for name in dict.fromkeys(parameters.keys()):
        if name in options:
            continue
        found = find_name(name, known)
        if found is None:
            raise UnknownNameError(
                f"{name!r} is neither a column of {view.name} nor a parameter",
                hint=f"Columns: {', '.join(known)}. Parameters: {', '.join(options)}.",
            )
        texts = parameters.getlist(name)
        bounds.append(Bound(found, tuple(typed_value(view.name, known[found], text) for text in texts)))
    return bounds


def json_bounds(view: ViewDef, where: Any) -> list[Bound]:
    """Return the bounds of ``{"column": value, "other": [value, null], "third": {"from": low, "to": high}}``."""
    if not isinstance(where, Mapping):
        raise UsageError("where is no object", hint='Such as {"region": "ASIA", "year": {"from": 1994, "to": 1995}}.')
    known = {column.name: column for column in view.columns}
    bounds = []
    for name, given in where.items():
        column = known[known_name(name, known, f"column of {view.name}")]
        if isinstance(given, Mapping):
            if not given or given.keys() - {"from", "to"}:
                raise UsageError(f"where.{name}: a range has from, to or both", hint='Such as {"from": 1, "to": 5}.')
            low, high = (typed_value(view.name, column, given.get(end)) for end in ("from", "to"))
            bounds.append(Bound(column.name, Between(low, high)))
            continue
        values = given if isinstance(given, list) else [given]
        bounds.append(Bound(column.name, tuple(typed_value(view.name, column, each) for each in values)))
    return bounds
