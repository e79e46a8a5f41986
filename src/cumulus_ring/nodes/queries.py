"""Queries that run: each on a cursor of its own, a few at once, the rest in line, and none that cannot be stopped.

A query plans, its scans open feeds when the engine asks for them, and its result is read out whole, so that a slow
client holds no buffer. However it ends, its feeds are closed and its source hears of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import duckdb
import pyarrow as pa

from cumulus.errors import ClosedError, CumulusError, EvaluationError, QueryCancelledError, QueryTimeoutError
from cumulus_ring.nodes.feed import Feed
from cumulus_ring.nodes.occurrences import TablesByName, first_paragraph
from cumulus_ring.nodes.planning import QueryPlan, ScanNeed, planned_query


class QueryFeeds(Protocol):
    """Where the feeds of one query come from."""

    def open(self, need: ScanNeed) -> FailingFeed:
        """Return the feed of a scan that starts; called once for each time that the engine runs a scan."""

    def end(self) -> None:
        """The query has ended, however: nothing of it is wanted any more."""


class FailingFeed(Feed, Protocol):
    """A feed that can be told to give up, and says what it gave up for."""

    @property
    def error(self) -> BaseException | None:
        """What it was failed with."""

    def fail(self, error: BaseException) -> None:
        """Let blocked and later pulls raise an error."""


TakeBatch = Callable[[pa.RecordBatch], None]
"""Takes some rows of a result; may block, and raise whatever ends the query."""


class AnyQuery(Protocol):
    """A query that runs at a node: NodeQuery, or one that asks other nodes for parts."""

    @property
    def sql(self) -> str:
        """Its text."""

    @property
    def is_cancelled(self) -> bool:
        """Whether it is to end with an error."""

    def run(self, take: TakeBatch | None = None) -> pa.Table:
        """Return the result; once. `take` gets its batches, and then a table without rows is returned."""

    def cancel(self, error: CumulusError | None = None) -> None:
        """End it, from any thread; return when it has ended."""


AskFor = Callable[[QueryPlan], QueryFeeds]
"""What is told of a plan before it runs, so that all requests go out at once; must not block."""


class NodeQuery:
    """One query, from its text to its result.

    `run` blocks; any other thread may `cancel`, and is back when the query is over.
    """

    def __init__(self, engine: duckdb.DuckDBPyConnection, sql: str, tables: TablesByName, ask_for: AskFor) -> None:
        self.sql = sql
        self._engine = engine
        self._tables = tables
        self._ask_for = ask_for
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._feeds: list[FailingFeed] = []
        self._error: CumulusError | None = None
        self._state = threading.Lock()
        self._over = threading.Event()

    def run(self, take: TakeBatch | None = None) -> pa.Table:
        """Return the result; once.

        Parameters
        ----------
        take
            Gets the batches of it as they come, and then a table without rows is returned. While it has one, the memory
            of chunks may be held in which its rows are.

        Raises
        ------
        SqlError
            It cannot be asked.
        EvaluationError
            It cannot be computed.
        QueryCancelledError
            Somebody has cancelled it; or QueryTimeoutError, or what a feed has failed with.
        """
        try:
            with self._state:
                if self._error is not None:
                    raise self._error
                self._cursor = cursor = self._engine.cursor()
            return self._execute(cursor, take)
        except (duckdb.Error, RuntimeError) as problem:  # an interrupt may come in any call
            raise self._cause(problem) from None
        except CumulusError as problem:
            with self._state:
                error = self._error
            raise error or problem from None
        finally:
            self._close()

    @property
    def is_cancelled(self) -> bool:
        """Whether it is to end with an error."""
        with self._state:
            return self._error is not None

    def cancel(self, error: CumulusError | None = None) -> None:
        """Let the query end with an error, the first that it is given; return when it has ended."""
        with self._state:
            if self._error is None:
                self._error = error or QueryCancelledError("the query was cancelled", hint="Ask it again.")
            feeds, told = list(self._feeds), self._error
            started = self._cursor is not None or self._over.is_set()
        for feed in feeds:
            feed.fail(told)
        # An interrupt that comes before the engine has begun is lost, so it comes again.
        while started and not self._over.wait(_AGAIN_S):
            with self._state:
                if self._cursor is not None:
                    self._cursor.interrupt()

    def _execute(self, cursor: duckdb.DuckDBPyConnection, take: TakeBatch | None) -> pa.Table:
        with planned_query(cursor, self.sql, self._tables) as (plan, sources):
            feeds = self._ask_for(plan)
            try:
                for occurrence, source in zip(plan.occurrences, sources, strict=True):
                    source.open_feed = self._opening(plan, occurrence.number, feeds)
                if take is None:
                    return cursor.sql(plan.sql).to_arrow_table()
                return _given(cursor.sql(plan.sql), take)
            finally:
                feeds.end()

    def _opening(self, plan: QueryPlan, number: int, feeds: QueryFeeds) -> Callable[[tuple[str, ...]], Feed]:
        needs = {each.columns: each for each in plan.scans if each.occurrence.number == number}

        def open_feed(columns: tuple[str, ...]) -> Feed:
            assert columns in needs, f"the engine scans {columns}, and has planned {list(needs)}"
            feed = feeds.open(needs[columns])
            with self._state:
                self._feeds.append(feed)
                error = self._error
            if error is not None:
                feed.fail(error)
            return feed

        return open_feed

    def _cause(self, problem: Exception) -> Exception:
        """Return why the query failed: DuckDB makes words of what feeds raise."""
        with self._state:
            error = self._error
        if error is not None:
            return error
        for feed in self._feeds:
            if isinstance(feed.error, Exception):
                return feed.error
        if isinstance(problem, duckdb.OutOfMemoryException):
            hint = "Let the node have more memory, or ask for less at once."
        else:
            hint = "It is the rows that do not go with the query: TRY_CAST, NULLIF and CASE let them be."
        return EvaluationError(first_paragraph(problem), hint=hint)

    def _close(self) -> None:
        with self._state:
            cursor, self._cursor = self._cursor, None
            self._over.set()
        for feed in self._feeds:
            feed.close()
        if cursor is not None:
            cursor.close()


def _given(rows: duckdb.DuckDBPyRelation, take: TakeBatch) -> pa.Table:
    """Give all rows to who takes them; return a table without any.

    An error keeps what stands in the functions that it went through, so nothing is left there that holds chunks.
    """
    batch: pa.RecordBatch | None = None
    reader: pa.RecordBatchReader = rows.to_arrow_reader(_BATCH_ROWS)
    try:
        for batch in reader:
            take(batch)
        return reader.schema.empty_table()
    finally:
        del batch, reader


_AGAIN_S = 0.02
_BATCH_ROWS = 20_480
"""So many rows of a result are given at once to who takes them as they come: ten of DuckDB's vectors."""


