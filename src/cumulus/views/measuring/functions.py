"""Functions for DuckDB that finish numbers which its types do not hold: decimals of any length, as texts."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal

import duckdb
from duckdb.func import FunctionNullHandling

from cumulus.catalog.types import EXACT
from cumulus.scalars.mathematics import deviation, variance

EXACT_TOTAL = "cumulus_exact_total"
"""Adds up decimals in a list."""
DISTINCT_TOTAL = "cumulus_distinct_total"
"""Adds up what each value of a list weighs once, if it stands there more often than it was taken away."""
SPREADS = {"variance_of": "cumulus_variance", "deviation_of": "cumulus_deviation"}
"""What a variance and a deviation are called, of numbers as texts."""

_VALUES = "STRUCT(v BIGINT, w VARCHAR, n BIGINT)[]"


def create_finishing(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the functions in a connection."""
    made: list[tuple[str, Callable[..., object], list[str], str]] = [
        (EXACT_TOTAL, _exact_total, ["VARCHAR[]"], "VARCHAR"),
        (DISTINCT_TOTAL, _distinct_total, [_VALUES], "VARCHAR"),
        (SPREADS["variance_of"], _variance, ["VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"], "DOUBLE"),
        (SPREADS["deviation_of"], _deviation, ["VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR"], "DOUBLE"),
    ]
    for name, function, given, result in made:
        connection.create_function(
            name,
            function,
            [duckdb.sqltype(each) for each in given],
            duckdb.sqltype(result),
            null_handling=FunctionNullHandling.SPECIAL,
        )


def _exact_total(texts: list[str | None] | None) -> str:
    with decimal.localcontext(EXACT):
        return format(sum((Decimal(text) for text in texts or () if text is not None), Decimal(0)), "f")


def _distinct_total(values: list[dict[str, object] | None] | None) -> str:
    counts: dict[object, int] = {}
    weights: dict[object, str] = {}
    for each in values or ():
        if each is not None:
            counts[each["v"]] = counts.get(each["v"], 0) + int(str(each["n"]))
            weights[each["v"]] = str(each["w"])
    return _exact_total([weights[value] for value, count in counts.items() if count > 0])


def _variance(count: str, total: str, squares: str, missing: str) -> float | None:
    return variance(int(count), Decimal(total), Decimal(squares), int(missing))


def _deviation(count: str, total: str, squares: str, missing: str) -> float | None:
    return deviation(int(count), Decimal(total), Decimal(squares), int(missing))
