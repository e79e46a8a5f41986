"""Keys and references, where rows are kept: absent rows, duplicate keys, orphans.

A kept table is a map from the whole row to its multiplicity. The checks look there, through indexes on the columns of
primary and foreign keys. What is not kept is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from cumulus.catalog.events import Row
from cumulus.catalog.schema import ForeignKey, Relation
from cumulus.engine.protocol import Engine
from cumulus.errors import AbsentRowError, DataError, DuplicateKeyError, OrphanError
from cumulus.m3.program import Program

NetChanges: TypeAlias = Mapping[str, Mapping[Row, int]]
"""Relation → row → net multiplicity."""


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
class Duty:
    """A reference that must hold when the transaction ends: `values` names a parent, or no child does."""

    reference: Reference
    values: tuple[Any, ...]
    relation: str
    row: Row


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row of a net change that must not be applied, and why."""

    relation: str
    row: Row
    multiplicity: int
    error: DataError


class Integrity:
    """Checks events against the kept rows of an engine.

    Parameters
    ----------
    program
        Says which tables are kept, and their keys.
    engine
        Holds the rows; gets the indexes that the checks need. It must have no open transaction.
    """

    def __init__(self, program: Program, engine: Engine) -> None:
        self._engine = engine
        self._maps = dict(program.kept)
        self._relations = {relation.name: relation for relation in program.relations if relation.name in self._maps}
        self._children: dict[str, list[Reference]] = {name: [] for name in self._relations}
        self._parents: dict[str, list[Reference]] = {name: [] for name in self._relations}
        for relation in self._relations.values():
            if relation.key and not relation.key_rely:
                self._index(relation, relation.key_positions)
            for key in relation.foreign_keys:
                parent = self._relations.get(key.parent)
                if parent is None:
                    continue
                reference = Reference(
                    relation,
                    parent,
                    key,
                    tuple(map(relation.position, key.columns)),
                    tuple(map(parent.position, key.parent_columns)),
                )
                self._children[parent.name].append(reference)
                self._parents[relation.name].append(reference)
                self._index(relation, reference.child_places)
                self._index(parent, reference.parent_places)

    def _index(self, relation: Relation, places: tuple[int, ...]) -> None:
        if 0 < len(places) < len(relation.columns):
            self._engine.add_index(self._maps[relation.name], tuple(sorted(places)))

    def covers(self, relation: str) -> bool:
        """Whether events of `relation` are checked at all."""
        return relation in self._relations

    # --- single events ----------------------------------------------------------------------------------------------

    def check(self, sign: int, relation: str, row: Row, duties: list[Duty] | None = None) -> DataError | None:
        """Return why an event must not be applied now, None if it may.

        Parameters
        ----------
        sign, relation, row
            The event; the row is checked against its types already.
        duties
            If given, foreign keys without RELY need only hold when the transaction ends: what they ask for is added
            here, for `settle`. Those with RELY must hold at each event.
        """
        if relation not in self._relations:
            return None
        after = _After(self, {relation: {row: sign}})
        problem = next(self._own_errors(self._relations[relation], after), None)
        if problem is not None:
            return problem[1]
        for duty in self._duties(sign, relation, row):
            if duties is not None and not duty.reference.key.rely:
                duties.append(duty)
            elif after.breaks(duty):
                return _orphan(duty)
        return None

    def settle(self, duties: list[Duty]) -> DataError | None:
        """Return why a transaction must not be committed, looking at the rows as its events left them."""
        after = _After(self, {})
        return next((_orphan(duty) for duty in duties if after.breaks(duty)), None)

    def check_net(self, changes: NetChanges) -> tuple[dict[str, dict[Row, int]], list[Rejection]]:
        """Split net changes into those that may be applied together and those that must not.

        The state after all the good changes is what counts: a parent may leave and come back changed, a child may come
        with its parent. Whatever would leave a duplicate key or an orphan is rejected, and so is what then has lost its
        parent; of two rows with one key the first is good.

        Returns
        -------
        good, rejected
            The changes without those rejected; the rejected rows with reasons, in the order in which they were found.
        """
        good = {name: dict(rows) for name, rows in changes.items()}
        rejected: list[Rejection] = []
        while True:
            found = list(self._violations(good))
            for relation, row, error in found:
                count = good[relation].pop(row, 0)
                if count:
                    rejected.append(Rejection(relation, row, count, error))
            if not found:
                return good, rejected

    def by_key(self, relation: str, values: tuple[Any, ...]) -> Row | None:
        """Return the row with a primary key, None if there is none; the relation is kept and has a key."""
        table = self._relations[relation]
        return next(self.rows(table, table.key_positions, values), None)

    def rows(self, relation: Relation, places: tuple[int, ...], values: tuple[Any, ...]) -> Iterator[Row]:
        """Iterate over the rows that have `values` at `places`, each once."""
        pairs = sorted(zip(places, values, strict=True), key=lambda pair: pair[0])
        ascending = tuple(place for place, _ in pairs)
        for found in self._engine.find(self._maps[relation.name], ascending, tuple(value for _, value in pairs)):
            if self.multiplicity(relation.name, found) > 0:
                yield found

    def multiplicity(self, relation: str, row: Row) -> int:
        """Return how often a row is there."""
        values = self._engine.read(self._maps[relation], row)
        return 0 if values is None else int(values[0])

    def _violations(self, good: NetChanges) -> Iterator[tuple[str, Row, DataError]]:
        """Yield changes that break a rule; each one names a row of `good`."""
        after = _After(self, good)
        for name, changed in good.items():
            if name not in self._relations:
                continue
            for row, error in self._own_errors(self._relations[name], after):
                yield name, row, error
            for row, count in changed.items():
                for duty in self._duties(count, name, row):
                    if after.breaks(duty):
                        yield name, row, _orphan(duty)

    def _own_errors(self, relation: Relation, after: _After) -> Iterator[tuple[Row, DataError]]:
        """Yield the changes of one relation that delete what is not there or repeat a primary key."""
        places = relation.key_positions if not relation.key_rely else ()
        entered: dict[tuple[Any, ...], Row] = {}
        for row, count in after.changes[relation.name].items():
            left = self.multiplicity(relation.name, row) + count
            if left < 0:
                yield row, _absent(relation.name, row)
            elif places and count > 0:
                values = tuple(row[place] for place in places)
                other = entered.setdefault(values, row)
                if other == row:
                    held = (found for found in after.staying(relation, places, values) if found != row or left > 1)
                    other = next(held, row)
                if other != row or left > 1:
                    yield row, _duplicate(relation, row, other)

    def _duties(self, sign: int, relation: str, row: Row) -> Iterator[Duty]:
        """Yield what foreign keys ask for when a row comes (its parents) or goes (no children)."""
        if sign > 0:
            for reference in self._parents[relation]:
                values = reference.of_child(row)
                if values is not None:
                    yield Duty(reference, values, relation, row)
        else:
            for reference in self._children[relation]:
                yield Duty(reference, reference.of_parent(row), relation, row)


