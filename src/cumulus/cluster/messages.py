"""What switches and nodes say to each other (docs/cluster.md, "Epochs and their commit")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.epochs.committed.manifest import Written
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name

WRITER = "writer "
"""Before the name of a writer: no client is called so."""
SIGN, OFFSET = "#sign", "#offset"
"""The columns of a block beside the table's."""


def node_name(number: int) -> Name:
    """Return what the node with a number, from 0, is called."""
    return f"node{number}"


def switch_name(number: int) -> Name:
    """Return what the switch with a number, from 0, is called."""
    return f"switch{number}"


@dataclass(frozen=True, slots=True)
class EpochTurn:
    """From the publisher to all switches: what of the sources an epoch takes in.

    Parameters
    ----------
    files
        Table → names of its files, in order; tables without new files are left out.
    final
        Whether nothing is left to read after it.
    record
        Of the publisher's log: an epoch that could not be read is told anew, with another one.
    """

    epoch: int
    files: Mapping[str, Sequence[str]]
    final: bool
    record: int = 0


@dataclass(frozen=True, slots=True)
class EpochRefused:
    """From a switch or a node to the publisher: the epoch cannot be read, or not be computed."""

    epoch: int
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class EpochPart:
    """From a switch to a node: the next part of what it has read in an epoch for the gate of this node."""

    epoch: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """From a switch to a node: nothing more of this epoch comes from here.

    Parameters
    ----------
    final
        As in `EpochTurn`.
    payload
        The last part of what the switch has read in the epoch for the gate of this node, packed
        (`cumulus.epochs.intake.packing`).
    last
        The last version of the epoch's blocks, where they come along a tree of nodes and this may come before them;
        −1 where they do not, or there are none.
    puts
        How many blocks of the epoch the node hears of from other nodes, in place of PUTs from here.
    """

    epoch: int
    final: bool
    payload: bytes
    last: int = -1
    puts: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one table with consecutive versions, as much of them as one group of statements on one node needs.

    Parameters
    ----------
    group
        Its number in the node program.
    version
        Of the block, and of its first row.
    rows
        An Arrow stream: the columns of the group, then `SIGN` and `OFFSET`, the place of the row in the block.
    """

    group: int
    version: int
    rows: bytes

    @classmethod
    def of(
        cls,
        group: int,
        version: int,
        offsets: npt.NDArray[np.int64],
        columns: pa.Table,
        signs: npt.NDArray[np.int8],
    ) -> Block:
        """Return a block of rows in columns."""
        arrays = [*columns.columns, pa.array(signs), pa.array(offsets)]  # there may be no columns
        rows = pa.table(arrays, names=[*columns.column_names, SIGN, OFFSET])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return cls(group, version, sink.getvalue().to_pybytes())

    def table(self) -> pa.Table:
        """Return the rows.

        Raises
        ------
        RemoteProtocolError
            If the bytes are none.
        """
        try:
            return pa.ipc.open_stream(self.rows).read_all()
        except (pa.ArrowException, OSError) as problem:
            raise RemoteProtocolError(f"a block of {len(self.rows)} bytes cannot be read: {problem}") from None


@dataclass(frozen=True, slots=True)
class Events:
    """From a switch to a node: blocks to be evaluated."""

    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Deltas:
    """From a node to a node: what statements have given for maps that the receiver holds.

    Parameters
    ----------
    frames
        Number of the map in the spread program, and rows: keys, version, values.
    failed
        Number of a map that is wrong from now on, as text → the first epoch, and why.
    """

    frames: Sequence[tuple[int, bytes]]
    failed: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MapCheckpoint:
    """From a node to all others: it has sent all deltas of an epoch to maps of a depth.

    Parameters
    ----------
    depth
        Or the number of a round, where maps feed each other in a circle (`cumulus.cluster.epoch_marks`).
    is_quiet
        In rounds: whether it has sent nothing of the epoch since the round before.
    """

    epoch: int
    depth: int
    is_quiet: bool = True


@dataclass(frozen=True, slots=True)
class EpochReady:
    """From a node or a switch to who commits: everything of the epoch is in, and durable there.

    Of switches that commit, also what all their nodes are ready with (`cumulus.cluster.switches.commits`).

    Parameters
    ----------
    written
        What was written of it.
    files
        Names of files of it that were sent to the publisher.
    """

    epoch: int
    written: Sequence[Written]
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """From the publisher to all, or to switches and from these to their nodes: the epoch's manifest is there."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochToken:
    """From a switch to the next one, with staggered transitions: an epoch has ended here, now it may there.

    The last switch tells the first one, which may end the following epoch then.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochTold:
    """From the publisher to who has started the cluster: an epoch is committed, and so many files are left to read."""

    epoch: int
    files_left: int


@dataclass(frozen=True, slots=True)
class SourcesDone:
    """From the publisher to who has started the cluster: all that was to be read is committed."""


@dataclass(frozen=True, slots=True)
class EpochWanted:
    """From a switch to the publisher: clients have sent rows for an epoch that nobody has told yet, perhaps.

    Parameters
    ----------
    is_urgent
        Whether clients wait for its commit.
    """

    epoch: int
    is_urgent: bool = False


# --- what clients say, and hear -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientRows:
    """From a client to a switch: rows of one table, all or none of which are taken.

    Parameters
    ----------
    number
        Greater than that of all rows that this client has sent to this switch before; the same when it sends the same
        rows again, since it does not know what has become of them.
    rows
        An Arrow stream, as `cumulus.epochs.intake.reading.Reading.rows`.
    again_after
        Of rows that are sent again: an epoch that had ended before they were sent for the first time. Else −1.
    writer, writing
        A name that the user has given, under which rows count once, whichever client sends them; and their number
        under it, greater than that of all rows before. "" and 0 for none.
    """

    number: int
    table: str
    rows: bytes
    again_after: int = -1
    writer: str = ""
    writing: int = 0

    def sender(self, client: Name) -> tuple[Name, int]:
        """Return who has sent them, for whom they count once, and their number.

        Each table has senders of its own: it may come to another switch, and they go with it.
        """
        return (f"{WRITER}{self.writer}", self.writing) if self.writer else (f"{client}\n{self.table}", self.number)


@dataclass(frozen=True, slots=True)
class RowsAccepted:
    """From a switch to a client: the rows with a number are on the disk, and belong to an epoch."""

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class RowsHeld:
    """From a switch to a client: rows wait, and for what; `is_dropped`: no room, they must come again."""

    number: int
    reason: str
    is_dropped: bool = False


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """From a client to a node: what it owns of a map, as new as it has it.

    Parameters
    ----------
    map
        Its number in the spread program.
    places
        Of keys that are given; the entries with these values are meant.
    key
        The values, as a table of one row (`cumulus.catalog.arrow.to_ipc`); empty if none is given.
    """

    number: int
    map: int
    places: Sequence[int]
    key: bytes


@dataclass(frozen=True, slots=True)
class EntriesRead:
    """From a node to a client: a part of what it has asked for.

    Parameters
    ----------
    left
        How many parts follow.
    frame
        Rows of the map.
    versions
        For each switch, by its number, the last version that may be in it.
    """

    number: int
    left: int
    frame: bytes
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ReadParts:
    """From a client to a node: the parts of what it owns of a view's groups, folded, as new as it has them.

    Parameters
    ----------
    by, columns
        As folding takes them, all columns named.
    where
        Bounds of grouping columns (`cumulus.cluster.clients.parts.bounds_sent`).
    """

    number: int
    view: str
    by: Sequence[str]
    where: bytes
    columns: Sequence[str]


@dataclass(frozen=True, slots=True)
class PartsRead:
    """From a node to a client: some of the parts that it has asked for.

    Parameters
    ----------
    left
        How many messages follow.
    form
        Which (`cumulus.cluster.clients.parts.forms`).
    rows
        As entries of a map (`cumulus.catalog.arrow.to_ipc`).
    entries_read
        How many entries the node has read for all parts.
    """

    number: int
    left: int
    form: int
    rows: bytes
    entries_read: int


@dataclass(frozen=True, slots=True)
class StatusAsked:
    """From a client to any machine: how is it."""

    number: int


@dataclass(frozen=True, slots=True)
class StatusTold:
    """The answer to this: names and values, as JSON has them."""

    number: int
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """To a client: what it has asked for under a number is not done, and why; nothing has changed."""

    number: int
    reason: str
    hint: str


Message: TypeAlias = (
    Events
    | Deltas
    | MapCheckpoint
    | EpochTurn
    | EpochRefused
    | EpochPart
    | EpochEnd
    | EpochReady
    | EpochCommit
    | EpochToken
    | EpochTold
    | SourcesDone
    | EpochWanted
    | ClientRows
    | RowsAccepted
    | RowsHeld
    | RequestRefused
    | ReadEntries
    | EntriesRead
    | ReadParts
    | PartsRead
    | StatusAsked
    | StatusTold
)
