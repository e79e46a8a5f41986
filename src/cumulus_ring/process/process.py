"""The process of one node of a ring: ``python -m cumulus_ring.process.process FD``, as the supervisor starts it.

`FD` is one end of a pair of sockets, over which the supervisor says what is to run and who the others are, and asks
how the node is. When the other end is closed the supervisor has ended, and so does the process, whatever it is doing:
nobody is left to whom it would matter, and whoever starts the ring again must not find it in the way.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NoReturn

from cumulus.errors import CumulusError
from cumulus.machine import Name
from cumulus.transport.framing import Frame, FrameKind, FrameReader, framed
from cumulus.transport.greeting import Credentials
from cumulus_ring.links.link_faults import link_faults
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.open_link import LinkAddress
from cumulus_ring.links.slots import BufferPool, DescriptorPool, SlotPool, allow_descriptors
from cumulus_ring.process.client import CLIENT
from cumulus_ring.process.neighbours import NeighbourLinks
from cumulus_ring.process.node import RunningNode
from cumulus_ring.process.service import ClientService
from cumulus_ring.process.settings import RingOptions

_CLOSE_SECONDS = 3.0
"""How long a node that is stopped waits for its queries and its links."""


class NodeProcess:
    """A node, its links and its clients, and the supervisor that has started them."""

    def __init__(self, pair: socket.socket) -> None:
        self._pair = pair
        self._sending = threading.Lock()
        self._links: NeighbourLinks | None = None
        self._is_ready = False

    def run(self) -> int:
        """Run the node until it is stopped, or its supervisor has ended; return the exit code."""
        frames: SimpleQueue[Frame] = SimpleQueue()
        threading.Thread(target=self._read, args=[frames], name="supervisor", daemon=True).start()
        kind, _, payload = frames.get()
        assert kind == FrameKind.START, kind
        start = json.loads(payload)
        try:
            me, to_clients = (
                Credentials(start["name"], secret=bytes.fromhex(start[each])) for each in ("secret", "clients_secret")
            )
            self._start(me, to_clients, RingOptions.from_json(start["argument"]))
        except CumulusError as problem:
            self._tell(FrameKind.FAILED, [problem.message, problem.hint])
            return 1
        self._is_ready = True
        while True:
            kind, epoch, payload = frames.get()
            match kind:
                case FrameKind.MEET:
                    self._reconnect_all(epoch, json.loads(payload)[0])
                case FrameKind.MESSAGE:  # there is another epoch
                    self._node.host.refresh()
                case FrameKind.ASK:
                    self._tell(FrameKind.HEALTH, {})
                case _:
                    assert kind == FrameKind.STOP, kind
                    break
        # DuckDB's planner cannot always be interrupted. A node that is killed loses nothing, so none is waited for.
        late = threading.Timer(_CLOSE_SECONDS, os._exit, [0])
        late.daemon = True
        late.start()
        self._close()
        return 0

    def _start(self, me: Credentials, to_clients: Credentials, options: RingOptions) -> None:
        allow_descriptors()
        is_local = options.transport != "tcp"
        self._pool: SlotPool = DescriptorPool() if is_local else BufferPool()
        self._me = me
        self._faults = link_faults(options.faults) if options.faults else None
        self._largest = options.machine().largest_chunk
        self._node = RunningNode(me.name, options, self._pool, self._adopted)
        self._service = ClientService(self._node)
        self._listener = LinkListener(self._me, is_local=is_local)
        self._door = LinkListener(to_clients)
        self._tell(FrameKind.READY, [*self._door.address, self._listener.address])

    def _adopted(self, epoch: int, count: int) -> None:
        self._tell(FrameKind.MESSAGE, [epoch, count])

    def _reconnect_all(self, epoch: int, said: dict[Name, Any]) -> None:
        """Make the links of a ring epoch; those of the former one end when their chunks have new ones."""
        before = self._links
        listening: dict[Name, LinkAddress] = {
            name: where if isinstance(where, str) else (where[0], where[1]) for name, (_, _, where) in said.items()
        }
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
                lambda peer, reason: self._tell(FrameKind.LOST, [peer, epoch, reason]),
            )
        self._links = links
        self._node.reconnect_all(epoch, list(listening), links)
        if links is not None:
            links.open(self._listener)
        self._door.expect(epoch, {}, self._service.take, clients=CLIENT)
        if before is not None:
            before.close()

    def _close(self) -> None:
        for listener in (self._door, self._listener):
            listener.close()
        self._node.queries.close()
        self._service.close()
        if self._links is not None:
            self._links.close()
        self._node.close()

    # --- the supervisor ---------------------------------------------------------------------------------------------

    def _read(self, frames: SimpleQueue[Frame]) -> None:
        """Pass on what the supervisor says, until it has ended."""
        reader = FrameReader()
        reader.trust()
        with suppress(OSError):
            while count := self._pair.recv_into(reader.room()):
                for frame in reader.filled(count):
                    if frame[0] == FrameKind.STOP and not self._is_ready:
                        _leave(0)
                    frames.put(frame)
        _leave(0)

    def _tell(self, kind: FrameKind, what: Any) -> None:
        frame = b"".join(framed(kind, [json.dumps(what).encode()]))
        with self._sending, suppress(OSError):
            self._pair.sendall(frame)


def _end(problem: threading.ExceptHookArgs) -> None:
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
    threading.excepthook = _end
    code = 1
    try:
        code = NodeProcess(pair).run()
    except BaseException:  # noqa: BLE001  # the supervisor shows these lines
        traceback.print_exc()
    _leave(code)


if __name__ == "__main__":
    main(sys.argv[1:])
