"""What an event must pass before it is applied: the order of static tables, and keys and references of kept rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cumulus.catalog.events import Row
from cumulus.engine.batches import Bulk, Upserts
from cumulus.engine.integrity import DeferredCheck, Integrity
from cumulus.engine.protocol import FastPath
from cumulus.errors import StaticTableError
from cumulus.m3.program import Program


class EventChecks:
    """The checks of a program's events, and which of them code makes itself; none if they have passed elsewhere."""

    def __init__(self, program: Program, integrity: Integrity, fast: FastPath | None, *, is_trusting: bool) -> None:
        self.is_trusting = is_trusting
        tables = () if is_trusting else program.relations
        self._integrity, self._fast = integrity, fast
        self.static = frozenset(each.name for each in tables if each.static)
        self._covered = frozenset(each.name for each in tables if integrity.covers(each.name))
        self._stepped = frozenset(name for name in self._covered if fast is None or not fast.checks(name))
        """Tables whose events are checked here, one by one."""
        self.concerned = frozenset(each.name for each in tables) if self.static else self._covered
        """Tables whose events are to be checked, if they come one by one."""
        self.closed = set(self.static | self._stepped)
        """Tables whose events must come one by one."""
        if fast is not None:
            for name in self.closed:
                fast.open(name, False)

    def check(self, sign: int, relation: str, row: Row, deferred: list[DeferredCheck], started_by: str) -> str:
        """Check an event; return what has started the stream after it.

        Parameters
        ----------
        duties
            Receives the references that must hold when the transaction ends.

        Raises
        ------
        DataError
            If it must not be applied.
        """
        if relation in self.static:
            if sign < 0 or started_by:
                raise _late(relation, row, started_by)
        else:
            started_by = started_by or relation
        if relation in self._covered:
            problem = self._integrity.check(sign, relation, row, deferred)
            if problem is not None:
                raise problem
        return started_by

    def close_bulk(self, bulk: Bulk) -> bool:
        """Whether a bulk has events that must come one by one."""
        return not self.closed.isdisjoint(bulk.names)

    @contextmanager
    def static_opened(self, bulk: Bulk, started_by: str) -> Iterator[None]:
        """Let code take rows of a static table where all come in time, in here."""
        name = bulk.names[0] if len(bulk.names) == 1 else ""
        opens = name in self.static - self._stepped and not started_by and self._fast is not None
        if not opens or isinstance(bulk, Upserts) or bulk.counts(0, len(bulk))[-1, name]:
            yield
            return
        assert self._fast is not None
        self.closed.discard(name)
        self._fast.open(name, True)
        try:
            yield
        finally:
            self.closed.add(name)
            self._fast.open(name, False)


def _late(relation: str, row: Row, started_by: str) -> StaticTableError:
    reason = f"{started_by} has had events since" if started_by else "its rows only come, they do not go"
    return StaticTableError(
        f"{relation} is static: {reason}",
        relation=relation,
        row=row,
        hint="Load static tables first, or declare the table without static = true.",
    )
