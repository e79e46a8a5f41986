"""What a protocol is: what a node does with what comes for its spread maps, and what a switch sends of a block.

Switches, nodes, logs, epochs and reads do not know which protocol runs; which do, and what each asks for, is in
`cumulus.cluster.protocols.table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from cumulus.cluster.messages import EpochEnd, Message
from cumulus.cluster.protocols.central_messages import (
    Correct,
    Evaluate,
    Expect,
    Fetch,
    ForwardedBlock,
    Push,
    Put,
    PutsAsked,
    PutsTold,
    RootBlock,
    TickAsked,
    TickSet,
    TickTold,
    VersionCommit,
)
from cumulus.cluster.spread_maps import SpreadMaps
from cumulus.errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Sent: TypeAlias = (
    Message
    | Put
    | Fetch
    | Push
    | Correct
    | Evaluate
    | Expect
    | TickAsked
    | TickTold
    | TickSet
    | RootBlock
    | ForwardedBlock
    | PutsAsked
    | PutsTold
    | VersionCommit
)
"""What switches and nodes send each other in any protocol."""


class NodeProtocol(Protocol):
    """What one node does for its spread maps in one life; it does no input or output.

    Attributes
    ----------
    maps
        The node's spread maps.
    depths
        For how many depths of the map graph nodes tell each other that all is sent of an epoch.
    """

    maps: SpreadMaps
    depths: int

    def take(self, sender: int, message: object) -> None:
        """Take what has come; nothing is done with it before `drain`.

        Parameters
        ----------
        sender
            The number of the node that has sent it; −1 for switch 0, −2 for switch 1, and so on.

        Raises
        ------
        RemoteProtocolError
            If it is nothing that this protocol has, or has now.
        """

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Sent]]:
        """Do everything that can be done now; yield what others must get, by their numbers, as `take` has them.

        Parameters
        ----------
        ended
            The last epoch that all switches have ended.
        is_time
            Whether some time has passed (`cumulus.cluster.planning.mode_options.ModeOptions.tick_ms`).
        """

    def is_flushed(self, epoch: int) -> bool:
        """Whether all that has come of an epoch is done, and all that follows from it is sent."""

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed; the one before can still be read."""

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch, and forget what waits: it will come again."""

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due; everything is drained."""

    def late_share(self) -> tuple[int, int]:
        """Return how many rows and deltas have come late in this life, and how many have come at all."""

    def facts(self) -> dict[str, object]:
        """Return how it is, beside what its maps say."""

    def check(self) -> None:
        """Check what holds between two steps; AssertionError if it does not."""


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Rows of a block as a switch has them.

    Parameters
    ----------
    version
        Of the first row; each has its own, the next one.
    rows
        The relation's columns, by name.
    signs
        +1 or -1 for each row.
    """

    relation: str
    version: int
    rows: pa.Table
    signs: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class PassedOn:
    """What nodes hear of the blocks of an epoch from other nodes: it may come behind the end of the epoch, which tells
    it.

    Parameters
    ----------
    last
        The last version of blocks that go along a tree of nodes; -1 for none.
    puts
        Node → how many blocks it hears of in place of PUTs.
    """

    last: int = -1
    puts: Mapping[int, int] = field(default_factory=dict)

    def end(self, epoch: int, final: bool, payload: bytes, node: int) -> EpochEnd:
        """Return the end of an epoch for a node.

        Parameters
        ----------
        final, payload
            As in `cumulus.cluster.messages.EpochEnd`.
        """
        return EpochEnd(epoch, final, payload, self.last, self.puts.get(node, 0))


class SwitchProtocol(Protocol):
    """What a switch sends of the blocks that it makes."""

    def dispatch(self, block: NumberedRows) -> Iterator[tuple[int, Sent]]:
        """Yield what nodes get of a block, by their numbers."""

    def take(self, node: int, message: object) -> Iterator[tuple[int, Sent]]:
        """Take what a node answers; yield what nodes get for it, by their numbers.

        Raises
        ------
        RemoteProtocolError
            If nodes answer no such thing.
        """

    def reset(self) -> None:
        """Forget what nodes have answered: all that is open is sent again."""

    def take_passed_on(self) -> PassedOn:
        """Return what nodes hear of blocks from other nodes, of those since the last call."""


class HearsNothing:
    """What a switch does in protocols in which nodes answer it nothing, and send on nothing that it sends."""

    def take(self, node: int, message: object) -> Iterator[tuple[int, Sent]]:
        """Refuse what a node answers."""
        raise RemoteProtocolError(f"{type(message).__name__} is no answer of this mode")

    def reset(self) -> None:
        """Forget nothing."""

    def take_passed_on(self) -> PassedOn:
        """Return that nodes hear of all blocks from here."""
        return PassedOn()
