"""What the central protocols have in common: one switch orders all, and nodes keep to its order.

References
----------
Cumulus consistency paper, section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cumulus.cluster.messages import Block, Deltas
from cumulus.cluster.node_programs.evaluator import versions_of
from cumulus.cluster.node_programs.program import Group, NodeProgram
from cumulus.cluster.protocols.central_messages import Push
from cumulus.cluster.protocols.deferred_work import DeferredBlock, DeferredWork
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.protocol import NumberedRows, Sent
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy.typing as npt


class CentralNode(ABC):
    """What nodes of all central protocols do: a `cumulus.cluster.protocols.protocol.NodeProtocol` but for its own
    messages.

    Attributes
    ----------
    blocks
        How blocks are evaluated.
    work
        What waits.
    rows
        How many were evaluated in this life.
    """

    def __init__(self, life: NodeLife) -> None:
        self.maps = life.spread_maps()
        self.depths = 0
        self.blocks = ToldBlocks(self.maps)
        self.work = DeferredWork()
        self.rows = 0

    # --- what comes and goes ----------------------------------------------------------------------------------------

    def take(self, sender: int, message: object) -> None:
        """Take what the switch asks for, and what nodes send."""
        match message:
            case Push() if sender >= 0:
                self.note(sender, message)
            case Deltas() if sender >= 0:
                self.blocks.take_failures(message)
            case _ if sender < 0 and (block := self.deferred(message)) is not None:
                self.work.defer(block)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no message of this mode")

    @abstractmethod
    def deferred(self, message: object) -> DeferredBlock | None:
        """Return what a message of the switch asks for; None if it is nothing of this protocol."""

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Sent]]:
        """Do what can be done now; yield what others must get."""
        for block, pushes in self.work.ready():
            yield from self.do(block.message, pushes)
            self.maps.note_errors()
        yield from self.maps.failures()

    @abstractmethod
    def do(self, message: Any, pushes: Sequence[Push]) -> Iterator[tuple[int, Push]]:
        """Do what waited; yield what nodes must get."""

    def sent_or_noted(self, target: int, push: Push) -> Iterator[tuple[int, Push]]:
        """Yield what another node must get; what is for this node is noted."""
        if target == self.maps.number:
            self.note(target, push)
        else:
            yield target, push

    @property
    def made(self) -> NodeProgram:
        """The program of the maps."""
        return self.maps.maps.made

    def note(self, sender: int, push: Push) -> None:
        """Take what a node has sent."""
        self.work.note(sender, self.maps.kept(push.version), push)

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing waits of an epoch."""
        return self.work.is_empty_up_to(self.maps.window.last_version(epoch))

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed."""
        self.maps.cut(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch, and forget what waits."""
        self.work.clear()
        self.maps.reset(epoch)

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        if less := self.maps.move_on(committed):
            self.renumber(less)

    def renumber(self, less: int) -> None:
        """Take something away from all versions that are kept beside the maps."""
        self.work.renumber(less)

    def late_share(self) -> tuple[int, int]:
        """Return that nothing comes late, and how many rows have come."""
        return 0, self.rows

    def facts(self) -> dict[str, object]:
        """Return how much was computed, and how much waits."""
        return {"rows_in_order": self.rows, "blocks_waiting": len(self.work)}

    def check(self) -> None:
        """Check what holds between two steps."""
        self.work.check()
        assert not self.maps.maps.take_out(), f"node {self.maps.number}: something computed was not added"


class ToldBlocks:
    """How a node evaluates the blocks that a switch tells it to, of the groups of its program."""

    def __init__(self, maps: SpreadMaps) -> None:
        self._maps = maps

    def group(self, number: int) -> Group:
        """Return a group of statements; RemoteProtocolError if there is none with that number."""
        groups = self._maps.maps.made.groups
        if not 0 <= number < len(groups):
            raise RemoteProtocolError(f"there is no group {number}")
        return groups[number]

    def fire(self, block: Block) -> int:
        """Evaluate the rows of a block; what they add waits to be taken. Return how many they are."""
        found = self._maps.block_rows(block)
        group = self.group(found.group)
        versions = versions_of(group, found.first, found.places)
        self._maps.maps.fire(group, found.rows, found.signs, versions, is_late=False)
        return len(found.signs)

    def take_failures(self, told: Deltas) -> None:
        """Note which maps are wrong on another node."""
        if told.frames:
            raise RemoteProtocolError("deltas are no message of this mode")
        self._maps.failed.load(told.failed)


def single_events(group: Group, block: NumberedRows) -> Iterator[NumberedRows]:
    """Yield the parts of a block whose rows do not see each other: all of it, or each row where rows read what they
    write.
    """
    if not group.has_row_versions:
        yield block
        return
    for at in range(len(block.signs)):
        rows, signs = block.rows.slice(at, 1), block.signs[at : at + 1]
        yield NumberedRows(block.relation, block.version + at, rows, signs)


def nodes_in(mask: npt.ArrayLike) -> Sequence[int]:
    """Return the numbers of the nodes that a mask names."""
    return [int(node) for node in np.flatnonzero(mask)]
