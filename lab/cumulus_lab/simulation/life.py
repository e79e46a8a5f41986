"""A life of a machine, from its start to its crash, and its links to others: all that a crash takes away."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from cumulus.machine import Effect, Input, Machine, Name
from cumulus_lab.simulation.agenda import LocalClock
from cumulus_lab.simulation.disk import VirtualLog


@dataclass(frozen=True, slots=True)
class IncarnationStart:
    """Control message of a supervisor: begin an incarnation, reconnect to the other members, then take `message`."""

    incarnation: int
    message: bytes | None


class Life:
    """One life of a machine.

    Parameters
    ----------
    name, number
        Whose life it is, and the how manyeth, from 1.
    machine
        The machine itself, whose state ends with its life.
    log
        Its log, which outlives it.
    clock
        What it takes for the time.
    """

    def __init__(self, name: Name, number: int, machine: Machine, log: VirtualLog, clock: LocalClock) -> None:
        self.name = name
        self.number = number
        self.machine = machine
        self.log = log
        self.clock = clock
        self.is_alive = True
        # The last one in which it has met the others, if it is a member.
        self.incarnation = 0
        # What has come and was not taken in yet, how much of it must be at the next step, and whether that is to come.
        self.inbox: list[Input] = []
        self.urgent = 0
        self.is_due = False
        # Effects from the first record on that is not on the disk, each with the incarnation that it was asked for in.
        self.outbox: deque[tuple[Effect, int]] = deque()
        self.disk_free = 0
        # The first one is being done.
        self.tasks: deque[Any] = deque()
        self.links: dict[Name, VirtualLink] = {}
        # Whether something waits that it does not read until others have read what it has sent.
        self.is_holding = False


class VirtualLink:
    """The way from a life to a machine: it keeps its order, until one of its ends is lost.

    Parameters
    ----------
    sender
        The life that sends.
    to
        The machine that it sends to.
    peer
        The life of it that the messages are for; None while that machine is known to be down, and between members.
    cuts
        How many partitions hold messages up.
    incarnation
        Between members, the incarnation that it belongs to; None for other links.
    """

    def __init__(self, sender: Life, to: Name, peer: Life | None, cuts: int, incarnation: int | None) -> None:
        self.sender = sender
        self.to = to
        self.peer = peer
        self.cuts = cuts
        self.incarnation = incarnation
        # Nothing goes over it any more; and whether a cut holds up the news of the other end's end.
        self.is_lost = self.is_ending = False
        # Sent, and not yet there.
        self.flight: deque[bytes | IncarnationStart] = deque()
        # When the last of them will be there.
        self.free = 0
        # The bytes of them.
        self.unread = 0
        # How many of them are held up.
        self.stalled = 0
        # What is for the peer's next life.
        self.waiting: list[bytes] = []
        # Whether the peer knows that there is this link, and so will be told of its end.
        self.is_known = False
