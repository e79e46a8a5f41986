"""A life of a machine, from its start to its crash, and its links to others: all that a crash takes away."""

from __future__ import annotations

from collections import deque
from typing import Any

from cumulus.machine import Effect, Input, Machine, Name
from cumulus.simulation.agenda import LocalClock
from cumulus.simulation.disk import VirtualLog


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

    __slots__ = (
        *("clock", "disk_free", "inbox", "is_alive", "is_due", "links", "log", "machine", "name", "number"),
        *("outbox", "tasks"),
    )

    def __init__(self, name: Name, number: int, machine: Machine, log: VirtualLog, clock: LocalClock) -> None:
        self.name = name
        self.number = number
        self.machine = machine
        self.log = log
        self.clock = clock
        self.is_alive = True
        # What has come and was not taken in yet, and whether a step is on its way.
        self.inbox: list[Input] = []
        self.is_due = False
        # Effects from the first record on that is not on the disk.
        self.outbox: deque[Effect] = deque()
        self.disk_free = 0
        # The first one is being done.
        self.tasks: deque[Any] = deque()
        self.links: dict[Name, VirtualLink] = {}


class VirtualLink:
    """The way from a life to a machine: it keeps its order, until one of its ends is lost.

    Parameters
    ----------
    sender
        The life that sends.
    to
        The machine that it sends to.
    peer
        The life of it that the messages are for; None while that machine is known to be down.
    cuts
        How many partitions hold messages up.
    """

    __slots__ = ("cuts", "flight", "free", "is_known", "peer", "sender", "stalled", "to", "waiting")

    def __init__(self, sender: Life, to: Name, peer: Life | None, cuts: int) -> None:
        self.sender = sender
        self.to = to
        self.peer = peer
        self.cuts = cuts
        # Sent, and not yet there.
        self.flight: deque[bytes] = deque()
        # When the last of them will be there.
        self.free = 0
        # How many of them are held up by a cut.
        self.stalled = 0
        # What is for the peer's next life.
        self.waiting: list[bytes] = []
        # Whether the peer knows that there is this link, and so will be told of its end.
        self.is_known = False
