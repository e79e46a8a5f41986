"""Chunks that one node brings from another: what it is to keep, and what its own source does not have.

That is not how queries get chunks, which go round. It is for shares that change hands: when a node comes or goes while
the source is gone, and for nodes on computers without the source.
"""

from __future__ import annotations

import time

import pyarrow as pa

from cumulus.errors import ChunkDamagedError, ChunkMissingError, RemoteProtocolError
from cumulus.machine import Name
from cumulus_ring.chunks.catalogue import Chunk
from cumulus_ring.chunks.rendezvous import holders
from cumulus_ring.links.open_link import LinkClosedError
from cumulus_ring.process.node_doors import NodeDoors
from cumulus_ring.process.wire import error_of, receive_with, send_said

_ANSWER_SECONDS = 60.0
_MOST_BYTES = 1 << 30
_AGAIN_SECONDS, _PAUSE_SECONDS = 10.0, 0.1
"""How long nodes may take to hear that there is another ring epoch."""


class ChunkPeers:
    """The other nodes of a ring, as one of them asks them for chunks.

    Parameters
    ----------
    name
        Of the one that asks.
    """

    def __init__(self, name: Name, doors: NodeDoors) -> None:
        self._name, self._doors = name, doors

    def fetch(self, chunk: Chunk) -> pa.Buffer | None:
        """Return a chunk of whoever has it, the one that most likely does first; None if nobody has.

        Raises
        ------
        ChunkMissingError
            If nobody gives it, and some do not say whether they have it.
        """
        until = time.monotonic() + _AGAIN_SECONDS
        while True:
            ring_epoch, members = self._doors.members
            silent: list[Name] = []
            for name in holders(chunk.file.digest, chunk.row_group.number, members, len(members)):
                if name == self._name:
                    continue
                try:
                    found = self._ask(name, ring_epoch, chunk)
                except (LinkClosedError, OSError, RemoteProtocolError):
                    silent.append(name)
                else:
                    if found is not None:
                        return found
            if not silent:
                return None
            if time.monotonic() > until:
                raise ChunkMissingError(
                    f"{chunk} is not at node {self._name}, and {', '.join(silent)} did not say whether they have it",
                    chunk=chunk.id,
                    table=chunk.table,
                    node=self._name,
                    hint="Ask again when the ring has closed without who is gone.",
                )
            time.sleep(_PAUSE_SECONDS)

    def _ask(self, name: Name, ring_epoch: int, chunk: Chunk) -> pa.Buffer | None:
        dial = self._doors.dial(name, ring_epoch)
        if dial is None:
            raise LinkClosedError("there is another ring epoch")
        link = dial.open()
        try:
            link.limit_waiting(_ANSWER_SECONDS)
            send_said(link, {"ask": "chunk", "chunk": chunk.id})
            said, stream = receive_with(link, _MOST_BYTES)
        finally:
            link.close()
        if "error" in said and not isinstance(error_of(said["error"]), ChunkMissingError | ChunkDamagedError):
            raise LinkClosedError("it has trouble")
        return None if "error" in said or not stream else pa.py_buffer(stream)
