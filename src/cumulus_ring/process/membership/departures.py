"""Nodes that leave a running ring: the others adopt what will be theirs, queries end, then the ring closes without."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cumulus.errors import CumulusError, UsageError
from cumulus.machine import Name
from cumulus.transport.supervisor import Supervisor
from cumulus_ring.process.membership.keeper_door import RemoveWish
from cumulus_ring.process.membership.ring_members import RingMembers


class Departures:
    """The members that are to go, from the wish until nothing keeps them in the ring.

    Parameters
    ----------
    members
        Of the ring; those that leave are among them until the ring is closed without them.
    adopts
        Whether nodes keep their shares on their disks. If so, a node leaves when all heirs have its chunks.
    note
        Takes a line to tell when something has happened.
    """

    def __init__(self, members: RingMembers, adopts: bool, note: Callable[[str], None]) -> None:
        self._members, self._adopts, self._note = members, adopts, note

    def begin(self, nodes: Supervisor, wish: RemoveWish) -> None:
        """Let a member go, or say why it cannot."""
        try:
            if self._members.remove(wish):
                self._note(f"{wish.name} is to go, after its queries")
                nodes.send(wish.name, json.dumps({"leave": True}).encode())
                self._prepare(nodes, wish.name, self._heirs())
        except CumulusError as problem:
            wish.end(problem)
            if wish.name in self._members:
                self._refuse(nodes, wish.name, problem)

    def heirs_changed(self, nodes: Supervisor) -> None:
        """Begin the hand-over anew, because a member has gone: its part of the shares falls to the others.

        If no other node is left, the one that came last stays.
        """
        leaving = [name for name, each in self._members.leaving.items() if not each.is_out]
        heirs = self._heirs()
        if leaving and not heirs:
            self._stay(nodes, leaving.pop(), "it is the last node of the ring")
            heirs = self._heirs()
        for name in leaving:
            self._prepare(nodes, name, heirs)

    def prepared(self, nodes: Supervisor, name: Name, said: Mapping[str, Any]) -> None:
        """Take notice that a node has adopted its share without another one, or could not."""
        leaving, trouble = said["prepared"], said["trouble"]
        found = self._members.leaving.get(leaving)
        if found is None or found.heirs != tuple(said["members"]):
            return
        found.unprepared.discard(name)
        for chunk in said["lost"]:
            self._note(f"{chunk} is at none of the nodes; {leaving} may go without it")
        if trouble:
            self._stay(nodes, leaving, f"{name} cannot take over its share: {trouble}")

    def due(self, queries: Mapping[Name, int]) -> list[Name]:
        """Return the members that nothing keeps in the ring any more.

        Parameters
        ----------
        queries
            Node → how many it has, running and in line.
        """
        now = time.monotonic()
        return [
            name
            for name, each in self._members.leaving.items()
            if not each.is_out and not each.unprepared and (now >= each.until or queries.get(name) == 0)
        ]

    def _heirs(self) -> tuple[Name, ...]:
        return tuple(each for each in self._members.names if each not in self._members.leaving)

    def _prepare(self, nodes: Supervisor, name: Name, heirs: Sequence[Name]) -> None:
        """Let the others adopt what a node has that goes; without adopting, they read it from the source."""
        if not self._adopts:
            return
        found = self._members.leaving[name]
        found.heirs, found.unprepared = tuple(heirs), set(heirs)
        for each in heirs:
            nodes.send(each, json.dumps({"prepare": heirs, "for": name}).encode())

    def _stay(self, nodes: Supervisor, name: Name, why: str) -> None:
        problem = UsageError(f"{name} stays: {why}")
        self._members.stay(name, problem)
        self._note(problem.message)
        self._refuse(nodes, name, problem)

    def _refuse(self, nodes: Supervisor, name: Name, problem: CumulusError) -> None:
        """Let a node take queries again; it may have asked for its departure itself."""
        nodes.send(name, json.dumps({"leave": False, "why": problem.message}).encode())
