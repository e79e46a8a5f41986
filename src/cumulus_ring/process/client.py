"""A client of a running ring: `cumulus.connect(home)`."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.errors import NodeLeavingError, NodeLostError, QueryTimeoutError, RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.greeting import Credentials
from cumulus.views.tables import Result
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.open_link import LinkClosedError, OpenLink
from cumulus_ring.process.ring_places import RingByAddress, RingByHome, RingPlace
from cumulus_ring.process.wire import LONGEST_SECONDS, error_of, receive_said, send_said

CLIENT = "client"
"""What the link of a client is for, in its greeting."""
ANY_NODE = "any"
_GRACE_SECONDS = 0.3
"""How long an answer may take when its time is over: it says best why."""
_CONNECT_SECONDS, _STATUS_SECONDS, _ATTEMPT_SECONDS = 10.0, 2.0, 1.0
_ABSENCE_SECONDS = 10.0
"""How long the computer of a node that answers may be silent before it is taken for gone."""
_MORE_TRIES = 3
"""How often a query chooses another node, as the one of the lowest bid has just gone."""


class RingAnswer(Result):
    """The rows of a query on a ring, as `Warehouse.query` gives them.

    Attributes
    ----------
    epoch
        Of the tables: the epoch of an output folder, or how many times the files of a folder were read.
    node
        Which node has answered.
    """

    def __init__(self, table: pa.Table, epoch: int, node: Name) -> None:
        super().__init__(table)
        self.epoch = epoch
        self.node = node


class HeldTable:
    """The rows of a table on a ring as they come, as a context and an iterator of Arrow record batches.

    `close`, or the end of the context, lets go of what is not taken.

    Attributes
    ----------
    node
        Which node gives them.
    """

    def __init__(self, link: OpenLink, node: Name, sql: str, epoch: int) -> None:
        self.node = node
        self._link = link
        self._schema: pa.Schema | None = None
        self._first: list[pa.RecordBatch] = []
        self._is_over = False
        try:
            send_said(link, {"ask": "hold", "sql": sql, "epoch": epoch})
            self._first = self._next()
        except OSError as problem:
            raise self._gone(problem) from None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        assert self._schema is not None, "the first batch, or the end, has them"
        return self._schema

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader, for what takes one: polars, DuckDB, pandas."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches, self._first = self._first, []
        while batches:
            yield from batches
            batches = [] if self._is_over else self._next()

    def __enter__(self) -> HeldTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take no more; the node ends what it does for this."""
        self._is_over = True
        self._link.close()

    def _next(self) -> list[pa.RecordBatch]:
        """Return the next rows; none at the end."""
        try:
            said, rows = receive_said(self._link)
        except (LinkClosedError, RemoteProtocolError, OSError) as problem:
            raise self._gone(problem) from None
        if "error" in said:
            self.close()
            raise error_of(said["error"])
        assert rows is not None, "rows, or none of them, have columns"
        self._schema = rows.schema
        if "more" in said:
            return list(rows.to_batches())
        self.close()
        return []

    def _gone(self, problem: Exception) -> NodeLostError:
        self.close()
        return NodeLostError(
            f"{self.node} has gone before it has given all rows: {problem}", hint="Ask again: others have its chunks."
        )


