"""What machines write into their logs and snapshots, so that a new life goes on where the one before has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cumulus.epochs.arrivals import Progress


@dataclass(frozen=True, slots=True)
class LoggedTurn:
    """Of the publisher: an epoch was told to all switches; `progress` is what of the sources is in after it."""

    epoch: int
    files: Mapping[str, Sequence[str]]
    progress: Progress
    final: bool


@dataclass(frozen=True, slots=True)
class LoggedRefusal:
    """Of the publisher: an epoch could not be done; it and those after it are told anew, with other files."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LoggedPayloads:
    """Of a switch: what it has read in an epoch.

    Parameters
    ----------
    gates
        For each bucket of the gate, packed.
    intake
        For its own intake, packed; empty if it has none, or if it is what the only gate gets.
    turn
        The publisher's record that has told the epoch.
    """

    epoch: int
    gates: Sequence[bytes]
    intake: bytes
    turn: int = 0


@dataclass(frozen=True, slots=True)
class LoggedRows:
    """Of a switch: rows that it has taken from clients at once; `gates` and `intake` as in `LoggedPayloads`.

    Parameters
    ----------
    epoch
        To which they belong; in the log they are before its `LoggedPayloads`.
    senders
        The clients that have sent them, each with its number for them, in the order in which they came.
    """

    epoch: int
    senders: Sequence[tuple[str, int]]
    gates: Sequence[bytes]
    intake: bytes


@dataclass(frozen=True, slots=True)
class LoggedEpoch:
    """Of a node: what an epoch has brought.

    Parameters
    ----------
    payloads
        From each switch, for the gate.
    deltas
        Of spread maps: number and frame.
    failed
        The spread maps that are wrong since some epoch: number as text → the epoch, and why.
    """

    epoch: int
    payloads: Sequence[bytes]
    deltas: Sequence[tuple[int, bytes]]
    failed: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeState:
    """Of a node: a snapshot after an epoch.

    Parameters
    ----------
    gate
        Of its bucket; empty if it has none.
    newest
        The newest values of spread maps: number and frame.
    later
        The deltas in them that are of later epochs.
    failed
        As in `LoggedEpoch`.
    """

    epoch: int
    gate: bytes
    newest: Sequence[tuple[int, bytes]]
    later: Sequence[tuple[int, bytes]]
    failed: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SwitchState:
    """Of a switch: a snapshot after an epoch.

    Parameters
    ----------
    intake
        Empty if it has none.
    clients
        Client → the number of its last rows, and their epoch.
    forgotten
        The last epoch of rows of clients that are not among them any more.
    """

    epoch: int
    intake: bytes
    clients: Mapping[str, Sequence[int]]
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class HeldState:
    """Of a node or a switch that has ended: what it has after the last committed epoch, and rows accepted since.

    Parameters
    ----------
    state
        A `NodeState` with the entries that the node owns, or a `SwitchState`, as bytes; empty before the first epoch.
    rows
        Records of `LoggedRows`.
    last
        Their last epoch; 0 without any.
    """

    state: bytes
    rows: Sequence[bytes] = ()
    last: int = 0


@dataclass(frozen=True, slots=True)
class ViewShare:
    """What a node has of the maps of a view: number of the map, rows, and rows to be taken away from them."""

    maps: Sequence[tuple[int, bytes, bytes]]
