"""What is seen of one life of a node from outside, and what must be true of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cumulus.machine import Name
from cumulus_ring.machine.messages import ChunkHeader, ChunkId, ChunkRequest


class NodeChecks:
    """Checks of what a node sends, by what has come to it.

    Parameters
    ----------
    name
        The node's.
    """

    def __init__(self, name: Name) -> None:
        self._name = name
        self._asked: dict[ChunkId, int] = {}
        self._seen: dict[ChunkId, int] = {}
        """When the node has last asked for a chunk, and when it last came."""
        self._lives: dict[ChunkId, tuple[int, int, int]] = {}
        self._started: dict[ChunkId, tuple[int, int, int]] = {}
        """The last cycles of own chunks, and those of them that began in this ring."""

    def joins(self) -> None:
        """A ring epoch begins: what was on the way is lost."""
        self._asked.clear()
        self._started.clear()

    def asks(self, chunk: ChunkId, now: int) -> None:
        """The node sends a request of its own."""
        self._asked[chunk] = now

    def came(self, header: ChunkHeader, members: int, is_owned: bool, now: int) -> None:
        """A chunk has come: no more nodes have used it than it has passed, and an own one has passed all (E14, E18)."""
        chunk = header.chunk
        assert header.copies <= header.hops, f"chunk {chunk} was used by more nodes than it has passed"
        if is_owned and self._started.get(chunk) == (header.ring_epoch, header.incarnation, header.cycles):
            assert header.hops == members - 1, f"chunk {chunk} is back after {header.hops} hops"
        self._seen[chunk] = now

    def sends(self, header: ChunkHeader) -> None:
        """The node sends a chunk: each cycle of an own one is new (E8)."""
        if header.home == self._name and not header.hops:
            life = header.ring_epoch, header.incarnation, header.cycles
            assert life > self._lives.get(header.chunk, (0, 0, 0)), f"an old chunk {header.chunk} is back"
            self._lives[header.chunk] = self._started[header.chunk] = life

    def took(
        self, request: ChunkRequest, sent: Sequence[ChunkRequest], owned: Collection[ChunkId], is_newer: bool
    ) -> None:
        """The node has taken a request of another one: an owner keeps it, others send it on, or theirs (E1-E4, E7).

        Parameters
        ----------
        sent
            What it has sent thereupon.
        is_newer
            Whether the request is of a later catalogue, so that it may be held.
        """
        chunk = request.chunk
        sent = [each for each in sent if each.chunk == chunk and not each.refusal]
        if chunk in owned:
            assert not sent, f"a request for chunk {chunk} goes past its owner"
            return
        if request.is_absorbed and not is_newer:
            assert request in sent, f"a request for chunk {chunk} does not come round"
        if not is_newer and not any(each.origin in (request.origin, self._name) for each in sent):
            is_absorbed = self._asked.get(chunk, -1) > self._seen.get(chunk, -1) and not request.is_again
            assert is_absorbed, f"a request for chunk {chunk} is swallowed, and it has passed"