class NodeQueries:
    """The queries of a node: so many at once, the others in the order in which they came.

    Parameters
    ----------
    most
        How many run at once.
    """

    def __init__(self, engine: duckdb.DuckDBPyConnection, most: int = 4) -> None:
        assert most > 0, "none would ever run"
        self._engine = engine
        self._most = most
        self._running: list[AnyQuery] = []
        self._line: list[AnyQuery] = []
        self._is_closed = False
        self._changed = threading.Condition()

    def prepare(self, sql: str, tables: TablesByName, ask_for: AskFor) -> NodeQuery:
        """Return a query for `run`."""
        return NodeQuery(self._engine, sql, tables, ask_for)

    def run(self, query: AnyQuery, timeout_s: float | None = None, take: TakeBatch | None = None) -> pa.Table:
        """Run a query when its turn comes, and return its result; as `NodeQuery.run`, which `take` is for.

        Parameters
        ----------
        timeout_s
            From now on, in line or running, until QueryTimeoutError.
        """
        late = QueryTimeoutError(
            f"the query has not ended in {timeout_s} s", hint="Give it more time, or ask when the ring has less to do."
        )
        timer = None if timeout_s is None else threading.Timer(timeout_s, self.cancel, [query, late])
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            self._wait_for_turn(query)
            return query.run(take)
        finally:
            if timer is not None:
                timer.cancel()
            with self._changed:
                for queue in (self._line, self._running):
                    if query in queue:
                        queue.remove(query)
                self._changed.notify_all()

    @property
    def queries(self) -> tuple[AnyQuery, ...]:
        """All that run, then those in line."""
        with self._changed:
            return (*self._running, *self._line)

    def cancel(self, query: AnyQuery, error: CumulusError | None = None) -> None:
        """End a query, running or in line."""
        query.cancel(error)
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Cancel all queries and return when they have ended; there are no others.

        A thread that is blocked in a pull when the interpreter ends would keep the process for ever.
        """
        with self._changed:
            self._is_closed = True
        for query in self.queries:
            self.cancel(query, QueryCancelledError("the node stops", hint="Ask another node."))
        with self._changed:
            self._changed.wait_for(lambda: not self._running and not self._line)

    def _wait_for_turn(self, query: AnyQuery) -> None:
        with self._changed:
            if self._is_closed:
                raise ClosedError("the node has stopped", hint="Ask another node.")
            self._line.append(query)
            self._changed.wait_for(
                lambda: query.is_cancelled or (self._line[0] is query and len(self._running) < self._most)
            )
            self._line.remove(query)
            self._running.append(query)
            self._changed.notify_all()
