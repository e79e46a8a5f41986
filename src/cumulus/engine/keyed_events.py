"""Operations as changes of rows: each on the state that those before it have left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from cumulus.catalog.events import DELETE_BY_KEY, UPSERT, Row
from cumulus.catalog.schema import Relation
from cumulus.engine.integrity import Integrity
from cumulus.errors import AbsentRowError

Operation: TypeAlias = tuple[int, str, Row]
"""An event `(sign, relation, row)`, or another operation of `cumulus.catalog.events` in place of the sign."""


class RowChange(NamedTuple):
    """A row of a table before and after; None if there is none."""

    relation: str
    old: Row | None
    new: Row | None


def changes_of_operations(
    relations: Mapping[str, Relation], integrity: Integrity, operations: Iterable[Operation]
) -> Iterator[RowChange]:
    """Yield the changes that operations make; who takes one must apply it before he takes the next.

    Raises
    ------
    AbsentRowError
        If there is no row with a key.
    """
    for operation in operations:
        sign, name, row = operation
        if sign in (1, -1):
            yield RowChange(name, None, row) if sign > 0 else RowChange(name, row, None)
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
                yield RowChange(name, old, None)
                continue
            values = dict(zip(row[1], row[2], strict=True))
            new = tuple([values.get(place, value) for place, value in enumerate(old)])
        if old != new:
            yield RowChange(name, old, new)


def _absent(relation: Relation, key: Row) -> AbsentRowError:
    pairs = ", ".join(f"{column}={value!r}" for column, value in zip(relation.key, key, strict=True))
    return AbsentRowError(
        f"{relation.name} has no row with {pairs}",
        relation=relation.name,
        row=key,
        hint="Nothing of the transaction was applied. Leave the key out, or insert the row before.",
    )
