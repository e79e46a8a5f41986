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


def numbers_of(slices: Sequence[FetchedSlice]) -> dict[tuple[str, str, tuple[str | None, ...]], int]:
    """Return relation, map and columns of a slice → its number."""
    return {(each.relation, each.map, each.columns): number for number, each in enumerate(slices)}
