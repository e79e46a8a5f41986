"""A process that passes on each chunk that comes, which `link_rows` starts by ``python -m``.

It is told what to do by lines of JSON on its standard input, and answers each with one: where it listens, where its
successor does; then, as often as it is asked, what has gone through it so far.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from dataclasses import asdict
from queue import SimpleQueue
from threading import Lock
from typing import Any

from cumulus.transport.greeting import Credentials
from cumulus_ring.links.chunk_links import CHUNKS, ChunkInlet, ChunkOutlet
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.links.slots import BufferPool, DescriptorPool, Slot, SlotPool

_HEADER = struct.Struct("<II64x")
"""Whose chunk it is, and how many nodes it has passed; as long as what a ring says of a chunk."""
_EPOCH = 1
_ROOM_BYTES = 64_000_000
"""What a node has room for, as one of a ring that is started without options."""


class Passer:
    """A node that does nothing but pass chunks on, with credits, under one lock.

    Parameters
    ----------
    me, count
        Which of how many.
    """

    def __init__(self, me: int, count: int, is_local: bool) -> None:
        self.hops = self.rotations = 0
        self._me, self._count = me, count
        self._pool: SlotPool = DescriptorPool() if is_local else BufferPool()
        self._foreign: set[Slot] = set()
        self._lock = Lock()
        self._arrived: SimpleQueue[OpenLink] = SimpleQueue()
        self.listener = LinkListener(Credentials(str(me)), is_local=is_local)
        self.listener.expect(_EPOCH, {CHUNKS: str((me - 1) % count)}, self._arrived.put)

    def join(self, successor: Any) -> None:
        """Connect to the successor, and wait for the predecessor."""
        peer = str((self._me + 1) % self._count)
        address = successor if isinstance(successor, str) else tuple(successor)
        self.outlet = ChunkOutlet(
            Dial(Credentials(str(self._me)), address, peer, CHUNKS, _EPOCH),
            sent=self._sent,
            credit_came=lambda _: None,
            lost=self._lost,
        )
        self.outlet.start()
        self.inlet = ChunkInlet(self._arrived.get(), self._pool, chunk_came=self._came, lost=self._lost)
        self.inlet.start()

    def begin(self, chunk_bytes: int, chunks: int) -> None:
        """Send the first chunks; there is room for all of them everywhere."""
        self.inlet.grant(max(_ROOM_BYTES, 2 * chunks * self._count * chunk_bytes))
        for _ in range(chunks):
            self.outlet.send(_HEADER.pack(self._me, 0), self._pool.fill(chunk_bytes, bytes(chunk_bytes)))

    def _came(self, header: bytes, slot: Slot) -> None:
        home, hops = _HEADER.unpack(header)
        with self._lock:
            self.hops += 1
            self.rotations += home == self._me
            self._foreign.add(slot)
            self.outlet.send(_HEADER.pack(home, hops + 1), slot)

    def _sent(self, slot: Slot) -> None:
        with self._lock:
            if slot in self._foreign:
                self._foreign.discard(slot)
                self.inlet.grant(slot.size)
            self._pool.free(slot)

    def _lost(self, reason: str) -> None:
        print(json.dumps({"lost": reason}), flush=True)


def main() -> None:
    """Do what the lines say."""
    say = json.loads(sys.stdin.readline())
    passer = Passer(say["me"], say["count"], say["is_local"])
    print(json.dumps(passer.listener.address), flush=True)
    passer.join(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        if line.strip() == "begin":
            passer.begin(say["chunk_bytes"], say["chunks"])
        answer = {
            "cpu_s": time.process_time(),
            "time_s": time.monotonic(),
            "hops": passer.hops,
            "rotations": passer.rotations,
            **asdict(passer.inlet.counts),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
