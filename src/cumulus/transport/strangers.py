"""Connections before their proof: how long one may take, how many there may be, and which one has to go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

GREETING_SECONDS = 60.0
"""How long a connection that was accepted may take to prove who it is.

Members of a busy machine take seconds to say a word, so the limit is long. Who keeps connections open is dealt with by
their number, when there are too many of them.
"""


def one_to_close(hosts: Sequence[str]) -> int:
    """Return the place of the connection to close if there are too many: the oldest of the host that has most of them.

    Parameters
    ----------
    hosts
        Of the connections without a proof, the oldest first; not empty.

    Examples
    --------
    >>> one_to_close(["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3"])
    1
    """
    fullest, _ = Counter(hosts).most_common(1)[0]
    return hosts.index(fullest)
