"""A client of a running ring: `cumulus.connect(home)`."""

from __future__ import annotations

import random
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.errors import NodeLostError, RemoteProtocolError, UsageError
from cumulus.local_ring.home import LOG, read_address
from cumulus.local_ring.wire import error_of, receive_said, send_said
from cumulus.machine import Name
from cumulus.transport.greeting import Credentials
from cumulus.transport.neighbours.dialling import Dial
from cumulus.transport.neighbours.open_link import LinkClosedError, OpenLink
from cumulus.views.tables import Result

CLIENT = "client"
"""What the link of a client is for, in its greeting."""
ANY_NODE = "any"
_CONNECT_SECONDS, _ATTEMPT_SECONDS, _STATUS_SECONDS = 10.0, 1.0, 2.0


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


class RingClient:
    """Asks the nodes of a ring; several threads may use it, and each call is a connection of its own.

    Parameters
    ----------
    home
        The folder that ``cumulus ring start --home`` was given.

    Raises
    ------
    InputError
        If this is no home of a ring.
    NotRunningError
        If the ring does not run.
    """

    def __init__(self, home: str | Path) -> None:
        self.home = Path(home).absolute()
        self._name = f"client-{uuid.uuid4().hex[:12]}"
        read_address(self.home)

    def __enter__(self) -> RingClient:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open between two calls."""

    @property
    def nodes(self) -> tuple[Name, ...]:
        """The nodes of the ring that are not lost, in the order in which chunks go round."""
        return tuple(read_address(self.home).nodes)

    def query(self, sql: str, *, node: Name = ANY_NODE, epoch: int = 0, timeout: float | None = None) -> RingAnswer:
        """Return the result of one SELECT over the tables of the ring.

        Parameters
        ----------
        node
            Which one is to answer; ``any`` for the one of two, taken at random, with fewer queries.
        epoch
            Of an output folder; 0 for the last one.
        timeout
            Seconds until the query is given up.

        Raises
        ------
        UsageError
            If there is no such node or epoch.
        SqlError
            If it cannot be asked; the message names the place.
        RingError
            If it has no answer: QueryTimeoutError, ChunkError, NodeLostError.
        """
        asked = {"ask": "query", "sql": sql, "epoch": epoch, "timeout_s": timeout}
        said, rows = self._ask(node, asked)
        assert rows is not None, "a result without rows has columns"
        return RingAnswer(rows, said["epoch"], said["node"])

    def explain(self, sql: str, *, node: Name = ANY_NODE, epoch: int = 0) -> tuple[str, dict[str, Any]]:
        """Return what a query would ask the ring for, and how it would run: as text, and as JSON has it."""
        said, _ = self._ask(node, {"ask": "explain", "sql": sql, "epoch": epoch})
        return said["text"], said["plan"]

    def status(self) -> dict[str, Any]:
        """Return how the ring is: its nodes, and those that it has lost; None for a node that does not answer."""
        address = read_address(self.home)
        nodes: dict[Name, Any] = {}
        for name in address.nodes:
            try:
                nodes[name] = self._ask(name, {"ask": "status"}, seconds=_STATUS_SECONDS)[0]["status"]
            except (NodeLostError, UsageError):
                nodes[name] = None
        return {"ring_epoch": address.ring_epoch, "nodes": nodes, "lost": dict(address.lost), "pid": address.pid}

    # --- one connection for each call -------------------------------------------------------------------------------

    def _ask(self, node: Name, said: dict[str, Any], seconds: float = _CONNECT_SECONDS) -> tuple[dict[str, Any], Any]:
        """Ask a node; a connection that ends is the end of what was asked."""
        name = self._less_busy() if node == ANY_NODE else node
        link = self._connected(name, seconds)
        try:
            send_said(link, said)
            answer, rows = receive_said(link)
        except (LinkClosedError, RemoteProtocolError, OSError) as problem:
            raise NodeLostError(
                f"{name} has gone before it has answered: {problem}", hint="Ask again: others have its chunks now."
            ) from None
        finally:
            link.close()
        if "error" in answer:
            raise error_of(answer["error"])
        return answer, rows

    def _less_busy(self) -> Name:
        """Return which of two nodes that answer, taken at random, has fewer queries, running or in line.

        To ask all of four nodes took thrice the CPU time of a small query.
        """
        names = list(self.nodes)
        random.shuffle(names)
        queries: dict[Name, int] = {}
        for name in names:
            with suppress(NodeLostError, UsageError):
                queries[name] = self._ask(name, {"ask": "queries"}, seconds=_STATUS_SECONDS)[0]["queries"]
            if len(queries) == 2:
                break
        if not queries:
            raise NodeLostError("no node of the ring answers", hint=f"See {self.home / LOG}.")
        return min(queries, key=queries.__getitem__)

    def _connected(self, name: Name, seconds: float) -> OpenLink:
        until = time.monotonic() + seconds
        while True:
            address = read_address(self.home)  # nodes may have met anew meanwhile
            if name not in address.nodes:
                lost = f"{name} is lost: {address.lost[name]}" if name in address.lost else f"there is no node {name!r}"
                raise UsageError(lost, hint=f"The ring has: {', '.join(address.nodes)}.")
            me = Credentials(self._name, secret=bytes.fromhex(address.secret))
            dial = Dial(me, address.nodes[name], name, CLIENT, address.ring_epoch, min(seconds, _ATTEMPT_SECONDS))
            try:
                return dial.open()
            except RemoteProtocolError as problem:
                if time.monotonic() >= until:
                    raise NodeLostError(
                        f"{name} does not answer: {problem.message}", hint="Ask another node."
                    ) from None
