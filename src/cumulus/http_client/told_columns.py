"""Columns and tables, as a server describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cumulus.catalog.schema import Column, Relation
from cumulus.catalog.types import SqlType, type_named
from cumulus.errors import RemoteProtocolError


def columns_of(told: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """Return columns.

    Raises
    ------
    RemoteProtocolError
        If one has a type that is not known here.
    """
    return tuple(Column(each["name"], _type_of(each["type"]), each["not_null"]) for each in told)


def relation_of(told: Mapping[str, Any]) -> Relation:
    """Return a table."""
    return Relation(told["name"], columns_of(told["columns"]), tuple(told["key"]), static=told["static"])


def _type_of(text: str | None) -> SqlType | None:
    if text is None:
        return None
    word, _, rest = text.partition("(")
    found = type_named(word, tuple(int(part) for part in rest.rstrip(")").split(",")) if rest else ())
    if found is None:
        raise RemoteProtocolError(f"the server has a type {text}", hint="Use a client of its version.")
    return found
