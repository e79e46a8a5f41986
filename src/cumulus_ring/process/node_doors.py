"""Where the nodes of a ring take queries, as one of them connects to another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from cumulus.machine import Name
from cumulus.transport.connections import Address
from cumulus.transport.greeting import Credentials
from cumulus_ring.links.dialling import Dial
from cumulus_ring.process.client import CLIENT

_CONNECT_SECONDS = 2.0


class NodeDoors:
    """The doors of all nodes in the current ring epoch; any thread may ask.

    Parameters
    ----------
    me
        With what this node proves to others that it may ask.
    absence_s
        How long the computer of another one may be gone.
    """

    def __init__(self, me: Credentials, absence_s: float) -> None:
        self._me, self.absence_s = me, absence_s
        self._epoch = 0
        self._doors: Mapping[Name, Address] = {}
        self._changed = threading.Condition()

    def meet(self, ring_epoch: int, doors: Mapping[Name, Address]) -> None:
        """Use these doors from now on."""
        with self._changed:
            self._epoch, self._doors = ring_epoch, dict(doors)
            self._changed.notify_all()

    @property
    def members(self) -> tuple[int, tuple[Name, ...]]:
        """The ring epoch and the nodes, in the order in which chunks go round."""
        with self._changed:
            return self._epoch, tuple(self._doors)

    def dial(self, name: Name, ring_epoch: int) -> Dial | None:
        """Return a connection to open; None if the node is not a member, or there is another ring epoch."""
        with self._changed:
            if name not in self._doors or ring_epoch != self._epoch:
                return None
            door = self._doors[name]
        return Dial(self._me, door, name, CLIENT, ring_epoch, _CONNECT_SECONDS, self.absence_s)

    def await_change(self, ring_epoch: int, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Wait for another ring epoch; return whether there is one. `is_over` is asked often, and ends the wait."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._epoch == ring_epoch and time.monotonic() < until and not is_over():
                self._changed.wait(_LOOK_S)
            return self._epoch != ring_epoch


_LOOK_S = 0.05
