"""Messages between neighbours: requests to the predecessor, which must not queue behind chunks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from cumulus.errors import RemoteProtocolError
from cumulus.transport.framing import PAYLOAD_BYTES, FrameKind, FrameReader, Piece, header
from cumulus_ring.links.link_faults import SPARED, Delivery, LinkFaults
from cumulus_ring.links.link_threads import LinkSource, LinkThreads, ThreadedLink
from cumulus_ring.links.open_link import OpenLink

REQUESTS = "requests"
"""What a link of requests is for, as its greeting says."""
UNSENT_BYTES = 1 << 26
"""Who leaves so many bytes of messages unread is given up."""
_MESSAGE = int(FrameKind.MESSAGE)
_AT_ONCE = 256
"""Messages that one call of the system sends; it takes at most 1,024 pieces."""


class MessageLink(ThreadedLink):
    """A link of messages, which may go both ways; one thread sends, another receives.

    Parameters
    ----------
    source
        A `Dial`, or a link that is open.
    came
        Called with the messages that have come since it was called last, in their order. May raise
        RemoteProtocolError.
    lost
        Called once with the reason when the link is over, unless `close` was called.
    faults
        What goes wrong with messages that this side sends.
    """

    def __init__(
        self,
        source: LinkSource,
        *,
        came: Callable[[Sequence[bytes]], None],
        lost: Callable[[str], None],
        faults: LinkFaults | None = None,
    ) -> None:
        self._came = came
        self._line = faults.line(f"{source.purpose} to {source.peer}") if faults else None
        self._queue: deque[tuple[Delivery, bytes]] = deque()
        self._unsent_bytes = 0
        self._is_stuck = False
        super().__init__(LinkThreads(source, lost, self._send_queued, self._receive))

    def send(self, message: bytes) -> None:
        """Send a message after all others; nothing if the link is over."""
        assert len(message) <= PAYLOAD_BYTES, f"a message of {len(message):,} bytes"
        with self._threads.condition:
            if self._threads.is_over:
                return
            delivery = self._line.delivery(len(message), time.monotonic()) if self._line else SPARED
            self._queue.append((delivery, message))
            self._unsent_bytes += len(message)
            self._threads.condition.notify_all()
        if self._unsent_bytes > UNSENT_BYTES:
            self._threads.give_up(f"it leaves {self._unsent_bytes:,} bytes of messages unread")

    def _send_queued(self, link: OpenLink) -> None:
        while (messages := self._due()) is not None:
            pieces: list[Piece] = []
            for delivery, message in messages:
                pieces += [header(_MESSAGE, len(message), link.epoch), message] * delivery.copies
                link.counts.dropped += delivery.copies == 0
                link.counts.duplicated += delivery.copies > 1
                link.counts.messages_out += delivery.copies
                link.counts.payload_out += delivery.copies * len(message)
            link.send_pieces(pieces)
            with self._threads.condition:
                self._unsent_bytes -= sum(len(message) for _, message in messages)

    def _due(self) -> list[tuple[Delivery, bytes]] | None:
        """Wait for messages whose time has come, and take them; None when the link is over."""
        condition, found = self._threads.condition, list[tuple[Delivery, bytes]]()
        with condition:
            while not self._threads.is_over:
                now = time.monotonic() if self._line else 0.0
                while self._queue and self._queue[0][0].due <= now and len(found) < _AT_ONCE:
                    found.append(self._queue.popleft())
                if found:
                    return found
                condition.wait(self._queue[0][0].due - now if self._queue else None)
        return None

    def _receive(self, link: OpenLink) -> None:
        reader = FrameReader()
        reader.trust(in_parts=False)
        while True:
            messages: list[bytes] = []
            for kind, epoch, payload in reader.filled(link.receive_some(reader.room())):
                if kind != _MESSAGE or epoch != link.epoch:
                    raise RemoteProtocolError(f"a frame of kind {kind} and ring epoch {epoch} has come for a message")
                messages.append(payload)
            if messages:
                link.counts.messages_in += len(messages)
                link.counts.payload_in += sum(map(len, messages))
                self._came(messages)
