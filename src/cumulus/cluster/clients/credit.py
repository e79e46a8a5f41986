"""How much of what clients send a switch takes in before it is committed.

Whoever sends as much as is taken would make each epoch as long as the one before, and somewhat longer, since what has
come by the time of a commit is what the next one waits for. So the credit is what nodes have shown that they can do in
`GOAL_MS`, once a commit takes longer than that after the end of its epoch, and twice as much after each that does not.
"""

from __future__ import annotations

MOST_BYTES, FIRST_BYTES, LEAST_BYTES = 64 << 20, 1 << 20, 64 << 10
"""Of rows in epochs that are not committed; as long as nothing is known of the nodes; the least is a thousand rows."""
GOAL_MS = 2000
"""A commit that comes later than so after the end of its epoch says that too much was taken in."""


class Credit:
    """What a switch may take in.

    Parameters
    ----------
    most
        The most bytes in epochs that are not committed.

    Attributes
    ----------
    bytes
        With so many in epochs that are not committed, more must wait.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most, self.bytes = most, min(FIRST_BYTES, most)
        self._open: dict[int, int] = {}
        """Epoch that is not committed → the bytes that have come for it."""
        self._ended_at: dict[int, int] = {}
        self._now = 0

    @property
    def open_bytes(self) -> int:
        """What has come for epochs that are not committed."""
        return sum(self._open.values())

    @property
    def is_spent(self) -> bool:
        """Whether more must wait."""
        return not self.left

    @property
    def left(self) -> int:
        """How much more may be taken in."""
        return max(self.bytes - self.open_bytes, 0)

    @property
    def why_spent(self) -> str:
        """What to tell those who must wait."""
        return f"{self.open_bytes / 1e6:.1f} MB of rows wait for their commit, and more must wait for them"

    def facts(self) -> dict[str, object]:
        """Return what waits for its commit, and what may be taken in before others must wait for one, in bytes."""
        return {"open_bytes": self.open_bytes, "credit_bytes": self.left}

    def tell(self, now_ms: int) -> None:
        """Take notice of the time."""
        self._now = now_ms

    def take(self, epoch: int, size: int) -> None:
        """Take notice of rows that were taken in."""
        self._open[epoch] = self._open.get(epoch, 0) + size

    def end(self, epoch: int) -> None:
        """Take notice that nothing more comes for an epoch."""
        self._ended_at[epoch] = self._now

    def commit(self, epoch: int) -> None:
        """Take notice of a commit: what was open then is what was done, and is being done, since the epoch's end."""
        took_ms = self._now - self._ended_at.pop(epoch, self._now)
        if took_ms <= GOAL_MS:
            self.bytes = min(2 * self.bytes, self._most)
        elif self._open:
            self.bytes = min(max(self.open_bytes * GOAL_MS // took_ms, LEAST_BYTES), self.bytes)
        self._open.pop(epoch, None)
