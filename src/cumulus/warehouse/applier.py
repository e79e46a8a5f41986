"""Transactions: events go in together, all of them or none.

`Applier` owns what an event must pass before and while it is applied: the order of static tables, keys and references,
the triggers. It knows nothing of SQL, views or threads.
"""

from __future__ import annotations

import decimal
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cumulus.catalog.events import UPSERT, Row
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine.analysis.initial_entries import initial_entries
from cumulus.engine.batches import Bulk, Counts, Events, Upserts
from cumulus.engine.engines import make_engine
from cumulus.engine.failures import ErrorLog
from cumulus.engine.integrity import Duty, Integrity, wanted_indexes
from cumulus.engine.protocol import Changes, Engine, Run
from cumulus.engine.rows_in import Checker, checker
from cumulus.errors import EngineWarning, StaticTableError, UsageError
from cumulus.interrupts import deliver
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions
from cumulus.warehouse.key_operations import events_of_key, key_of
from cumulus.warehouse.view_errors import dump, load

Operation: TypeAlias = tuple[int, str, Row]
"""An event `(sign, relation, row)`, or another operation of `cumulus.catalog.events` in place of the sign."""


class exactly:  # noqa: N801 - it reads as a function
    """Makes decimal arithmetic exact in a `with`; cheaper than `decimal.localcontext`, which copies."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = decimal.getcontext()
        decimal.setcontext(_EXACT)

    def __exit__(self, *_: object) -> None:
        decimal.setcontext(self._before)


_MUCH, _MANY_CALLS = 100_000, 1_000_000
"""So many events that step, and calls of Python functions, are told once."""
_LOOK = 256  # one of so many single rows goes the long way, where better code is looked for
_EXACT = EXACT.copy()


def _leave(*_: object) -> bool:
    return False


class UnsettledError(Exception):
    """Events that were not looked at one by one leave a reference that may not hold."""


@dataclass(slots=True)
class Tally:
    """What an open transaction has done."""

    started_by: str
    counts: Counts = field(default_factory=Counter)
    stepped: int = 0
    duties: list[Duty] = field(default_factory=list)
    changes: Changes = field(default_factory=dict)

    def add(self, counts: Counts, static: Collection[str]) -> None:
        """Count events that code has taken: none of a static table that comes too late."""
        self.counts += counts
        self.started_by = self.started_by or next(
            (name for (_, name), count in counts.items() if count and name not in static), ""
        )


class Applier:
    """Applies operations to the maps of a program.

    Parameters
    ----------
    program
        What is maintained.
    functions
        The user's scalar functions that it calls.
    engine
        That runs it; or its name, of `cumulus.engine.engines.ENGINES`.
    """

    def __init__(self, program: Program, functions: Functions, engine: str | Engine = "interpreter") -> None:
        self.program = program
        self.functions = functions
        self.engine = (
            make_engine(engine, program, functions, wanted_indexes(program)) if isinstance(engine, str) else engine
        )
        self.integrity = Integrity(program, self.engine)
        self.relations = {relation.name: relation for relation in program.relations}
        self.checkers: dict[str, Checker] = {name: checker(each) for name, each in self.relations.items()}
        self.static = frozenset(name for name, each in self.relations.items() if each.static)
        self._covered = frozenset(name for name in self.relations if self.integrity.covers(name))
        fast = self.engine.fast
        self._stepped = frozenset(name for name in self._covered if fast is None or not fast.checks(name))
        """Tables whose events are checked here, one by one."""
        self._closed = set(self.static | self._stepped)
        if fast is not None:
            for name in self._closed:
                fast.open(name, False)
        self._takes, self._take_count = dict[str, Callable[..., Any]](), 0
        """The builtins of `take_one`."""
        self.row_counts: dict[str, int] = dict.fromkeys(self.relations, 0)
        self.event_count = 0
        self.stepped_count = 0
        """Events that came through here one by one."""
        self.fired_count = 0
        """Those of them that code has fired all the same."""
        self._is_told = False
        """Whether somebody was warned that much goes through Python."""
        self.transaction_count = 0
        self.errors = ErrorLog()
        """Events that views could not take in whole."""
        self.touched: set[str] = set()
        """Tables that have had events."""
        self.is_applying = False
        """Whether events are being applied now: what anybody would see is half of a transaction."""
        self.started_by = ""
        """The first table that is not static and had an event; static tables are closed since then."""

    def relation(self, name: str) -> Relation:
        """Return the relation called `name`, in any case.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        return self.relations[known_name(name, self.relations, "table")]

    def has_events(self, name: str) -> bool:
        """Whether a table has ever had an event."""
        return name in self.touched

    def commit(self, operations: Iterable[Operation]) -> Changes:
        """Apply operations as one transaction; return what changed in the watched maps.

        Raises
        ------
        DataError
            Naming the event; nothing is applied.
        """
        with self._transaction() as tally:
            for event in self._events(operations):
                self._apply(event, tally)
        return tally.changes

    def fire(self, sign: int, relation: str, row: Row) -> Changes | None:
        """Apply an event as a transaction by code, as `commit` does; None, and nothing is done, if code leaves it.

        The row need not have been checked.
        """
        fast = self.engine.fast
        if fast is None:
            return None
        before = decimal.getcontext()
        decimal.setcontext(_EXACT)
        self.is_applying = True
        try:
            changes = fast.fire(sign, relation, row)
        finally:
            self.is_applying = False
            decimal.setcontext(before)
        if changes is not None:
            self.stepped_count += 1
            self.fired_count += 1
            self._count({(sign, relation): 1}, 1)
        return changes

    def commit_bulk(self, bulk: Bulk) -> Changes:
        """Apply the events of a bulk as one transaction, as `commit` does."""
        with self._static_opened(bulk) if self.static else nullcontext():
            run = self._runner(bulk, each=False)
            if run is not None:
                with suppress(UnsettledError):  # who takes the events one by one knows which is wrong
                    return self._commit_by(run, bulk)
            return self.commit(bulk)

    def _commit_by(self, run: Run, bulk: Bulk) -> Changes:
        """Apply the events of a bulk as one transaction, by code as far as it takes them.

        Raises
        ------
        UnsettledError
            If a reference may not hold in the end; nothing is applied.
        """
        with self._transaction() as tally:
            self._take(run, bulk, tally)
            if self.integrity.settle(tally.duties) is not None:
                raise UnsettledError
        return tally.changes

    def _take(self, run: Run, bulk: Bulk, tally: Tally) -> None:
        """Apply the events of a bulk in the open transaction, by code as far as it takes them."""
        at = 0
        while (reached := run(at)) < len(bulk):
            deliver()
            tally.add(self._taken(bulk, at, reached), self.static)
            for event in self._events([bulk.event(reached)]):
                self._apply(event, tally)
            at = reached + 1
        deliver()
        tally.add(self._taken(bulk, at, reached), self.static)
        fast = self.engine.fast
        if fast is not None and not fast.is_settled():
            raise UnsettledError

    def _taken(self, bulk: Bulk, start: int, end: int) -> Counts:
        """Count the events that a run has taken since the last call, from one number to before another."""
        if isinstance(bulk, Upserts):
            fast = self.engine.fast
            assert fast is not None, "somebody has run it"
            return Counter({(sign, name): n for name in bulk.names for sign, n in fast.take_upserted(name).items()})
        return bulk.counts(start, end)

    def each(self, bulk: Events) -> Iterator[Operation]:
        """Apply the events of a bulk as transactions; yield those that must go by `commit`, each in its turn."""
        run = self._runner(bulk, each=True)
        if run is None:
            yield from bulk
            return
        at = 0
        while at < len(bulk):
            with self._applying():
                reached = run(at)
            self._count(bulk.counts(at, reached), reached - at)
            deliver()
            if reached < len(bulk):
                yield bulk.event(reached)
            at = reached + 1

    def _runner(self, bulk: Bulk, each: bool) -> Run | None:
        """Return what fires a bulk by code; None if its events must be checked, or fired, one by one."""
        fast = self.engine.fast
        return fast.runner(bulk, each) if fast is not None and self._closed.isdisjoint(bulk.names) else None

    @contextmanager
    def _static_opened(self, bulk: Bulk) -> Iterator[None]:
        """Let code take rows of a static table where all come in time, in here."""
        name = bulk.names[0] if len(bulk.names) == 1 else ""
        opens = name in self.static - self._stepped and not self.started_by
        fast = self.engine.fast
        if fast is None or not opens or isinstance(bulk, Upserts) or bulk.counts(0, len(bulk))[-1, name]:
            yield
            return
        self._closed.discard(name)
        fast.open(name, True)
        try:
            yield
        finally:
            self._closed.add(name)
            fast.open(name, False)

    @contextmanager
    def filling(self) -> Iterator[Tally]:
        """Fill empty maps in here, as one transaction; whatever fails leaves them as they were at first.

        There is nothing to go back to, so nothing is kept for that. What is done goes into the tally.
        """
        assert not self.event_count, "maps with rows are not filled"
        tally = Tally("")
        with self._applying():
            try:
                yield tally
                problem = self.integrity.settle(tally.duties)
                if problem is not None:
                    raise problem
            except BaseException:
                self._empty()
                raise
        self.stepped_count += tally.stepped
        self._count(tally.counts, 1)
        self.errors.extend(self.engine.take_errors(), self.transaction_count)

    def fill_by(self, bulk: Bulk, tally: Tally) -> None:
        """Insert a bulk while `filling`, in what is `committed`.

        Raises
        ------
        UnsettledError
            If only all rows together can tell whether its references hold.
        """
        with self._static_opened(bulk):
            run = self._runner(bulk, each=False)
            if run is not None:
                self._take(run, bulk, tally)
                return
            for event in self._events(bulk):
                self._apply(event, tally)

    @contextmanager
    def committed(self) -> Iterator[None]:
        """Open a transaction of the engine, which counts as none here, and commit it."""
        self.engine.begin()
        try:
            yield
            self.engine.commit()
        except BaseException:
            self.engine.rollback()
            raise

    def _empty(self) -> None:
        """Give all maps what they had before the first event."""
        for definition in self.program.maps:
            self.engine.load(definition.name, initial_entries(definition))
        self.engine.take_errors()
        self.settle()

    @contextmanager
    def _applying(self) -> Iterator[None]:
        """Apply events in here."""
        with exactly():
            self.is_applying = True
            try:
                yield
            finally:
                self.is_applying = False

    @contextmanager
    def _transaction(self) -> Iterator[Tally]:
        tally = Tally(self.started_by)
        with self._applying():
            self.engine.begin()
            try:
                yield tally
                problem = self.integrity.settle(tally.duties)
                if problem is not None:
                    raise problem
                tally.changes = self.engine.commit()
            except BaseException:
                self.engine.rollback()
                raise
        self.started_by = tally.started_by
        self.stepped_count += tally.stepped
        self._count(tally.counts, 1)
        errors = self.engine.take_errors()
        if errors:
            self.errors.extend(errors, self.transaction_count)

    def warn_once(self) -> None:
        """Warn whoever waits for Python where machine code is expected."""
        if self._is_told or self.engine.name != "native":
            return
        slow_count = self.stepped_count - self.fired_count
        if slow_count >= _MUCH and slow_count > self.event_count // 2:
            why = f"{slow_count:,} events went through Python one by one"
        elif self.engine.called_count >= _MANY_CALLS:
            why = f"machine code has called {', '.join(sorted(self.engine.python_functions))} in Python"
        else:
            return
        self._is_told = True
        told = f"{why}, which is many times slower; see stats() and explain(). docs/engine.md says what is quick."
        warnings.warn(told, EngineWarning, stacklevel=2)

    def _apply(self, event: Operation, tally: Tally) -> None:
        """Apply one event in the open transaction, after all checks."""
        deliver()
        sign, relation, row = event
        if self.static:
            tally.started_by = self._in_order(sign, relation, row, tally.started_by)
        if relation in self._covered:
            problem = self.integrity.check(sign, relation, row, tally.duties)
            if problem is not None:
                raise problem
        self.engine.on_event(sign, relation, row)
        tally.counts[sign, relation] += 1
        tally.stepped += 1

    def _count(self, counts: Mapping[tuple[int, str], int], transactions: int) -> None:
        """Count committed events."""
        self.transaction_count += transactions
        for (sign, relation), count in counts.items():
            self.event_count += count
            self.row_counts[relation] += sign * count
            self.touched.add(relation)
            if relation not in self.static:
                self.started_by = self.started_by or relation

    # --- what goes past here ----------------------------------------------------------------------------------------

    def builtin(self, relation: str, slow: Callable[..., Any]) -> Callable[..., Any]:
        """Return the fast way into a relation: `slow`, or a builtin that takes what is ordinary while at rest."""
        fast = self.engine.fast
        return slow if fast is None else fast.builtin(relation, slow)

    def take_one(self, sign: int, name: str, rows: Any) -> bool:
        """Apply the only row of a list as a transaction, by a builtin; False if that cannot be, and nothing is done."""
        if type(rows) is not list or len(rows) != 1 or type(name) is not str or name not in self.relations:
            return False
        row = rows[0]
        if isinstance(row, dict):
            names = self.relations[name].column_names
            row = [row.get(column) for column in names] if row.keys() <= set(names) else None
        if not isinstance(row, (tuple, list)):
            return False
        take = self._takes.get(name)
        self._take_count += 1
        return take is not None and self._take_count % _LOOK != 0 and take(sign, *row) is None

    def open_take(self, name: str) -> None:
        """Let `take_one` take rows of a table from now on."""
        if name not in self._takes:
            self._takes[name] = self.builtin(name, _leave)

    def rest(self, value: bool) -> None:
        """Say whether builtins may take events; what they took is counted when they may not any more."""
        fast = self.engine.fast
        if fast is not None:
            fast.rest(value)
        if not value:
            self.count_fired()

    def count_fired(self) -> None:
        """Count what builtins took while they might."""
        fast = self.engine.fast
        if fast is None:
            return
        for relation, (events, rows) in fast.take_fired().items():
            inserted = (events + rows) // 2
            self._count(Counter({(1, relation): inserted, (-1, relation): events - inserted}), events)

    def state(self) -> dict[str, Any]:
        """Return everything but the maps, as JSON values; `resume` takes it."""
        return {
            "events": self.event_count,
            "rows": self.row_counts,
            "started_by": self.started_by,
            "touched": sorted(self.touched),
            "transactions": self.transaction_count,
            "errors": dump(self.errors),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; the maps have been restored."""
        self.settle()
        self.event_count = state["events"]
        self.row_counts.update(state["rows"])
        self.started_by = state["started_by"]
        self.touched = set(state["touched"])
        self.transaction_count = state["transactions"]
        self.errors = load(state["errors"])

    def settle(self) -> None:
        """Compute the `:=` maps after others were loaded; what fails in that was told before."""
        with exactly():
            self.engine.begin()
            self.engine.commit()
        self.engine.take_errors()

    def _events(self, operations: Iterable[Operation]) -> Iterator[Operation]:
        """Turn upserts and changes by key into events, each on the state that the events before it have left."""
        for operation in operations:
            sign, relation, row = operation
            if sign in (1, -1):
                yield operation
                continue
            table = self.relations[relation]
            if sign != UPSERT:
                yield from events_of_key(table, operation, self.integrity.by_key(relation, key_of(operation)))
                continue
            old = self.integrity.by_key(relation, tuple(row[place] for place in table.key_positions))
            if old != row:
                if old is not None:
                    yield -1, relation, old
                yield 1, relation, row

    def _in_order(self, sign: int, relation: str, row: Row, started_by: str) -> str:
        """Check that static tables are loaded first; return who has started the stream."""
        if relation not in self.static:
            return started_by or relation
        if sign < 0 or started_by:
            reason = f"{started_by} has had events since" if started_by else "its rows only come, they do not go"
            raise StaticTableError(
                f"{relation} is static: {reason}",
                relation=relation,
                row=row,
                hint="Load static tables first, or declare the table without static = true.",
            )
        return started_by

    def check_keyed(self, table: Relation, what: str) -> None:
        """Check that a row can be found by its primary key, which `what` needs.

        Raises
        ------
        UsageError
            If the table has no primary key, or its rows are not kept.
        """
        if not table.key:
            raise UsageError(
                f"{what} needs a primary key, and {table.name} has none", hint="Declare one in CREATE TABLE."
            )
        if not self.integrity.covers(table.name):
            raise UsageError(
                f"{what} must find the old row, and the rows of {table.name} are not kept",
                hint="Create the warehouse with keep='all', or the table WITH (keep = all).",
            )
        if table.key_rely:
            self.engine.add_index(dict(self.program.kept)[table.name], tuple(sorted(table.key_positions)))
