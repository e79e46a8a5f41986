"""A switch's intake: from the packed payloads of files or clients to the net changes of its tables.

What decides which rows count, and which row an update replaces, is a bucket (`cumulus.epochs.bucket`) as in the other
hosts, over a program that keeps rows and no views. Beside the rows of each table it has a map with their net change,
which is emptied each time it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.cluster.messages import Payloads
from cumulus.cluster.records import LoggedPayloads, LoggedRows
from cumulus.engine import snapshot
from cumulus.engine.protocol import Engine
from cumulus.epochs.bucket.bucket import LATE_EPOCHS, Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.bucket.view_errors import FailedRow
from cumulus.epochs.intake.packing import pack
from cumulus.epochs.intake.reading import Reading
from cumulus.epochs.plan import BucketPlan
from cumulus.epochs.replay import count_rows
from cumulus.explain.lineage import views_of_columns
from cumulus.m3.dataflow import parents_first
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class NetChange:
    """The net change of a table: different rows, and how often each came (positive) or went."""

    relation: str
    rows: pa.Table
    counts: npt.NDArray[np.int64]


def pack_rows(readings: Sequence[Reading], gate: BucketPlan | None, *, is_spread: bool) -> Payloads:
    """Pack rows for the buckets of the gate, if there is one, and for the intake of a switch, if it has one."""
    gates = [] if gate is None else pack(readings, gate)
    is_other = is_spread and len(gates) != 1
    return Payloads(gates, pack(readings, BucketPlan())[0] if is_other else b"")


def intake_part(read: Payloads | LoggedPayloads | LoggedRows) -> bytes:
    """Return what of packed rows the intake takes."""
    return read.intake or b"".join(read.gates)


def intake_program(program: Program, tables: frozenset[str]) -> tuple[Program, dict[str, str]]:
    """Return a program that keeps the rows of those tables which `program` keeps, and the net change of all; and table
    → map of its net change.
    """
    mine = tuple(each for each in program.relations if each.name in tables)
    kept = {name: f"{name} rows" for name, _ in program.kept if name in tables}
    nets = {each.name: f"{each.name} net" for each in mine}
    counted = [
        count_rows(each, [kept[each.name], nets[each.name]] if each.name in kept else [nets[each.name]])
        for each in mine
    ]
    maps = tuple(each for found, _ in counted for each in found)
    triggers = tuple(each for _, found in counted for each in found)
    return Program(mine, maps, (), triggers, tuple(kept.items())), nets


class Intake:
    """Takes in the rows of a switch's tables.

    Parameters
    ----------
    program
        The cluster's; rows are checked as it says.
    tables
        Those of the switch; who refers to one of them, and is checked, is among them.
    """

    def __init__(
        self,
        program: Program,
        tables: frozenset[str],
        make_engine: Callable[..., Engine],
        *,
        late_epochs: int = LATE_EPOCHS,
    ) -> None:
        keeping, self._nets = intake_program(program, tables)
        self._views = _views_of_tables(program)
        self._tables = {statement.map: trigger.relation for trigger, statement in keeping.statements()}
        self._bucket = Bucket(keeping, BucketPlan(), 0, make_engine, late_epochs)
        self._ordered = [each for each in parents_first(program) if each.name in tables]

    def apply(self, epoch: int, packed: Sequence[bytes]) -> tuple[Outcome, list[NetChange]]:
        """Take in payloads; return what became of their rows, and the net changes, parents before children."""
        outcome = self._bucket.apply(epoch, packed)
        if outcome.errors:
            _blame_views(outcome, self._tables, self._views)
        return outcome, list(self.take_nets())

    def take_nets(self) -> Iterator[NetChange]:
        """Yield the net changes of tables since the last call, parents before children; their maps are empty then."""
        engine = self._bucket.engine
        for relation in self._ordered:
            name = self._nets[relation.name]
            table = snapshot.dump(engine, name)
            if table.num_rows:
                engine.load(name, ())
                counts = table.column(table.num_columns - 1).to_numpy().astype(np.int64)
                rows = table.select(range(table.num_columns - 1)).rename_columns(relation.column_names)
                changed = counts != 0
                if not changed.all():
                    rows, counts = rows.filter(pa.array(changed)), counts[changed]
                yield NetChange(relation.name, rows, counts)

    def save(self) -> bytes:
        """Return the whole state."""
        return self._bucket.dump()

    def load(self, data: bytes) -> None:
        """Replace the state by what `save` returned."""
        self._bucket.load(data)


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
