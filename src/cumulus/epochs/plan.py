"""Which rows go to which bucket: a one-round layout (`explain.layout`) and a number of buckets, as plain data.

A bucket holds some rows, and speaks of some: of those that all buckets hold, one of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cumulus.catalog.events import Row
from cumulus.catalog.partition import bucket_of
from cumulus.catalog.schema import Relation
from cumulus.explain.layout.co_partitioning import Layout, lay_out
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """The buckets of a run.

    Parameters
    ----------
    partitioned
        Relation → the column whose value chooses the bucket; all others go to every bucket.
    why
        One sentence for the user.
    """

    buckets: int = 1
    partitioned: Mapping[str, str] = field(default_factory=dict)
    why: str = "one bucket runs the whole program"


@lru_cache(maxsize=16)
def _layout(program: Program, partitioned: tuple[tuple[str, str], ...]) -> Layout:
    return lay_out(program, dict(partitioned))


def layout_of(program: Program, plan: BucketPlan) -> Layout:
    """Return the layout that `plan` stands for."""
    return _layout(program, tuple(sorted(plan.partitioned.items())))


class Ownership:
    """The rows of the bucket with a number."""

    def __init__(self, program: Program, plan: BucketPlan, index: int) -> None:
        self._plan, self._index = plan, index
        self._places = {name: program.relation(name).position(column) for name, column in plan.partitioned.items()}

    def owns(self, relation: str, row: Row) -> bool:
        """Whether a row lives here."""
        place = self._places.get(relation)
        return place is None or self._plan.buckets == 1 or bucket_of(row[place], self._plan.buckets) == self._index

    def may_own(self, relation: Relation, key: Row) -> bool:
        """Whether a row with a primary key may live here: in each bucket if the key does not say in which."""
        if relation.name not in self._places or self._places[relation.name] not in relation.key_positions:
            return True
        row: list[object] = [None] * len(relation.columns)
        for place, value in zip(relation.key_positions, key, strict=True):
            row[place] = value
        return self.owns(relation.name, tuple(row))

    def reports(self, relation: str, row: Row | None) -> bool:
        """Whether this bucket is the one that speaks about a row: of several that saw it, exactly one does."""
        if relation not in self._places:
            return self._index == 0
        return row is None or self.owns(relation, row)
