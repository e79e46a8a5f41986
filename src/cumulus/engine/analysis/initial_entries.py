"""What maps hold before the first event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cumulus.catalog.types import SqlType, coerce
from cumulus.engine.protocol import Key, Values
from cumulus.errors import ValidationError
from cumulus.m3.declarations import initial_problems
from cumulus.m3.program import MapDef


def initial_entries(definition: MapDef) -> Iterator[tuple[Key, Values]]:
    """Yield the entries that a map has from the start, keys as their columns have them where they fit."""
    for problem in initial_problems(definition):
        raise ValidationError(f"map {definition.name}: {problem.message}", hint=problem.hint)

    def key(value: Any, sql_type: SqlType | None) -> Any:
        try:
            return value if sql_type is None else coerce(value, sql_type.computed)
        except (TypeError, ValueError):
            return value  # a computed key beyond its type, as events make them, too

    types = [column.type for column in definition.keys]
    for values, numbers in definition.initial:
        yield tuple(map(key, values, types)), numbers
