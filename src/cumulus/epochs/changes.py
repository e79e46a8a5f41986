"""From the changes of an epoch to moves: what each primary key was before and is after, and what had to be refused.

This is where at-least-once, updates and the source's order end: a move is final, and moves of one epoch commute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from cumulus.catalog.arrow import plain_list
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Relation
from cumulus.epochs.packing import Chunk
from cumulus.epochs.reading import DELETE, INSERT, UPSERT

Key = tuple[Any, ...]
Position = tuple[int, int]
"""(the source's order, 0 for a deletion or 1 otherwise): an update's deletion comes before its insertion."""


class Last(Protocol):
    """The last position seen of each primary key."""

    def get(self, key: Key) -> Position | None:
        """Return that of a key, None if there is none."""
        ...


class Change(NamedTuple):
    """One row of an input file; `since` is the epoch that it arrived in, `seq` None without an order."""

    relation: str
    op: int
    row: Row
    seq: int | None
    source: str
    position: int
    since: int

    def place(self) -> Position | None:
        """Return its position inside its primary key, None without an order."""
        return None if self.seq is None else (self.seq, 0 if self.op == DELETE else 1)


@dataclass(slots=True, eq=False)
class Move:
    """`removed` leaves the table and `added` comes, `count` times; `cause` is the change that had the last word."""

    relation: str
    removed: Row | None
    added: Row | None
    cause: Change
    count: int = 1


class Refused(NamedTuple):
    """A change that was not applied, and why."""

    change: Change
    reason: str


def changes_of(chunks: Iterable[Chunk], epoch: int) -> dict[str, list[Change]]:
    """Return table → changes, in the order of the chunks."""
    found: dict[str, list[Change]] = {}
    for chunk in chunks:
        if not chunk.rows.num_rows:
            continue
        columns = [plain_list(column) for column in chunk.rows.columns]
        names = chunk.rows.column_names
        operations = columns[names.index("_op")]
        positions = columns[names.index("_position")]
        orders = columns[names.index("_seq")] if "_seq" in names else [None] * len(positions)
        rows = zip(*columns[: names.index("_op")], strict=True)
        fields = (repeat(chunk.relation), operations, rows, orders, repeat(chunk.source), positions, repeat(epoch))
        found.setdefault(chunk.relation, []).extend(map(Change._make, zip(*fields, strict=False)))
    return found


def drop_repeated(
    changes: list[Change], key_at: tuple[int, ...], last: Last
) -> tuple[list[Change], dict[Key, Position], int]:
    """Sort the ordered changes of each primary key and drop what is not newer than the last one seen.

    Returns
    -------
    tuple
        The changes left, the positions to remember, how many were dropped.
    """
    if not any(change.seq is not None for change in changes):
        return changes, {}, 0
    seen: dict[Key, Position] = {}
    kept: list[Change] = []
    for change in in_order(changes):
        place = change.place()
        if place is not None:
            key = tuple([change.row[at] for at in key_at])
            before = seen.get(key) or last.get(key)
            if before is not None and place <= before:
                continue
            seen[key] = place
        kept.append(change)
    return kept, seen, len(changes) - len(kept)


def in_order(changes: Iterable[Change]) -> list[Change]:
    """Sort changes by their positions; what has none comes first, as it stands."""
    return sorted(changes, key=lambda change: change.place() or (-1 << 63, 0))


def keyed_moves(
    relation: Relation, changes: list[Change], current: Callable[[Key], Row | None], owns: Any
) -> tuple[list[Move], list[Refused]]:
    """Return the moves of a table with a primary key whose rows are kept.

    Parameters
    ----------
    current
        Primary key → row, before the epoch.
    owns
        Says of a row whether this bucket is its home: an upsert comes to all buckets, and removes everywhere.
    """
    key_at = relation.key_positions
    groups: dict[Key, list[Change]] = {}
    for change in changes:
        groups.setdefault(tuple([change.row[at] for at in key_at]), []).append(change)
    moves: list[Move] = []
    refused: list[Refused] = []
    for key, group in groups.items():
        before = current(key)
        after, bad = _follow(relation, group, before, owns)
        if bad and len(group) > 1 and group[0].seq is None:
            # Without an order, an update may come as insertion and deletion.
            again, worse = _follow(relation, sorted(group, key=lambda change: change.op != DELETE), before, owns)
            if not worse:
                after, bad = again, worse
        refused.extend(bad)
        if after != before:
            moves.append(Move(relation.name, before, after, group[-1]))
    return moves, refused


def _follow(relation: Relation, group: list[Change], before: Row | None, owns: Any) -> tuple[Row | None, list[Refused]]:
    row = before
    refused: list[Refused] = []
    for change in group:
        if change.op == INSERT:
            if row is None:
                row = change.row
            else:
                refused.append(Refused(change, "duplicate key: a row with this primary key is there"))
        elif change.op == UPSERT:
            row = change.row if owns(change.row) else None
        elif row is None:
            refused.append(Refused(change, "absent row: there is nothing to delete"))
        elif row == change.row or _only_key(relation, change.row):
            row = None
        else:
            refused.append(Refused(change, "absent row: the row with this primary key has other values"))
    return row, refused


def _only_key(relation: Relation, row: Row) -> bool:
    keys = set(relation.key_positions)
    return len(row) > len(keys) and all(value is None for at, value in enumerate(row) if at not in keys)


def bag_moves(relation: Relation, changes: list[Change], count_of: Any) -> tuple[list[Move], list[Refused]]:
    """Return the net moves of a table without a primary key, or whose rows are not kept.

    Parameters
    ----------
    count_of
        Row → how often it is there; None if rows are not kept (then nothing can be refused but updates).
    """
    net: dict[Row, int] = {}
    cause: dict[Row, Change] = {}
    refused: list[Refused] = []
    for change in changes:
        op, row = change.op, change.row
        if op == UPSERT:
            why = "has no primary key" if not relation.key else "does not keep its rows"
            refused.append(Refused(change, f"an update needs the old row, and {relation.name} {why}"))
            continue
        net[row] = net.get(row, 0) + op
        cause[row] = change
    moves: list[Move] = []
    too_many: list[tuple[Row, int]] = []
    for row, count in net.items():
        if count < 0 and count_of is not None:
            short = -(count_of(row) + count)
            if short > 0:
                too_many.append((row, short))
                count += short
        if count > 0:
            moves.append(Move(relation.name, None, row, cause[row], count))
        elif count < 0:
            moves.append(Move(relation.name, row, None, cause[row], -count))
    if too_many:
        deletions: dict[Row, list[Change]] = {row: [] for row, _ in too_many}
        for change in changes:
            if change.op == DELETE and change.row in deletions:
                deletions[change.row].append(change)
        for row, short in too_many:
            reason = "absent row: there is nothing to delete"
            refused.extend(Refused(change, reason) for change in deletions[row][-short:])
    return moves, refused
