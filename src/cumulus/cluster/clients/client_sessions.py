"""The clients of a switch: which of their rows are in already, and their rows as payloads.

A client numbers what it sends, and sends it again under the same number if it does not know what has become of it. A
switch remembers the last number of each, so nothing is taken in twice. Users number what they send under a name of
their own, a writer, that any of their clients may send again.

Where switches share a table, the rows of a call come to several of them under one number, to each its own. What a
switch has taken is in its share alone, so numbers are remembered by shares. When the table comes to other switches, all
of them learn all numbers: of rows that come again, each leaves out those that are in one of the old shares with such a
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from cumulus.catalog.arrow import from_strange_ipc, table_of
from cumulus.catalog.events import DELETE, INSERT, OP_COLUMN, POSITION_COLUMN, UPSERT
from cumulus.catalog.schema import Relation
from cumulus.cluster.intake import pack_rows
from cumulus.cluster.messages import WRITER, ClientRows
from cumulus.cluster.placement.table_shares import TableShare
from cumulus.cluster.records import LoggedRows
from cumulus.engine.rows_in import is_not_null
from cumulus.epochs.intake.packing import call_label
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.plan import BucketPlan
from cumulus.errors import RemoteProtocolError
from cumulus.m3.program import Program
from cumulus.machine import Name

MOST_BYTES = (1 << 26) - (1 << 16)
"""What the rows of one message may take when they are unpacked: an entry that a row makes, with what is around it, fits
an answer to a client that reads it.
"""
MOST_CLIENTS = 10_000
"""Of so many clients the last numbers are remembered: those that have sent something last."""
MOST_WRITERS = 100_000
"""So many names of writers are remembered, for ever."""
_OF_SHARE = "\x1f"
"""Stands between a sender and the share of a table in which its rows are, where they are remembered."""
MOST_NAME = 200
"""Characters of the name of a writer."""


class ClientSessions:
    """What a switch knows of its clients.

    Parameters
    ----------
    tables
        Those of the switch.
    gate
        The buckets of the gate; None if there is none.
    is_spread
        Whether the switch has an intake of its own.
    shares
        Table → the switch's share in it, where there are others.
    """

    def __init__(
        self,
        program: Program,
        tables: frozenset[str],
        gate: BucketPlan | None,
        *,
        is_spread: bool,
        shares: Mapping[str, TableShare] = MappingProxyType({}),
    ) -> None:
        self._relations = {each.name: each for each in program.relations if each.name in tables}
        self._gate, self._is_spread, self._shares = gate, is_spread, shares
        self._last: dict[Name, dict[str, tuple[int, int]]] = {}
        """Client and table → for each share, "" for the whole table, the number of its last rows, and their epoch; in
        the order in which they came.
        """
        self._writers: dict[Name, dict[str, tuple[int, int]]] = {}
        """The same of writers."""
        self.forgotten = 0
        """The last epoch of those clients that are not remembered any more."""

    def epoch_of(self, client: Name, sent: ClientRows) -> int | None:
        """Return an epoch that has rows if any has; None if they are new.

        A home from before clients were known by tables has their names alone.
        """
        known, (_, number) = self._known(client, sent), sent.sender(client)
        places = (known[label] for label in ("", self._label(sent.table)) if label in known)
        epochs = [epoch for last, epoch in places if 0 < number <= last]
        if not epochs and self._are_all_in(client, sent):
            epochs = [epoch for last, epoch in known.values() if number <= last]
        return max(epochs) if epochs else None

    def _are_all_in(self, client: Name, sent: ClientRows) -> bool:
        """Whether all rows are in by shares of before; False if they are no rows that are taken."""
        number = sent.sender(client)[1]
        if not any(label and 0 < number <= last for label, (last, _) in self._known(client, sent).items()):
            return False
        try:
            return not self._new_rows(client, sent).num_rows
        except RemoteProtocolError:
            return False

    def sender_of(self, client: Name, sent: ClientRows) -> tuple[Name, int]:
        """Return under what name rows are remembered here, and their number."""
        sender, number = sent.sender(client)
        return name_in_share(sender, self._label(sent.table)), number

    def note(self, name: Name, number: int, epoch: int) -> None:
        """Remember that rows are in; `name` is of `sender_of`."""
        sender, label = sender_and_share(name)
        known = self._of(sender)
        known[sender] = {**known.pop(sender, {}), label: (number, epoch)}
        if len(self._last) > MOST_CLIENTS:
            forgotten = self._last.pop(next(iter(self._last)))
            self.forgotten = max(self.forgotten, *(epoch for _, epoch in forgotten.values()))

    def _of(self, sender: Name) -> dict[Name, dict[str, tuple[int, int]]]:
        return self._writers if sender.startswith(WRITER) else self._last

    def _known(self, client: Name, sent: ClientRows) -> Mapping[str, tuple[int, int]]:
        """Return what is remembered of who has sent rows, by shares."""
        sender, _ = sent.sender(client)
        earlier = None if sent.writer else self._last.get(client)
        return self._of(sender).get(sender) or earlier or {}

    def _label(self, table: str) -> str:
        share = self._shares.get(table)
        return "" if share is None else share.label

    def reading(self, client: Name, sent: ClientRows, place: int, at: int) -> Reading:
        """Return rows as what is packed.

        Parameters
        ----------
        place, at
            Greater than those of all rows that came before. A gate takes the rows of an epoch in the order of
            their labels: so these come in this order, and before those of files.

        Raises
        ------
        RemoteProtocolError
            If these are no rows of a table of this switch, or are sent again so late that the switch does not know
            whether it has them.
        """
        if sent.writer:
            self._check_writer(sent)
        elif sent.sender(client)[0] not in self._last and 0 <= sent.again_after < self.forgotten:
            raise RemoteProtocolError(
                f"{sent.table}: rows have come again, and whether they are in is not known any more",
                hint="Look whether a view has them. Then connect again.",
            )
        return Reading(sent.table, self._new_rows(client, sent), call_label(place, at, client), ())

    def _new_rows(self, client: Name, sent: ClientRows) -> pa.Table:
        """Return the rows that are not in: a part of them may be, since the table was at other switches."""
        rows, (_, number) = self._checked(sent), sent.sender(client)
        for label, (last, _) in self._known(client, sent).items():
            if label and number <= last:
                rows = rows.filter(pc.invert(TableShare.of_label(label).has(rows)))
        return rows

    def _check_writer(self, sent: ClientRows) -> None:
        if len(sent.writer) > MOST_NAME or not 0 < sent.writing < 1 << 63:
            raise RemoteProtocolError(
                f"{sent.table}: rows have come under the name {sent.writer!r:.50} and number {sent.writing}",
                hint=f"A name has {MOST_NAME} characters at most, and numbers ascend from 1.",
            )
        if len(self._writers) >= MOST_WRITERS and f"{WRITER}{sent.writer}" not in self._writers:
            raise RemoteProtocolError(
                f"{sent.table}: rows come under the name {sent.writer!r:.50}, and {MOST_WRITERS:,} others are known",
                hint="Take the same names again: each is remembered for ever.",
            )

    def logged(self, readings: Sequence[Reading], senders: Sequence[tuple[Name, int]], epoch: int) -> LoggedRows:
        """Return rows as what is logged, and applied; `senders` have sent them, each under a number."""
        packed = pack_rows(readings, self._gate, is_spread=self._is_spread)
        return LoggedRows(epoch, senders, packed.gates, packed.intake)

    def _checked(self, sent: ClientRows) -> pa.Table:
        if sent.number < 1:
            raise RemoteProtocolError(f"{sent.table}: rows have come with number {sent.number}", hint="Begin with 1.")
        relation = self._relations.get(sent.table)
        if relation is None:
            raise RemoteProtocolError(f"{sent.table} is no table of this switch", hint="Connect again.")
        try:
            rows = from_strange_ipc(sent.rows, MOST_BYTES)
        except (pa.ArrowException, OSError, ValueError) as problem:
            raise RemoteProtocolError(
                f"{sent.table}: {len(sent.rows):,} bytes are no rows that are taken: {str(problem)[:300]}",
                hint="Send less in one call.",
            ) from None
        if relation.static:
            raise RemoteProtocolError(f"{sent.table} is STATIC: it takes no rows from clients", hint="Connect again.")
        if not _is_of(rows, relation):
            raise RemoteProtocolError(
                f"{sent.table}: rows have come whose columns are not those of the table", hint="Connect again."
            )
        share = self._shares.get(sent.table)
        if share is not None and not pc.all(share.has(rows), min_count=0).as_py():
            raise RemoteProtocolError(
                f"{sent.table}: rows have come that are not of this switch, since it is split by {share.column}",
                hint="Connect again, to learn which rows go where.",
            )
        return rows

    def save(self) -> dict[Name, Sequence[int]]:
        """Return what is remembered."""
        return {
            name_in_share(sender, label): found
            for known in (self._last, self._writers)
            for sender, shares in known.items()
            for label, found in shares.items()
        }

    def load(self, saved: Mapping[Name, Sequence[int]], forgotten: int) -> None:
        """Replace what is remembered by what `save` returned, and what was `forgotten`."""
        self.forgotten = forgotten
        self._last, self._writers = {}, {}
        for name, (number, epoch) in saved.items():
            sender, label = sender_and_share(name)
            self._of(sender).setdefault(sender, {})[label] = number, epoch


def name_in_share(sender: Name, label: str) -> Name:
    """Return under what name the rows of a sender are remembered in a share of their table, "" for all of it.

    Examples
    --------
    >>> sender_and_share(name_in_share("client-1", "oid 0/2"))
    ('client-1', 'oid 0/2')
    """
    return f"{sender}{_OF_SHARE}{label}" if label or _OF_SHARE in sender else sender


def sender_and_share(name: Name) -> tuple[Name, str]:
    """Return what `name_in_share` has put together."""
    sender, is_there, label = name.rpartition(_OF_SHARE)
    return (sender, label) if is_there else (name, "")


def dealt_sessions(states: Iterable[Mapping[Name, Sequence[int]]]) -> dict[Name, Sequence[int]]:
    """Return what all switches are to remember, of what each has remembered: for each name the greatest number.

    What is in all shares of a table up to a number is in the table up to it.
    """
    found: dict[Name, dict[str, Sequence[int]]] = {}
    for state in states:
        for name, known in state.items():
            sender, label = sender_and_share(name)
            mine = found.setdefault(sender, {})
            if label not in mine or known[0] > mine[label][0]:
                mine[label] = known
    return {
        name_in_share(sender, label): known
        for sender, mine in found.items()
        for label, known in _without_whole(mine).items()
    }


def _without_whole(known: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Return the numbers of shares without those that the whole table has reached."""
    found = dict(known)
    shares = {label: TableShare.of_label(label) for label in known if label}
    for column, of in {(share.column, share.of) for share in shares.values()}:
        mine = [found[label] for label, share in shares.items() if (share.column, share.of) == (column, of)]
        if len(mine) == of:
            least, epoch = min(last for last, _ in mine), max(epoch for _, epoch in mine)
            if least > found.get("", (0, 0))[0]:
                found[""] = least, epoch
    whole = found.get("", (0, 0))[0]
    return {label: each for label, each in found.items() if not label or each[0] > whole}


def _is_of(rows: pa.Table, relation: Relation) -> bool:
    """Whether a table has typed rows of a relation, with operations and positions."""
    expected = table_of(relation.columns, ())
    if rows.column_names != [*expected.column_names, OP_COLUMN, POSITION_COLUMN]:
        return False
    types = [*expected.schema.types, pa.int8(), pa.int64()]
    for column, wanted, found in zip((*relation.columns, None, None), types, rows.columns, strict=True):
        if (column is None or column.type is not None) and found.type != wanted:
            return False
        if found.null_count and (column is None or is_not_null(relation, column)):
            return False
    known = pa.array([INSERT, DELETE, *([UPSERT] if relation.key else [])], pa.int8())
    return bool(pc.all(pc.is_in(rows.column(OP_COLUMN), value_set=known), min_count=0).as_py())
