"""Net changes of an epoch: the row of each primary key before and after, and the changes that are refused.

Repeated deliveries, updates and the source's order are resolved here: a net change is final, and the net changes of one
epoch commute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from cumulus.catalog.arrow import plain_list
from cumulus.catalog.events import (
    DELETE,
    INSERT,
    LACKING_COLUMN,
    OP_COLUMN,
    ORDER_COLUMN,
    POSITION_COLUMN,
    TRUNCATE,
    UPSERT,
    Row,
)
from cumulus.catalog.schema import Relation
from cumulus.epochs.formats.unavailable import lacking_reason
from cumulus.epochs.intake.packing import Payload
from cumulus.scalars.python_code import canonical

Key = tuple[Any, ...]
Position = tuple[int, int]
"""(the source's order, 0 for a deletion or 1 otherwise): an update's deletion comes before its insertion."""


class InputChange(NamedTuple):
    """One row of an input file; `since` is the epoch that it arrived in, `seq` None without an order.

    `lacking` are the places of values that the source has left out, since the row that is there has them: an update
    keeps these, a deletion does not mind them.
    """

    relation: str
    op: int
    row: Row
    seq: int | None
    source: str
    position: int
    since: int
    lacking: tuple[int, ...] = ()

    def place(self) -> Position | None:
        """Return its position inside its primary key, None without an order."""
        return None if self.seq is None else (self.seq, 0 if self.op == DELETE else 1)


@dataclass(slots=True, eq=False)
class NetChange:
    """`removed` leaves the table and `added` comes, `count` times; `cause` is the change that had the last word."""

    relation: str
    removed: Row | None
    added: Row | None
    cause: InputChange
    count: int = 1


class Refused(NamedTuple):
    """A change that was not applied, and why."""

    change: InputChange
    reason: str


def static_refusal(change: InputChange) -> Refused:
    """Return the refusal of what is not a row of the first load of a static table."""
    return Refused(change, f"static table: {change.relation} is loaded in epoch 1 and does not change")


def changes_of(payloads: Iterable[Payload], epoch: int) -> dict[str, list[InputChange]]:
    """Return table → changes, in the order of the payloads; rows of equal values are equal, also with NaN."""
    found: dict[str, list[InputChange]] = {}
    for payload in payloads:
        if not payload.rows.num_rows:
            continue
        columns = [_comparable(column) for column in payload.rows.columns]
        names = payload.rows.column_names
        operations = columns[names.index(OP_COLUMN)]
        positions = columns[names.index(POSITION_COLUMN)]
        orders = columns[names.index(ORDER_COLUMN)] if ORDER_COLUMN in names else [None] * len(positions)
        rows = zip(*columns[: names.index(OP_COLUMN)], strict=True)
        fields = (repeat(payload.relation), operations, rows, orders, repeat(payload.source), positions, repeat(epoch))
        lacking: Iterable[tuple[int, ...]] = repeat(())
        if LACKING_COLUMN in names:
            lacking = map(tuple, (places or () for places in columns[names.index(LACKING_COLUMN)]))
        found.setdefault(payload.relation, []).extend(map(InputChange._make, zip(*fields, lacking, strict=False)))
    return found


def _comparable(column: Any) -> list[Any]:
    values = plain_list(column)
    return [canonical(value) for value in values] if pa.types.is_floating(column.type) else values


def drop_repeated(
    changes: list[InputChange], key_at: tuple[int, ...], last: Callable[[Key], Position | None]
) -> tuple[list[InputChange], dict[Key, Position], list[InputChange]]:
    """Sort the ordered changes of each primary key and drop what is not newer than the last one seen.

    A truncation is of all keys: what is not newer is dropped, too.

    Parameters
    ----------
    last
        The last position of a key, None if there is none; of a key of NULLs, that of the last truncation.

    Returns
    -------
    tuple
        The changes left, the positions to remember, the changes dropped.
    """
    if not any(change.seq is not None for change in changes):
        return changes, {}, []
    seen: dict[Key, Position] = {}
    kept: list[InputChange] = []
    dropped: list[InputChange] = []
    every = (None,) * len(key_at)
    truncated = last(every)
    for change in in_order(changes):
        place = change.place()
        if place is not None:
            key = every if change.op == TRUNCATE else tuple([change.row[at] for at in key_at])
            before = seen.get(key) or last(key)
            if (before is not None and place <= before) or (truncated is not None and place <= truncated):
                dropped.append(change)
                continue
            seen[key] = place
        kept.append(change)
    return kept, seen, dropped


def in_order(changes: Iterable[InputChange]) -> list[InputChange]:
    """Sort changes by their positions; what has none comes first, as it stands."""
    return sorted(changes, key=lambda change: change.place() or (-1 << 63, 0))


def keyed_net_changes(
    relation: Relation,
    changes: list[InputChange],
    current: Callable[[Key], Row | None],
    owns: Any,
    truncated: Callable[[InputChange], Iterable[Key]] | None = None,
) -> tuple[list[NetChange], list[Refused], list[Row]]:
    """Return the net changes of a table with a primary key whose rows are kept, what is refused, and what was
    truncated.

    Parameters
    ----------
    current
        Primary key → row, before the epoch.
    owns
        Says of a row whether this bucket is its home: an upsert comes to all buckets, and removes everywhere.
    truncated
        Truncation → the keys of the rows before the epoch that it takes away.
    """
    key_at = relation.key_positions
    groups: dict[Key, list[InputChange]] = {}
    for change in changes:
        if change.op == TRUNCATE:
            assert truncated is not None, "who has truncations says what they take"
            for key in dict.fromkeys([*groups, *truncated(change)]):
                groups.setdefault(key, []).append(change)
        else:
            groups.setdefault(tuple([change.row[at] for at in key_at]), []).append(change)
    net_changes: list[NetChange] = []
    refused: list[Refused] = []
    gone: list[Row] = []
    for key, group in groups.items():
        before = current(key)
        followed = _follow(relation, group, before, owns)
        mixed = len(group) > 1 and group[0].seq is None and not any(change.op == TRUNCATE for change in group)
        if followed.refused and mixed:
            # Without an order, an update may come as insertion and deletion.
            again = _follow(relation, sorted(group, key=lambda change: change.op != DELETE), before, owns)
            followed = followed if again.refused else again
        refused.extend(followed.refused)
        gone.extend(followed.truncated)
        if followed.row != before:
            assert followed.cause is not None, "what was taken has changed the row"
            net_changes.append(NetChange(relation.name, before, followed.row, followed.cause))
    return net_changes, refused, gone


class _Followed(NamedTuple):
    """Where the changes of a key lead: the row, the last change that was taken, and what was not."""

    row: Row | None
    cause: InputChange | None
    refused: list[Refused]
    truncated: list[Row]


def _follow(relation: Relation, group: list[InputChange], before: Row | None, owns: Any) -> _Followed:
    row, cause = before, None
    refused: list[Refused] = []
    truncated: list[Row] = []
    for change in group:
        reason = ""
        if change.op == INSERT:
            if row is None:
                row = change.row
            else:
                reason = "duplicate key: a row with this primary key is there"
        elif change.op == UPSERT:
            if not change.lacking:
                row = change.row if owns(change.row) else None
            elif row is None:
                reason = lacking_reason(relation, change.lacking)
            elif owns(change.row):  # else this bucket keeps its row, and the owner of the new one refuses it
                row = _filled(change, row)
        elif change.op == TRUNCATE:
            if row is not None:
                truncated.append(row)
            row = None
        elif row is None:
            reason = "absent row: there is nothing to delete"
        elif row == _filled(change, row) or _only_key(relation, change.row):
            row = None
        else:
            reason = "absent row: the row with this primary key has other values"
        if reason:
            refused.append(Refused(change, reason))
        else:
            cause = change
    return _Followed(row, cause, refused, truncated)


def _filled(change: InputChange, row: Row) -> Row:
    """Return the row of a change, with the values of the row that is there for those that it lacks."""
    if not change.lacking:
        return change.row
    return tuple([row[at] if at in change.lacking else value for at, value in enumerate(change.row)])


def _only_key(relation: Relation, row: Row) -> bool:
    keys = set(relation.key_positions)
    return len(row) > len(keys) and all(value is None for at, value in enumerate(row) if at not in keys)


def truncated_bag_net_changes(
    relation: Relation, changes: list[InputChange], current: Mapping[Row, int]
) -> tuple[list[NetChange], list[Refused], list[Row]]:
    """Return the net changes of a table without a primary key that is truncated, what is refused, and what was
    truncated.

    `current` are all its rows, and how often each is there.
    """
    rows = Counter(current)
    refused: list[Refused] = []
    gone: list[Row] = []
    cause: dict[Row, InputChange] = {}
    begin = 0
    ends = [at for at, change in enumerate(changes) if change.op == TRUNCATE]
    for end in [*ends, len(changes)]:
        made, bad = bag_net_changes(relation, changes[begin:end], rows.__getitem__)
        refused.extend(bad)
        for net_change in made:
            row = net_change.removed if net_change.added is None else net_change.added
            assert row is not None, "a net change has a row"
            rows[row] += net_change.count if net_change.added is not None else -net_change.count
            cause[row] = net_change.cause
        if end < len(changes):
            for row, count in rows.items():
                gone.extend([row] * count)
                cause[row] = changes[end]
            rows = Counter()
        begin = end + 1
    net_changes = []
    for row in {**current, **rows}:
        more = rows[row] - current.get(row, 0)
        if more:
            removed, added = (None, row) if more > 0 else (row, None)
            net_changes.append(NetChange(relation.name, removed, added, cause[row], abs(more)))
    return net_changes, refused, gone


def bag_net_changes(
    relation: Relation, changes: list[InputChange], count_of: Any
) -> tuple[list[NetChange], list[Refused]]:
    """Return the net changes of a table without a primary key, or whose rows are not kept.

    `count_of` says how often a row is there; None if rows are not kept (then nothing can be refused but updates).
    """
    net: dict[Row, int] = {}
    cause: dict[Row, InputChange] = {}
    refused: list[Refused] = []
    for change in changes:
        op, row = change.op, change.row
        if op == TRUNCATE:
            keep = "rows are kept only where CREATE TABLE says WITH (keep = all) or a primary key needs them"
            refused.append(Refused(change, f"truncation: the rows of {relation.name} are not kept; {keep}"))
            continue
        if op == UPSERT:
            why = "has no primary key" if not relation.key else "does not keep its rows"
            refused.append(Refused(change, f"an update needs the old row, and {relation.name} {why}"))
            continue
        if change.lacking:
            refused.append(Refused(change, lacking_reason(relation, change.lacking)))
            continue
        net[row] = net.get(row, 0) + op
        cause[row] = change
    net_changes: list[NetChange] = []
    too_many: list[tuple[Row, int]] = []
    for row, count in net.items():
        if count < 0 and count_of is not None:
            short = -(count_of(row) + count)
            if short > 0:
                too_many.append((row, short))
                count += short
        if count > 0:
            net_changes.append(NetChange(relation.name, None, row, cause[row], count))
        elif count < 0:
            net_changes.append(NetChange(relation.name, row, None, cause[row], -count))
    if too_many:
        deletions: dict[Row, list[InputChange]] = {row: [] for row, _ in too_many}
        for change in changes:
            if change.op == DELETE and change.row in deletions:
                deletions[change.row].append(change)
        for row, short in too_many:
            reason = "absent row: there is nothing to delete"
            refused.extend(Refused(change, reason) for change in deletions[row][-short:])
    return net_changes, refused
