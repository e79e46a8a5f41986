"""The first frames of a connection: who is there, with which program, in which incarnation, and proof of the secret.

The side that has connected says HELLO, the other answers with its own. Then each proves that it knows the secret, by a
keyed hash of both HELLOs: first the one that has connected, so that a stranger learns nothing to work on. The secret
keeps strangers out; it hides nothing from who can read the network.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name
from cumulus.transport.framing import FrameKind


class Outlook(Enum):
    """What who has connected is to do when it is refused."""

    AGAIN = "again"
    """Try it again soon: one side has not been told of the newest incarnation yet."""
    LOST = "lost"
    """Take the link for lost: there was one already."""
    NEVER = "never"
    """Give up: it is somebody else."""


_OUTLOOKS = {each.value: each for each in Outlook}


class RefusalError(RemoteProtocolError):
    """A connection is refused, with what is to be done then."""

    def __init__(self, message: str, outlook: Outlook, *, hint: str = "") -> None:
        self.outlook = outlook
        super().__init__(message, hint=hint)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who a machine is to the others: its name, its program as a hash, and the secret that all share, if any."""

    name: Name
    program: bytes = b""
    secret: bytes | None = None


class Greeting:
    """One side's part in the first frames of a connection; no I/O.

    Parameters
    ----------
    peer
        The machine that was connected to; None on the other side, which learns it.
    admit
        Raises RefusalError if a machine of that name may not connect now.
    purpose
        What the connection is for, if two machines have several; the other side learns it before it admits.
    """

    def __init__(
        self,
        me: Credentials,
        incarnation: int,
        peer: Name | None,
        admit: Callable[[Name], None],
        purpose: str = "",
    ) -> None:
        self.peer = peer
        self.purpose = purpose
        self.is_over = False
        self._me = me
        self._incarnation = incarnation
        self._admit = admit
        self._connects = peer is not None
        mine = {
            "name": me.name,
            "program": me.program.hex(),
            "incarnation": incarnation,
            "nonce": secrets.token_hex(16),
        }
        self._mine = json.dumps({**mine, "purpose": purpose} if purpose else mine).encode()
        self._theirs: bytes | None = None

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
            said = _object(payload, reason=str, outlook=str)
            raise RefusalError(
                f"{self.peer or 'the other side'} refuses: {said['reason']}",
                _OUTLOOKS.get(said["outlook"], Outlook.NEVER),
            )
        if kind == FrameKind.HELLO and self._theirs is None:
            self._greet(payload)
            return [(FrameKind.PROOF, self._proof(True)) if self._connects else (FrameKind.HELLO, self._mine)]
        if kind == FrameKind.PROOF and self._theirs is not None:
            if not hmac.compare_digest(payload, self._proof(not self._connects)):
                raise RefusalError(
                    f"{self.peer} does not know the secret", Outlook.NEVER, hint="Give all machines the same secret."
                )
            self.is_over = True
            return [] if self._connects else [(FrameKind.PROOF, self._proof(False))]
        raise RemoteProtocolError(f"a frame of kind {kind} has come before both sides knew each other")

    def _greet(self, payload: bytes) -> None:
        hello = _object(payload, name=str, program=str, incarnation=int, nonce=str)
        name = hello["name"]
        if self._connects and name != self.peer:
            raise RefusalError(
                f"{name} listens where {self.peer} should", Outlook.AGAIN, hint="Its port is another's now."
            )
        if hello["incarnation"] != self._incarnation:
            raise RefusalError(
                f"{name} is in incarnation {hello['incarnation']}, {self._me.name} in {self._incarnation}",
                Outlook.AGAIN,
            )
        if hello["program"] != self._me.program.hex():
            raise RefusalError(
                f"{name} runs another program than {self._me.name}",
                Outlook.NEVER,
                hint="Start all machines from the same file, with the same version of Cumulus.",
            )
        if not self._connects:
            self.purpose = str(hello.get("purpose", ""))
            self._admit(name)
            self.peer = name
        self._theirs = payload

    def _proof(self, by_connecting: bool) -> bytes:
        """Return the proof of the side that has connected, or of the other one."""
        assert self._theirs is not None
        hellos = [self._mine, self._theirs] if self._connects else [self._theirs, self._mine]
        said = b"\0".join([b"connects" if by_connecting else b"accepts", *hellos])
        return hmac.digest(self._me.secret or b"", said, hashlib.sha256)


def refusal(reason: RemoteProtocolError) -> bytes:
    """Return the payload of a REFUSAL."""
    outlook = reason.outlook if isinstance(reason, RefusalError) else Outlook.NEVER
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
