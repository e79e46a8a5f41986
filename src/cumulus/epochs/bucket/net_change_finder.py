"""Finds the net changes that an epoch makes to the rows of a bucket, table by table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cumulus.catalog.events import INSERT, TRUNCATE, Row
from cumulus.catalog.schema import Relation
from cumulus.engine.session import Session
from cumulus.epochs.bucket.net_changes import (
    InputChange,
    Key,
    NetChange,
    Position,
    bag_net_changes,
    changes_of,
    drop_repeated,
    in_order,
    keyed_net_changes,
    static_refusal,
    truncated_bag_net_changes,
)
from cumulus.epochs.bucket.outcome import EpochAccount
from cumulus.epochs.bucket.positions import Positions, TablePositions
from cumulus.epochs.intake.packing import Payload
from cumulus.epochs.plan import Ownership
from cumulus.m3.dataflow import parents_first


class NetChangeFinder:
    """Finds the net changes of a bucket."""

    def __init__(self, session: Session, ownership: Ownership, positions: TablePositions) -> None:
        self._session, self._ownership, self._positions = session, ownership, positions
        self._kept = dict(session.program.kept)
        ordered = parents_first(session.program)
        self._tables = sorted(ordered, key=lambda each: not each.static)  # static ones first

    def find(
        self,
        epoch: int,
        waiting: Iterable[InputChange],
        payloads: Iterable[Payload],
        fresh: Mapping[str, list[Payload]],
        account: EpochAccount,
    ) -> list[NetChange]:
        """Return the net changes of waiting and new changes; for tables of `fresh`, repeats are already dropped."""
        changes: dict[str, list[InputChange]] = {}
        for change in waiting:
            changes.setdefault(change.relation, []).append(change)
        for name, come in changes_of(payloads, epoch).items():
            changes.setdefault(name, []).extend(come)
        net_changes: list[NetChange] = []
        for relation in self._tables:
            mine = changes.get(relation.name)
            if mine:
                if relation.static:
                    mine = _loadable(epoch, mine, account)
                net_changes.extend(self._net_changes(relation, mine, account, is_fresh=relation.name in fresh))
        return net_changes

    def _net_changes(
        self, relation: Relation, changes: list[InputChange], account: EpochAccount, *, is_fresh: bool
    ) -> list[NetChange]:
        """Return the net changes of a table."""
        name, integrity = relation.name, self._session.integrity
        positions: dict[Key, Position | None] = {}
        if relation.key and is_fresh:
            changes = in_order(changes)
        elif relation.key:
            last = self._positions.of(relation)
            if any(change.op == TRUNCATE for change in changes):
                positions = self._all_positions(relation, last)
            changes, seen, repeated = drop_repeated(changes, relation.key_positions, last.get)
            last.update(seen)
            for change in repeated:
                account.repeat(name, change.row)
        for change in changes:
            account.apply(name, change.row)
        gone: list[Row] = []
        if name in self._kept and relation.key:
            net_changes, refused, gone = keyed_net_changes(
                relation,
                changes,
                lambda key: integrity.by_key(name, key),
                lambda row: self._ownership.owns(name, row),
                lambda truncation: _older(positions, truncation),
            )
        elif name in self._kept and any(change.op == TRUNCATE for change in changes):
            rows = {row: int(count) for row, (count,) in self._session.engine.items(self._kept[name])}
            net_changes, refused, gone = truncated_bag_net_changes(relation, changes, rows)
        else:
            count_of = (lambda row: integrity.multiplicity(name, row)) if name in self._kept else None
            net_changes, refused = bag_net_changes(relation, changes, count_of)
        for each in refused:
            account.refuse(each)
            account.apply(name, each.change.row, -1)
        for row in gone:
            account.truncate(name, row)
        return net_changes

    def _all_positions(self, relation: Relation, last: Positions) -> dict[Key, Position | None]:
        """Return the primary keys of the kept rows, and the last position of each."""
        if relation.name not in self._kept:
            return {}
        key_at = relation.key_positions
        keys = (tuple([row[at] for at in key_at]) for row, _ in self._session.engine.items(self._kept[relation.name]))
        return {key: last.get(key) for key in keys}


def _loadable(epoch: int, changes: list[InputChange], account: EpochAccount) -> list[InputChange]:
    """Refuse what is not an insertion into a static table in the first epoch: no trigger could take it."""
    fine = [change for change in changes if epoch == 1 and change.op == INSERT]
    for change in changes:
        if epoch != 1 or change.op != INSERT:
            account.refuse(static_refusal(change))
    return fine


def _older(positions: Mapping[Key, Position | None], truncation: InputChange) -> list[Key]:
    """Return the keys whose rows a truncation takes: a row from a later place of the source stays."""
    place = truncation.place()
    return [key for key, last in positions.items() if place is None or last is None or last <= place]
