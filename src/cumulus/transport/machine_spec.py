"""Specification of a machine for the process that drives it: codec, log, tasks, peers that feed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cumulus.durable.log_files import RecordLog
from cumulus.machine import Machine, Name
from cumulus.transport.framing import Piece

SUPERVISOR: Name = "supervisor"
"""What the machines call who has started their processes: it may be written to, and writes, as any machine."""


class Codec(Protocol):
    """How messages of a machine become bytes."""

    def encode(self, message: Any) -> Sequence[Piece]:
        """Return the message as bytes, in as many pieces as is convenient; nobody changes them afterwards."""

    def decode(self, payload: bytes) -> Any:
        """Return the message.

        Raises
        ------
        RemoteProtocolError
            If it is none. The link over which it came is closed.
        """


def anybody(sender: Name, message: Any) -> bool:
    """Take everything from everybody."""
    return True


def no_tasks(task: Any) -> Any:
    """Refuse a task: for machines that ask for none."""
    raise AssertionError(f"no task was expected: {task}")


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine, and what a process needs to drive it.

    Attributes
    ----------
    perform
        Does a task, in a thread of its own; what it raises ends the process.
    program
        What all machines must agree on, as a hash: a peer with another one is refused.
    log
        Where records go, if the machine appends any.
    sources
        The peers that feed the machine. Nothing is read from them, nor from clients, and no task is begun, while a peer
        does not read what the machine sends. Feeding must go round in no circle: who waits for whom would, too.
    tick_ms
        How often the machine is told the time; 0 for never.
    may_send
        Whether the machine takes a message from a peer, or a client; if not, the link over which it came is closed.
    """

    machine: Machine
    codec: Codec
    perform: Callable[[Any], Any] = no_tasks
    program: bytes = b""
    log: RecordLog | None = None
    sources: frozenset[Name] = field(default=frozenset())
    tick_ms: int = 0
    may_send: Callable[[Name, Any], bool] = anybody
