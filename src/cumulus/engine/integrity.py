"""Keys and references, where rows are kept: absent rows, duplicate keys, orphans.

A kept table is a map from the whole row to its multiplicity. The checks look there, through indexes on the columns of
primary and foreign keys. What is not kept is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cumulus.catalog.events import Event, Row
from cumulus.catalog.schema import ForeignKey, Relation
from cumulus.catalog.shown_values import shown, shown_row
from cumulus.engine.protocol import Engine
from cumulus.errors import AbsentRowError, DataError, DuplicateKeyError, OrphanError
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key whose tables are both kept."""

    child: Relation
    parent: Relation
    key: ForeignKey
    child_places: tuple[int, ...]
    parent_places: tuple[int, ...]

    def of_child(self, row: Row) -> tuple[Any, ...] | None:
        """Return the parent's key that a child names; None if part of it is NULL."""
        values = tuple(row[place] for place in self.child_places)
        return None if None in values else values

    def of_parent(self, row: Row) -> tuple[Any, ...]:
        """Return the key of a parent."""
        return tuple(row[place] for place in self.parent_places)


@dataclass(frozen=True, slots=True)
class DeferredCheck:
    """Deferred foreign-key check: at commit a parent with `values` exists, or no child refers to it."""

    reference: Reference
    values: tuple[Any, ...]
    relation: str
    row: Row


class Integrity:
    """Checks events against the kept rows of an engine, which gets the indexes that this needs before transactions."""

    def __init__(self, program: Program, engine: Engine) -> None:
        self._engine = engine
        self._maps = dict(program.kept)
        self._relations = {relation.name: relation for relation in program.relations if relation.name in self._maps}
        self._children: dict[str, list[Reference]] = {name: [] for name in self._relations}
        self._parents: dict[str, list[Reference]] = {name: [] for name in self._relations}
        for reference in references(self._relations):
            self._children[reference.parent.name].append(reference)
            self._parents[reference.child.name].append(reference)
        for name, places in wanted_indexes(program):
            engine.add_index(name, places)

    def covers(self, relation: str) -> bool:
        """Whether events of `relation` are checked at all."""
        return relation in self._relations

    # --- single events ----------------------------------------------------------------------------------------------

    def check(
        self, sign: int, relation: str, row: Row, deferred: list[DeferredCheck] | None = None
    ) -> DataError | None:
        """Return why an event must not be applied now, None if it may.

        Parameters
        ----------
        duties
            If given, foreign keys without RELY need only hold when the transaction ends: what they ask for is added
            here, for `first_violation`. Those with RELY must hold at each event.
        """
        if relation not in self._relations:
            return None
        table = self._relations[relation]
        if sign < 0 and self.multiplicity(relation, row) < 1:
            return _absent(relation, row)
        if sign > 0 and table.key and not table.key_rely:
            places = table.key_positions
            found = self.by_key(relation, tuple(row[place] for place in places))
            if found is not None:
                return _duplicate(table, row, found)
        for check in self._deferred_checks(sign, relation, row):
            if deferred is not None and not check.reference.key.rely:
                deferred.append(check)
            elif self._broken(check, Event(sign, relation, row)):
                return _orphan(check)
        return None

    def first_violation(self, deferred: list[DeferredCheck]) -> DataError | None:
        """Return why a transaction must not be committed, looking at the rows as its events left them."""
        return next((_orphan(check) for check in deferred if self._broken(check)), None)

    def by_key(self, relation: str, values: tuple[Any, ...]) -> Row | None:
        """Return the row with a primary key, None if there is none; the relation is kept and has a key."""
        table = self._relations[relation]
        return next((row for row, _ in self.rows(table, table.key_positions, values)), None)

    def rows(self, relation: Relation, places: tuple[int, ...], values: tuple[Any, ...]) -> Iterator[tuple[Row, int]]:
        """Iterate over the rows that have `values` at `places`, and how often each is there."""
        pairs = sorted(zip(places, values, strict=True), key=lambda pair: pair[0])
        ascending = tuple(place for place, _ in pairs)
        for row, (count,) in self._engine.find(
            self._maps[relation.name], ascending, tuple(value for _, value in pairs)
        ):
            if count > 0:
                yield row, int(count)

    def count(self, relation: str, places: tuple[int, ...], values: tuple[Any, ...], most: int) -> int:
        """Return how many rows have `values` at `places`; if there are `most` or more, some number from `most` on."""
        found = 0
        if most > 0:
            for _, many in self.rows(self._relations[relation], places, values):
                found += many
                if found >= most:
                    break
        return found

    def multiplicity(self, relation: str, row: Row) -> int:
        """Return how often a row is there."""
        values = self._engine.read(self._maps[relation], row)
        return 0 if values is None else int(values[0])

    def _broken(self, check: DeferredCheck, event: Event | None = None) -> bool:
        """Whether there is a child and no parent; `event` counts as if it were applied."""
        reference = check.reference  # a parent has few rows of one key, and may have very many children
        return not self._some(reference.parent, reference.parent_places, check.values, event) and self._some(
            reference.child, reference.child_places, check.values, event
        )

    def _some(self, relation: Relation, places: tuple[int, ...], values: tuple[Any, ...], event: Event | None) -> bool:
        mine = event if event is not None and event.relation == relation.name else None
        if mine is not None and mine.sign > 0 and tuple(mine.row[place] for place in places) == values:
            return True
        gone = mine.row if mine is not None and mine.sign < 0 else None
        return any(row != gone or count > 1 for row, count in self.rows(relation, places, values))

    def _deferred_checks(self, sign: int, relation: str, row: Row) -> Iterator[DeferredCheck]:
        """Yield what foreign keys ask for when a row comes (its parents) or goes (no children)."""
        if sign > 0:
            for reference in self._parents[relation]:
                values = reference.of_child(row)
                if values is not None:
                    yield DeferredCheck(reference, values, relation, row)
        else:
            for reference in self._children[relation]:
                yield DeferredCheck(reference, reference.of_parent(row), relation, row)


