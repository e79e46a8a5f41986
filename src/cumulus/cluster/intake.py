"""A switch's intake: from the packed payloads of files or clients to the net changes of its tables.

What decides which rows count, and which row an update replaces, is a bucket (`cumulus.epochs.bucket`) as in the other
hosts, over a program that keeps rows and no views. Beside the rows of each table it has a map with their net change,
which is emptied each time it is asked for.

A program with maps that have no definition wants events and not net changes: its rows stay in the order in which they
came (`OrderedIntake`).

Net changes of tables become blocks of events with versions, and what each node gets of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.events import DELETE, INSERT, LACKING_COLUMN, OP_COLUMN
from cumulus.cluster.machine_tasks import Payloads
from cumulus.cluster.placement.table_shares import TableShare, readings_of_switch
from cumulus.cluster.protocols.protocol import NumberedRows, Sent, SwitchProtocol
from cumulus.cluster.records import LoggedPayloads, LoggedRows
from cumulus.cluster.versions import MOST_TICKS, Numbering
from cumulus.engine.analysis.missing_triggers import missing_trigger
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.net_changes import Refused, bag_net_changes, changes_of, static_refusal
from cumulus.epochs.bucket.outcome import EpochAccount, Outcome
from cumulus.epochs.bucket.view_errors import FailedRow
from cumulus.epochs.intake.packing import Payload, pack, unpack_in_order
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.keeping import judging_program
from cumulus.epochs.plan import BucketPlan, Ownership
from cumulus.epochs.stages.judge import TableDelta, take_nets
from cumulus.explain.lineage import views_of_columns
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import On, Program


def pack_rows(
    readings: Sequence[Reading],
    gate: BucketPlan | None,
    *,
    is_spread: bool,
    shares: Mapping[str, TableShare] = MappingProxyType({}),
) -> Payloads:
    """Pack rows for the buckets of the gate, if there is one, and for the intake of a switch, if it has one.

    Parameters
    ----------
    shares
        Table → the switch's share in it, where there are others; rows of other shares are left out.
    """
    mine = list(readings_of_switch(readings, shares))
    gates = [] if gate is None else pack([for_gates for for_gates, _ in mine], gate)
    is_other = is_spread and (len(gates) != 1 or any(one is not other for one, other in mine))
    return Payloads(gates, pack([for_intake for _, for_intake in mine], BucketPlan())[0] if is_other else b"")


def intake_part(read: Payloads | LoggedPayloads | LoggedRows) -> bytes:
    """Return what of packed rows the intake takes."""
    return read.intake or b"".join(read.gates)


class Intake:
    """Takes in the rows of a switch's tables.

    Parameters
    ----------
    program
        The cluster's; rows are checked as it says.
    tables
        Those of the switch; who refers to one of them, and is checked, is among them.
    shares
        Table → the switch's share in it, where there are others.
    """

    def __init__(
        self,
        program: Program,
        tables: frozenset[str],
        make_engine: Callable[..., Engine],
        *,
        late_epochs: int = LATE_EPOCHS,
        shares: Mapping[str, TableShare] = MappingProxyType({}),
    ) -> None:
        keeping, self._nets = judging_program(program, tables)
        self._views = _views_of_tables(program)
        self._tables = {statement.map: trigger.relation for trigger, statement in keeping.statements()}
        owned = _owned_rows(keeping, shares)
        self._bucket = Bucket(keeping, BucketPlan(), 0, make_engine, late_epochs, ownership=owned)
        self._ordered = [each for each in parents_first(program) if each.name in tables]

    def apply(self, epoch: int, packed: Sequence[bytes]) -> tuple[Outcome, list[TableDelta]]:
        """Take in payloads; return what became of their rows, and the net changes, parents before children."""
        outcome = self._bucket.apply(epoch, packed)
        if outcome.errors:
            _blame_views(outcome, self._tables, self._views)
        return outcome, list(self.take_nets())

    def take_nets(self) -> Iterator[TableDelta]:
        """Yield the net changes of tables since the last call, parents before children; their maps are empty then."""
        return take_nets(self._bucket, self._nets, self._ordered)

    def save(self) -> bytes:
        """Return the whole state."""
        return self._bucket.dump()

    def load(self, data: bytes) -> None:
        """Replace the state by what `save` returned."""
        self._bucket.load(data)


def _owned_rows(program: Program, shares: Mapping[str, TableShare]) -> Ownership | None:
    """Return which rows of a switch's tables count there, None for all: a truncation counts at one switch."""
    if not shares:
        return None
    ((number, of),) = {(share.number, share.of) for share in shares.values()}
    plan = BucketPlan(of, {table: (share.column,) for table, share in shares.items()})
    return Ownership(program, plan, number, [each.name for each in program.relations if each.name not in shares])


