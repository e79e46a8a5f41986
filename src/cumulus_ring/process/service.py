"""What a node does for clients: each connection has a thread that reads, and one that answers what was asked last.

The thread that reads sees at once that a client has gone, and then the query that it has asked is cancelled. A result
is sent by the other one, so a client that does not read holds up nobody but itself.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from cumulus.errors import (
    CumulusError,
    NodeLeavingError,
    QueryCancelledError,
    RemoteProtocolError,
    RingError,
    UsageError,
)
from cumulus_ring.links.open_link import LinkClosedError, OpenLink
from cumulus_ring.nodes import AnyQuery, NodeQueries, TakeBatch
from cumulus_ring.process.node import RunningNode
from cumulus_ring.process.splits import FragmentOrder, SplitRuns, order_of
from cumulus_ring.process.wire import LONGEST_SECONDS, error_said, receive_asked, send_said, send_with


class ClientService:
    """All clients of a node, until `close`."""

    def __init__(self, node: RunningNode, splits: SplitRuns) -> None:
        self._node, self._splits = node, splits
        self._connections: dict[_Connection, None] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_leaving = threading.Event()

    def take(self, link: OpenLink) -> None:
        """Serve a client from now on."""
        connection = _Connection(self._splits, link, self._gone, self._is_leaving)
        with self._lock:
            if self._is_closed:
                link.close()
                return
            self._connections[connection] = None
            connection.start()  # `close` joins what it finds

    def leave(self, leaves: bool) -> None:
        """Take no query from now on, as the node is to go; or take queries again."""
        if leaves:
            self._is_leaving.set()
        else:
            self._is_leaving.clear()

    def close(self) -> None:
        """Close all connections, and wait for their threads; the node's queries must have ended."""
        with self._lock:
            self._is_closed = True
            connections = list(self._connections)
        for each in connections:
            each.close()
        for each in connections:
            each.join()

    def _gone(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.pop(connection, None)


class _Connection:
    """One client."""

    def __init__(
        self, splits: SplitRuns, link: OpenLink, gone: Callable[[_Connection], None], is_leaving: threading.Event
    ) -> None:
        self._node, self._splits = splits.node, splits
        self._is_leaving = is_leaving
        self._link = link
        self._gone = gone
        self._cancel: Callable[[CumulusError], None] | None = None
        self._is_gone = False
        self._state = threading.Lock()
        self._thread = threading.Thread(target=self._read, name=f"client {link.peer}", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Close the connection, from any thread."""
        self._link.close()

    def join(self) -> None:
        """Wait for the end of its threads."""
        self._thread.join()

    def _read(self) -> None:
        answering: threading.Thread | None = None
        try:
            while True:
                said = receive_asked(self._link)
                if answering is not None:
                    answering.join()
                answering = threading.Thread(target=self._answer, args=[said], name=f"for {self._link.peer}")
                answering.start()
        except (LinkClosedError, RemoteProtocolError, OSError):
            pass
        finally:
            self._link.close()
            with self._state:
                self._is_gone = True
                cancel = self._cancel
            if cancel is not None:
                cancel(QueryCancelledError("its client has gone", hint="Ask again."))
            if answering is not None:
                answering.join()
            self._gone(self)

    def _answer(self, said: dict[str, Any]) -> None:
        rows: pa.Table | pa.Buffer | None = None
        try:
            answer, rows = self._work(said)
        except CumulusError as problem:
            answer = {"error": error_said(problem)}
        except Exception as problem:  # noqa: BLE001  # the node goes on, and its log has all of it
            traceback.print_exc()
            answer = {"error": error_said(RingError(f"{self._node.name}: {type(problem).__name__}: {problem}"))}
        try:
            if isinstance(rows, pa.Buffer):
                send_with(self._link, answer, memoryview(rows).cast("B"))
            else:
                send_said(self._link, answer, rows)
        except (LinkClosedError, OSError):
            self._link.close()

    def _work(self, said: dict[str, Any]) -> tuple[dict[str, Any], pa.Table | pa.Buffer | None]:
        match said:
            case {"ask": "query", "sql": str(sql), "epoch": int(epoch), "timeout_s": float() | int() | None as timeout}:
                return self._run(sql, epoch, timeout, is_split=said.get("split", True) is True)
            case {"ask": "fragment", "sql": str(), "table": str()}:
                return self._run_fragment(order_of(said))
            case {"ask": "bids", "sql": str(sql), "epoch": int(epoch)}:
                self._stay()
                return {"bids": self._bids(sql, epoch)}, None
            case {"ask": "bid", "chunks": list(chunks)}:
                self._stay()
                return {"price": self._splits.price(chunks)}, None
            case {"ask": "held", "sql": str(), "table": str()}:
                return {"held": self._splits.held(order_of(said))}, None
            case {"ask": "hold", "sql": str(sql), "epoch": int(epoch)}:
                return self._run(sql, epoch, None, is_split=False, take=self._send_batch)
            case {"ask": "explain", "sql": str(sql), "epoch": int(epoch)}:
                text, plan = self._splits.explain(sql, epoch)
                return {"text": text, "plan": plan}, None
            case {"ask": "tables", "epoch": int(epoch)}:
                return {"tables": self._node.tables(epoch), "output": self._node.catalogue(epoch).output}, None
            case {"ask": "chunk", "chunk": int(number)}:
                return {}, self._node.give(number)
            case {"ask": "queries"}:
                self._stay()
                return {"queries": self._node.query_count}, None
            case {"ask": "status"}:
                return {"status": {**self._node.status(), "splits": self._splits.counts()}}, None
            case _:
                raise UsageError(f"{self._node.name} does not understand {str(said)[:200]}")

    def _send_batch(self, batch: pa.RecordBatch) -> None:
        """Send rows that somebody holds; a client that has gone ends the query."""
        rows = pa.Table.from_batches([batch])
        try:
            send_said(self._link, {"more": True}, rows)
        except (LinkClosedError, OSError):
            raise QueryCancelledError("its client has gone", hint="Ask again.") from None
        finally:
            del rows, batch  # an error would keep them

    def _run(
        self, sql: str, epoch: int, timeout_s: float | None, *, is_split: bool, take: TakeBatch | None = None
    ) -> tuple[dict[str, Any], pa.Table]:
        if timeout_s is not None and not 0.0 < timeout_s <= LONGEST_SECONDS:
            raise UsageError(f"{self._node.name} does not understand a timeout of {timeout_s} s")
        self._stay()
        query, version = self._splits.prepare(sql, epoch, is_split=is_split)
        with self._cancelled_by(self._node.queries, query):
            return {"node": self._node.name, "epoch": version}, self._node.queries.run(query, timeout_s, take)

    def _stay(self) -> None:
        """Raise NodeLeavingError if the node takes no query any more."""
        if self._is_leaving.is_set():
            raise NodeLeavingError(f"{self._node.name} is about to leave the ring", hint="Ask another node.")

    def _run_fragment(self, order: FragmentOrder) -> tuple[dict[str, Any], pa.Table]:
        """Compute a part of another node's query; that node cancels it as a client does."""
        query = self._splits.fragment(order)
        with self._cancelled_by(self._node.fragments, query):
            return {"node": self._node.name}, self._node.fragments.run(query)

    def _bids(self, sql: str, epoch: int) -> dict[str, float]:
        planning = self._splits.bid_planning(sql, epoch)
        with self._cancelled_by(self._node.queries, planning):
            planning.run()
        return self._splits.bids(planning)

    @contextmanager
    def _cancelled_by(self, queries: NodeQueries, query: AnyQuery) -> Iterator[None]:
        """Cancel a query if its client goes meanwhile."""
        with self._state:
            if self._is_gone:
                raise QueryCancelledError("its client has gone", hint="Ask again.")
            self._cancel = partial(queries.cancel, query)
        try:
            yield
        finally:
            with self._state:
                self._cancel = None
