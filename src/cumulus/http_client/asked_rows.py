"""What a client asks for, as the parameters of an address and JSON have it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from cumulus.views.folding import Between, Bound, bounds_of


def asked_rows(columns: Sequence[str] | None, where: Mapping[str, Any] | Sequence[Bound] | None) -> dict[str, Any]:
    """Return the parameters for some columns of the rows within bounds.

    Examples
    --------
    >>> asked_rows(["a", "b"], {"a": [1, None]})
    {'columns': 'a,b', 'where': '{"a": [1, null]}'}
    """
    found: dict[str, Any] = {}
    if columns is not None:
        found["columns"] = ",".join(columns)
    if where:
        found["where"] = json.dumps({bound.column: _bound_json(bound.within) for bound in bounds_of(where)})
    return found


def path_part(name: str) -> str:
    """Return a name as one part of an address, whatever is in it; ``..`` would lead elsewhere as it is.

    Examples
    --------
    >>> path_part("../a b"), path_part("..")
    ('..%2Fa%20b', '%2E%2E')
    """
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: what is no number, truth or text goes as the text of a value."""
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if hasattr(value, "months") and hasattr(value, "micros"):
        from cumulus.catalog.text_values import span_as_text

        return span_as_text(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _bound_json(within: Between | tuple[Any, ...]) -> Any:
    if isinstance(within, Between):
        return {"from": json_value(within.low), "to": json_value(within.high)}
    return [json_value(each) for each in within]