def wanted_indexes(program: Program) -> list[tuple[str, tuple[int, ...]]]:
    """Return the indexes that the checks of a program need: maps and their key columns."""
    maps = dict(program.kept)
    kept = {relation.name: relation for relation in program.relations if relation.name in maps}
    wanted = [(each, each.key_positions) for each in kept.values() if each.key and not each.key_rely]
    for reference in references(kept):
        wanted += [(reference.child, reference.child_places), (reference.parent, reference.parent_places)]
    found = {
        (maps[relation.name], tuple(sorted(places))): None
        for relation, places in wanted
        if 0 < len(places) < len(relation.columns)
    }
    return list(found)


def references(kept: Mapping[str, Relation]) -> Iterator[Reference]:
    """Yield the foreign keys between tables that are kept, by name."""
    for relation in kept.values():
        for key in relation.foreign_keys:
            parent = kept.get(key.parent)
            if parent is not None:
                yield Reference(
                    relation,
                    parent,
                    key,
                    tuple(map(relation.position, key.columns)),
                    tuple(map(parent.position, key.parent_columns)),
                )


def _absent(relation: str, row: Row) -> AbsentRowError:
    return AbsentRowError(
        f"{relation} has no row {shown_row(row)} to delete",
        relation=relation,
        row=row,
        hint="Delete rows as they were inserted, all columns alike.",
    )


def _duplicate(relation: Relation, row: Row, found: Row) -> DuplicateKeyError:
    values = ", ".join(
        f"{name}={shown(row[place])}" for name, place in zip(relation.key, relation.key_positions, strict=True)
    )
    return DuplicateKeyError(
        f"{relation.name} has a row with {values} already: {shown_row(found)}",
        relation=relation.name,
        row=row,
        hint="Use upsert to replace it, or delete the old row first.",
    )


def _orphan(check: DeferredCheck) -> OrphanError:
    key, children = check.reference.key, check.reference.child.name
    values = ", ".join(f"{name}={shown(value)}" for name, value in zip(key.parent_columns, check.values, strict=True))
    return OrphanError(
        f"{children} would refer to {key.parent} with {values}, which is not there",
        relation=check.relation,
        row=check.row,
        hint="Insert parents before their children, and delete them after them.",
    )
