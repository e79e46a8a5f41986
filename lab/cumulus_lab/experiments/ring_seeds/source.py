"""What all nodes of a simulated ring read from: chunks that come and go with versions, some of which are damaged."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.machine import Name
from cumulus_lab.simulation import ChoiceStream
from cumulus_ring.chunks.rendezvous import owner
from cumulus_ring.machine.messages import ChunkId

UNIT = 1_000
"""Sizes are counted in this."""
LARGEST = 4 * UNIT
NOBODYS = 1_000_000
"""Chunks from here on are in no catalogue."""
RESULTS = 2_000_000
"""Chunks from here on are results of queries."""


class SimulatedSource:
    """A source that grows, and forgets what is oldest, version by version.

    Parameters
    ----------
    stream
        Decides sizes, which chunks are damaged, and who owns what.
    """

    def __init__(self, stream: ChoiceStream) -> None:
        self._stream = stream
        self._salt = stream.below(1_000)
        self._owners: dict[tuple[Name, ...], list[Name]] = {}
        self._versions: list[range] = []
        self.sizes: list[int] = []
        self.damaged: set[ChunkId] = set()
        self._results: list[int] = []
        self.grow(1 + stream.below(24), 0)

    @property
    def version(self) -> int:
        """Of the latest catalogue, from 0."""
        return len(self._versions) - 1

    def grow(self, count: int, forgotten: int) -> None:
        """Add so many chunks, and forget others, but for the last one; this is another version."""
        for _ in range(count):
            self.sizes.append(UNIT // 2 * (1 + self._stream.below(2 * LARGEST // UNIT)))
            if self._stream.chance(1 / 50):
                self.damaged.add(len(self.sizes) - 1)
        first = self._versions[-1].start if self._versions else 0
        self._versions.append(range(min(first + forgotten, len(self.sizes) - 1), len(self.sizes)))

    def chunks_of(self, version: int) -> range:
        """Return the chunks that there are in a version."""
        return self._versions[version]

    def new_result(self) -> tuple[ChunkId, int]:
        """Return a number that no chunk has had, and the size of a result."""
        self._results.append(UNIT // 2 * (1 + len(self._results) % (2 * LARGEST // UNIT)))
        return RESULTS + len(self._results) - 1, self._results[-1]

    def is_gone(self, chunk: ChunkId) -> bool:
        """Whether a chunk is not in the latest version, whatever it was in before."""
        return chunk not in self._versions[-1]

    def owned(self, name: Name, members: Sequence[Name], version: int) -> dict[ChunkId, int]:
        """Return the chunks of a node in a version, with what is known of their sizes before they are read (E41)."""
        owners = self._owners.setdefault(tuple(members), [])
        for chunk in range(len(owners), len(self.sizes)):
            owners.append(owner(b"%d" % self._salt, chunk, members))
        return {
            chunk: -(-self.sizes[chunk] // UNIT) * UNIT for chunk in self._versions[version] if owners[chunk] == name
        }

    def read(self, chunk: ChunkId) -> int | str:
        """Return the size of a chunk as its disk gives it, or why it cannot be had."""
        if chunk >= RESULTS:
            return self._results[chunk - RESULTS]
        return f"chunk {chunk} is damaged" if chunk in self.damaged else self.sizes[chunk]
