"""Rows that wait for a parent, or for children to go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cumulus.catalog.events import DELETE, INSERT, UPSERT, Row
from cumulus.catalog.schema import Relation
from cumulus.engine.integrity import Reference
from cumulus.epochs.bucket.net_changes import InputChange, NetChange, Refused
from cumulus.epochs.intake.packing import Payload


class WaitingRows:
    """The changes that wait, in their order, for so many epochs at most."""

    def __init__(self, late_epochs: int) -> None:
        self.late_epochs = late_epochs
        self._changes: list[InputChange] = []

    def __iter__(self) -> Iterator[InputChange]:
        return iter(self._changes)

    def replace(self, changes: list[InputChange]) -> None:
        """Let these wait, and no others."""
        self._changes = changes

    def of(self, relation: str) -> list[InputChange]:
        """Return those of a table."""
        return [change for change in self._changes if change.relation == relation]

    def add(self, epoch: int, net_change: NetChange, reason: str, *, grace: int = 0) -> list[Refused]:
        """Keep a net change waiting; if it has waited `late_epochs` and `grace` epochs, return its rows as refused."""
        cause = net_change.cause
        op = DELETE if net_change.added is None else INSERT if net_change.removed is None else UPSERT
        change = cause._replace(op=op, row=row_of(net_change), seq=None, lacking=())
        if epoch - cause.since >= self.late_epochs + grace:
            return [Refused(change, f"{reason} after {self.late_epochs} epochs")] * net_change.count
        self._changes.extend([change] * net_change.count)
        return []

    def may_share_key(self, relation: Relation, payloads: Sequence[Payload]) -> bool:
        """Whether a row that waits may have the key of one that has come."""
        first = relation.key_positions[0] if relation.key else 0
        return _have({change.row[first] for change in self.of(relation.name)}, relation.columns[first].name, payloads)

    def take_parents(self, reference: Reference, payloads: Sequence[Payload]) -> bool:
        """Whether a row that has come may refer to one that is to go, or to change, with what waits."""
        here, there = reference.child_places[0], reference.parent_places[0]
        values = {change.row[there] for change in self.of(reference.parent.name) if change.op != INSERT}
        return _have(values, reference.child.columns[here].name, payloads)


def _have(values: set[Any], column: str, payloads: Sequence[Payload]) -> bool:
    """Whether a row has one of some values in a column."""
    return bool(values) and any(
        value in values for payload in payloads for value in payload.rows.column(column).unique().to_pylist()
    )


def row_of(net_change: NetChange) -> Row:
    """Return the row that a net change is about: the new one, if there is one."""
    row = net_change.removed if net_change.added is None else net_change.added
    assert row is not None
    return row
