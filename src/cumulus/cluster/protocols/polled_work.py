"""Garbage collection by polls: the switch asks nodes for their progress and sends COMMIT; nodes compact their deltas.

=============  ========================================================================================================
PUTSASKED      the switch to each node, every so many blocks: up to which version is done what you have to do?
PUTSTOLD       each node to the switch: the version before the first FETCH or PUT that waits there
VERSIONCOMMIT  the switch to each node: the least of these, the COMMIT of the architecture
=============  ========================================================================================================

A FETCH has the version of its block here, so the lowest FETCH version of a PUT that is not done is that of the PUT.
After COMMIT nothing of this version or an earlier one comes any more, which nodes check.

References
----------
Cumulus architecture, "Update Consistency and Garbage Collection".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from cumulus.cluster.node_programs.folded_deltas import FoldedDeltas
from cumulus.cluster.protocols.central_messages import PutsAsked, PutsTold, VersionCommit
from cumulus.cluster.protocols.deferred_work import DeferredBlock
from cumulus.cluster.protocols.protocol import NumberedRows, PassedOn, Sent, SwitchProtocol
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.cluster.versions import LAST_VERSION
from cumulus.errors import RemoteProtocolError


class PolledWork:
    """The state of polls at a node: open questions, and the last version that all nodes have finished.

    Attributes
    ----------
    commits
        How many COMMITs have come in this life.
    """

    def __init__(self, maps: SpreadMaps) -> None:
        self._maps, self._deltas = maps, FoldedDeltas(maps.maps)
        self._asked: deque[tuple[int, PutsAsked]] = deque()
        """What is not answered, with its switch."""
        self._done = -1
        """The last version that is done everywhere, as the node keeps it."""
        self.commits = 0

    def take(self, sender: int, message: PutsAsked | VersionCommit, first: DeferredBlock | None) -> None:
        """Take what the switch asks or says.

        Parameters
        ----------
        first
            What waits here with the earliest version.

        Raises
        ------
        RemoteProtocolError
            If something of the version waits of which the switch says that it is done.
        """
        if isinstance(message, PutsAsked):
            self._asked.append((sender, message))
            return
        version = self._maps.kept(message.version)
        if first is not None and first.version <= version:
            raise RemoteProtocolError(
                f"the switch says that version {message.version} is done everywhere, and {first.version} waits here"
            )
        self.commits += 1
        if version > self._done:
            self._done = version
            self._deltas.fold(version)

    def require_later(self, version: int) -> None:
        """Check that a version, as messages have it, is not done everywhere; RemoteProtocolError if it is."""
        if self._maps.kept(version) <= self._done:
            raise RemoteProtocolError(f"version {version} comes after all up to it were done everywhere")

    def answers(self, first: DeferredBlock | None, has_come: Callable[[int], bool]) -> Iterator[tuple[int, PutsTold]]:
        """Yield the answers that can be given.

        Parameters
        ----------
        first
            What waits with the earliest version.
        has_come
            Whether all blocks up to a version have come.
        """
        while self._asked and has_come(asked := self._maps.kept(self._asked[0][1].version)):
            sender, message = self._asked.popleft()
            back = 0 if first is None else max(asked - first.version + 1, 0)
            yield sender, PutsTold(message.version, message.version - back & LAST_VERSION)

    def facts(self) -> dict[str, object]:
        """Return how often all nodes were done with something, and how often deltas of a map were folded for it."""
        return {"version_commits": self.commits, "folds": self._deltas.folds}

    def renumber(self, less: int) -> None:
        """Take something away from all versions."""
        self._done -= less

    def reset(self) -> None:
        """Forget what was asked and said: it will be again."""
        self._asked.clear()
        self._done = -1


class PollingSwitch:
    """A `cumulus.cluster.protocols.protocol.SwitchProtocol` that polls nodes after every N blocks of another one.

    Parameters
    ----------
    dispatching
        The protocol that dispatches blocks.
    blocks
        N, at least 1.
    """

    def __init__(self, dispatching: SwitchProtocol, nodes: int, blocks: int) -> None:
        self._dispatching, self._nodes, self._every = dispatching, nodes, blocks
        self._blocks = 0
        self._told: dict[int, dict[int, int]] = {}
        """Version that was asked about → node → how far before it the node is done."""

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Sent]]:
        """Yield what nodes get of a block, and the question behind it if it is time."""
        is_sent = False
        for each in self._dispatching.dispatch(block):
            is_sent = True
            yield each
        self._blocks += is_sent
        if is_sent and self._blocks % self._every == 0:
            last = block.version + block.rows.num_rows - 1
            yield from ((node, PutsAsked(last)) for node in range(self._nodes))

    def take(self, node: int, message: object) -> Iterator[tuple[int, Sent]]:
        """Take the answer of a node; yield what is done everywhere once all have answered."""
        if not isinstance(message, PutsTold):
            yield from self._dispatching.take(node, message)
            return
        told = self._told.setdefault(message.asked, {})
        if node in told:
            raise RemoteProtocolError(f"node {node} answers again how far it is with version {message.asked}")
        told[node] = message.asked - message.done & LAST_VERSION
        if len(told) == self._nodes:
            del self._told[message.asked]
            done = message.asked - max(told.values()) & LAST_VERSION
            yield from ((each, VersionCommit(done)) for each in range(self._nodes))

    def reset(self) -> None:
        """Forget what nodes have answered: they are asked again."""
        self._told.clear()
        self._dispatching.reset()

    def take_passed_on(self) -> PassedOn:
        """Return what nodes send on."""
        return self._dispatching.take_passed_on()