class RingClient:
    """Asks the nodes of a ring; several threads may use it, and each call is a connection of its own.

    Parameters
    ----------
    home
        The folder that ``cumulus ring start --home`` was given; or where the ring's keeper is.

    Raises
    ------
    InputError
        If this is no home of a ring.
    NotRunningError
        If the ring does not run.
    """

    def __init__(self, home: str | Path | RingByAddress) -> None:
        self.place: RingPlace = home if isinstance(home, RingByAddress) else RingByHome(home)
        self._name = f"client-{uuid.uuid4().hex[:12]}"
        self.place.read()

    def __enter__(self) -> RingClient:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open between two calls."""

    @property
    def home(self) -> Path:
        """The home of the ring, of a client that was given it."""
        assert isinstance(self.place, RingByHome), "it was given an address"
        return self.place.home

    @property
    def nodes(self) -> tuple[Name, ...]:
        """The nodes of the ring that are not lost, in the order in which chunks go round."""
        return tuple(self.place.read().nodes)

    def query(
        self, sql: str, *, node: Name = ANY_NODE, epoch: int = 0, timeout: float | None = None, split: bool = True
    ) -> RingAnswer:
        """Return the result of one SELECT over the tables of the ring.

        Parameters
        ----------
        node
            Which one is to answer; ``any`` for the one that would do it for the lowest price.
        epoch
            Of an output folder; 0 for the last one.
        timeout
            Seconds until the query is given up, wherever it is by then: its rows may be on their way.
        split
            Whether all nodes may compute parts of it.

        Raises
        ------
        UsageError
            If there is no such node or epoch, or the timeout is none.
        SqlError
            If it cannot be asked; the message names the place.
        RingError
            If it has no answer: QueryTimeoutError, ChunkError, NodeLostError.
        """
        asked = {"ask": "query", "sql": sql, "epoch": epoch, "timeout_s": timeout, "split": split}
        if timeout is not None and not 0.0 < timeout <= LONGEST_SECONDS:
            raise UsageError(f"a timeout of {timeout} s", hint=f"It is above 0, up to {LONGEST_SECONDS:,} s, or None.")
        said, rows = self._ask_cheapest(asked) if node == ANY_NODE else self._ask(node, asked, timeout_s=timeout)
        assert rows is not None, "a result without rows has columns"
        return RingAnswer(rows, said["epoch"], said["node"])

    def hold(
        self,
        table: str,
        columns: Sequence[str] = (),
        where: str = "",
        *,
        node: Name = ANY_NODE,
        epoch: int = 0,
    ) -> HeldTable:
        """Return a stream of a table's rows as Arrow, batch by batch, in the order in which its chunks come by.

        The chunks are asked for at once; each batch is taken from what is at the node when it is its turn, and let go
        when the next one is taken, or the stream closed (paper 004, section 8.3). So another engine can scan a table of
        the ring as its own.

        Parameters
        ----------
        columns
            All, if none are given.
        where
            A condition in DuckDB's dialect, over any columns of the table.
        node, epoch
            As in `query`.

        Raises
        ------
        UsageError, SqlError, RingError
            As `query`; what is found later comes when a batch is taken.
        """
        chosen = ", ".join(map(quoted, columns)) or "*"
        sql = f"SELECT {chosen} FROM {quoted(table)}" + (f" WHERE ({where})" if where else "")
        name = self._less_busy(_CONNECT_SECONDS) if node == ANY_NODE else node
        return HeldTable(self._connected(name, _CONNECT_SECONDS), name, sql, epoch)

    def explain(self, sql: str, *, node: Name = ANY_NODE, epoch: int = 0) -> tuple[str, dict[str, Any]]:
        """Return what a query would ask the ring for, and how it would run: as text, and as JSON has it."""
        said, _ = self._ask(node, {"ask": "explain", "sql": sql, "epoch": epoch})
        return said["text"], said["plan"]

    def tables(self, *, epoch: int = 0) -> dict[str, dict[str, int]]:
        """Return the tables of the ring by name, each with its numbers of `rows` and `columns`.

        The columns of one are a query: ``DESCRIBE name``.
        """
        said, _ = self._ask(ANY_NODE, {"ask": "tables", "epoch": epoch})
        tables: dict[str, dict[str, int]] = said["tables"]
        return tables

    def output(self, *, epoch: int = 0) -> str:
        """Return the checkpoint of the run whose output the ring is over; "" if it is over another folder."""
        return str(self._ask(ANY_NODE, {"ask": "tables", "epoch": epoch})[0]["output"])

    def status(self) -> dict[str, Any]:
        """Return how the ring is: its nodes, and those that it has lost; None for a node that does not answer."""
        address = self.place.read()
        nodes: dict[Name, Any] = {}
        for name in address.nodes:
            try:
                nodes[name] = self._ask(name, {"ask": "status"}, _STATUS_SECONDS)[0]["status"]
            except (NodeLostError, UsageError):
                nodes[name] = None
        return {"ring_epoch": address.ring_epoch, "nodes": nodes, "lost": dict(address.lost), "pid": address.pid}

    def remove(self, node: Name, *, wait_s: float = 30.0) -> None:
        """Let a node go, and wait until it has: it takes no query any more, and the others own its chunks then.

        Parameters
        ----------
        wait_s
            How long queries that it has may go on.

        Raises
        ------
        UsageError
            If there is no such node, or it is the last one.
        """
        self.place.remove(node, wait_s)

    def _ask_cheapest(self, asked: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Ask the node of the lowest bid; another one if it has gone, or is to go, before it has taken the query."""
        sql, epoch, timeout = asked["sql"], asked["epoch"], asked["timeout_s"]
        until = None if timeout is None else time.monotonic() + timeout
        for is_last in (*[False] * _MORE_TRIES, True):
            node = cheapest(bids_for(self, sql, epoch, timeout))
            try:
                link = self._connected(node, _CONNECT_SECONDS if timeout is None else min(_CONNECT_SECONDS, timeout))
            except (NodeLostError, UsageError):
                if is_last:
                    raise
                continue
            try:
                return _answer(link, node, asked, until, timeout)
            except NodeLeavingError:
                if is_last:
                    raise
        raise AssertionError("the last try returns or raises")

    # --- one connection for each call -------------------------------------------------------------------------------

    def _ask(
        self, node: Name, said: dict[str, Any], seconds: float = _CONNECT_SECONDS, timeout_s: float | None = None
    ) -> tuple[dict[str, Any], Any]:
        """Ask a node; a connection that ends is the end of what was asked."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        seconds = seconds if timeout_s is None else min(seconds, timeout_s)
        name = self._less_busy(seconds) if node == ANY_NODE else node
        return _answer(self._connected(name, seconds), name, said, until, timeout_s)

    def _less_busy(self, seconds: float) -> Name:
        """Return which of two nodes that answer, taken at random, has fewer queries, running or in line.

        To ask all of four nodes took thrice the CPU time of a small query.
        """
        names = list(self.nodes)
        random.shuffle(names)
        queries: dict[Name, int] = {}
        for name in names:
            with suppress(NodeLostError, UsageError):
                said, _ = self._ask(name, {"ask": "queries"}, min(seconds, _STATUS_SECONDS))
                queries[name] = said["queries"]
            if len(queries) == 2:
                break
        if not queries:
            raise NodeLostError("no node of the ring answers", hint=self.place.where_to_look)
        return min(queries, key=queries.__getitem__)

    def _connected(self, name: Name, seconds: float) -> OpenLink:
        until = time.monotonic() + seconds
        while True:
            address = self.place.read()  # nodes may have met anew meanwhile
            if name not in address.nodes:
                hint = f"The ring has: {', '.join(address.nodes)}."
                if name in address.lost:
                    raise NodeLostError(f"{name} is lost: {address.lost[name]}", hint=hint)
                raise UsageError(f"there is no node {name!r}", hint=hint)
            me = Credentials(self._name, secret=bytes.fromhex(address.secret))
            attempt_s = min(seconds, _ATTEMPT_SECONDS)
            dial = Dial(me, address.nodes[name], name, CLIENT, address.ring_epoch, attempt_s, _ABSENCE_SECONDS)
            try:
                return dial.open()
            except RemoteProtocolError as problem:
                if time.monotonic() >= until:
                    raise NodeLostError(
                        f"{name} does not answer: {problem.message}", hint="Ask another node."
                    ) from None


def _answer(
    link: OpenLink, name: Name, said: dict[str, Any], until: float | None, timeout_s: float | None
) -> tuple[dict[str, Any], Any]:
    """Return what a node answers over a new connection, which is closed then."""
    # The node gives up in time, but if it is stopped, plans, or sends, nobody but this side does.
    left = None if until is None else max(0.0, until - time.monotonic())
    late = None if left is None else threading.Timer(left + _GRACE_SECONDS, link.shut)
    if late is not None:
        late.daemon = True
        late.start()
    try:
        send_said(link, said)
        answer, rows = receive_said(link)
    except (LinkClosedError, RemoteProtocolError, OSError) as problem:
        if late is not None and link.is_shut:
            raise QueryTimeoutError(
                f"{name} has not given all rows in {timeout_s} s", hint="Give it more time, or ask for less."
            ) from None
        raise NodeLostError(
            f"{name} has gone before it has answered: {problem}", hint="Ask again: others have its chunks now."
        ) from None
    finally:
        if late is not None:
            late.cancel()
            late.join()  # it would else shut what has another's number by then
        link.close()
    if "error" in answer:
        raise error_of(answer["error"])
    return answer, rows


def bids_for(client: RingClient, sql: str, epoch: int = 0, timeout_s: float | None = None) -> dict[Name, float]:
    """Return what a query would cost at each node, in milliseconds, by asking one of them, taken at random.

    Raises
    ------
    NodeLostError
        If no node answers.
    CumulusError
        As `RingClient.query`.
    """
    names = list(client.nodes)
    random.shuffle(names)
    for name in names:
        with suppress(NodeLostError, UsageError):
            said, _ = client._ask(name, {"ask": "bids", "sql": sql, "epoch": epoch}, _STATUS_SECONDS, timeout_s)
            bids: dict[Name, float] = said["bids"]
            return bids
    raise NodeLostError("no node of the ring answers", hint=client.place.where_to_look)


def cheapest(bids: Mapping[Name, float]) -> Name:
    """Return the node of the lowest bid; of equal ones, the first by name."""
    return min(bids, key=lambda name: (bids[name], name))
