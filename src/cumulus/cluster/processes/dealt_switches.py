"""What switches have after the last committed epoch, dealt out to those to which their tables come.

The rows that an intake keeps, the positions and the rows that wait are divided, table by table, as those of buckets are
(`cumulus.epochs.reshape`): a table has one bucket at one switch, or one at each if it is split. All switches learn what
is known of clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cumulus.cluster import codec
from cumulus.cluster.clients.client_sessions import dealt_sessions
from cumulus.cluster.messages import WRITER, switch_name
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.planning.table_assignment import TableAssignment
from cumulus.cluster.processes.home import Home
from cumulus.cluster.records import HeldState, SwitchState
from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.bucket.net_changes import InputChange
from cumulus.epochs.bucket.positions import DumpedPositions
from cumulus.epochs.keeping import judging_maps, judging_program
from cumulus.epochs.plan import BucketPlan, keyed_tables
from cumulus.epochs.reshape import reshape
from cumulus.m3.program import Program
from cumulus.machine import Name


def dealt_switches(home: Home, held: Mapping[Name, HeldState], after: ClusterPlan) -> dict[Name, HeldState]:
    """Return what each switch of a plan has after the last committed epoch, of what switches had."""
    before = home.plan.tables
    assert not any(each.rows for each in held.values()), "what was accepted is committed before"
    if not home.epoch:
        return {}
    states: dict[int, SwitchState] = {
        number: codec.decode(held[switch_name(number)].state) for number in range(before.switches)
    }
    clients = dealt_sessions(each.clients for each in states.values())
    unsure = [name for name in clients if "\n" not in name and not name.startswith(WRITER)]  # of earlier homes
    forgotten = [clients.pop(name)[1] for name in unsure] + [each.forgotten for each in states.values()]
    kept = {number: BucketContents.unpack(each.intake) for number, each in states.items() if each.intake}
    intakes = dealt_intakes(home.plan.program, before, after.tables, kept) if kept else {}
    found = {}
    for number in range(after.tables.switches):
        intake = intakes[number].pack() if intakes else b""
        state = SwitchState(home.epoch, intake, clients, max(forgotten))
        found[switch_name(number)] = HeldState(b"".join(codec.encode(state)))
    return found


def dealt_intakes(
    program: Program, before: TableAssignment, after: TableAssignment, states: Mapping[int, BucketContents]
) -> dict[int, BucketContents]:
    """Return what the intake of each switch has of its tables.

    Parameters
    ----------
    program
        The cluster's.
    before, after
        The switches of tables, as they were and as they are to be.
    states
        Switch → what its intake had.
    """
    shares: dict[int, list[BucketContents]] = {number: [] for number in range(after.switches)}
    for relation in program.relations:
        table = relation.name
        mine = [_of_table(states[number], table) for number in before.switches_of(table)]
        old, new = _buckets(program, before, table), _buckets(program, after, table)
        if (old.buckets, old.partitioned) != (new.buckets, new.partitioned):
            judging, _ = judging_program(program, {table})
            parts = reshape(judging, old, [each.pack() for each in mine], new)
            mine = [BucketContents.unpack(part) for part in parts]
        for number, share in zip(after.switches_of(table), mine, strict=True):
            shares[number].append(share)
    return {number: _joined(mine) for number, mine in shares.items()}


def _buckets(program: Program, tables: TableAssignment, table: str) -> BucketPlan:
    """Return the switches of a table as buckets."""
    if table not in tables.splits:
        return BucketPlan()
    partitioned = {table: (tables.splits[table],)}
    return BucketPlan(tables.switches, partitioned, by_key=keyed_tables(program, partitioned))


def _joined(shares: Sequence[BucketContents]) -> BucketContents:
    """Return what is of several tables as one."""
    maps: dict[str, pa.Table] = {}
    positions: dict[str, DumpedPositions] = {}
    waiting: list[InputChange] = []
    for each in shares:
        maps |= each.maps
        positions |= each.positions
        waiting += each.waiting
    return BucketContents(maps, positions, waiting)


def _of_table(state: BucketContents, table: str) -> BucketContents:
    """Return what is of one table."""
    maps: dict[str, pa.Table] = {name: state.maps[name] for name in judging_maps(table) if name in state.maps}
    positions: dict[str, DumpedPositions] = {name: each for name, each in state.positions.items() if name == table}
    waiting: list[InputChange] = [each for each in state.waiting if each.relation == table]
    return BucketContents(maps, positions, waiting)
