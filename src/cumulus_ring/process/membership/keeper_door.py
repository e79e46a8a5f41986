"""Where the keeper of a ring listens: nodes come to join, and clients ask where the nodes are.

Everybody proves the ring's secret first. Then each connection has a thread of its own, which answers what can be
answered at once, and hands what changes the ring to the keeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from cumulus.errors import CumulusError, RemoteProtocolError, UsageError
from cumulus.machine import Name
from cumulus.transport.connections import Address
from cumulus.transport.greeting import Credentials
from cumulus.version import VERSION
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.open_link import LinkClosedError, OpenLink
from cumulus_ring.process.wire import error_said, receive_asked, send_said

KEEPER = "keeper"
"""The name of whoever keeps a ring, in greetings."""
JOIN, ASK = "join", "ring"
"""What a connection is for: that of a node, and that of a client."""
KEEPER_EPOCH = 1
"""The keeper is in no ring epoch; its connections are all in this one."""
_PATIENCE_S = 30.0
"""How long a node may take to say what it wants."""


@dataclass(frozen=True, slots=True)
class JoinWish:
    """A node wants to join.

    Parameters
    ----------
    link
        The connection, which is the keeper's from here on.
    name
        What it wants to be called; empty for whatever is free.
    address
        Where others reach it.
    machine
        By what it is known that two nodes can hand memory on to each other (`joined_process.this_machine`).
    rack
        Nodes of one are neighbours.
    """

    link: OpenLink
    name: Name
    pid: int
    address: str
    machine: str
    rack: str


@dataclass(slots=True)
class RemoveWish:
    """A client wants a node to go.

    Parameters
    ----------
    name
        Of the node.
    wait_s
        How long its queries may go on.
    """

    name: Name
    wait_s: float
    problem: CumulusError | None = None
    is_done: threading.Event = field(default_factory=threading.Event)

    def end(self, problem: CumulusError | None = None) -> None:
        """Say that it is done, or why not."""
        self.problem = problem
        self.is_done.set()


class KeeperDoor:
    """The keeper's listener, as a context.

    Parameters
    ----------
    address
        Where; port 0 for any that is free.
    secret
        What everybody must know.
    note
        Takes a line about somebody who was sent away.

    Raises
    ------
    UsageError
        If the port is taken, or the address none of this machine.
    """

    def __init__(self, address: Address, secret: bytes, note: Callable[[str], None]) -> None:
        host, port = address
        self._listener = LinkListener(
            Credentials(KEEPER, secret=secret),
            host=host,
            port=port,
            refused=lambda who, why: note(f"{who} was sent away: {why}"),
        )
        self._note = note
        self._wishes: SimpleQueue[JoinWish | RemoveWish] = SimpleQueue()
        self._place: Mapping[str, Any] = {}
        self._is_closed = threading.Event()
        self._links: set[OpenLink] = set()
        self._lock = threading.Lock()

    @property
    def address(self) -> Address:
        """Where it listens."""
        found = self._listener.address
        assert not isinstance(found, str), "it listens by TCP"
        return found

    def __enter__(self) -> KeeperDoor:
        self._listener.expect(KEEPER_EPOCH, {}, self._came, clients=[JOIN, ASK])
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        self._listener.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.shut()
        for wish in self.wishes():
            if isinstance(wish, JoinWish):
                refuse(wish.link, UsageError("the ring stops", hint="Start it again, then join."))
            else:
                wish.end(UsageError("the ring stops"))

    def tell_where(self, place: Mapping[str, Any]) -> None:
        """Answer this to clients from now on."""
        self._place = place

    def wishes(self) -> list[JoinWish | RemoveWish]:
        """Return what has been asked of the keeper since it was looked for the last time."""
        found: list[JoinWish | RemoveWish] = []
        with suppress(Empty):
            while True:
                found.append(self._wishes.get_nowait())
        return found

    def _came(self, link: OpenLink) -> None:
        serve = self._serve_node if link.purpose == JOIN else self._serve_client
        threading.Thread(target=serve, args=[link], name=f"{link.purpose} of {link.peer}", daemon=True).start()

    def _serve_node(self, link: OpenLink) -> None:
        try:
            link.limit_waiting(_PATIENCE_S)
            self._wishes.put(_wish(link, receive_asked(link)))
        except CumulusError as problem:
            with suppress(OSError):
                self._note(f"a node at {link.ends()[1]} cannot join: {problem.message}")
            refuse(link, problem)
        except (LinkClosedError, OSError):
            link.close()

    def _serve_client(self, link: OpenLink) -> None:
        with self._lock:
            self._links.add(link)
        try:
            while not self._is_closed.is_set():
                said = receive_asked(link)
                try:
                    answer = self._answer(said)
                except CumulusError as problem:
                    answer = {"error": error_said(problem)}
                send_said(link, answer)
        except (LinkClosedError, RemoteProtocolError, OSError):
            pass
        finally:
            with self._lock:
                self._links.discard(link)
            link.close()

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        match said:
            case {"ask": "where"}:
                return {"place": self._place}
            case {"ask": "remove", "name": str(name), "wait_s": int() | float() as wait_s}:
                wish = RemoveWish(name, float(wait_s))
                self._wishes.put(wish)
                wish.is_done.wait()
                if wish.problem is not None:
                    raise wish.problem
                return {"removed": name}
            case _:
                raise UsageError(f"the keeper of the ring does not understand {str(said)[:200]}")


def releases() -> dict[str, str]:
    """Return the releases that all nodes of a ring must agree on."""
    import duckdb
    import pyarrow as pa

    return {"Cumulus": VERSION, "DuckDB": duckdb.__version__, "Arrow": pa.__version__}


def refuse(link: OpenLink, problem: CumulusError) -> None:
    """Tell a node why it cannot join, and close its connection."""
    with suppress(OSError, LinkClosedError):
        send_said(link, {"error": error_said(problem)})
    link.close()


def _wish(link: OpenLink, said: dict[str, Any]) -> JoinWish:
    match said:
        case {
            "ask": "join",
            "name": str(name),
            "pid": int(pid),
            "address": str(address),
            "machine": str(machine),
            "rack": str(rack),
            "releases": dict(theirs),
        }:
            ours = releases()
            others = [f"{what} {theirs.get(what)}" for what, release in ours.items() if theirs.get(what) != release]
            if others:
                mine = [f"{what} {release}" for what, release in ours.items() if theirs.get(what) != release]
                raise UsageError(
                    f"the node has {', '.join(others)}, and the ring {', '.join(mine)}",
                    hint="Run the same releases on all computers of a ring.",
                )
            return JoinWish(link, name, pid, address or link.ends()[1], machine, rack)
        case _:
            raise UsageError(f"the keeper of the ring does not understand {str(said)[:200]}")
