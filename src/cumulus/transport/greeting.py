"""The first frames of a connection: challenge and response, by which both sides prove that they know a secret.

The side that has connected says HELLO: its name, program and incarnation, and a nonce. The other side answers with its
name and a nonce of its own. Then each sends a PROOF, a keyed hash of both HELLOs; the side that has connected sends the
first one. Before this proof is right, the side that listens says nothing of its program, incarnation and peers, and
does nothing but compare the hash. Only then it looks whether both are of the same program and incarnation, and whether
that name may connect now.

Members and clients have different secrets: who knows that of clients can take no member's name. The secrets keep
strangers out; they hide nothing from a reader of the network.

Before their proof, connections are strangers': how long one may take, how many there may be and which one has to go is
decided here, and what is told of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.framing import FrameKind
from cumulus.transport.tls import TlsFiles


class RefusalPolicy(Enum):
    """What the connecting side does after a refusal."""

    AGAIN = "again"
    """Try again soon: one side does not know the newest incarnation yet."""
    LOST = "lost"
    """Report the link as lost: the peer had one already."""
    CHANGED = "changed"
    """Ask anew what all must agree on: it is another than this side knows, or is about to be."""
    NEVER = "never"
    """Give up: the other side is not the expected peer."""


_NAME_CHARACTERS = 200
"""The most of a name: what clients are called is written into logs and quarantines."""
_POLICIES = {each.value: each for each in RefusalPolicy}


class RefusalError(RemoteProtocolError):
    """A connection is refused, with what is to be done then."""

    def __init__(self, message: str, outlook: RefusalPolicy, *, hint: str = "") -> None:
        self.outlook = outlook
        super().__init__(message, hint=hint)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a machine is to the others.

    Attributes
    ----------
    program
        What all must agree on, as a hash.
    secret
        With which it proves who it is; that of its peers, too.
    clients_secret
        That of clients, if it is another one.
    tls
        How links are encrypted; None: they are not.
    """

    name: Name
    program: bytes = b""
    secret: bytes | None = None
    clients_secret: bytes | None = None
    tls: TlsFiles | None = None


class Greeting:
    """One side's part in the first frames of a connection; no I/O.

    Parameters
    ----------
    peer
        The machine that was connected to; None on the other side, which learns it.
    admit
        Raises RefusalError if a machine of that name may not connect now; called after the proof.
    purpose
        What the connection is for, if two machines have several; the other side learns it before it admits.
    is_client
        Whether a name is no member's.
    """

    def __init__(
        self,
        me: Credentials,
        incarnation: int,
        peer: Name | None,
        admit: Callable[[Name], None],
        purpose: str = "",
        is_client: Callable[[Name], bool] = lambda _: False,
    ) -> None:
        self.peer = peer
        """The other side; None until it has proved who it is."""
        self.purpose = purpose
        self.is_over = False
        self._me = me
        self._incarnation = incarnation
        self._admit, self._is_client = admit, is_client
        self._connects = peer is not None
        mine: dict[str, Any] = {"name": me.name, "nonce": secrets.token_hex(16)}
        if self._connects:
            mine |= {"program": me.program.hex(), "incarnation": incarnation}
            if purpose:
                mine["purpose"] = purpose
        self._mine = json.dumps(mine).encode()
        self._theirs: bytes | None = None
        self._hello: dict[str, Any] = {}

    def begin(self) -> list[tuple[FrameKind, bytes]]:
        """Return what is to be sent before anything has come."""
        return [(FrameKind.HELLO, self._mine)] if self._connects else []

    def take(self, kind: int, payload: bytes) -> list[tuple[FrameKind, bytes]]:
        """Take a frame; return what is to be sent.

        Raises
        ------
        RemoteProtocolError
            If the connection is to be closed: the peer is refused, or has refused us (RefusalError), or is none.
        """
        if kind == FrameKind.REFUSAL:
            raise self._refused(payload)
        if kind == FrameKind.HELLO and self._theirs is None:
            self._greet(payload)
            return [(FrameKind.PROOF, self._proof(True)) if self._connects else (FrameKind.HELLO, self._mine)]
        if kind == FrameKind.PROOF and self._theirs is not None:
            if not hmac.compare_digest(payload, self._proof(not self._connects)):
                raise RefusalError(
                    f"{self._hello['name']} does not know the secret",
                    RefusalPolicy.NEVER,
                    hint="Give all machines the same secret.",
                )
            if not self._connects:
                self._agree()
            self.is_over = True
            return [] if self._connects else [(FrameKind.PROOF, self._proof(False))]
        raise RemoteProtocolError(f"a frame of kind {kind} has come before both sides knew each other")

    def _refused(self, payload: bytes) -> RefusalError:
        """Return what the other side has against this one; a connection that was accepted is only closed."""
        if not self._connects:
            return RefusalError("who has connected does not want to any more", RefusalPolicy.AGAIN)
        said = _object(payload, reason=str, outlook=str)
        reason = said["reason"] if said["reason"].isprintable() else repr(said["reason"])
        return RefusalError(f"{self.peer} refuses: {reason}", _POLICIES.get(said["outlook"], RefusalPolicy.NEVER))

    def _greet(self, payload: bytes) -> None:
        """Take the other side's HELLO, of which nothing is proved yet."""
        if self._connects:
            hello = _object(payload, name=str, nonce=str)
            if hello["name"] != self.peer:
                raise RefusalError(
                    f"another machine listens where {self.peer} should",
                    RefusalPolicy.AGAIN,
                    hint="Its port is another's.",
                )
        else:
            hello = _object(payload, name=str, program=str, incarnation=int, nonce=str)
            if not self._incarnation:  # nor who is a member: by which secret to judge a proof
                raise RefusalError(f"{self._me.name} does not know the others yet", RefusalPolicy.AGAIN)
            if not (hello["name"].isprintable() and 0 < len(hello["name"]) <= _NAME_CHARACTERS):
                raise RemoteProtocolError("a greeting has come with a name that is none")
            self.purpose = str(hello.get("purpose", ""))
        self._hello, self._theirs = hello, payload

    def _agree(self) -> None:
        """Raise RefusalError if both are of different incarnations or programs, or the other is not admitted."""
        name, incarnation = self._hello["name"], self._hello["incarnation"]
        if incarnation != self._incarnation:
            raise RefusalError(
                f"{name} is in incarnation {incarnation}, {self._me.name} in {self._incarnation}", RefusalPolicy.AGAIN
            )
        if self._hello["program"] != self._me.program.hex():
            raise RefusalError(
                f"{name} runs another program than {self._me.name}",
                RefusalPolicy.CHANGED if self._is_client(name) else RefusalPolicy.NEVER,
                hint="Start all machines from the same file, with the same version of Cumulus.",
            )
        self._admit(name)
        self.peer = name

    def _proof(self, by_connecting: bool) -> bytes:
        """Return the proof of the side that has connected, or of the other one."""
        assert self._theirs is not None
        hellos = [self._mine, self._theirs] if self._connects else [self._theirs, self._mine]
        said = b"\0".join([b"connects" if by_connecting else b"accepts", *hellos])
        return hmac.digest(self._secret or b"", said, hashlib.sha256)

    @property
    def _secret(self) -> bytes | None:
        """The one that this connection is about."""
        is_of_clients = not self._connects and self._is_client(self._hello["name"])
        return self._me.clients_secret if is_of_clients and self._me.clients_secret else self._me.secret


