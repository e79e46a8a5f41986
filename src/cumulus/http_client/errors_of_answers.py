"""Errors that a server has told, as the exceptions that they were there."""

from __future__ import annotations

import json
from typing import Any

from cumulus import errors
from cumulus.errors import CumulusError, RemoteProtocolError


def error_of(status: int, body: bytes) -> CumulusError:
    """Return the error of an answer.

    Examples
    --------
    >>> error_of(404, b'{"error": "UnknownNameError", "message": "there is no view w", "hint": "Views: v."}')
    UnknownNameError('there is no view w\\nViews: v.')
    """
    try:
        given = json.loads(body)
        name, message, hint = str(given["error"]), str(given["message"]), str(given.get("hint") or "")
        place: dict[str, Any] = dict(given.get("place") or {})
    except (ValueError, KeyError, TypeError, RecursionError):
        return RemoteProtocolError(
            f"HTTP {status}, without an error of Cumulus", hint="Is this the address of a `cumulus serve`?"
        )
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, CumulusError)):
        kind = CumulusError
    found = kind(message, hint=hint)
    for attribute, key in (("line", "line"), ("column", "column"), ("relation", "table"), ("view", "view")):
        if key in place and hasattr(found, attribute):
            setattr(found, attribute, place[key])
    if isinstance(found, errors.AccessError):
        found.is_known = status != 401
    return found