class _After:
    """The kept rows as they will be after some net changes."""

    def __init__(self, integrity: Integrity, changes: NetChanges) -> None:
        self.changes = changes
        self._integrity = integrity
        self._entering: dict[tuple[str, tuple[int, ...]], set[tuple[Any, ...]]] = {}

    def breaks(self, duty: Duty) -> bool:
        """Whether there will be a child and no parent."""
        reference = duty.reference
        return self._some(reference.child, reference.child_places, duty.values) and not self._some(
            reference.parent, reference.parent_places, duty.values
        )

    def staying(self, relation: Relation, places: tuple[int, ...], values: tuple[Any, ...]) -> Iterator[Row]:
        """Iterate over the rows with `values` that are there now and will be."""
        changed = self.changes.get(relation.name, {})
        for row in self._integrity.rows(relation, places, values):
            if self._integrity.multiplicity(relation.name, row) + changed.get(row, 0) > 0:
                yield row

    def _some(self, relation: Relation, places: tuple[int, ...], values: tuple[Any, ...]) -> bool:
        if next(self.staying(relation, places, values), None) is not None:
            return True
        return values in self._entering_by(relation.name, places)

    def _entering_by(self, relation: str, places: tuple[int, ...]) -> set[tuple[Any, ...]]:
        """Return the values at `places` of the rows that come."""
        found = self._entering.get((relation, places))
        if found is None:
            changed = self.changes.get(relation, {})
            found = {tuple(row[place] for place in places) for row, count in changed.items() if count > 0}
            self._entering[relation, places] = found
        return found


def _absent(relation: str, row: Row) -> AbsentRowError:
    return AbsentRowError(
        f"{relation} has no row {row!r} to delete",
        relation=relation,
        row=row,
        hint="Delete rows as they were inserted, all columns alike.",
    )


def _duplicate(relation: Relation, row: Row, found: Row) -> DuplicateKeyError:
    values = ", ".join(
        f"{name}={row[place]!r}" for name, place in zip(relation.key, relation.key_positions, strict=True)
    )
    return DuplicateKeyError(
        f"{relation.name} has a row with {values} already: {found!r}",
        relation=relation.name,
        row=row,
        hint="Use upsert to replace it, or delete the old row first.",
    )


def _orphan(duty: Duty) -> OrphanError:
    key, children = duty.reference.key, duty.reference.child.name
    values = ", ".join(f"{name}={value!r}" for name, value in zip(key.parent_columns, duty.values, strict=True))
    return OrphanError(
        f"{children} would refer to {key.parent} with {values}, which is not there",
        relation=duty.relation,
        row=duty.row,
        hint="Insert parents before their children, and delete them after them.",
    )
