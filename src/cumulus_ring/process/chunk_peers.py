"""Chunks that one node brings from another: what it is to keep, and what its own source does not have.

That is not how queries get chunks, which go round. It is for shares that change hands: when a node comes or goes while
the source is gone, and for nodes on computers without the source.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.connections import Address
from cumulus.transport.greeting import Credentials
from cumulus_ring.chunks.catalogue import Chunk
from cumulus_ring.chunks.rendezvous import holders
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.open_link import LinkClosedError
from cumulus_ring.process.client import CLIENT
from cumulus_ring.process.wire import receive_with, send_said

_CONNECT_SECONDS, _ANSWER_SECONDS = 2.0, 60.0
_MOST_BYTES = 1 << 30
_AGAIN_SECONDS, _PAUSE_SECONDS = 10.0, 0.1
"""How long nodes may take to hear that there is another ring epoch."""


class ChunkPeers:
    """The other nodes of a ring, as one of them asks them for chunks.

    Parameters
    ----------
    me
        With what this node proves to others that it may ask.
    absence_s
        How long the computer of another one may be gone.
    """

    def __init__(self, me: Credentials, absence_s: float) -> None:
        self._me, self._absence_s = me, absence_s
        self._epoch = 0
        self._doors: Mapping[Name, Address] = {}

    def meet(self, ring_epoch: int, doors: Mapping[Name, Address]) -> None:
        """Know where these are from now on, in the order in which chunks go round."""
        self._epoch, self._doors = ring_epoch, doors

    def fetch(self, chunk: Chunk) -> pa.Buffer | None:
        """Return a chunk of whoever has it, the one that most likely does first; None if nobody has."""
        until = time.monotonic() + _AGAIN_SECONDS
        while True:
            epoch, doors = self._epoch, self._doors
            is_certain = True
            for name in holders(chunk.file.digest, chunk.row_group.number, doors, len(doors)):
                if name == self._me.name:
                    continue
                try:
                    found = self._ask(name, doors[name], epoch, chunk)
                except (LinkClosedError, OSError, RemoteProtocolError):
                    is_certain = False
                else:
                    if found is not None:
                        return found
            if is_certain or time.monotonic() > until:
                return None
            time.sleep(_PAUSE_SECONDS)

    def _ask(self, name: Name, door: Address, epoch: int, chunk: Chunk) -> pa.Buffer | None:
        dial = Dial(self._me, door, name, CLIENT, epoch, _CONNECT_SECONDS, self._absence_s)
        link = dial.open()
        try:
            link.limit_waiting(_ANSWER_SECONDS)
            send_said(link, {"ask": "chunk", "chunk": chunk.id})
            said, stream = receive_with(link, _MOST_BYTES)
        finally:
            link.close()
        return None if "error" in said or not stream else pa.py_buffer(stream)
