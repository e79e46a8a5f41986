"""The columnar fast path of an epoch: which tables are fired as Arrow columns, without net changes per key.

That must be what their net changes would do (`cumulus.epochs.bucket.net_changes`). Where code takes every row of a
primary key in its order, nothing is refused, and the key is left with the same row. So rows are dealt to *rounds*: the
first of each key, then the second. What code cannot take is set aside, with all of its key, to become net changes
afterwards: deletions that are left to a vote, and updates of rows that others refer to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.events import DELETE, INSERT, LACKING_COLUMN, OP_COLUMN, ORDER_COLUMN, TRUNCATE, UPSERT
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import Kind
from cumulus.engine.batches import Columns, Upserts, rows_of
from cumulus.engine.integrity import Reference
from cumulus.engine.rows_in import is_not_null
from cumulus.engine.session import Session
from cumulus.engine.transaction import Transaction
from cumulus.epochs.bucket.outcome import EpochAccount
from cumulus.epochs.bucket.positions import TablePositions
from cumulus.epochs.bucket.references import WaitingRows
from cumulus.epochs.intake.packing import Payload
from cumulus.epochs.plan import BucketPlan
from cumulus.m3.dataflow import parents_first

_MOST_ROUNDS = 8
"""Keys with more rows are for those who look at one row after the other."""


@dataclass(frozen=True, slots=True)
class ColumnarChoice:
    """Tables that are fired as columns, with their rounds of rows; and rows that are set aside, by table."""

    rounds: Mapping[str, list[pa.Table]] = field(default_factory=dict)
    aside: Mapping[str, list[Payload]] = field(default_factory=dict)


NOTHING_CHOSEN = ColumnarChoice()


class ColumnarPath:
    """Chooses the tables of an epoch whose rows code takes as columns, and fires them.

    These have plain insertions and deletions, and where they are kept updates. The rows of kept tables are checked by
    code, all or none go so: it sees no net changes. What has waited comes after them, so it must have other keys, and
    take no parents of theirs.

    Parameters
    ----------
    references
        Those that are checked.
    polled
        The tables whose deletions are left to a vote.
    """

    def __init__(
        self,
        session: Session,
        plan: BucketPlan,
        positions: TablePositions,
        waiting: WaitingRows,
        references: Iterable[Reference],
        polled: frozenset[str],
    ) -> None:
        self._session, self._plan = session, plan
        self._positions, self._waiting, self._polled = positions, waiting, polled
        self._references = [
            each for each in references if each.parent.name not in polled
        ]  # no net change sees what is asked
        self._kept = frozenset(dict(session.program.kept))
        ordered = parents_first(session.program)
        self._static = [each for each in ordered if each.static]
        self._streams = [each for each in ordered if not each.static]

    def choose(
        self, epoch: int, payloads: Iterable[Payload], account: EpochAccount
    ) -> tuple[dict[str, list[Payload]], ColumnarChoice]:
        """Return the rows of tables from which code has dropped what is repeated, and those that it may take."""
        if self._session.fast is None:
            return {}, ColumnarChoice()
        found: dict[str, list[Payload]] = {}
        for payload in payloads:
            if payload.rows.num_rows:
                found.setdefault(payload.relation, []).append(payload)
        able = {name for name, mine in found.items() if self._is_able(epoch, name, mine)}
        kept = found.keys() & self._kept
        if not kept <= able or self._meet_waiting({name: found[name] for name in kept}):
            able -= kept
        fresh: dict[str, list[Payload]] = {}
        for name, mine in found.items():
            relation = self._session.relations[name]
            newer = None if name not in able else self._positions.of(relation).newer(mine) if relation.key else mine
            if newer is not None:
                fresh[name] = newer
                account.repeat(name, None, _row_count(mine) - _row_count(newer))
        chosen = self._deal(fresh, kept, dict.fromkeys(self._polled, (DELETE,)))
        if epoch == 1 and any(each.name in found.keys() - chosen.rounds.keys() for each in self._static):
            return fresh, ColumnarChoice()  # static tables are loaded before all others
        return fresh, chosen

    def _meet_waiting(self, found: Mapping[str, list[Payload]]) -> bool:
        """Whether what rows of kept tables do may hang on rows that wait."""
        return any(
            self._waiting.may_share_key(self._session.relations[name], mine) for name, mine in found.items()
        ) or any(
            self._waiting.take_parents(each, found[each.child.name])
            for each in self._references
            if each.child.name in found
        )

    def without_updates_of_parents(self, fresh: Mapping[str, list[Payload]], chosen: ColumnarChoice) -> ColumnarChoice:
        """Return what code may take if it does not take what was chosen: updates of rows that others refer to are left
        out. Nothing if that is no difference.
        """
        referred = self._session.referring.tables
        operations = dict.fromkeys(referred, (UPSERT,)) | {
            name: (UPSERT, DELETE) if name in referred else (DELETE,) for name in self._polled
        }
        again = self._deal({name: fresh[name] for name in chosen.rounds}, self._kept & chosen.rounds.keys(), operations)
        if _aside_count(again) <= _aside_count(chosen) or any(
            _may_lose_parents(each, again) for each in self._references
        ):
            return ColumnarChoice()
        return again

    def _deal(
        self,
        fresh: Mapping[str, list[Payload]],
        kept: Collection[str],
        aside: Mapping[str, Sequence[int]],
    ) -> ColumnarChoice:
        """Deal rows to rounds, all tables of `kept` or none; `aside`: table → operations whose rows are set aside."""
        rounds: dict[str, list[pa.Table]] = {}
        left: dict[str, list[Payload]] = {}
        for name, payloads in fresh.items():
            relation = self._session.relations[name]
            if name in aside and _have(payloads, *aside[name]):
                parts = set_aside(relation, payloads, aside[name])
                if parts is None:
                    continue
                left[name], payloads = parts
            dealt = deal_rounds(relation, payloads) if name in kept else [pa.concat_tables(p.rows for p in payloads)]
            if dealt:
                rounds[name] = dealt
        if not set(kept) <= rounds.keys():
            rounds = {name: dealt for name, dealt in rounds.items() if name not in kept}
        return ColumnarChoice(rounds, {name: rows for name, rows in left.items() if name in rounds})

    def _is_able(self, epoch: int, name: str, payloads: list[Payload]) -> bool:
        relation, fast = self._session.relations[name], self._session.fast
        if relation.static and (epoch > 1 or _have(payloads, UPSERT, DELETE)):
            return False
        if name not in self._kept:
            return is_plain(relation, payloads, updates=False)
        # Of several buckets, one gets the new row of an update, and any may have the old one.
        is_here = self._plan.buckets == 1 or name not in self._plan.partitioned or name in self._plan.by_key
        updates = bool(relation.key) and is_here
        is_checked = fast is not None and fast.checks(name)
        return is_checked and not relation.key_rely and is_plain(relation, payloads, updates=updates)

    def fire(self, opened: Transaction, chosen: ColumnarChoice) -> bool:
        """Fire rounds of rows in a transaction; False if a row was left, or a reference may not hold.

        Without code the rows, which code has chosen before, are fired one by one.
        """
        rounds = chosen.rounds
        for relation in self._static:
            for rows in rounds.get(relation.name, ()):
                if not self._take(opened, INSERT, relation, rows):
                    return False
        steps = ((DELETE, self._streams[::-1]), (INSERT, self._streams), (UPSERT, self._streams))
        for number in range(max(map(len, rounds.values()), default=0)):
            for operation, order in steps:
                for relation in order:
                    for rows in rounds.get(relation.name, ())[number : number + 1]:
                        if not self._take(opened, operation, relation, rows):
                            return False
        return not rounds or opened.is_settled()

    def _take(self, opened: Transaction, operation: int, relation: Relation, table: pa.Table) -> bool:
        """Fire the deletions, insertions or updates of a table; False if one was left."""
        mine = table.filter(pc.equal(table.column(OP_COLUMN), operation)).select(list(relation.column_names))
        bulk = rows_of(-1 if operation == DELETE else 1, relation, mine, relation.checked)
        if not mine.num_rows or not isinstance(bulk, Columns):
            return not mine.num_rows
        wanted = Upserts(bulk) if operation == UPSERT else bulk
        if self._session.fast is None:
            opened.apply_all(wanted)
            return True
        return opened.take_whole(wanted)


def _may_lose_parents(reference: Reference, chosen: ColumnarChoice) -> bool:
    """Whether a row that code would take may refer to one whose deletion is set aside: of these two the row must wait,
    and code would take it before.
    """
    column, parent = reference.parent.columns[reference.parent_places[0]].name, reference.parent.name
    aside = (each.rows for each in chosen.aside.get(parent, ()))
    going = [rows.filter(pc.equal(rows.column(OP_COLUMN), DELETE)) for rows in aside]
    values = {value for rows in going for value in rows.column(column).unique().to_pylist()}
    here = reference.child.columns[reference.child_places[0]].name
    come = [
        rows.filter(pc.not_equal(rows.column(OP_COLUMN), DELETE))
        for rows in chosen.rounds.get(reference.child.name, ())
    ]
    return bool(values) and any(not values.isdisjoint(rows.column(here).unique().to_pylist()) for rows in come)


def _row_count(payloads: Iterable[Payload]) -> int:
    return sum(payload.rows.num_rows for payload in payloads)


def _aside_count(chosen: ColumnarChoice) -> int:
    return sum(map(_row_count, chosen.aside.values()))


def is_plain(relation: Relation, payloads: Sequence[Payload], *, updates: bool) -> bool:
    """Whether each row has all its values, which a deletion or an update need not, none is an update unless `updates`
    may be, and none a truncation.
    """
    required = [column.name for column in relation.columns if is_not_null(relation, column)]
    if any(LACKING_COLUMN in payload.rows.column_names for payload in payloads):
        return False
    if any(payload.rows.column(name).null_count for payload in payloads for name in required):
        return False
    return not _have(payloads, TRUNCATE) and (updates or not _have(payloads, UPSERT))


def deal_rounds(relation: Relation, payloads: Sequence[Payload]) -> list[pa.Table]:
    """Return the rows of a kept table dealt to rounds; none if they are too many.

    O(rows), and O(log rows) for each row whose key has another.
    """
    ordered = {ORDER_COLUMN in payload.rows.column_names for payload in payloads}
    if len(ordered) > 1 or _has_interval_key(relation):
        return []
    order = [ORDER_COLUMN] if ordered == {True} else []
    columns = [*relation.column_names, OP_COLUMN, *order]
    rows = pa.concat_tables(payload.rows.select(columns) for payload in payloads)
    if not relation.key:
        return [rows]
    keys = [f"_key{place}" for place in range(len(relation.key))]
    named = pa.table([rows.column(name) for name in relation.key], names=keys)
    counts = named.group_by(keys, use_threads=False).aggregate([([], "count_all")])
    if counts.num_rows == rows.num_rows:
        return [rows]
    several = counts.filter(pc.greater(counts.column("count_all"), 1))
    if pc.max(several.column("count_all")).as_py() > _MOST_ROUNDS:
        return []
    named = named.append_column("_at", pa.array(np.arange(rows.num_rows)))
    places = named.join(several, keys, join_type="left semi", use_threads=False).sort_by("_at")
    mine = rows.take(places.column("_at"))
    if order:  # a deletion comes before an insertion with its position
        sorting = pa.table({"seq": mine.column(ORDER_COLUMN), "op": mine.column(OP_COLUMN), "at": places.column("_at")})
        places = places.take(pc.sort_indices(sorting, [(name, "ascending") for name in ("seq", "op", "at")]))
    dealt = np.zeros(rows.num_rows, np.int8)
    seen: dict[tuple[object, ...], int] = {}
    for at, *key in zip(*(places.column(name).to_pylist() for name in ("_at", *keys)), strict=True):
        dealt[at] = seen.get(tuple(key), 0)
        seen[tuple(key)] = dealt[at] + 1
    return [rows.filter(pa.array(dealt == number)) for number in range(int(dealt.max()) + 1)]


def set_aside(
    relation: Relation, payloads: Sequence[Payload], operations: Sequence[int]
) -> tuple[list[Payload], list[Payload]] | None:
    """Split rows: those of keys that have one with some operations, and the others. None if Arrow cannot tell the keys.

    Of a key all or none: a row that it has only until the next one comes must not be seen.
    """
    if _has_interval_key(relation):
        return None
    names = [f"_key{place}" for place in range(len(relation.key))]
    rows = pa.concat_tables(each.rows.select([*relation.key, OP_COLUMN]) for each in payloads)
    rows = rows.rename_columns([*names, OP_COLUMN]).append_column("_at", pa.array(np.arange(rows.num_rows)))
    wanted = rows.filter(pc.is_in(rows.column(OP_COLUMN), value_set=pa.array(operations, pa.int8()))).select(names)
    mine = rows.join(wanted, names, join_type="left semi", use_threads=False)
    chosen = np.zeros(rows.num_rows, np.bool_)
    chosen[mine.column("_at").to_numpy()] = True
    left: list[Payload] = []
    rest: list[Payload] = []
    at = 0
    for payload in payloads:
        here = chosen[at : at + payload.rows.num_rows]
        at += payload.rows.num_rows
        left.append(replace(payload, rows=payload.rows.filter(pa.array(here))))
        rest.append(replace(payload, rows=payload.rows.filter(pa.array(~here))))
    return left, rest


def _has_interval_key(relation: Relation) -> bool:
    """Whether the primary key has intervals, which Arrow does not group."""
    types = (relation.columns[place].type for place in relation.key_positions)
    return any(each is not None and each.kind is Kind.INTERVAL for each in types)


def _have(payloads: Sequence[Payload], *operations: int) -> bool:
    """Whether a row has one of some operations."""
    return any(pc.any(pc.equal(each.rows.column(OP_COLUMN), op)).as_py() for each in payloads for op in operations)
