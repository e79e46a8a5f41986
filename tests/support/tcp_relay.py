"""A relay between two machines, which a test can cut, as a network that loses packets does, or break."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread

from cumulus.transport.connections import Address


class TcpRelay:
    """Passes bytes on between whoever connects to `address` and `target`.

    Parameters
    ----------
    target
        Where to connect to; it may change from connection to connection.
    """

    def __init__(self, target: Address) -> None:
        self.target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._server.getsockname()[:2]
        self._flows = Event()
        self._flows.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through; nobody is told."""
        self._flows.clear()

    def mend(self) -> None:
        """Let everything through, with what has waited first."""
        self._flows.set()

    def broken(self) -> int:
        """Break all connections; return how many there were."""
        count = 0
        for pair in self._pairs:
            for each in pair:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                    count += 1
        self._pairs.clear()
        return count // 2

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            try:
                far = socket.create_connection(self.target)
            except OSError:
                near.close()
                continue
            self._pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                self._flows.wait()
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
