"""When a node asks for the end of the open epoch: too much waits for its commit.

References
----------
Cumulus semester paper, section 3.4, EPOCH END REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable

MOST_OPEN_ROWS = 1 << 20
"""With so many entries waiting for a commit a node asks for it, if nothing else is said."""
_LOOKS = 16
"""How often it is looked, at least, while as many rows come as there may be entries."""


class OpenRows:
    """What waits for a commit on a node.

    Parameters
    ----------
    most
        With so many entries it asks.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.reset()

    def reset(self) -> None:
        """Forget that it has asked."""
        self._asked, self._look_at = 0, 0

    def asks(self, epoch: int, came: int, count: Callable[[], int]) -> bool:
        """Whether the end of an epoch is to be asked for now: once for each.

        Parameters
        ----------
        came
            How many rows and deltas have come in this life.
        count
            Counts the entries that wait, which takes a call for each map: it is called now and then.
        """
        if self._asked >= epoch or came < self._look_at:
            return False
        open_rows = count()
        self._look_at = came + max((self._most - open_rows) // _LOOKS, 1)
        if open_rows <= self._most:
            return False
        self._asked = epoch
        return True
