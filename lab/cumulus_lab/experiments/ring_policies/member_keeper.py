"""The keeper of a simulated ring that pulsates: lets nodes leave and come, as they wish (section 7.3, figure 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cumulus_lab.experiments.ring.set_up import GIGABYTE, SECOND, ChunkPlan, RingSetUp
from cumulus_lab.simulation import Agenda
from cumulus_ring.machine.messages import MemberWish

GRANT_US = SECOND
"""How often the ring may change."""


class ChangingRing(Protocol):
    """What a keeper needs of a ring."""

    members: list[int]

    def is_idle(self, number: int) -> bool:
        """Whether a node has no query."""

    def change_members(self, members: list[int], owners: list[int]) -> None:
        """Begin a ring epoch in which only the neighbours of those who come or go have new links."""


@dataclass(frozen=True, slots=True)
class _Told:
    at_us: int
    wish: MemberWish


class MemberKeeper:
    """Grants one wish after the other.

    A node comes between the one that wishes for it and its successor. One that leaves gives its chunks to its two
    neighbours in turn, and leaves only if they have the room.

    Parameters
    ----------
    set_up, plan, agenda, ring
        What runs.
    """

    def __init__(self, set_up: RingSetUp, plan: ChunkPlan, agenda: Agenda, ring: ChangingRing) -> None:
        self._nodes, self._period_us = set_up.nodes, set_up.settings().pulse_us
        self._room = set_up.storage_gb * GIGABYTE
        self._sizes, self.owners = plan.sizes, list(plan.owners)
        self._agenda, self._ring = agenda, ring
        self._wishes: dict[int, _Told] = {}
        if self._period_us:
            agenda.after(GRANT_US, self._look, None)

    def wished(self, number: int, wish: MemberWish) -> None:
        """Note what a node wishes, in place of what it has wished before."""
        self._wishes[number] = _Told(self._agenda.now, wish)

    def _look(self, _: None) -> None:
        self._agenda.after(GRANT_US, self._look, None)
        since = self._agenda.now - self._period_us
        members = self._ring.members
        wishes = {
            number: told.wish for number, told in self._wishes.items() if told.at_us > since and number in members
        }
        grows = [number for number, wish in wishes.items() if not wish.leaves]
        absent = [number for number in range(self._nodes) if number not in members]
        if grows and absent:
            self._add(absent[0], grows[0], wishes[grows[0]])
        elif not grows:
            any(self._let_go(number, wishes[number]) for number in wishes)

    def _add(self, node: int, before: int, wish: MemberWish) -> None:
        """Let a node come behind another one, which gives it chunks while there is room for them."""
        del self._wishes[before]
        room = self._room or float("inf")
        for chunk in wish.gives:
            if self.owners[chunk] == before and self._sizes[chunk] <= room:
                self.owners[chunk] = node
                room -= self._sizes[chunk]
        members = list(self._ring.members)
        members.insert(members.index(before) + 1, node)
        self._ring.change_members(members, self.owners)

    def _let_go(self, node: int, wish: MemberWish) -> bool:
        """Let a node go, unless it has a query by now or its neighbours lack the room; return whether it goes."""
        members = list(self._ring.members)
        if len(members) <= 2 or not self._ring.is_idle(node):
            return False
        place = members.index(node)
        heirs = members[place - 1], members[(place + 1) % len(members)]
        owners = self._without(node, heirs)
        if owners is None:
            return False
        del self._wishes[node]
        self.owners = owners
        members.remove(node)
        self._ring.change_members(members, owners)
        return True

    def _without(self, node: int, heirs: tuple[int, int]) -> list[int] | None:
        """Return all owners when a node has given its chunks away; None if these do not fit."""
        owners = list(self.owners)
        used = {
            heir: sum(size for size, owner in zip(self._sizes, owners, strict=True) if owner == heir) for heir in heirs
        }
        for chunk, owner in enumerate(self.owners):
            if owner != node:
                continue
            heir = min(heirs, key=used.__getitem__)
            used[heir] += self._sizes[chunk]
            owners[chunk] = heir
        return None if self._room and max(used.values()) > self._room else owners