class OrderedIntake:
    """Takes in the rows of a switch's tables event by event, in the order in which they came; it keeps nothing.

    What clients send has the order of their calls; the files of an epoch come table by table, each in its order.

    Parameters
    ----------
    program
        The cluster's, without primary keys and kept rows.
    spread
        Its spread part: other events change nothing there.
    """

    def __init__(self, program: Program, spread: Program, tables: frozenset[str]) -> None:
        self._program = program
        self._known = {name: _signs_of(program, name) or frozenset((INSERT, DELETE)) for name in tables}
        self._fired = {name: _signs_of(spread, name) for name in tables}

    def apply(self, epoch: int, packed: Sequence[bytes]) -> tuple[Outcome, list[TableDelta]]:
        """Take in payloads; return what became of their rows, and the events, in their order."""
        account = EpochAccount(self._program, Ownership(self._program, BucketPlan(), 0))
        found: list[TableDelta] = []
        for payload in unpack_in_order(packed):
            account.outcome.take_in(payload)
            rows = payload.rows
            if not rows.num_rows:
                continue
            is_fine = self._is_fine(payload, epoch)
            account.apply(payload.relation, None, int(np.count_nonzero(is_fine)))
            if not is_fine.all():
                refused = replace(payload, rows=rows.filter(pa.array(~is_fine)))
                for each in self._refusals(refused, epoch):
                    account.refuse(each)
            signs = rows.column(OP_COLUMN).to_numpy().astype(np.int64)
            is_fine &= np.isin(signs, list(self._fired[payload.relation]))
            columns = self._program.relation(payload.relation).column_names
            if is_fine.any():
                found.append(
                    TableDelta(payload.relation, rows.select(columns).filter(pa.array(is_fine)), signs[is_fine])
                )
        return account.outcome, [_joined(list(run)) for _, run in groupby(found, key=attrgetter("relation"))]

    def _is_fine(self, payload: Payload, epoch: int) -> npt.NDArray[np.bool_]:
        """Return which rows are events for which the program has a trigger."""
        rows, relation = payload.rows, self._program.relation(payload.relation)
        known = self._known[relation.name]
        if relation.static:
            known = frozenset((INSERT,)) if epoch == 1 else frozenset()
        found = np.isin(rows.column(OP_COLUMN).to_numpy(), list(known))
        if LACKING_COLUMN in rows.column_names:
            found &= rows.column(LACKING_COLUMN).is_null().to_numpy()
        return found

    def _refusals(self, payload: Payload, epoch: int) -> Iterator[Refused]:
        """Yield why rows are no such events."""
        relation = self._program.relation(payload.relation)
        for change in changes_of([payload], epoch)[relation.name]:
            _, refused = bag_net_changes(relation, [change], None)
            if relation.static:
                yield static_refusal(change)
            elif refused:
                yield from refused
            else:
                missing = missing_trigger(change.op, relation.name)
                yield Refused(change, f"{missing.message}, and its maps have no definitions")

    def save(self) -> bytes:
        """Return the whole state: nothing."""
        return b""

    def load(self, data: bytes) -> None:
        """Replace the state by what `save` returned."""
        assert not data, "events leave no state"


