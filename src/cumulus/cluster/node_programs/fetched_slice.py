"""What nodes ask each other for, in target aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchedSlice:
    """Entries of a map that nodes ask each other for (`cumulus.cluster.node_programs.target_program`).

    Parameters
    ----------
    relation
        The base relation whose events read them.
    map, columns
        As in `cumulus.cluster.placement.segments.Slice`.
    asked, got
        The relation by whose events they are asked for, and the map in which they lie while a block is computed.
    writes
        The maps to which statements add that read them.
    """

    relation: str
    map: str
    columns: tuple[str | None, ...]
    asked: str
    got: str
    writes: tuple[str, ...]

    @property
    def bound(self) -> tuple[str, ...]:
        """The columns that say which entries are asked for."""
        return tuple(column for column in self.columns if column is not None)


@dataclass(frozen=True, slots=True)
class SliceLogs:
    """What belongs to a slice where nodes answer at once (`cumulus.cluster.node_programs.four_logs_program`).

    Parameters
    ----------
    answered
        The map of what is answered, by version.
    sent
        Bound keys and node → the last version for which they were sent there, plus 1.
    owed
        The map of deltas that other nodes must be told, by version and node.
    wanted
        Bound keys and version → that rows of this version asked for them; "" if what was got has no versions.
    asked_late
        The relation by which the slice is asked for where deltas of the same version or later ones are there.
    corrected
        The relation of deltas of what was got.
    unsent
        The relation of deltas whose versions are to be forgotten (`cumulus.cluster.node_programs.elided_program`).
    """

    answered: str
    sent: str
    owed: str
    wanted: str = ""
    asked_late: str = ""
    corrected: str = ""
    unsent: str = ""


def numbers_of(slices: Sequence[FetchedSlice]) -> dict[tuple[str, str, tuple[str | None, ...]], int]:
    """Return relation, map and columns of a slice → its number."""
    return {(each.relation, each.map, each.columns): number for number, each in enumerate(slices)}
