"""What a node does in the order of versions: reads wait for the writes before them, and writes for the reads.

Where one switch sends everything in the order of versions, what is in no conflict with anything that waits before it is
done at once: reads of maps that nothing earlier has to write, writes to maps that nothing earlier has to read. Two
writes add, so they are in no conflict. Where several switches do, nothing overtakes a PUT that waits, and what comes
after its turn is done when it comes.

References
----------
Cumulus semester paper, sections 3.1 (W-R, R-W, W-W) and 3.2 ("until completing PUT message processing, no messages with
higher TS is processed"); Cumulus consistency paper, section 3.2 ("writes are deferred").
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from cumulus.cluster.protocols.central_messages import Push
from cumulus.errors import RemoteProtocolError


class Arrival(Enum):
    """In which order things come to a node, and have their turn."""

    IN_ORDER = "in that of versions, from one switch"
    BY_VERSION = "in any, and each has its turn by its version"
    AS_IT_COMES = "in that in which they have their turn"


@dataclass(frozen=True, slots=True)
class DeferredBlock:
    """What is to be done for a block, and waits for its turn.

    Parameters
    ----------
    version
        Of its block, as the node keeps it.
    reads, writes
        The maps that it reads and writes here.
    pushes
        How many nodes must have sent theirs before; 0 for none.
    message
        What is to be done.
    until
        The time (`DeferredWork.now`) at which it waits for no PUSH any more; None: all must come.
    not_before
        The time at which it may be done: until then something of an earlier version may come.
    """

    version: int
    reads: frozenset[str]
    writes: frozenset[str]
    pushes: int
    message: object
    until: int | None = None
    not_before: int = 0


@dataclass(slots=True)
class EarlierWork:
    """What waits before something: how much, and the maps that it has to read and to write."""

    count: int = 0
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    def add(self, work: DeferredBlock) -> None:
        """Note something more."""
        self.count += 1
        self.reads |= work.reads
        self.writes |= work.writes


def is_in_conflict(work: DeferredBlock, earlier: EarlierWork) -> bool:
    """Whether something reads what earlier work has to write, or writes what that has to read."""
    return not (earlier.writes.isdisjoint(work.reads) and earlier.reads.isdisjoint(work.writes))


def is_behind(work: DeferredBlock, earlier: EarlierWork) -> bool:
    """Whether anything waits before something."""
    return earlier.count > 0


def reads_unwritten(work: DeferredBlock, earlier: EarlierWork) -> bool:
    """Whether something reads what earlier work has to write."""
    return not earlier.writes.isdisjoint(work.reads)


def _turn(work: DeferredBlock) -> tuple[int, bool]:
    """Return by what something has its turn: of a block, what waits for PUSHes is behind the sending of some."""
    return work.version, work.pushes > 0


class DeferredWork:
    """The work of a node that waits, and what other nodes have sent for it; a PUSH may come before its PUT.

    Parameters
    ----------
    waits
        Whether something waits for the earlier work that is not done.
    arrival
        In which order things come, and have their turn.

    Attributes
    ----------
    now
        How often this node has heard that time has passed.
    """

    def __init__(
        self,
        waits: Callable[[DeferredBlock, EarlierWork], bool] = is_in_conflict,
        *,
        arrival: Arrival = Arrival.IN_ORDER,
    ) -> None:
        self._waits, self._arrival = waits, arrival
        self._waiting: deque[DeferredBlock] = deque()
        self._pushes: dict[int, dict[int, Push]] = {}
        """Version → the node that has sent it → what."""
        self.now = 0
        self._over: set[int] = set()
        """The versions that have waited for PUSHes until their time was over."""

    def __len__(self) -> int:
        return len(self._waiting)

    def defer(self, work: DeferredBlock) -> None:
        """Take something that has come from the switch."""
        if self._arrival is Arrival.BY_VERSION:
            insort(self._waiting, work, key=_turn)
            return
        if self._arrival is Arrival.IN_ORDER and self._waiting and work.version < self._waiting[-1].version:
            raise RemoteProtocolError(f"version {work.version} comes after {self._waiting[-1].version}")
        self._waiting.append(work)

    def note(self, sender: int, version: int, push: Push) -> None:
        """Take what a node has sent for a version, as this node keeps that; nothing waits if its time was over."""
        if version in self._over:
            return
        of_version = self._pushes.setdefault(version, {})
        if sender in of_version:
            raise RemoteProtocolError(f"node {sender} sends its PUSH of version {push.version} again")
        of_version[sender] = push

    def noted(self, sender: int) -> list[int]:
        """Return the versions for which a node has sent its PUSH, and nothing was done with it yet."""
        return [version for version, pushes in self._pushes.items() if sender in pushes]

    def pass_time(self) -> None:
        """Note that time has passed."""
        self.now += 1

    def ready(self, ended: int = -1) -> Iterator[tuple[DeferredBlock, list[Push]]]:
        """Yield what can be done now, in the order of versions, each with its PUSHes in the order of nodes.

        Each must be done before the next is asked for. A PUSH of this node to itself may be noted meanwhile.

        Parameters
        ----------
        ended
            A version up to which the time of all is over.
        """
        left: deque[DeferredBlock] = deque()
        earlier = EarlierWork()
        waiting, self._waiting = self._waiting, left
        try:
            while waiting:
                work = waiting.popleft()
                came = self._pushes.get(work.version, {}) if work.pushes else {}
                now = math.inf if work.version <= ended else self.now
                has_all = len(came) >= work.pushes or (work.until is not None and now >= work.until)
                if has_all and now >= work.not_before and not self._waits(work, earlier):
                    if work.pushes:
                        self._pushes.pop(work.version, None)
                    if len(came) < work.pushes:
                        self._over.add(work.version)
                    yield work, [push for _, push in sorted(came.items())]
                else:
                    left.append(work)
                    earlier.add(work)
        finally:
            self._waiting = left + waiting  # what is left if the caller stops

    def first(self) -> DeferredBlock | None:
        """Return what waits with the earliest version, where that is the order; None if nothing does."""
        return self._waiting[0] if self._waiting else None

    def is_empty_up_to(self, version: int) -> bool:
        """Whether nothing waits of a version or an earlier one."""
        if self._arrival is Arrival.AS_IT_COMES:
            return all(work.version > version for work in self._waiting)
        return not self._waiting or self._waiting[0].version > version

    def renumber(self, less: int) -> None:
        """Take something away from all versions."""
        self._waiting = deque(replace(work, version=work.version - less) for work in self._waiting)
        self._pushes = {version - less: pushes for version, pushes in self._pushes.items()}
        self._over = {version - less for version in self._over}

    def forget(self, version: int) -> None:
        """Forget what has not come for versions up to one: it will not come any more."""
        self._over = {each for each in self._over if each > version}

    def clear(self) -> None:
        """Forget everything: it will come again."""
        self._waiting.clear()
        self._pushes.clear()
        self._over.clear()

    def check(self) -> None:
        """Check that what waits is in the order of versions, where that is the order."""
        if self._arrival is Arrival.AS_IT_COMES:
            return
        versions = [work.version for work in self._waiting]
        assert versions == sorted(versions), versions


class AwaitedPuts:
    """Whether a node has heard of all blocks of an epoch that it hears of from other nodes, where there are no PUTs.

    A PUSH may come behind the end of its epoch, as it goes another way. So the end says how many are to come.
    """

    def __init__(self) -> None:
        self._awaited: Counter[int] = Counter()
        """Epoch → how many of it are to come yet; below 0 while switches have not ended it."""

    def expect(self, epoch: int, count: int) -> None:
        """Note that so many of an epoch come, by one switch more."""
        self._awaited[epoch] += count

    def note(self, epoch: int) -> None:
        """Note that one has come."""
        self._awaited[epoch] -= 1

    def are_here(self, epoch: int) -> bool:
        """Whether all have come up to an epoch that all switches have ended."""
        return sum(count for at, count in self._awaited.items() if at <= epoch) <= 0

    def forget(self, epoch: int) -> None:
        """Forget epochs up to one that is committed."""
        self._awaited = Counter({at: count for at, count in self._awaited.items() if at > epoch})

    def clear(self) -> None:
        """Forget all: it will come again."""
        self._awaited.clear()
