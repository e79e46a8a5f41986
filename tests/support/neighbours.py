"""Two sides of a link of chunks in one process, and what they say."""

from __future__ import annotations

from queue import Empty, SimpleQueue

from cumulus.transport.greeting import Credentials
from cumulus_ring.links.chunk_links import CHUNKS, ChunkInlet, ChunkOutlet
from cumulus_ring.links.dialling import Dial
from cumulus_ring.links.link_faults import LinkFaults
from cumulus_ring.links.listener import LinkListener
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.links.slots import BufferPool, DescriptorPool, Slot, SlotPool

SECONDS = 10.0
SECRET = b"secret"
LARGEST = 1 << 25


class Neighbours:
    """An outlet of "a", an inlet of "b", and queues of what they say.

    Parameters
    ----------
    pools
        Where "a" has its slots, and "b": those of the transport if not given.
    """

    def __init__(
        self,
        *,
        is_local: bool = False,
        faults: LinkFaults | None = None,
        pools: tuple[SlotPool, SlotPool] | None = None,
    ) -> None:
        kind = DescriptorPool if is_local else BufferPool
        self.pools: tuple[SlotPool, SlotPool] = pools or (kind(), kind())
        self.came: SimpleQueue[tuple[bytes, Slot]] = SimpleQueue()
        self.sent: SimpleQueue[Slot] = SimpleQueue()
        self.credits: SimpleQueue[int] = SimpleQueue()
        self.lost: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self.refused: SimpleQueue[tuple[str, str]] = SimpleQueue()
        links: SimpleQueue[OpenLink] = SimpleQueue()
        self.listener = LinkListener(
            Credentials("b", b"p", SECRET), is_local=is_local, refused=lambda *told: self.refused.put(told)
        )
        self.listener.expect(1, {CHUNKS: "a"}, links.put)
        self.outlet = ChunkOutlet(
            Dial(Credentials("a", b"p", SECRET), self.listener.address, "b", CHUNKS, 1),
            sent=self.sent.put,
            credit_came=self.credits.put,
            lost=lambda reason: self.lost.put(("outlet", reason)),
            faults=faults,
        )
        self.outlet.start()
        self.inlet = ChunkInlet(
            links.get(timeout=SECONDS),
            self.pools[1],
            chunk_came=lambda head, slot: self.came.put((head, slot)),
            lost=lambda reason: self.lost.put(("inlet", reason)),
            largest=LARGEST,
        )
        self.inlet.start()

    def send(self, head: bytes, content: bytes) -> Slot:
        """Send a chunk; its slot comes back to `sent`."""
        slot = self.pools[0].fill(len(content), content)
        assert self.outlet.send(head, slot)
        return slot

    def take(self) -> tuple[bytes, bytes]:
        """Return what has come next, and free its slot."""
        head, slot = self.came.get(timeout=SECONDS)
        content = bytes(slot.memory)
        self.pools[1].free(slot)
        return head, content

    def credit(self, count: int) -> int:
        """Return what has come as credit, once it is so much."""
        found = 0
        while found < count:
            found += self.credits.get(timeout=SECONDS)
        return found

    def free_sent(self) -> int:
        """Free the slots that have come back to `sent`; return how many."""
        count = 0
        try:
            while True:
                self.pools[0].free(self.sent.get_nowait())
                count += 1
        except Empty:
            return count

    def close(self) -> None:
        """End everything; the threads must have ended soon."""
        for each in (self.outlet, self.inlet, self.listener):
            each.close()
        for each in (self.outlet, self.inlet, self.listener):
            assert each.join(0.5), "a thread has not ended"
        self.free_sent()
        while not self.came.empty():
            self.pools[1].free(self.came.get()[1])