def refusal(reason: RemoteProtocolError) -> bytes:
    """Return the payload of a REFUSAL."""
    outlook = reason.outlook if isinstance(reason, RefusalError) else RefusalPolicy.NEVER
    return json.dumps({"reason": reason.message[:1000], "outlook": outlook.value}).encode()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _object(payload: bytes, **fields: type) -> dict[str, Any]:
    """Read an object with these fields.

    Raises
    ------
    RemoteProtocolError
        If it is not one.
    """
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or any(type(said.get(name)) is not kind for name, kind in fields.items()):
        raise RemoteProtocolError(f"a greeting without {', '.join(fields)} has come: {payload[:80]!r}")
    return said


GREETING_SECONDS = 60.0
"""How long a connection that was accepted may take to prove who it is.

Members of a busy machine take seconds to say a word, so the limit is long. Who keeps connections open is dealt with by
their number, when there are too many of them.
"""

NOTE_SECONDS = 60.0
"""How often it is noted that connections were closed."""


def one_to_close(hosts: Sequence[str]) -> int:
    """Return the place of the connection to close if there are too many: the oldest of the host that has most of them.

    Parameters
    ----------
    hosts
        Of the connections without a proof, the oldest first; not empty.

    Examples
    --------
    >>> one_to_close(["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.3"])
    1
    """
    fullest, _ = Counter(hosts).most_common(1)[0]
    return hosts.index(fullest)


class RefusalNotes:
    """Notes of connections that were closed, in an event loop: one at once, and then one a minute about all others.

    Parameters
    ----------
    note
        Takes a line.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._count = 0
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, other_side: str, reason: str) -> None:
        """Note that the connection with somebody was closed, now or later."""
        self._last = f"the connection with {other_side} was closed: {reason}"
        if self._timer is None:
            self._note(self._last)
            self._wait()
        else:
            self._count += 1

    def close(self) -> None:
        """Note what has not been noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(NOTE_SECONDS, self._end)

    def _end(self) -> None:
        self._timer = None
        if self._tell():
            self._wait()

    def _tell(self) -> bool:
        count, self._count = self._count, 0
        if count:
            self._note(f"{count} more connections were closed meanwhile; of the last one: {self._last}")
        return bool(count)
