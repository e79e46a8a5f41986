"""Sessions: blocks of events in, deltas of maps out. The one driver of an engine.

A `Session` owns what an event must pass before and while it is applied: the order of static tables, keys and
references, transactions, counts, errors. Blocks are operations one by one, rows or Arrow columns of a table, events of
several tables, net multiplicities; a transaction of them is applied whole or not at all, and leaves what it changed in
the watched maps. What a session does is a function of its state and the blocks: it knows nothing of SQL, views, files,
clocks or threads. So a warehouse has one, the bucket of an epoch, and a view that is created later while it is filled;
so may a node of a cluster.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any

from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.engine.analysis.assignments import sources
from cumulus.engine.analysis.initial_entries import initial_entries
from cumulus.engine.batches import Bulk, Columns, Events, Rows
from cumulus.engine.counters import Counters
from cumulus.engine.engines import make_engine
from cumulus.engine.event_checks import EventChecks
from cumulus.engine.failures import ErrorLog
from cumulus.engine.integrity import Integrity, wanted_indexes
from cumulus.engine.keyed_events import Operation, changes_of_operations
from cumulus.engine.protocol import Changes, Engine
from cumulus.engine.referring_rows import ReferringRows
from cumulus.engine.rows_in import Checker, checker
from cumulus.engine.single_rows import SingleRows
from cumulus.engine.snapshot import dump_errors, load_errors
from cumulus.engine.transaction import EXACT_CONTEXT, Applying, Transaction, UnsettledError
from cumulus.errors import UsageError
from cumulus.interrupts import deliver
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions

_PIECE = 100_000
"""Rows that are filled in at once."""


class Session:
    """Applies events to the maps of a program.

    Parameters
    ----------
    engine
        That runs the program; or its name, of `cumulus.engine.engines.ENGINES`.
    is_trusting
        Whether events are applied as they come: somebody else has checked them.
    """

    def __init__(
        self,
        program: Program,
        functions: Functions | None,
        engine: str | Engine = "interpreter",
        *,
        is_trusting: bool = False,
    ) -> None:
        self.program, self.functions = program, functions
        self.engine = (
            make_engine(engine, program, functions, wanted_indexes(program)) if isinstance(engine, str) else engine
        )
        self.fast = self.engine.fast
        self.integrity = Integrity(program, self.engine)
        self.relations = {relation.name: relation for relation in program.relations}
        self.checkers: dict[str, Checker] = {name: checker(each) for name, each in self.relations.items()}
        self._checks = EventChecks(program, self.integrity, self.fast, is_trusting=is_trusting)
        self._changes_of = partial(changes_of_operations, self.relations, self.integrity)
        self.referring = ReferringRows(program, self.integrity)
        self.applying = Applying()
        self.counters = Counters(self.relations, self._checks.static)
        self.singles = SingleRows(self.relations, self.fast)
        self.errors = ErrorLog()
        """Events that views could not take in whole."""

    def relation(self, name: str) -> Relation:
        """Return the relation called `name`, in any case.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        return self.relations[known_name(name, self.relations, "table")]

    # --- transactions -----------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Open a transaction, which the end of the block commits; if the block raises, nothing is applied.

        Raises
        ------
        DataError
            If references do not hold in the end.
        UnsettledError
            If only who takes the events one by one can tell which does not.
        """
        opened = Transaction(self.engine, self._checks, self._changes_of, self.referring, self.counters.started_by)
        with self.applying:
            self.engine.begin()
            try:
                yield opened
                problem = self.integrity.first_violation(opened.deferred) if opened.deferred else None
                if problem is not None:
                    raise UnsettledError if opened.is_by_code else problem
                if opened.is_abandoned:
                    self.engine.rollback()
                    return
                opened.changes = self.engine.commit()
            except BaseException:
                self.engine.rollback()
                raise
        self._note(opened)

    def _note(self, done: Transaction) -> None:
        """Count what a transaction has done, and keep its errors."""
        counters = self.counters
        counters.started_by = done.started_by
        counters.stepped += done.stepped
        counters.add(done.counts, 1)
        done.errors = self.engine.take_errors()
        if done.errors:
            self.errors.extend(done.errors, counters.transactions)

    def commit(self, operations: Iterable[Operation]) -> Changes:
        """Apply operations as one transaction; return what changed in the watched maps.

        Raises
        ------
        DataError
            Naming the event; nothing is applied.
        """
        with self.transaction() as opened:
            opened.apply_all(operations)
        return opened.changes

    def commit_bulk(self, bulk: Bulk) -> Changes:
        """Apply the events of a bulk as one transaction, as `commit` does."""
        with self._static_opened(bulk):
            try:
                with self.transaction() as opened:
                    opened.take(bulk)
            except UnsettledError:  # who takes the events one by one knows which is wrong
                return self.commit(bulk)
        return opened.changes

    def _static_opened(self, bulk: Bulk) -> Any:
        return self._checks.static_opened(bulk, self.counters.started_by) if self._checks.static else nullcontext()

    def each(self, bulk: Events) -> Iterator[tuple[int, Operation]]:
        """Apply the events of a bulk as transactions; yield those that must go by `commit`, with their places."""
        run = None if self.fast is None or self._checks.close_bulk(bulk) else self.fast.runner(bulk, each=True)
        if run is None:
            yield from enumerate(bulk)
            return
        at = 0
        while at < len(bulk):
            with self.applying:
                reached = run(at)
            self.counters.add(bulk.counts(at, reached), reached - at)
            deliver()
            if reached < len(bulk):
                yield reached, bulk.event(reached)
            at = reached + 1

    def fire(self, sign: int, relation: str, row: Any) -> Changes | None:
        """Apply an event as a transaction by code, as `commit` does; None, and nothing is done, if code leaves it.

        The row need not have been checked.
        """
        if self.fast is None:
            return None
        before = decimal.getcontext()  # as `Applying`, which would be two calls more
        decimal.setcontext(EXACT_CONTEXT)
        self.applying.is_on = True
        try:
            changes = self.fast.fire(sign, relation, row)
        finally:
            self.applying.is_on = False
            decimal.setcontext(before)
        if changes is not None:
            self.counters.add({(sign, relation): 1}, 1)
        return changes

    def fire_checked(self, sign: int, relation: str, row: Any) -> Changes | None:
        """Check a row that code has left, such as one with an int for a DECIMAL, and `fire` it once more.

        Raises
        ------
        DataError
            If the row is wrong.
        """
        if self.fast is None or relation in self._checks.closed:
            return None
        changes = self.fire(sign, relation, self.checkers[relation](row))
        self.counters.stepped += changes is not None
        return changes

    # --- what is there from the start -------------------------------------------------------------------------------

    def fill(self, bulks: Sequence[Rows | Columns]) -> None:
        """Insert rows into empty maps, parents first, as one transaction; whatever fails leaves the maps empty."""
        # A := map is computed at each commit, and its errors are told then.
        at_once = bool(sources(self.program))
        try:
            with self.filling() as filled, self.committed() if at_once else nullcontext():
                for bulk in bulks:
                    for at in range(0, len(bulk), _PIECE):
                        piece = bulk.part(at, min(at + _PIECE, len(bulk)))
                        with nullcontext() if at_once else self.committed(), self._static_opened(piece):
                            filled.take(piece)
                        deliver()
        except UnsettledError:
            self.commit(chain.from_iterable(bulks))

    @contextmanager
    def filling(self) -> Iterator[Transaction]:
        """Fill empty maps in here, as one transaction; whatever fails leaves them as they were at first.

        There is nothing to go back to, so nothing is kept for that.
        """
        assert not self.counters.events, "maps with rows are not filled"
        filled = Transaction(self.engine, self._checks, self._changes_of, self.referring, "")
        with self.applying:
            try:
                yield filled
                problem = self.integrity.first_violation(filled.deferred)
                if problem is not None:
                    raise problem
            except BaseException:
                self._empty()
                raise
        self._note(filled)

    @contextmanager
    def committed(self) -> Iterator[None]:
        """Open a transaction of the engine while `filling`, which counts as none here, and commit it."""
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
        self.compute_assigned()

    def compute_assigned(self) -> None:
        """Compute the `:=` maps after others were loaded; what fails in that was told before."""
        with Applying():
            self.engine.begin()
            self.engine.commit()
        self.engine.take_errors()

    # --- what goes past here ----------------------------------------------------------------------------------------

    def builtin(self, relation: str, slow: Callable[..., Any]) -> Callable[..., Any]:
        """Return the fast way into a relation: `slow`, or a builtin that takes what is ordinary while at rest."""
        return slow if self.fast is None else self.fast.builtin(relation, slow)

    def rest(self, value: bool) -> bool:
        """Say whether builtins may take events, and return whether they do; if not, what they took is counted."""
        if self.fast is None:
            return False
        is_resting = self.fast.rest(value)
        if not value:
            self.count_fired()
        return is_resting

    def count_fired(self) -> None:
        """Count what builtins took while they might."""
        if self.fast is not None:
            self.add_fired(self.fast.take_fired())

    def add_fired(self, fired: Mapping[str, tuple[int, int]]) -> None:
        """Count what builtins took: see `FastPath.take_fired`."""
        for relation, (events, rows) in fired.items():
            inserted = (events + rows) // 2
            self.counters.add({(1, relation): inserted, (-1, relation): events - inserted}, events)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything but the maps, as JSON values; `resume` takes it."""
        return {**self.counters.state(), "errors": dump_errors(self.errors)}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; the maps have been restored."""
        self.compute_assigned()
        self.counters.resume(state)
        self.errors = load_errors(state["errors"])

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
