"""Rows that are there from the start: maps computed by their definition SQL, or by replaying the rows, as is quicker.

Both give the same maps. Most programs take rows faster than DuckDB groups them, so replaying begins. Where it turns
out slow, a thread computes the same by SQL, with a start; who is ready first wins. What SQL finds wrong, replaying
tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from threading import Thread
from time import thread_time
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.catalog.arrow import table_of
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.batches import Columns, Rows, rows_of
from cumulus.engine.garbage_collection import uncollected
from cumulus.engine.integrity import references
from cumulus.engine.protocol import Changes
from cumulus.errors import CumulusError, UsageError
from cumulus.interrupts import deliver, interruptible
from cumulus.m3.dataflow import bases_of, parents_first
from cumulus.m3.program import MapDef, Program
from cumulus.scalars.user import Given
from cumulus.warehouse.applier import Applier, Operation, UnsettledError
from cumulus.warehouse.sql_equivalence import compares_rows, unlike
from cumulus.warehouse.sql_loads import Computer, put
from cumulus.warehouse.subscriptions import Telling

WAYS = ("auto", "sql", "replay")
FAST = 1_000_000
"""Rows a second from which on nobody looks for a quicker way."""
_LOOK_S = 0.01
"""After about so many seconds of replaying its pace is looked at."""
_PATIENCE_S = 0.03
"""How long replaying may be slow, and how long what is left must take, before SQL is begun."""
_START = 0.3
"""For such a share of the time that the rest would take SQL has the machine alone; then both go on."""
_LOADS = {"native": 2_500_000, "interpreter": 500_000}
"""Entries a second that maps take from SQL."""


@dataclass(frozen=True, slots=True)
class Filled:
    """How a warehouse was filled.

    Parameters
    ----------
    rows
        How many came.
    way
        "sql" or "replay".
    why
        Why it was not SQL; "" where it was, or where nobody had a reason to try.
    """

    rows: int
    way: str
    why: str = ""


class Filling(Telling):
    """The part of a `Warehouse` that takes rows that are there from the start."""

    _buffer: list[Operation] | None

    def fill(self, tables: Mapping[str, Any], *, way: str = "auto") -> Filled:
        """Insert the rows of many tables into an empty warehouse, in one transaction: the quickest way to begin.

        It is as if the rows had been inserted, parents before their children, but they need not become events: maps
        can be computed by SQL, all rows at once.

        Parameters
        ----------
        tables
            Table → its rows, in any form that `insert` takes; a table that is not named stays empty.
        way
            "sql" computes every map by its definition, in DuckDB; "replay" fires the rows as events; "auto" finds out
            which is quicker. SQL leaves to replaying what it would not do alike: rows that are refused, sums of
            DOUBLE, expressions that may fail.

        Raises
        ------
        UsageError
            If there were events before, or a transaction is open.
        UnknownNameError
            If there is no table of a name.
        DataError
            As for `insert`; nothing is applied.

        Examples
        --------
        >>> from cumulus import Warehouse
        >>> wh = Warehouse("CREATE TABLE r (a INT, x INT); CREATE VIEW v AS SELECT a, SUM(x) AS s FROM r GROUP BY a")
        >>> wh.fill({"r": [(1, 10), (1, 5), (2, 7)]}).rows
        3
        >>> wh.view("v").get(1)
        (1, 15)
        """
        if way not in WAYS:
            raise UsageError(f"way={way!r}", hint="way is 'auto', 'sql' or 'replay'.")
        if not isinstance(tables, Mapping):
            raise UsageError(
                f"fill takes the rows of tables by their names, not {type(tables).__name__}",
                hint='Write wh.fill({"orders": rows, …}); insert() takes the rows of one table.',
            )
        with self._use():
            self._check_fillable()
            applier = self._applier
            given = {applier.relation(name).name: rows for name, rows in tables.items()}
            if len(given) < len(tables):
                raise UsageError(f"one table is named twice: {', '.join(tables)}", hint="Names have no case.")
            bulks = [
                rows_of(+1, relation, given[relation.name], applier.checkers[relation.name])
                for relation in parents_first(applier.program)
                if relation.name in given
            ]
            filled, changes = fill(applier, bulks, self._functions, way, self._subscriptions.maps)
            self._tell(changes)
            return filled

    def _check_fillable(self) -> None:
        self._check_quiet()
        if self._buffer is not None:
            raise UsageError("a transaction is open", hint="Fill the warehouse before it.")
        if self._applier.event_count:
            raise UsageError(
                f"only an empty warehouse is filled, and this one has had {self._applier.event_count:,} events",
                hint="Use insert(), or fill a new warehouse.",
            )


def fill(
    applier: Applier, bulks: Sequence[Rows | Columns], functions: Mapping[str, Given], way: str, watched: set[str]
) -> tuple[Filled, Changes]:
    """Fill empty maps with rows, parents first; return how, and what that has changed in some maps.

    Raises
    ------
    CumulusError
        As inserting the rows would; the maps are empty then.
    """
    before = {name: dict(applier.engine.items(name)) for name in watched}
    with uncollected():
        filled = _fill(applier, bulks, functions, way)
    changes: Changes = {}
    for name, old in before.items():
        new = dict(applier.engine.items(name))
        keys = (key for key in old | new if old.get(key) != new.get(key))
        changes[name] = {key: (old.get(key), new.get(key)) for key in keys}
    return filled, changes


def _fill(applier: Applier, bulks: Sequence[Rows | Columns], functions: Mapping[str, Given], way: str) -> Filled:
    rows = sum(map(len, bulks))
    why = "" if way == "replay" else _not_by_sql(applier.program)
    if way == "auto" and any(compares_rows(term) for each in applier.program.maps for term in each.definitions):
        why = why or "SQL would compare all rows with all"
    if way == "replay" or why:
        _replay(applier, bulks)
        return Filled(rows, "replay", why)
    with Computing(applier.program, bulks, functions) as computing:
        if way == "auto":
            try:
                _replay(applier, bulks, computing)
            except _OvertakenError:
                pass
            else:
                slower = "replaying was quicker" if computing.has_begun else ""
                return Filled(rows, "replay", computing.problem or slower)
        computing.finish()
        if computing.is_done:
            try:
                _load(applier, bulks, computing)
            except CumulusError as problem:
                computing.problem = str(problem)
            else:
                return Filled(rows, "sql")
    _replay(applier, bulks)
    return Filled(rows, "replay", computing.problem)


def _not_by_sql(program: Program) -> str:
    """Return why the maps of a program cannot be computed by SQL; "" if they can."""
    assigned = sources(program)
    tables = {relation.name: relation for relation in program.relations}
    for each in program.maps:
        if each.name in assigned:
            continue  # computed from the others anyway
        if not each.sql:
            return f"map {each.name} has no definition in SQL"
        what = unlike(each, tables)
        if what:
            return f"map {each.name} has {what}"
    return ""


# --- replaying ------------------------------------------------------------------------------------------------------

_FIRST, _PIECE = 16, 100_000
"""Rows of the first piece of a table, and of any where nobody looks at the pace."""


class _OvertakenError(Exception):
    """SQL was quicker."""


class _Pace:
    """How fast rows are replayed, beside a computation that begins where that is slow.

    Parameters
    ----------
    rows
        How many there are.
    """

    def __init__(self, rows: int, computing: Computing, loads: int) -> None:
        self.size = _FIRST
        """How many rows make a piece of about `_LOOK_S`."""
        self._computing, self._loads = computing, loads
        self._left = rows
        self._slow_s = 0.0
        self._before = thread_time()

    def look(self, rows: int) -> None:
        """Take note that a piece of some rows was replayed; _OvertakenError if the others should not be."""
        now = thread_time()  # who else has work for the machine does not make replaying slow
        row_s, self._before = max(now - self._before, 1e-6) / rows, now
        self._left -= rows
        self.size = max(1, min(int(_LOOK_S / row_s), 4 * self.size))
        self._slow_s = self._slow_s + row_s * rows if row_s * FAST > 1 else 0.0
        left_s = self._left * row_s
        if not self._computing.has_begun and self._slow_s > _PATIENCE_S and left_s > _PATIENCE_S:
            self._computing.begin(left_s * _START)
        if self._computing.is_done and left_s > self._computing.entries / self._loads:
            raise _OvertakenError


def _replay(applier: Applier, bulks: Sequence[Rows | Columns], computing: Computing | None = None) -> None:
    """Insert rows into empty maps."""
    # A := map is computed at each commit, and its errors are told then.
    all_at_once = bool(sources(applier.program))
    pace = _Pace(sum(map(len, bulks)), computing, _LOADS[applier.engine.name]) if computing is not None else None
    try:
        with applier.filling() as tally, applier.committed() if all_at_once else nullcontext():
            for bulk in bulks:
                at, size = 0, _PIECE
                if pace is not None:  # each table begins anew: its triggers are others
                    size = pace.size = _FIRST
                while at < len(bulk):
                    piece = bulk.part(at, min(at + size, len(bulk)))
                    with nullcontext() if all_at_once else applier.committed():
                        applier.fill_by(piece, tally)
                    at += len(piece)
                    deliver()
                    if pace is not None:
                        pace.look(len(piece))
                        size = pace.size
    except UnsettledError:
        applier.commit(chain.from_iterable(bulks))


# --- computing ------------------------------------------------------------------------------------------------------


class Computing(Thread):
    """The maps of a program by SQL, in a thread of its own, which ends when the block does.

    Parameters
    ----------
    bulks
        The rows of the tables.
    functions
        The user's, which definitions may call.
    """

    def __init__(self, program: Program, bulks: Sequence[Rows | Columns], functions: Mapping[str, Given]) -> None:
        super().__init__(name="cumulus-fill", daemon=True)
        self._program, self._bulks, self._functions = program, bulks, functions
        self._computer: Computer | None = None
        self._is_given_up = False
        self.found: list[tuple[MapDef, pa.Table]] = []
        self.is_done = False
        """Whether all maps are computed."""
        self.entries = 0
        """Of all maps that are computed."""
        self.problem = ""
        """Why there is no result."""

    def __enter__(self) -> Computing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_given_up = True
        while self.is_alive():
            if self._computer is not None:
                self._computer.stop()
            self.join(0.01)

    def begin(self, wait_s: float | None = None) -> None:
        """Begin, unless that was done before, and wait for the result so many seconds, or as long as it takes."""
        if not self.has_begun:
            self.start()
            with interruptible():
                self.join(wait_s)

    def finish(self) -> None:
        """Wait for the result."""
        self.begin()
        with interruptible():
            self.join()

    @property
    def has_begun(self) -> bool:
        """Whether it runs, or has run."""
        return self.ident is not None

    def run(self) -> None:
        """Compute."""
        try:
            self._compute()
        except (CumulusError, _UnfitError, duckdb.Error, pa.ArrowException) as problem:
            self.problem = str(problem)
        else:
            self.is_done = True

    def _compute(self) -> None:
        program = self._program
        tables = {each.name: table_of(each.columns, []) for each in program.relations}
        tables |= {bulk.names[0]: _table(bulk) for bulk in self._bulks if len(bulk)}
        assigned = sources(program)
        with Computer(program, tables, self._functions) as self._computer:
            self._computer.leave_a_core()
            _check_keys(program, tables, self._computer)
            for definition in program.maps:
                if definition.name in assigned or not any(tables[name].num_rows for name in bases_of(definition)):
                    continue
                if self._is_given_up:
                    raise _UnfitError("nobody wants it any more")
                self.found.append((definition, self._computer.compute(definition)))
                self.entries += self.found[-1][1].num_rows


def _load(applier: Applier, bulks: Sequence[Rows | Columns], computing: Computing) -> None:
    """Make what was computed the contents of the maps."""
    with applier.filling() as tally:
        computing.found.reverse()
        while computing.found:
            put(applier.engine, *computing.found.pop())  # one by one, so that none lies in memory twice for long
        with applier.committed():  # which computes the := maps
            for bulk in bulks:
                tally.add(bulk.counts(0, len(bulk)), applier.static)


def _table(bulk: Rows | Columns) -> pa.Table:
    """Return the rows of a bulk of one table as columns."""
    if isinstance(bulk, Columns):
        return bulk.tables[bulk.names[0]]
    return table_of(bulk.relation.columns, [event.row for event in bulk])


class _UnfitError(Exception):
    """Rows that only replaying treats right."""


def _check_keys(program: Program, tables: Mapping[str, pa.Table], computer: Computer) -> None:
    """Refuse rows that break a key or a reference, where rows are kept: see `cumulus.engine.integrity`."""
    names = dict(program.kept)
    kept = {relation.name: relation for relation in program.relations if relation.name in names}
    for relation in kept.values():
        if relation.key and not relation.key_rely:
            columns = ", ".join(map(quoted, relation.key))
            doubles = f"SELECT 1 FROM {quoted(relation.name)} GROUP BY {columns} HAVING COUNT(*) > 1 LIMIT 1"
            if tables[relation.name].num_rows and computer.ask(doubles).num_rows:
                raise _UnfitError(f"a key of {relation.name} comes twice")
    for reference in references(kept):
        pairs = list(zip(reference.key.columns, reference.key.parent_columns, strict=True))
        same = " AND ".join(f"child.{quoted(mine)} = parent.{quoted(other)}" for mine, other in pairs)
        named = " AND ".join(f"child.{quoted(mine)} IS NOT NULL" for mine, _ in pairs)
        child, parent = quoted(reference.child.name), quoted(reference.parent.name)
        orphans = f"SELECT 1 FROM {child} child ANTI JOIN {parent} parent ON {same} WHERE {named} LIMIT 1"
        if tables[reference.child.name].num_rows and computer.ask(orphans).num_rows:
            raise _UnfitError(f"a row of {reference.child.name} has no parent")