def _signs_of(program: Program, relation: str) -> frozenset[int]:
    """Return the operations of a table for which a program has triggers."""
    signs = {On.INSERT: INSERT, On.DELETE: DELETE}
    return frozenset(
        signs[trigger.on] for trigger in program.triggers if trigger.relation == relation and trigger.on in signs
    )


def _joined(run: Sequence[TableDelta]) -> TableDelta:
    """Return events of one table that follow each other as one change."""
    if len(run) == 1:
        return run[0]
    rows = pa.concat_tables([each.rows for each in run])
    return TableDelta(run[0].relation, rows, np.concatenate([each.counts for each in run]))


def _views_of_tables(program: Program) -> dict[str, frozenset[str]]:
    """Return for each table the views that depend on it."""
    places = views_of_columns(program)
    found: dict[str, set[str]] = {}
    for trigger, statement in program.statements():
        definition = program.map(statement.map)
        column = definition.values[definition.column_index(statement.column)].name
        found.setdefault(trigger.relation, set()).update(places.get((statement.map, column), ()))
    return {table: frozenset(views) for table, views in found.items()}


def _blame_views(outcome: Outcome, tables: Mapping[str, str], views: Mapping[str, frozenset[str]]) -> None:
    """Make errors of the intake's maps errors of the views that lack the rows; of the maps where no view does.

    A row that several maps of a table could not take in is one error of each view.
    """
    errors: dict[FailedRow, None] = {}
    for row in outcome.errors:
        for view in sorted(views.get(row.relation, ())) or (row.view,):
            errors[row._replace(view=view)] = None
    counts: dict[tuple[str, str], int] = {}
    for name, count in outcome.error_counts.items():
        for view in views.get(tables[name], ()) or (name,):
            counts[view, tables[name]] = max(count, counts.get((view, tables[name]), 0))
    outcome.errors, outcome.error_counts = list(errors), {}
    for (view, _), count in counts.items():
        outcome.error_counts[view] = outcome.error_counts.get(view, 0) + count


BLOCK_ROWS = 10_000


class BlockMaker:
    """Makes the blocks of a switch.

    A block is rows of one table, some inserted and some deleted, with consecutive versions: the first is that of the
    block, and each row has its own where the node program asks for that.

    Parameters
    ----------
    protocol
        Says what nodes get of a block.
    static
        The tables whose rows come before all others: they are of epoch 0.
    rows
        Of one block, at most.
    """

    def __init__(
        self, numbering: Numbering, protocol: SwitchProtocol, static: frozenset[str], rows: int = BLOCK_ROWS
    ) -> None:
        self._numbering, self.protocol, self._static = numbering, protocol, static
        self._rows = min(rows, numbering.most)
        self._epoch = self._tick = 0
        """The last epoch, and how many blocks it has."""

    def has_room(self, epoch: int) -> bool:
        """Whether half of the versions that an epoch has are left: files need them when it ends."""
        return epoch != self._epoch or self._tick < MOST_TICKS // 2

    def make(self, epoch: int, nets: Iterable[TableDelta]) -> Iterator[tuple[int, Sent]]:
        """Yield for each block which node gets what of it; nothing where nobody gets any.

        An epoch may get several times what belongs to it, static tables before all others.
        """
        ordered = sorted(nets, key=lambda net: net.relation not in self._static)
        if epoch != self._epoch:
            self._epoch, self._tick = epoch, 0
        for net in ordered:
            of = 0 if net.relation in self._static else epoch
            at = np.repeat(np.arange(net.rows.num_rows), np.abs(net.counts))
            signs = np.sign(net.counts).astype(np.int8)[at]
            for begin in range(0, len(at), self._rows):
                here = slice(begin, begin + self._rows)
                rows = net.rows.take(pa.array(at[here]))
                version = self._numbering.next(of, self._tick, rows.num_rows)
                self._tick += 1
                yield from self.protocol.dispatch(NumberedRows(net.relation, version, rows, signs[here]))
