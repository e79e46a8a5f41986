"""Values that are written as text, in files and frames, and values that are not there."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from cumulus.catalog.interval_texts import parse_span
from cumulus.catalog.shown_values import shown
from cumulus.catalog.time_texts import refuse_finer
from cumulus.catalog.types import Kind, SqlType

_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_NULLS = ("NAType", "NaTType")
"""What pandas calls the types of `pd.NA` and `pd.NaT`."""


def value_of(text: str, sql_type: SqlType) -> Any:
    """Return what a text says as a value of another type than VARCHAR, for `coerce` to check.

    Examples
    --------
    >>> from cumulus.catalog.types import BOOLEAN, INTEGER
    >>> value_of(" 7 ", INTEGER), value_of("T", BOOLEAN)
    (Decimal('7'), True)
    """
    stripped = text.strip()
    if sql_type.is_numeric:
        try:
            if not stripped.isascii():
                raise ValueError
            found = float(stripped) if sql_type.is_float else Decimal(stripped)
        except (ArithmeticError, ValueError):
            raise ValueError(
                f"{shown(text)} is not {'an integer' if sql_type.is_integer else f'a {sql_type}'}"
            ) from None
        if isinstance(found, float) and math.isinf(found) and "inf" not in stripped.lower():
            raise ValueError(f"{stripped[:100]} does not fit {sql_type}")
        return found
    if sql_type.kind is Kind.BOOLEAN:
        if stripped.lower() not in _BOOLEANS:
            raise ValueError(f"{shown(text)} is not a BOOLEAN")
        return _BOOLEANS[stripped.lower()]
    if sql_type.kind is Kind.INTERVAL:
        refuse_finer(stripped)
        try:
            return parse_span(stripped)
        except (ArithmeticError, ValueError) as problem:
            reason = "it is out of range" if isinstance(problem, ArithmeticError) else problem
            raise ValueError(f"{text[:100]!r} is not an INTERVAL: {reason}") from None
    return stripped


def is_null(value: Any, sql_type: SqlType | None) -> bool:
    """Whether a value stands for NULL in a column of a type: None, `pd.NA`, `pd.NaT`, and NaN where it is no number.

    pandas writes a missing value of any type as NaN, a float; in a column of floats NaN is a value.
    """
    if value is None or type(value).__name__ in _NULLS:
        return True
    if isinstance(value, float):
        return value != value and sql_type is not None and not sql_type.is_float
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if kind in ("m", "M"):  # numpy's NaT
        return getattr(value, "ndim", 1) == 0 and bool(value != value)
    if kind == "f" and getattr(value, "ndim", 1) == 0:  # float32 and float16 are no floats of Python
        return bool(value != value) and sql_type is not None and not sql_type.is_float
    return False
