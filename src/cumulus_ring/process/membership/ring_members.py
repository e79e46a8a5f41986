"""The members of a ring, as its keeper knows them: who they are, who is lost, who comes and who goes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cumulus.errors import CumulusError, UsageError
from cumulus.machine import Name
from cumulus_ring.process.membership.keeper_door import RemoveWish

MOST_MEMBERS = 64
_RESERVED = frozenset(("any", "keeper"))
_MOST_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where a member is.

    Parameters
    ----------
    rack, machine
        Members of one are neighbours, of a machine before those of a rack.
    """

    machine: str
    rack: str = ""


@dataclass(slots=True)
class Leaving:
    """A member that goes.

    Parameters
    ----------
    until
        When its queries have had their time, by `time.monotonic`.
    wishes
        Who wants to hear that it is gone.
    heirs
        The members without those that leave, as they were told last to adopt what will be their shares.
    unprepared
        Those of them that have not yet done so.
    is_out
        Whether the others have closed the ring without it.
    """

    until: float
    wishes: list[RemoveWish]
    heirs: tuple[Name, ...] = ()
    unprepared: set[Name] = field(default_factory=set)
    is_out: bool = False


class RingMembers:
    """Members by name, each with its place; in the order of the ring.

    Attributes
    ----------
    joining
        Those that are started, and not ready.
    leaving
        Those that go; they are members until the ring is closed without them.
    lost
        Node → why; one that comes back is lost no more.
    """

    def __init__(self) -> None:
        self.joining: dict[Name, MemberPlace] = {}
        self.leaving: dict[Name, Leaving] = {}
        self.lost: dict[Name, str] = {}
        self._members: dict[Name, MemberPlace] = {}

    @property
    def names(self) -> tuple[Name, ...]:
        """The members in the order in which chunks go round: those of a rack, and of a machine in it, together.

        A slow link between two racks is crossed once a turn so.
        """
        places = list(self._members.values())
        racks = list(dict.fromkeys(each.rack for each in places))
        machines = list(dict.fromkeys(each.machine for each in places))

        def key(name: Name) -> tuple[int, int]:
            place = self._members[name]
            return racks.index(place.rack), machines.index(place.machine)

        return tuple(sorted(self._members, key=key))

    def __contains__(self, name: Name) -> bool:
        return name in self._members

    def begin(self, names: Sequence[Name], place: MemberPlace) -> None:
        """Have members that are there from the start."""
        self._members |= dict.fromkeys(names, place)

    def free_name(self, wanted: Name) -> Name:
        """Return the name of a node that comes: what it wants to be called, or one that is free.

        Raises
        ------
        UsageError
            If another node has it, it cannot be one, or there are too many.
        """
        known = {*self._members, *self.joining}
        if len(known) >= MOST_MEMBERS:
            raise UsageError(f"the ring has {MOST_MEMBERS} nodes already", hint="Remove one before.")
        if not wanted:
            taken = {*known, *self.lost}
            return next(name for name in (f"node{number}" for number in range(1, 1000)) if name not in taken)
        if not _is_name(wanted):
            raise UsageError(
                f"--name {wanted[:80]!r} cannot be a node's",
                hint=f"Take up to {_MOST_CHARACTERS} letters, digits, dots, dashes and underscores.",
            )
        if wanted in known:
            raise UsageError(f"the ring has a node {wanted} already", hint="Give another --name, or none.")
        return wanted

    def join(self, name: Name, place: MemberPlace) -> None:
        """Have a node that is started, and no member yet."""
        self.joining[name] = place
        self.lost.pop(name, None)

    def admit(self, name: Name) -> None:
        """Have a node that is ready as a member."""
        self._members[name] = self.joining.pop(name)

    def lose(self, name: Name, reason: str) -> None:
        """Have a member, or a node that was to be one, no more."""
        self._members.pop(name, None)
        self.joining.pop(name, None)
        self.lost[name] = reason

    def remove(self, wish: RemoveWish) -> bool:
        """Let a member go; return whether it is told now, and not before.

        Raises
        ------
        UsageError
            If it is no member, or the last one.
        """
        if wish.name in self.leaving:
            self.leaving[wish.name].wishes.append(wish)
            return False
        if wish.name not in self._members:
            names = ", ".join(self.names)
            told = f"{wish.name} is lost: {self.lost[wish.name]}" if wish.name in self.lost else ""
            raise UsageError(told or f"there is no node {wish.name!r}", hint=f"The ring has: {names or 'no nodes'}.")
        if len(self._members) - sum(not each.is_out for each in self.leaving.values()) <= 1:
            raise UsageError(f"{wish.name} is the last node of the ring", hint="Stop the ring instead.")
        self.leaving[wish.name] = Leaving(time.monotonic() + wish.wait_s, [wish])
        return True

    def stay(self, name: Name, problem: UsageError) -> None:
        """Let a member stay that was to go, and say why."""
        for wish in self.leaving.pop(name).wishes:
            wish.end(problem)

    def close_without(self, name: Name) -> None:
        """Have a node that goes as a member no more."""
        del self._members[name]
        self.leaving[name].is_out = True

    def gone(self, name: Name, problem: CumulusError | None = None) -> None:
        """Forget a node that has gone, and tell who wants to hear it; with the problem if it went before its time."""
        for wish in self.leaving.pop(name).wishes:
            wish.end(problem)


def _is_name(text: str) -> bool:
    characters = text.replace("-", "").replace("_", "").replace(".", "")
    is_plain = characters.isascii() and characters.isalnum()
    return is_plain and len(text) <= _MOST_CHARACTERS and text not in _RESERVED and not text.startswith((".", "-"))
