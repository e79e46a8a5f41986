"""Chunks to the successor and from the predecessor, and the credits that come back.

An *outlet* sends in a thread of its own, in the order in which it is told to; a second thread hears credits. An *inlet*
receives in a thread of its own, straight into a slot; its second thread sends credits that the socket does not take at
once. Whoever has them is called by these threads, by one at a time each; no method of theirs waits for the other side,
so they may be called with locks held.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Callable

from cumulus.errors import RemoteProtocolError, RingError
from cumulus.transport.framing import HEADER_BYTES, FrameKind, FrameReader, header
from cumulus_ring.links.link_faults import SPARED, Delivery, FaultyLine, LinkFaults
from cumulus_ring.links.link_threads import LinkSource, LinkThreads, ThreadedLink
from cumulus_ring.links.open_link import OpenLink
from cumulus_ring.links.slots import Slot, SlotPool

CHUNKS = "chunks"
"""What a link of chunks is for, as its greeting says."""
STRAIGHT = "straight"
"""The same of a link from an owner to a node that is not its successor, or not as its successor."""
LARGEST_CHUNK = 1 << 30
"""A chunk of more bytes is refused, if no other number is given."""
MOST_HEADER_BYTES = 4096
CREDIT_SECONDS = 0.01
"""How long credit may wait for more, while the predecessor has enough of it."""

_SIZES = struct.Struct("<IQ")
"""Of the header, and of the chunk."""
_CREDIT = struct.Struct("<Q")
_CHUNK, _DESCRIPTOR, _CREDITS = int(FrameKind.CHUNK), int(FrameKind.CHUNK_DESCRIPTOR), int(FrameKind.CREDIT)
_DISCARDED_AT_ONCE = 1 << 20


class ChunkOutlet(ThreadedLink):
    """The link to the successor.

    Parameters
    ----------
    source
        A `Dial`, or a link that is open.
    sent
        Called with each slot that `send` has taken, once: when it has left, or will not since the link is over.
    credit_came
        Called with how many more bytes the successor has room for.
    lost
        Called once with the reason when the link is over, unless `close` was called. Slots come back to `sent` until
        then, and after it.
    faults
        What goes wrong on the way; or the line that several links of a node share.
    """

    def __init__(
        self,
        source: LinkSource,
        *,
        sent: Callable[[Slot], None],
        credit_came: Callable[[int], None],
        lost: Callable[[str], None],
        faults: LinkFaults | FaultyLine | None = None,
    ) -> None:
        self._sent = sent
        self._credit_came = credit_came
        self._lost = lost
        name = f"{source.purpose} to {source.peer}"
        self._line = faults.line(name) if isinstance(faults, LinkFaults) else faults
        self._queue: deque[tuple[Delivery, bytes, Slot]] = deque()
        self._overdrawn = 0  # bytes that were sent twice, and whose second credit is nobody's
        super().__init__(LinkThreads(source, self._is_lost, self._send_queued, self._hear_credits, self._return_slots))

    def send(self, header: bytes, slot: Slot) -> bool:
        """Send a chunk after all others; return whether that is taken on: not after `close`, and `sent` is not called.

        Parameters
        ----------
        header
            What goes with it, of at most `MOST_HEADER_BYTES`.
        """
        assert len(header) <= MOST_HEADER_BYTES, f"a header of {len(header):,} bytes"
        with self._threads.condition:
            if self._threads.is_closed:
                return False
            delivery = self._line.delivery(slot.size, time.monotonic()) if self._line else SPARED
            self._queue.append((delivery, header, slot))
            self._threads.condition.notify_all()
        return True

    def queued(self) -> int:
        """Return how many chunks have not left yet."""
        return len(self._queue)

    def _send_queued(self, link: OpenLink) -> None:
        while (due := self._due()) is not None:
            delivery, header, slot = due
            for _ in range(delivery.copies):
                self._transmit(link, header, slot)
            self._queue.popleft()
            self._note_delivery(link, delivery, slot.size)
            self._sent(slot)

    def _due(self) -> tuple[Delivery, bytes, Slot] | None:
        """Wait until the time of the first chunk has come; None when the link is over."""
        condition = self._threads.condition
        with condition:
            while not self._threads.is_over:
                now = time.monotonic() if self._line else 0.0
                if self._queue and self._queue[0][0].due <= now:
                    return self._queue[0]
                condition.wait(self._queue[0][0].due - now if self._queue else None)
        return None

    def _transmit(self, link: OpenLink, header: bytes, slot: Slot) -> None:
        sizes = _SIZES.pack(len(header), slot.size)
        if link.is_local and slot.descriptor is not None:
            link.send_descriptor(_DESCRIPTOR, sizes + header, slot.descriptor)
        else:
            link.send(_CHUNK, [sizes, header, slot.memory])
        link.counts.messages_out += 1
        link.counts.payload_out += slot.size

    def _note_delivery(self, link: OpenLink, delivery: Delivery, size: int) -> None:
        """Let faults change nothing about how much the successor has room for."""
        if delivery.copies == 0:
            link.counts.dropped += 1
            self._credit_came(size)
        elif delivery.copies > 1:
            link.counts.duplicated += 1
            with self._threads.condition:
                self._overdrawn += size

    def _hear_credits(self, link: OpenLink) -> None:
        reader = FrameReader()
        while True:
            credit = 0
            for kind, epoch, payload in reader.filled(link.receive_some(reader.room())):
                if kind != _CREDITS or epoch != link.epoch or len(payload) != _CREDIT.size:
                    raise RemoteProtocolError(f"a frame of kind {kind} and ring epoch {epoch} has come for a credit")
                credit += _CREDIT.unpack(payload)[0]
            with self._threads.condition:
                kept = min(credit, self._overdrawn)
                self._overdrawn -= kept
            if credit > kept:
                self._credit_came(credit - kept)

    def _return_slots(self) -> None:
        while self._queue:
            self._sent(self._queue.popleft()[2])

    def _is_lost(self, reason: str) -> None:
        """Tell it; then go on giving slots back until somebody closes."""
        self._lost(reason)
        while True:
            self._return_slots()
            with self._threads.condition:
                if self._threads.is_closed and not self._queue:
                    return
                if not self._queue:
                    self._threads.condition.wait()


class ChunkInlet(ThreadedLink):
    """The link from the predecessor.

    Parameters
    ----------
    source
        A link that is open, as a listener gives it, or a `Dial`.
    chunk_came
        Called with a header and a slot, which is the callee's now. May raise RemoteProtocolError.
    lost
        Called once with the reason when the link is over, unless `close` was called.
    largest
        A chunk of more bytes is not taken, and ends the link.
    """

    def __init__(
        self,
        source: LinkSource,
        pool: SlotPool,
        *,
        chunk_came: Callable[[bytes, Slot], None],
        lost: Callable[[str], None],
        largest: int = LARGEST_CHUNK,
    ) -> None:
        self._pool = pool
        self._chunk_came = chunk_came
        self._largest = largest
        self._owed = 0  # credit that is not sent
        self._left = 0  # of the credit that is sent, after the chunks that have come
        self._window = 0  # the most that was ever left
        self._unsent = b""  # the rest of a frame of credit, for which the second thread waits until the socket takes it
        super().__init__(LinkThreads(source, lost, self._receive, self._send_unsent))

    def grant(self, bytes: int) -> None:
        """Tell the predecessor that there is room for so much more.

        By TCP a credit costs a seventh of the CPU time of a small chunk's hop. So while three quarters of what it ever
        had are left to the predecessor, it is told of several together, `CREDIT_SECONDS` later.
        """
        with self._threads.condition:
            self._owed += bytes
            link = self._threads.link
            if link is not None and not link.is_local and self._left >= self._window * 3 // 4 > 0:
                if self._owed == bytes:
                    self._threads.condition.notify_all()
            else:
                self._send_credit()

    def _send_credit(self) -> None:
        """Send what is owed if the socket takes it; else the second thread does."""
        link = self._threads.link
        if link is None or self._threads.is_over or self._unsent or not self._owed:
            return
        frame = header(_CREDITS, _CREDIT.size, link.epoch) + _CREDIT.pack(self._owed)
        self._left += self._owed
        self._window = max(self._window, self._left)
        self._owed = 0
        try:
            self._unsent = link.send_what_fits(frame)
        except OSError:
            return  # the thread that receives finds out why
        if self._unsent:
            self._threads.condition.notify_all()

    def _send_unsent(self, link: OpenLink) -> None:
        while self._wait_for_unsent():
            link.send_pieces([self._unsent])
            with self._threads.condition:
                self._unsent = b""

    def _wait_for_unsent(self) -> bool:
        """Send what is owed when its time has come, until the socket does not take it; False when the link is over."""
        condition = self._threads.condition
        with condition:
            while not self._threads.is_over:
                self._send_credit()
                if self._unsent:
                    return True
                condition.wait()
                if self._owed:
                    condition.wait(CREDIT_SECONDS)
        return False

    def _receive(self, link: OpenLink) -> None:
        start = memoryview(bytearray(HEADER_BYTES + _SIZES.size))
        room = memoryview(bytearray(MOST_HEADER_BYTES))
        most = _SIZES.size + MOST_HEADER_BYTES + self._largest
        while True:
            kind, length, epoch, descriptor = link.receive_header(start, most)
            try:
                head_bytes, size = _SIZES.unpack_from(start, HEADER_BYTES)
                self._check(link, kind, length, epoch, head_bytes, size)
                head = room[:head_bytes]
                if kind == _CHUNK:
                    slot = self._fill(link, head, size)
                else:
                    link.receive_into(head)
                    slot = None  # without a descriptor: no more files may be open here, so the system has dropped it
                    if descriptor is not None:
                        taken, descriptor = descriptor, None
                        slot = self._pool.map_slot(taken, size)
            finally:
                if descriptor is not None:
                    os.close(descriptor)
            if slot is None:
                link.counts.refused += 1
                self._spent(size)
                self.grant(size)
            else:
                link.counts.messages_in += 1
                link.counts.payload_in += size
                self._spent(size)
                self._chunk_came(bytes(head), slot)

    def _spent(self, size: int) -> None:
        with self._threads.condition:
            self._left -= size
            if self._owed and self._left < self._window * 3 // 4:
                self._send_credit()

    def _check(self, link: OpenLink, kind: int, length: int, epoch: int, head_bytes: int, size: int) -> None:
        """Refuse what is no chunk before memory is taken for it."""
        if kind not in (_CHUNK, _DESCRIPTOR) or epoch != link.epoch:
            raise RemoteProtocolError(f"a frame of kind {kind} and ring epoch {epoch} has come for a chunk")
        moved = size if kind == _CHUNK else 0
        if length != _SIZES.size + head_bytes + moved or head_bytes > MOST_HEADER_BYTES:
            raise RemoteProtocolError(f"a frame of {length:,} bytes has come for a chunk of {size:,}")
        if size > self._largest:
            raise RemoteProtocolError(f"a chunk of {size:,} bytes has come; {self._largest:,} are allowed")

    def _fill(self, link: OpenLink, head: memoryview, size: int) -> Slot | None:
        """Receive a header, and a chunk into a slot; None if there is no memory, and the chunk is gone."""
        try:
            return self._pool.fill(size, lambda content: link.receive_into(head, content))
        except RingError:
            link.receive_into(head)
            scratch = memoryview(bytearray(min(size, _DISCARDED_AT_ONCE)))
            while size:
                part = min(size, len(scratch))
                link.receive_into(scratch[:part])
                size -= part
            return None
