"""Foreign keys over the net changes of an epoch: who must wait because a parent is not there, or children still are.

Rows are counted by the values of the referring and the referenced columns, through indexes of the engine, and only as
far as the answer needs. Where parents are in every bucket and their children are spread, a bucket sees a missing parent
itself; that no child is left, all buckets must say (`cumulus.epochs.bucket.votes`).

Rows wait for a parent, or for children to go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from cumulus.catalog.events import DELETE, INSERT, UPSERT, Row
from cumulus.catalog.schema import ForeignKey, Relation
from cumulus.engine.integrity import Reference
from cumulus.epochs.bucket.net_changes import InputChange, NetChange, Refused
from cumulus.epochs.intake.packing import Payload
from cumulus.explain.layout.co_partitioning import Partitioned

Values = tuple[Any, ...]


Count: TypeAlias = "Callable[[str, tuple[int, ...], Values, int], int]"
"""Table, columns, values, most → how many kept rows have the values, counted up to `most`."""


def sees_both_sides(partitioned: Partitioned, child: str, key: ForeignKey) -> bool:
    """Whether a bucket has both sides of a foreign key: both are everywhere, or both are split by its columns."""
    own, theirs = partitioned.get(child), partitioned.get(key.parent)
    if own is None or theirs is None:
        return own is theirs
    pairs = list(zip(key.columns, key.parent_columns, strict=True))
    return len(own) == len(theirs) and all(pair in pairs for pair in zip(own, theirs, strict=True))


def has_spread_children(partitioned: Partitioned, child: str, key: ForeignKey, parent: Relation) -> bool:
    """Whether every bucket has the parents of a foreign key, and each some of the children.

    The key must be the parent's primary key: then a parent is one row, and goes by one deletion.
    """
    return child in partitioned and key.parent not in partitioned and set(key.parent_columns) == set(parent.key)


def is_checked(partitioned: Partitioned, child: str, key: ForeignKey, parent: Relation) -> bool:
    """Whether a foreign key of kept tables is checked: by each bucket alone, or by all together."""
    return sees_both_sides(partitioned, child, key) or has_spread_children(partitioned, child, key, parent)


def violations(
    references: Sequence[Reference], net_changes: list[NetChange], count: Count
) -> tuple[list[NetChange], dict[int, str]]:
    """Split net changes into those that may go and those that may not, with the reasons.

    Deletions go first, children before parents, then insertions, parents before children. What one refusal brings
    down with it is refused too.

    Returns
    -------
    tuple
        The net changes that may go, and `id(net_change)` → reason of the others.
    """
    refused: dict[int, str] = {}
    going = net_changes
    while True:
        found: dict[int, str] = {}
        for each in references:
            _left_behind(each, going, count, found)
        if not found:  # nobody is an orphan because of a deletion that may not go
            for each in references:
                _orphans(each, going, count, found)
        if not found:
            return going, refused
        refused |= found
        going = [net_change for net_change in going if id(net_change) not in found]


def _orphans(each: Reference, net_changes: list[NetChange], count: Count, found: dict[int, str]) -> None:
    """Find insertions of children whose parent is not there after all net changes."""
    change = _parent_changes(each, net_changes)
    for net_change in net_changes:
        if net_change.relation == each.child.name and net_change.added is not None:
            value = tuple([net_change.added[at] for at in each.child_places])
            if None in value:
                continue
            comes = change.get(value, 0)
            if count(each.parent.name, each.parent_places, value, 1 - comes) + comes <= 0:
                found[id(net_change)] = f"orphan: {_reference_text(each)}, and no such row is there"


def _left_behind(each: Reference, net_changes: list[NetChange], count: Count, found: dict[int, str]) -> None:
    """Find deletions of parents that still have children after the deletions of children."""
    gone: Counter[Values] = Counter()
    for net_change in net_changes:
        if net_change.relation == each.child.name and net_change.removed is not None:
            gone[tuple([net_change.removed[at] for at in each.child_places])] -= net_change.count
    comes = _parent_changes(each, net_changes)
    for net_change in net_changes:
        if net_change.relation == each.parent.name and net_change.removed is not None:
            value = tuple([net_change.removed[at] for at in each.parent_places])
            left, lost = -comes.get(value, 0), -gone.get(value, 0)
            remains = count(each.parent.name, each.parent_places, value, left + 1) > left
            if not remains and count(each.child.name, each.child_places, value, lost + 1) > lost:
                found[id(net_change)] = f"parent with children: {_reference_text(each)}, and such rows are there"


def _parent_changes(each: Reference, net_changes: list[NetChange]) -> Counter[Values]:
    """Return how many parents more there are after all net changes, by their referenced values."""
    changes: Counter[Values] = Counter()
    for net_change in net_changes:
        if net_change.relation == each.parent.name:
            for row, count in ((net_change.removed, -net_change.count), (net_change.added, net_change.count)):
                if row is not None:
                    changes[tuple([row[at] for at in each.parent_places])] += count
    return changes


def _reference_text(each: Reference) -> str:
    key = each.key
    return f"{each.child.name}({', '.join(key.columns)}) references {key.parent}({', '.join(key.parent_columns)})"


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
