"""Upserts and changes by primary key as events: each on the state that the events before it have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from cumulus.catalog.events import DELETE_BY_KEY, UPSERT, Row
from cumulus.catalog.schema import Relation
from cumulus.engine.integrity import Integrity
from cumulus.errors import AbsentRowError

Operation: TypeAlias = tuple[int, str, Row]
"""An event `(sign, relation, row)`, or another operation of `cumulus.catalog.events` in place of the sign."""


def events_of_operations(
    relations: Mapping[str, Relation], integrity: Integrity, operations: Iterable[Operation]
) -> Iterator[Operation]:
    """Yield the events of operations; who takes one must apply it before he takes the next.

    Raises
    ------
    AbsentRowError
        If there is no row with a key.
    """
    for operation in operations:
        sign, name, row = operation
        if sign in (1, -1):
            yield operation
            continue
        relation = relations[name]
        if sign == UPSERT:
            key, new = tuple([row[place] for place in relation.key_positions]), row
            old = integrity.by_key(name, key)
        else:
            key = row if sign == DELETE_BY_KEY else row[0]
            old = integrity.by_key(name, key)
            if old is None:
                raise _absent(relation, key)
            if sign == DELETE_BY_KEY:
                yield -1, name, old
                continue
            values = dict(zip(row[1], row[2], strict=True))
            new = tuple([values.get(place, value) for place, value in enumerate(old)])
        if old != new:
            if old is not None:
                yield -1, name, old
            yield 1, name, new


def _absent(relation: Relation, key: Row) -> AbsentRowError:
    pairs = ", ".join(f"{column}={value!r}" for column, value in zip(relation.key, key, strict=True))
    return AbsentRowError(
        f"{relation.name} has no row with {pairs}",
        relation=relation.name,
        row=key,
        hint="Nothing of the transaction was applied. Leave the key out, or insert the row before.",
    )
