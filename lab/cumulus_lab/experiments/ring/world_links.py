"""The links of a simulated ring: each node's to its successor, and those beside the ring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from cumulus.machine import Name
from cumulus_lab.experiments.ring.set_up import RingSetUp
from cumulus_lab.simulation import Agenda, BandwidthLink
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkSent,
    RingEvent,
    SendChunk,
    SendStraight,
    Slot,
    StraightCame,
    StraightSent,
)

Tell: TypeAlias = Callable[[int, RingEvent], None]
"""Tells a node what has happened."""


class WorldLinks:
    """Links with bandwidth and latency.

    Parameters
    ----------
    agenda, set_up
        When what happens, and how fast links are.
    numbers
        Node → its number.
    tell, new_slot
        Tells a node what has come or left, and makes a slot for what comes.
    """

    def __init__(
        self,
        agenda: Agenda,
        set_up: RingSetUp,
        numbers: dict[Name, int],
        tell: Tell,
        new_slot: Callable[[], Slot],
    ) -> None:
        self._agenda, self._set_up, self.numbers = agenda, set_up, numbers
        self._tell, self._new_slot = tell, new_slot
        self._epoch = self._places = 0
        self._after: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._links: dict[int, BandwidthLink[SendChunk]] = {}
        self._straight: dict[tuple[int, int], BandwidthLink[SendStraight]] = {}
        """As fast as those of one rack, by sender and receiver."""

    def place(self, members: Sequence[int], *, are_new: bool) -> None:
        """Know of the members of the ring, each before its successor.

        Parameters
        ----------
        members
            All of them.
        are_new
            Whether all links are new, and what is under way is lost; else only those of nodes with another successor.
        """
        known = {} if are_new else dict(self._after)
        self._epoch += are_new
        self._places += 1
        following = [*members[1:], *members[:1]]
        self._after = dict(zip(members, following, strict=True))
        self._before = dict(zip(following, members, strict=True))
        self._straight.clear()
        for number in members:
            if known.get(number) != self._after[number]:
                self._links[number] = self._link(number)

    def tell_predecessor(self, number: int, event: RingEvent) -> None:
        """Tell the predecessor of a node something, unless members are others when it comes, or the node is none."""
        places, before = self._places, self._before.get(number)

        def arrived(event: RingEvent) -> None:
            if places == self._places and before is not None:
                self._tell(before, event)

        self._agenda.after(self._set_up.latency_us, arrived, event)

    def send(self, number: int, effect: SendChunk) -> None:
        """Send a chunk from a node to its successor."""
        self._links[number].send(effect, effect.header.size)

    def send_straight(self, number: int, effect: SendStraight) -> None:
        """Send a chunk from a node to another one."""
        to = self.numbers[effect.to]
        if (number, to) not in self._straight:
            self._straight[number, to] = self._straight_link(number, to)
        self._straight[number, to].send(effect, effect.header.size)

    def _link(self, number: int) -> BandwidthLink[SendChunk]:
        following, epoch = self._after[number], self._epoch

        def sent(effect: SendChunk) -> None:
            self._tell(number, ChunkSent(effect.slot))

        def arrived(effect: SendChunk) -> None:
            if epoch == self._epoch:
                self._tell(following, ChunkCame(effect.header, self._new_slot()))

        set_up = self._set_up
        return BandwidthLink(self._agenda, set_up.link_rate(number) * 1000, set_up.latency_us, sent, arrived)

    def _straight_link(self, number: int, to: int) -> BandwidthLink[SendStraight]:
        epoch = self._epoch

        def sent(effect: SendStraight) -> None:
            self._tell(number, StraightSent(effect.slot, effect.to))

        def arrived(effect: SendStraight) -> None:
            if epoch == self._epoch:
                self._tell(to, StraightCame(effect.header, self._new_slot()))

        set_up = self._set_up
        return BandwidthLink(self._agenda, set_up.link_gbs * 1000, set_up.latency_us, sent, arrived)
