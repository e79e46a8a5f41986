"""A queue of what clients have sent and a switch has no credit for, bounded in bytes."""

from __future__ import annotations

from cumulus.cluster.messages import ClientRows
from cumulus.machine import Name

MOST_BYTES = 64 << 20
"""Of rows that wait; beyond that clients are asked to send again. One message always has room."""


class ClientQueue:
    """First in, first out; what comes again while it waits is not kept twice.

    Attributes
    ----------
    bytes
        Of the rows in it.
    dropped
        How many messages had no room.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[Name, int], ClientRows] = {}
        self.bytes = self.dropped = 0

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, client: Name, rows: ClientRows) -> bool:
        """Take rows in; return whether there is room for them."""
        if (client, rows.number) in self._rows:
            return True
        size = len(rows.rows)
        if self._rows and self.bytes + size > MOST_BYTES:
            self.dropped += 1
            return False
        self._rows[client, rows.number] = rows
        self.bytes += size
        return True

    def pop(self) -> tuple[Name, ClientRows]:
        """Return what has waited longest, and its client."""
        (client, number), rows = next(iter(self._rows.items()))
        del self._rows[client, number]
        self.bytes -= len(rows.rows)
        return client, rows

    def facts(self) -> dict[str, object]:
        """Return how many calls wait, with how many bytes, and how many found no room."""
        return {"waiting": len(self), "waiting_bytes": self.bytes, "sent_away": self.dropped}
