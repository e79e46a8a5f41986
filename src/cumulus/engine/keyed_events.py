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


class KeyedEvents:
    """Turns operations into changes of rows, also those on rows named by their keys.

    Parameters
    ----------
    relations
        The tables, by name.
    integrity
        Finds kept rows by their keys.
    """

    def __init__(self, relations: Mapping[str, Relation], integrity: Integrity) -> None:
        self._relations = relations
        self._integrity = integrity

    def changes(self, operations: Iterable[Operation]) -> Iterator[RowChange]:
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
            relation = self._relations[name]
            if sign == UPSERT:
                key, new = tuple([row[place] for place in relation.key_positions]), row
                old = self._integrity.by_key(name, key)
            else:
                key = row if sign == DELETE_BY_KEY else row[0]
                old = self._integrity.by_key(name, key)
                if old is None:
                    raise _absent(relation, key)
                if sign == DELETE_BY_KEY:
                    yield RowChange(name, old, None)
                    continue
                new = _changed(old, row[1], row[2])
            if old != new:
                yield RowChange(name, old, new)


def _changed(row: Row, places: tuple[int, ...], values: Row) -> Row:
    changed = list(row)
    for place, value in zip(places, values, strict=True):
        changed[place] = value
    return tuple(changed)


def _absent(relation: Relation, key: Row) -> AbsentRowError:
    pairs = ", ".join(f"{column}={value!r}" for column, value in zip(relation.key, key, strict=True))
    return AbsentRowError(
        f"{relation.name} has no row with {pairs}",
        relation=relation.name,
        row=key,
        hint="Nothing of the transaction was applied. Leave the key out, or insert the row before.",
    )
