"""The protocol of machines without input and output: a cluster's switches, nodes and publisher, and a simulated ring.

A machine takes what has happened since the last step, and returns what is to be done, in order. It has no sockets, no
files, no threads and no clock but the ticks that it takes. So the machines of a cluster run in processes of their own
(`cumulus.transport`) and, together with all faults, in a simulation that a seed decides, in the laboratory. The members
of a simulated ring are machines around the ring's node; the processes of a ring use that node itself. Neither transport
nor simulation reads what the messages say.

A link of a cluster keeps the order of its messages and loses none, until one of its ends is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Name: TypeAlias = str
"""What a machine is called, such as ``node2`` or ``switch0``."""

# --- what a machine is told -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Received:
    """A message has come from a machine."""

    sender: Name
    message: Any


@dataclass(frozen=True, slots=True)
class Tick:
    """It is so many milliseconds past the machine's start; clocks of machines differ, and never go back."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """The machine has had lives before: what of its log is on the disk, from the record with number `first` on.

    If there is a log, this is the first that a machine is told.
    """

    first: int
    records: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Completed:
    """A task that the machine has asked for is done; `result` is what it gave."""

    task: Any
    result: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """The link to a machine is gone: what was sent to it since it last answered may not have come."""

    peer: Name


Input: TypeAlias = Recovered | Received | Tick | Completed | Lost

# --- what is to be done ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a machine."""

    to: Name
    message: Any


@dataclass(frozen=True, slots=True)
class Append:
    """Append a record to the machine's log; effects behind it wait until it is on the disk.

    Records are numbered from 1, without gaps, over all lives of the machine.
    """

    number: int
    record: bytes


@dataclass(frozen=True, slots=True)
class Forget:
    """Records of the log up to one with a number are not needed any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Perform:
    """Do a task that a machine cannot do itself, such as to read or write files; tell it by `Completed`.

    Tasks are run one after the other, in the order in which they are asked for.
    """

    task: Any


Effect: TypeAlias = Send | Append | Forget | Perform


class Machine(Protocol):
    """A function of its state and its inputs; the inputs of a step change the state."""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened since the last call, in its order; return what is to be done, in order.

        Raises
        ------
        RemoteProtocolError
            If a peer has broken the protocol; the state is not to be used any more.
        """

    def check(self) -> None:
        """Check what must hold between two steps; AssertionError if it does not."""
