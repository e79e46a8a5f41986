"""Types of scalar functions by their names in SQL, for tests beside DuckDB."""

from __future__ import annotations

from cumulus.catalog.types import SqlType, type_named
from cumulus.scalars.registry import result_type

COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/", "intdiv": "//", "mod": "%"}
TEMPLATES = {
    **{name: f"{{0}} {operator} {{1}}" for name, operator in (ARITHMETIC | COMPARISONS).items()},
    "concat": "{0} || {1}",
    "is_distinct": "{0} IS DISTINCT FROM {1}",
    "is_null": "{0} IS NULL",
    "in": "{0} IN ({1}, {2})",
    "and": "{0} AND {1}",
    "or": "{0} OR {1}",
    "not": "NOT {0}",
    "neg": "-{0}",
    "case": "CASE WHEN {0} THEN {1} ELSE {2} END",
    "like": "{0} LIKE {1}",
    "ilike": "{0} ILIKE {1}",
    "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}",
    "bit_not": "~{0}",
}
"""How SQL writes functions that are no plain calls."""


def template(name: str, count: int) -> str:
    """Return how SQL writes a function of `count` arguments."""
    return TEMPLATES.get(name) or f"{name}({', '.join(f'{{{index}}}' for index in range(count))})"


def parsed(text: str) -> SqlType:
    """Return a type by its name."""
    name, _, parameters = text.rstrip(")").partition("(")
    found = type_named(name, tuple(int(part) for part in parameters.split(",") if part))
    assert found is not None
    return found


def my_type(name: str, types: tuple[str, ...]) -> str | None:
    """Return the type of a function's result, None if it does not take these types."""
    try:
        return str(result_type(name, tuple(map(parsed, types))))
    except TypeError:
        return None
