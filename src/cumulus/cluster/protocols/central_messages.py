"""What switches and nodes say to each other where nodes are told what a block needs: all modes but the eventual one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus.cluster.messages import Block


@dataclass(frozen=True, slots=True)
class Put:
    """From the switch to a node that has entries to which a block adds: compute them once all PUSHes are there.

    Parameters
    ----------
    block
        The rows that add to entries of this node.
    pushes
        How many nodes send it what the block reads, itself among them.
    """

    block: Block
    pushes: int

    @property
    def version(self) -> int:
        """That of the block."""
        return self.block.version


@dataclass(frozen=True, slots=True)
class AskedSlice:
    """Entries that a node must send to another one.

    Parameters
    ----------
    target
        The number of the other one.
    slice
        The number of the slice in the node program.
    keys
        The values of its bound keys, one row for each slice that is asked for, as an Arrow stream; empty where it is
        the whole map.
    """

    target: int
    slice: int
    keys: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """From the switch to a node that has entries which a block reads: send them as they were just before the block.

    Parameters
    ----------
    version
        Of the block.
    after
        The version of the last PUT before it to this node, −1 if there was none: the event's own come later.
    targets
        The numbers of all nodes that get a PUSH, also an empty one.
    puts
        Where there are no PUTs: number of a node that gets a PUSH, too, and what it must compute.
    rows
        Where nodes know themselves who needs what: number of a group of statements, and the rows for which this node
        sends something, as an Arrow stream of the columns that say what. Nothing is asked for by name then.
    """

    version: int
    after: int
    targets: Sequence[int]
    asked: Sequence[AskedSlice]
    puts: Sequence[tuple[int, Put]] = ()
    rows: Sequence[tuple[int, bytes]] = ()


@dataclass(frozen=True, slots=True)
class Push:
    """From a node to a node: what a block reads there, or what it adds there; all of it that the sender has.

    Parameters
    ----------
    version
        Of the block.
    frames
        Number of the slice, or of the map, and entries; there may be none.
    puts
        Where there are no PUTs: what the other one must compute, in one of the PUSHes that it gets for the block.
    """

    version: int
    frames: Sequence[tuple[int, bytes]]
    puts: Sequence[Put] = ()


@dataclass(frozen=True, slots=True)
class Correct:
    """From a node to a node: deltas of what was sent there, of versions before those for which it was.

    Parameters
    ----------
    frames
        Number of the slice, and its deltas, each with its version.
    """

    frames: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class TickAsked:
    """From a switch to a node that takes part in a block: what it has to do, and the question when it can.

    Parameters
    ----------
    version
        Of the block.
    nodes
        How many take part.
    fetches, puts
        What it has to do: one of each, or of one of them.
    """

    version: int
    nodes: int
    fetches: Sequence[Fetch]
    puts: Sequence[Put]


@dataclass(frozen=True, slots=True)
class TickTold:
    """From a node to the switch: its tick for a block of a version, in which so many nodes take part."""

    version: int
    tick: int
    nodes: int


@dataclass(frozen=True, slots=True)
class TickSet:
    """From the switch to all nodes that take part in a block: it is posted at this tick."""

    version: int
    tick: int


@dataclass(frozen=True, slots=True)
class Evaluate:
    """From the switch to a node: evaluate rows of a block, once all earlier ones are in what they read.

    Parameters
    ----------
    blocks
        Of one version, each of another group.
    targets
        The numbers of the nodes that get a PUSH of what they add, also an empty one.
    """

    blocks: Sequence[Block]
    targets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Expect:
    """From the switch to a node: so many nodes send what a block adds to maps here, itself perhaps among them.

    Parameters
    ----------
    groups
        The numbers of the groups of the block's statements.
    """

    version: int
    groups: Sequence[int]
    pushes: int


@dataclass(frozen=True, slots=True)
class RootBlock:
    """From the switch to the root of the distribution tree: a block, which all nodes get along the tree.

    Parameters
    ----------
    block
        All its rows, with the columns that its statements use.
    """

    block: Block


@dataclass(frozen=True, slots=True)
class ForwardedBlock:
    """From a node to its children in the distribution tree: a block as it has come."""

    block: Block


@dataclass(frozen=True, slots=True)
class PutsAsked:
    """From the switch to all nodes: the question up to which version a node has done what it has to do.

    Parameters
    ----------
    version
        The last one that blocks have had so far; a node answers when all of them have come.
    """

    version: int


@dataclass(frozen=True, slots=True)
class PutsTold:
    """From a node to the switch: everything up to a version is done here.

    Parameters
    ----------
    asked
        The version that was asked about.
    done
        The same, or the last version before what waits.
    """

    asked: int
    done: int


@dataclass(frozen=True, slots=True)
class VersionCommit:
    """From the switch to all nodes, the COMMIT of the architecture: everything up to a version is done everywhere."""

    version: int
