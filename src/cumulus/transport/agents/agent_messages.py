"""What a supervisor and an agent say to each other: a line of JSON behind its length, and the bytes of a frame."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias, get_args

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.version import VERSION

OPERATOR_NAME, AGENT_NAME = "operator", "agent"
JOINING = "joining-"
"""What the names begin with of agents that are started by another one's driver."""
INCARNATION = 1
"""Connections to an agent are of no cluster's incarnation."""
RELEASE = f"cumulus {VERSION}".encode()
"""Both sides must be of one release."""
BEAT_SECONDS = 1.0
"""How often each side says that it is there."""
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Claim:
    """From a supervisor, first of all: for which cluster it speaks. Processes that it started before are ended.

    Parameters
    ----------
    cluster
        Hexadecimal digits, the same for as long as the cluster has its state.
    lease_s
        Without a word from the supervisor for so long the agent ends the processes.
    """

    cluster: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to this: `problem` is why not, "" if it may go on."""

    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """From a supervisor: start a process that runs a module."""

    name: Name
    module: str


@dataclass(frozen=True, slots=True)
class Launched:
    """The answer to this: the number of the process, or why it was not started."""

    name: Name
    pid: int
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ProcessFrame:
    """From either side: a frame for, or of, a process."""

    name: Name
    kind: int
    incarnation: int
    payload: bytes = field(default=b"", metadata={"is_body": True})


@dataclass(frozen=True, slots=True)
class Signalled:
    """From a supervisor: end a process, by SIGKILL or SIGTERM."""

    name: Name
    is_kill: bool


@dataclass(frozen=True, slots=True)
class LineWritten:
    """From an agent: a line that a process has written."""

    name: Name
    line: str


@dataclass(frozen=True, slots=True)
class EndTold:
    """From an agent: a process has ended, by an exit code, negative for a signal."""

    name: Name
    code: int


@dataclass(frozen=True, slots=True)
class Beat:
    """From either side: it is there; an agent adds what time its processes have had on processors."""

    ticks: dict[Name, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopWished:
    """From an operator, and from there to the supervisor: end the cluster."""


@dataclass(frozen=True, slots=True)
class AgentJoined:
    """From an agent that an engine has started, to that of the driver: where it is. It ends with the connection.

    Parameters
    ----------
    number
        Of the task that runs it.
    slot
        A name of the state that it has, for as long as that is there.
    host, port
        Where it listens.
    """

    number: int
    slot: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Directory:
    """To each client: machine → host and port, in which incarnation; and what the cluster is, as it says itself."""

    machines: dict[Name, list[Any]]
    incarnation: int
    card: Any


@dataclass(frozen=True, slots=True)
class Announced:
    """From a supervisor, when all machines run: what clients are told, and what they must know.

    Parameters
    ----------
    directory
        The fields of a `Directory`.
    clients_secret
        In hexadecimal digits.
    """

    directory: dict[str, Any]
    clients_secret: str


AgentMessage: TypeAlias = (
    Claim
    | Claimed
    | Launch
    | Launched
    | ProcessFrame
    | Signalled
    | LineWritten
    | EndTold
    | Beat
    | StopWished
    | Directory
    | Announced
    | AgentJoined
)
_CLASSES: dict[str, type[AgentMessage]] = {each.__name__: each for each in get_args(AgentMessage)}


def encode(message: AgentMessage) -> list[bytes]:
    """Return a message as pieces of bytes."""
    fields = asdict(message)
    body = fields.pop("payload", b"")
    head = json.dumps([type(message).__name__, fields]).encode()
    return [_LENGTH.pack(len(head)), head, body]


def decode(data: bytes) -> AgentMessage:
    """Return the message that `encode` has made bytes of.

    Raises
    ------
    RemoteProtocolError
        If the bytes are none.
    """
    try:
        (length,) = _LENGTH.unpack_from(data)
        kind, fields = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        made = _CLASSES[kind]
        if made is ProcessFrame:
            fields["payload"] = data[_LENGTH.size + length :]
        return made(**fields)
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise RemoteProtocolError(f"a message of {len(data)} bytes is none of an agent: {problem}") from None
