"""Which deltas of a node's maps come late: those of a version below one for which their map has been read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.engine.frames.frame import MapFrame


@dataclass(slots=True)
class Shares:
    """How many rows of blocks, and how many deltas, have come in order and late; a replica's delta counts, too."""

    rows_in_order: int = 0
    rows_late: int = 0
    deltas_in_order: int = 0
    deltas_late: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.rows_in_order + self.rows_late + self.deltas_in_order + self.deltas_late


@dataclass(slots=True)
class LateDeltas:
    """Adds deltas to maps; of those that are late the node program says what must be corrected.

    Parameters
    ----------
    maps
        The maps.

    Attributes
    ----------
    shares
        What was late.
    newest
        Map → the last version of a delta.
    seen
        Map → the last version for which it was read here.
    told
        The maps of which somebody is told of all that changes: the node program says whom, as of late deltas.
    """

    maps: NodeMaps
    shares: Shares = field(default_factory=Shares)
    newest: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def is_late(self, names: Iterable[str], version: int) -> bool:
        """Whether one of some maps has deltas of a version or later ones, so that a reader must look back."""
        return any(self.newest.get(name, -1) >= version for name in names)

    def note_read(self, names: Iterable[str], version: int, count: int, *, is_late: bool) -> None:
        """Note that maps were read for a version, by so many rows that have come in order or late."""
        for name in names:
            self.seen[name] = max(self.seen.get(name, -1), version)
        if is_late:
            self.shares.rows_late += count
        else:
            self.shares.rows_in_order += count

    def receive(self, deltas: Mapping[str, MapFrame]) -> None:
        """Add deltas, and correct what later rows have read."""
        for name, frame in deltas.items():
            if not frame.rows:
                continue
            versions = self.maps.versions(name, frame)
            self.newest[name] = max(self.newest.get(name, -1), int(versions.max()))
            is_late = versions < self.seen.get(name, -1)
            late_count = int(is_late.sum())
            if name in self.told:
                self.maps.correct(name, frame)
            else:
                if late_count < frame.rows:
                    self.maps.add(name, frame.filter(~is_late) if late_count else frame)
                if late_count:
                    self.maps.correct(name, frame.filter(is_late))
            self.shares.deltas_late += late_count
            self.shares.deltas_in_order += frame.rows - late_count

    def reset(self, last: int) -> None:
        """Note that deltas beyond a version, and all readers, are taken back: they will come again."""
        self.newest = {name: min(version, last) for name, version in self.newest.items()}
        self.seen = {}
        self.told = set()

    def tell_of(self, name: str) -> None:
        """Note that somebody is told of all that changes in a map."""
        self.told.add(name)

    def tell_nobody(self) -> None:
        """Note that nobody is told any more but of what is late for what he was told so far."""
        for name in self.told:
            self.seen[name] = max(self.seen.get(name, -1), self.newest.get(name, -1) + 1)
        self.told = set()

    def renumber(self, less: int) -> None:
        """Note that something is taken away from all versions."""
        for versions in (self.newest, self.seen):
            versions.update({name: max(version - less, -1) for name, version in versions.items()})
