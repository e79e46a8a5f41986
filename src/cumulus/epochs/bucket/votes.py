"""Deletions that all buckets must agree to: of parents that every bucket has, while their children are spread.

A bucket does not know whether another one has rows that refer to a parent. So its deletion waits for an epoch. When the
epoch is done, each bucket says to which of these deletions it objects, having such rows, and the manifest lists the
objections of all. At the beginning of the next epoch each bucket does those that nobody has objected to, before
anything else, and so all buckets do the same; the others go on waiting, and are asked about again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cumulus.catalog.events import DELETE
from cumulus.engine.integrity import Reference
from cumulus.epochs.bucket.net_changes import InputChange, NetChange
from cumulus.epochs.bucket.references import Count, has_spread_children, violations
from cumulus.explain.layout.co_partitioning import Partitioned
from cumulus.m3.dataflow import reachable


class Deletion(NamedTuple):
    """A deletion that waits: its table, where it came from, and its number among those of that place, such as the rows
    that one truncation takes.

    Every bucket has the same, since it concerns a table that each has whole, in whatever order it finds its rows.
    """

    relation: str
    source: str
    position: int
    number: int


@dataclass(frozen=True, slots=True)
class Poll:
    """How many deletions an epoch has left to the vote of all buckets, and to which of them a bucket objects."""

    asked: int = 0
    objections: frozenset[Deletion] = frozenset()

    @property
    def granted(self) -> int:
        """How many deletions the next epoch begins with."""
        return self.asked - len(self.objections)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it: nothing if nothing was asked."""
        return {"asked": self.asked, "objections": sorted(map(list, self.objections))} if self.asked else {}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Poll:
        """Return what `plain` was made from."""
        return cls(plain["asked"], frozenset(Deletion(*each) for each in plain["objections"])) if plain else cls()

    @classmethod
    def merge(cls, polls: Iterable[Poll]) -> Poll:
        """Return what the buckets say together, after the same epoch."""
        polls = list(polls)
        asked = {poll.asked for poll in polls} or {0}
        assert len(asked) == 1, f"buckets were asked about different deletions: {sorted(asked)}"
        return cls(asked.pop(), frozenset[Deletion]().union(*(poll.objections for poll in polls)))


class Voter:
    """What a bucket says to deletions from tables that every bucket has.

    Parameters
    ----------
    count
        Counts kept rows by values, up to a number.
    """

    def __init__(self, references: Iterable[Reference], partitioned: Partitioned, count: Count) -> None:
        self._references, self._count = list(references), count
        self.tables = frozenset(
            each.parent.name
            for each in self._references
            if has_spread_children(partitioned, each.child.name, each.key, each.parent)
        )
        """The tables whose deletions are left to a vote."""
        parents: dict[str, set[str]] = {}
        for each in self._references:
            parents.setdefault(each.child.name, set()).add(each.parent.name)
        self.later = frozenset(reachable(parents, self.tables))
        """These, and what they refer to: a deletion there may wait for one that is left to a vote."""

    def needs_vote(self, net_change: NetChange) -> bool:
        """Whether a net change is a deletion that no bucket may do on its own."""
        return net_change.relation in self.tables and net_change.added is None

    def vote(self, waiting: Iterable[InputChange]) -> Poll:
        """Return what this bucket says to the deletions that wait."""
        asked = [
            (each, NetChange(change.relation, change.row, None, change)) for each, change in self._deletions(waiting)
        ]
        # Together, since one may take away what refers to the row of another.
        _, late = violations(self._references, [net_change for _, net_change in asked], self._count)
        return Poll(len(asked), frozenset(each for each, net_change in asked if id(net_change) in late))

    def granted(self, waiting: Iterable[InputChange], poll: Poll) -> list[InputChange]:
        """Return the changes that wait and to which no bucket has objected, in the poll of the epoch before."""
        asked = list(self._deletions(waiting)) if poll.asked else []
        assert len(asked) == poll.asked, f"{len(asked)} deletions wait, and the buckets were asked about {poll.asked}"
        return [change for each, change in asked if each not in poll.objections]

    def _deletions(self, waiting: Iterable[InputChange]) -> Iterator[tuple[Deletion, InputChange]]:
        places: dict[tuple[str, str, int], list[InputChange]] = {}
        for change in waiting:
            if change.op == DELETE and change.relation in self.tables:
                places.setdefault((change.relation, change.source, change.position), []).append(change)
        for place, changes in places.items():
            for number, change in enumerate(sorted(changes, key=lambda each: repr(each.row))):
                yield Deletion(*place, number), change
