"""The process of one node of a ring, whoever has started it.

It is told over a connection with the keeper of the ring what is to run and who the others are, and asked how the node
is. A node beside the keeper is ``python -m cumulus_ring.process.process FD`` or a fork, and `FD` one end of a pair of
sockets; one that joins has connected by itself (`joining`). When the other end is closed the keeper has ended, and so
does the process, whatever it is doing: nobody is left to whom it would matter, and whoever starts the ring again must
not find it in the way.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, NoReturn

from cumulus.errors import CumulusError
from cumulus.machine import Name
from cumulus.transport.connections import limit_absence, silence_s
from cumulus.transport.framing import Frame, FrameKind, FrameReader, framed
from cumulus.transport.greeting import Credentials
from cumulus_ring.chunks.catalogue import Chunk
from cumulus_ring.chunks.versions import SourceVersions
from cumulus_ring.links.link_faults import link_faults
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.open_link import LinkAddress
from cumulus_ring.links.slots import BufferPool, DescriptorPool, SlotPool, allow_descriptors
from cumulus_ring.process.chunk_peers import ChunkPeers
from cumulus_ring.process.client import CLIENT
from cumulus_ring.process.membership.joined_process import this_machine
from cumulus_ring.process.neighbours import NeighbourLinks
from cumulus_ring.process.node import RunningNode
from cumulus_ring.process.node_doors import NodeDoors
from cumulus_ring.process.service import ClientService
from cumulus_ring.process.settings import NodePlace, RingOptions
from cumulus_ring.process.splits import SplitRuns
from cumulus_ring.process.told_versions import take_versions

_INTERRUPTED = 130
"""The exit code of a process that Ctrl-C has ended."""
_LOOK_MS = 500
_LOST_TOLD = 3
"""Of so many lost chunks the keeper is told."""
_CLOSE_SECONDS = 3.0
"""How long a node that is stopped waits for its queries and its links."""


class NodeProcess:
    """A node, its links and its clients, and the keeper of its ring.

    Parameters
    ----------
    keeper
        The connection.
    place
        What is its own here; None if the keeper says it.
    on_ready
        Called when the node is a member of the ring, if it has joined.
    on_gone
        Called when the keeper has ended, or stops before the node is ready; ends the process.
    """

    def __init__(
        self,
        keeper: socket.socket,
        place: NodePlace | None = None,
        on_ready: Callable[[Name], None] = lambda _: None,
        on_gone: Callable[[], NoReturn] | None = None,
    ) -> None:
        self._keeper, self._place, self._on_ready = keeper, place, on_ready
        self._on_gone = on_gone or partial(_leave, 0)
        self._frames: SimpleQueue[Frame | None] = SimpleQueue()
        """What the keeper says; None where this node wants to leave."""
        self._sending = threading.Lock()
        self._links: NeighbourLinks | None = None
        self._versions = SourceVersions({})
        self._is_ready = self._is_member = self._wants_to_leave = False
        self._absence_s = 0.0
        """How long the keeper's computer may be silent; 0 until it is told."""

    def run(self) -> int:
        """Run the node until it is stopped, or its keeper has ended; return the exit code."""
        threading.Thread(target=self._read, name="keeper", daemon=True).start()
        first = self._frames.get()
        assert first is not None, "nothing can be wished yet"
        assert first[0] == FrameKind.START, first
        start = json.loads(first[2])
        try:
            me, to_clients = (
                Credentials(start["name"], secret=bytes.fromhex(start[each])) for each in ("secret", "clients_secret")
            )
            self._start(me, to_clients, start["argument"])
        except CumulusError as problem:
            self._tell(FrameKind.FAILED, [problem.message, problem.hint])
            raise
        self._is_ready = True
        while self._take(self._frames.get()):
            pass
        # DuckDB's planner cannot always be interrupted. A node that is killed loses nothing, so none is waited for.
        late = threading.Timer(_CLOSE_SECONDS, os._exit, [0])
        late.daemon = True
        late.start()
        self._close()
        return 0

    def leave(self) -> None:
        """Ask the keeper to let the node go; a node that is no member yet ends at once.

        Any thread may call it, and a handler of signals, which must not wait for a lock that its own thread may have.
        """
        if not self._is_member:
            _leave(_INTERRUPTED)
        self._frames.put(None)

    def _take(self, frame: Frame | None) -> bool:
        """Do what the keeper says, or what this node wants; return False when it is to stop."""
        match frame:
            case None:
                self._wants_to_leave = True
                self._tell(FrameKind.MESSAGE, {"leaves": True})
            case [FrameKind.MEET, epoch, payload]:
                self._reconnect_all(epoch, json.loads(payload)[0])
            case [FrameKind.MESSAGE, _, payload]:
                self._hear(json.loads(payload))
            case [FrameKind.ASK, *_]:
                self._tell(FrameKind.HEALTH, {"queries": self._node.query_count})
            case [kind, *_]:
                assert kind == FrameKind.STOP, kind
                return False
        return True

    def _start(self, me: Credentials, to_clients: Credentials, said: dict[str, Any]) -> None:
        options = RingOptions.from_json(said["options"])
        limit_absence(self._keeper, options.failure_s)
        place = self._place or NodePlace(**said["place"])
        self._place = place
        take_versions(said["versions"], self._versions, place)
        allow_descriptors()
        self._pool: SlotPool = BufferPool() if options.transport == "tcp" else DescriptorPool()
        self._me = me
        self._faults = link_faults(options.faults) if options.faults else None
        self._largest, self._absence_s = options.machine().largest_chunk, options.failure_s
        self._adopts = options.adopt
        self._doors = NodeDoors(to_clients, options.failure_s)
        members, fetch = said["members"], ChunkPeers(me.name, self._doors).fetch
        self._node = RunningNode(me.name, options, place, members, self._versions, self._pool, fetch, self._adopted)
        self._service = ClientService(self._node, SplitRuns(self._node, self._doors))
        self._machine = this_machine()
        self._listeners: list[LinkListener] = []
        where: dict[str, Any] = {"machine": self._machine}
        address = place.address or place.host
        if options.transport != "tcp":
            self._listeners.append(LinkListener(me, is_local=True))
            where["local"] = self._listeners[-1].address
        if options.transport != "local":
            self._listeners.append(LinkListener(me, host=place.host))
            where["tcp"] = [address, self._listeners[-1].address[1]]
        self._door = LinkListener(to_clients, host=place.host)
        self._tell(FrameKind.READY, [address, self._door.address[1], where])

    def _hear(self, said: dict[str, Any]) -> None:
        """Take what the keeper says of the tables, or that this node, or another one, is to go."""
        match said:
            case {"versions": dict(versions)}:
                take_versions(versions, self._versions, self._own_place)
                self._node.host.refresh()
            case {"member": True}:
                self._is_member = True
                self._on_ready(self._me.name)
            case {"leave": bool(leaves), **why}:
                self._service.leave(leaves)
                if self._wants_to_leave and not leaves:
                    print(f"{self._me.name} cannot leave: {why['why']}", file=sys.stderr, flush=True)
            case {"prepare": list(members), "for": str(name)}:
                threading.Thread(target=self._prepare, args=[members, name], name="share", daemon=True).start()
            case _:
                raise AssertionError(f"the keeper says {str(said)[:200]}")

    def _prepare(self, members: list[Name], name: Name) -> None:
        """Adopt what is this node's without another one, and say so."""
        trouble, lost = "", list[Chunk]()
        try:
            lost = self._node.prepare_for(members)
        except CumulusError as problem:
            trouble = problem.message
        what = {"members": members, "trouble": trouble, "lost": [str(chunk) for chunk in lost[:_LOST_TOLD]]}
        self._tell(FrameKind.MESSAGE, {"prepared": name, **what})

    def _adopted(self, epoch: int, count: int, members: Sequence[Name]) -> None:
        self._tell(FrameKind.MESSAGE, {"adopted": [epoch, count], "members": list(members)})

    def _reconnect_all(self, epoch: int, said: dict[Name, Any]) -> None:
        """Make the links of a ring epoch; those of the former one end when their chunks have new ones."""
        before = self._links
        listening = {name: self._link_address(where) for name, (_, _, where) in said.items()}
        links = None
        if len(listening) > 1:
            links = NeighbourLinks(
                self._me,
                epoch,
                listening,
                self._node.host,
                self._pool,
                self._largest,
                self._faults,
                self._absence_s,
                lambda peer, reason: self._tell(FrameKind.LOST, [peer, epoch, reason]),
            )
        self._links = links
        self._doors.meet(epoch, {name: (host, port) for name, (host, port, _) in said.items()})
        self._node.reconnect_all(epoch, list(listening), links)
        if links is not None:
            links.open(self._listeners)
        self._door.expect(epoch, {}, self._service.take, clients=[CLIENT])
        if self._adopts:
            self._node.host.refresh()  # its share is another one
        if before is not None:
            before.close()

    def _link_address(self, where: dict[str, Any]) -> LinkAddress:
        """Return where this node reaches another one: by memory where both are on one machine."""
        if "local" in where and (where["machine"] == self._machine or "tcp" not in where):
            return str(where["local"])
        host, port = where["tcp"]
        return host, port

    @property
    def _own_place(self) -> NodePlace:
        assert self._place is not None, "it is known from the start"
        return self._place

    def _close(self) -> None:
        for listener in (self._door, *self._listeners):
            listener.close()
        self._node.queries.close()
        self._node.fragments.close()
        self._service.close()
        if self._links is not None:
            self._links.close()
        self._node.close()

    # --- the keeper -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Pass on what the keeper says, until it has ended."""
        reader = FrameReader()
        reader.trust()
        with suppress(OSError):
            while self._is_keeper_heard() and (count := self._keeper.recv_into(reader.room())):
                for frame in reader.filled(count):
                    if frame[0] == FrameKind.STOP and not self._is_ready:
                        self._on_gone()
                    self._frames.put(frame)
        self._on_gone()

    def _is_keeper_heard(self) -> bool:
        """Wait until the keeper says something; return False if its computer has been silent for too long.

        The system's own limits are not enough: what is sent after some seconds of silence gets as many again.
        """
        poll = select.poll()
        poll.register(self._keeper, select.POLLIN)
        while not poll.poll(_LOOK_MS):
            if self._absence_s and silence_s(self._keeper) > self._absence_s:
                return False
        return True

    def _tell(self, kind: FrameKind, what: Any) -> None:
        frame = b"".join(framed(kind, [json.dumps(what).encode()]))
        with self._sending, suppress(OSError):
            self._keeper.sendall(frame)


def end_process(problem: threading.ExceptHookArgs) -> None:
    """End the process: what is wrong in a thread is wrong in this program, and no node must go on as if it were not."""
    traceback.print_exception(problem.exc_type, problem.exc_value, problem.exc_traceback)
    _leave(1)


def _leave(code: int) -> NoReturn:
    """End the process from any thread; none is waited for."""
    with suppress(OSError):  # nobody reads the lines any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def main(arguments: Sequence[str]) -> None:
    """Run a node until the supervisor stops it or ends; the exit code is 0 then."""
    pair = socket.socket(fileno=int(arguments[0]))
    pair.set_inheritable(False)
    for number in (signal.SIGTERM, signal.SIGINT):  # as if the supervisor had ended
        signal.signal(number, lambda *_: pair.shutdown(socket.SHUT_RD))
    threading.excepthook = end_process
    code = 1
    try:
        code = NodeProcess(pair).run()
    except CumulusError:
        pass  # it was told
    except BaseException:  # noqa: BLE001  # the supervisor shows these lines
        traceback.print_exc()
    _leave(code)


if __name__ == "__main__":
    main(sys.argv[1:])
