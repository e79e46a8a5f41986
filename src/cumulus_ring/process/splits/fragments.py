"""The fragments of a split query: one at each node that owns rows of the split table, all at once.

A fragment is over when its rows have come, or when it has failed. If one fails, the others are cancelled: a connection
that ends is the end of what was asked over it, at the other node, too.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import from_ipc
from cumulus.errors import (
    ClosedError,
    CumulusError,
    LimitError,
    NodeLostError,
    QueryCancelledError,
    RemoteProtocolError,
    UsageError,
)
from cumulus.machine import Name
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.open_link import LinkClosedError, OpenLink
from cumulus_ring.nodes import AnyQuery, NodeQueries
from cumulus_ring.process.node_doors import NodeDoors
from cumulus_ring.process.wire import error_of, receive_with, send_said


class PeerLostError(NodeLostError):
    """A node that has gone while it computed a fragment."""


@dataclass(frozen=True, slots=True)
class FragmentOrder:
    """What a node is asked to compute.

    Parameters
    ----------
    sql
        The partial query.
    table
        The split table: a node reads those of its row groups that it owns if the ring has `members`.
    epoch
        Of the tables.
    others
        Tables that it reads whole.
    most
        Bytes that the result may have.
    """

    sql: str
    table: str
    others: tuple[str, ...]
    members: tuple[Name, ...]
    epoch: int
    most: int


def order_of(said: Mapping[str, Any]) -> FragmentOrder:
    """Return the order that another node has sent.

    Raises
    ------
    UsageError
        If it is none.
    """
    try:
        sql, table, epoch, most = (said[name] for name in ("sql", "table", "epoch", "most"))
        others, members = (tuple(map(str, said[name])) for name in ("others", "members"))
        return FragmentOrder(str(sql), str(table), others, members, int(epoch), int(most))
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"an order of a fragment has come that is none: {str(said)[:200]}") from None


class Fragment(ABC):
    """One fragment, computed in a thread from `start` to `join`."""

    def __init__(self, node: Name) -> None:
        self.node = node
        self.rows: pa.Table | None = None
        self.error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, over: SimpleQueue[Fragment]) -> None:
        """Begin, and put this into a queue when it is over."""

        def work() -> None:
            try:
                self.rows = self._compute()
            except BaseException as problem:  # noqa: BLE001  # the thread that waits raises it
                self.error = problem
            over.put(self)

        self._thread = threading.Thread(target=work, name=f"fragment at {self.node}", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join()

    @abstractmethod
    def cancel(self, error: CumulusError) -> None:
        """Let it end soon; any thread may say so, at any time."""

    @abstractmethod
    def _compute(self) -> pa.Table:
        """Return its rows."""


class OwnFragment(Fragment):
    """The fragment of the node that was asked."""

    def __init__(self, node: Name, queries: NodeQueries, query: AnyQuery) -> None:
        super().__init__(node)
        self._queries, self._query = queries, query

    def cancel(self, error: CumulusError) -> None:
        self._queries.cancel(self._query, error)

    def _compute(self) -> pa.Table:
        return self._queries.run(self._query)


class RemoteFragment(Fragment):
    """The fragment of another node.

    Parameters
    ----------
    ring_epoch
        In which `node` is a member.
    """

    def __init__(self, node: Name, order: FragmentOrder, doors: NodeDoors, ring_epoch: int) -> None:
        super().__init__(node)
        self._order, self._doors, self._ring_epoch = order, doors, ring_epoch
        self._dial: Dial | None = None
        self._link: OpenLink | None = None
        self._is_cancelled = False
        self._lock = threading.Lock()

    def cancel(self, error: CumulusError) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._dial is not None:
                self._dial.close()
            if self._link is not None:
                self._link.shut()

    def _compute(self) -> pa.Table:
        dial = self._doors.dial(self.node, self._ring_epoch)
        if dial is None:
            raise self._lost("it is not a member any more")
        with self._lock:
            self._check()
            self._dial = dial
        try:
            link = dial.open()
            with self._lock:
                self._link = link
            try:
                with self._lock:
                    self._check()
                send_said(link, {"ask": "fragment", **asdict(self._order)})
                said, stream = receive_with(link, 2 * self._order.most)
            finally:
                with self._lock:
                    self._link = None
                link.close()
        except (LinkClosedError, RemoteProtocolError, OSError) as problem:
            raise self._lost(str(problem)) from None
        if "error" in said:
            told = error_of(said["error"])
            raise self._lost("it stops") if isinstance(told, ClosedError | QueryCancelledError) else told
        return from_ipc(stream)

    def _check(self) -> None:
        if self._is_cancelled:
            raise QueryCancelledError("the fragment was cancelled")

    def _lost(self, reason: str) -> CumulusError:
        return PeerLostError(f"{self.node} has gone before it has given its part: {reason}", hint="Ask again.")


class FragmentGroup:
    """All fragments of one try of a split query.

    Parameters
    ----------
    most
        Bytes that all results may have together.
    """

    def __init__(self, fragments: Sequence[Fragment], most: int) -> None:
        self._fragments, self._most = fragments, most

    def cancel(self, error: CumulusError) -> None:
        """End all fragments, from any thread."""
        for each in self._fragments:
            each.cancel(error)

    def run(self) -> list[pa.Table]:
        """Return the rows of all fragments, in any order; when it raises, none of them runs any more.

        Raises
        ------
        PeerLostError
            If a node has gone.
        LimitError
            If the rows are too many for this node.
        CumulusError
            The first error of a fragment.
        """
        over: SimpleQueue[Fragment] = SimpleQueue()
        for each in self._fragments:
            each.start(over)
        found: list[pa.Table] = []
        error: BaseException | None = None
        for _ in self._fragments:
            last = over.get()
            if error is None and last.error is None:
                assert last.rows is not None, "a fragment without an error has rows"
                found.append(last.rows)
                size = sum(table.nbytes for table in found)
                error = too_large(size, self._most) if size > self._most else None
            elif error is None:
                error = last.error
            if error is not None:
                found.clear()
                self.cancel(QueryCancelledError("another part of the query has failed", hint="Ask again."))
        for each in self._fragments:
            each.join()
        if error is not None:
            raise error
        return found


def too_large(size: int, most: int) -> LimitError:
    """Return the error of partial results that a node has no room for."""
    return LimitError(
        f"the partial results of the query have {size:,} bytes, and a node merges {most:,}",
        hint="Ask for less, start the ring with a larger --memory, or ask with --no-split.",
    )
