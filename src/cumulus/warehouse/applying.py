"""Transactions: events go in together, all of them or none.

`Applier` owns what an event must pass before and while it is applied: the order of static tables, keys and references,
the triggers. It knows nothing of SQL, views or threads.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from cumulus.algebra.user import Functions
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Relation
from cumulus.catalog.types import EXACT
from cumulus.engine.batch import Checker, checker
from cumulus.engine.engines import make_engine
from cumulus.engine.failures import ErrorLog
from cumulus.engine.integrity import Duty, Integrity
from cumulus.engine.protocol import Changes
from cumulus.errors import StaticTableError, UnknownNameError, UsageError
from cumulus.m3.program import Program
from cumulus.warehouse.view_errors import dump, load

Operation: TypeAlias = tuple[int, str, Row]
"""An event `(sign, relation, row)`; sign 0 is an upsert: the row takes the place of the one with its primary key."""

UPSERT = 0


@contextmanager
def exactly() -> Iterator[None]:
    """Make decimal arithmetic exact; cheaper than `decimal.localcontext`, which copies."""
    before = decimal.getcontext()
    decimal.setcontext(_EXACT)
    try:
        yield
    finally:
        decimal.setcontext(before)


_EXACT = EXACT.copy()


class Applier:
    """Applies operations to the maps of a program.

    Parameters
    ----------
    program
        What is maintained.
    functions
        The user's scalar functions that it calls.
    engine
        Of `cumulus.engine.engines.ENGINES`.
    """

    def __init__(self, program: Program, functions: Functions, engine: str = "interpreter") -> None:
        self.program = program
        self.functions = functions
        self.engine = make_engine(engine, program, functions)
        self.integrity = Integrity(program, self.engine)
        self.relations = {relation.name: relation for relation in program.relations}
        self.checkers: dict[str, Checker] = {name: checker(each) for name, each in self.relations.items()}
        self._static = frozenset(name for name, each in self.relations.items() if each.static)
        self._covered = frozenset(name for name in self.relations if self.integrity.covers(name))
        self.row_counts: dict[str, int] = dict.fromkeys(self.relations, 0)
        self.event_count = 0
        self.transaction_count = 0
        self.errors = ErrorLog()
        """Events that views could not take in whole."""
        self.touched: set[str] = set()
        """Tables that have had events."""
        self.started_by = ""
        """The first table that is not static and had an event; static tables are closed since then."""

    def relation(self, name: str) -> Relation:
        """Return the relation called `name`.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        found = self.relations.get(name)
        if found is None:
            raise UnknownNameError(f"there is no table {name}", hint=f"Tables: {', '.join(self.relations) or 'none'}.")
        return found

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
        engine = self.engine
        counts: dict[str, int] = {}
        duties: list[Duty] = []
        started_by, applied = self.started_by, 0
        with exactly():
            engine.begin()
            try:
                for sign, relation, row in self._events(operations):
                    if self._static:
                        started_by = self._in_order(sign, relation, row, started_by)
                    if relation in self._covered:
                        problem = self.integrity.check(sign, relation, row, duties)
                        if problem is not None:
                            raise problem
                    engine.on_event(sign, relation, row)
                    counts[relation] = counts.get(relation, 0) + sign
                    applied += 1
                if duties:
                    problem = self.integrity.settle(duties)
                    if problem is not None:
                        raise problem
                changes = engine.commit()
            except BaseException:
                engine.rollback()
                raise
        self.started_by = started_by
        self.event_count += applied
        self.transaction_count += 1
        errors = engine.take_errors()
        if errors:
            self.errors.extend(errors, self.transaction_count)
        for relation, count in counts.items():
            self.row_counts[relation] += count
            self.touched.add(relation)
        return changes

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
        """Turn upserts into events, each on the state that the events before it have left."""
        for operation in operations:
            sign, relation, row = operation
            if sign != UPSERT:
                yield operation
                continue
            table = self.relations[relation]
            old = self.integrity.by_key(relation, tuple(row[place] for place in table.key_positions))
            if old != row:
                if old is not None:
                    yield -1, relation, old
                yield 1, relation, row

    def _in_order(self, sign: int, relation: str, row: Row, started_by: str) -> str:
        """Check that static tables are loaded first; return who has started the stream."""
        if relation not in self._static:
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

    def check_upsert(self, name: str) -> None:
        """Check that `upsert` can find old rows.

        Raises
        ------
        UsageError
            If the table has no primary key, or its rows are not kept.
        """
        table = self.relation(name)
        if not table.key:
            raise UsageError(f"upsert needs a primary key, and {name} has none", hint="Declare one in CREATE TABLE.")
        if not self.integrity.covers(name):
            raise UsageError(
                f"upsert must find the old row, and the rows of {name} are not kept",
                hint="Create the warehouse with keep='all', or the table WITH (keep = all).",
            )
        if table.key_rely:
            self.engine.add_index(dict(self.program.kept)[name], tuple(sorted(table.key_positions)))
