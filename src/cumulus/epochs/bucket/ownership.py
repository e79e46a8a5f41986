"""Which rows a bucket holds, and of which it speaks."""

from __future__ import annotations

from cumulus.catalog.events import Row
from cumulus.catalog.partition import bucket_of
from cumulus.epochs.plan import BucketPlan
from cumulus.m3.program import Program


class Ownership:
    """The rows of the bucket with a number."""

    def __init__(self, program: Program, plan: BucketPlan, index: int) -> None:
        self._plan, self._index = plan, index
        self._places = {name: program.relation(name).position(column) for name, column in plan.partitioned.items()}

    def owns(self, relation: str, row: Row) -> bool:
        """Whether a row lives here."""
        place = self._places.get(relation)
        return place is None or self._plan.buckets == 1 or bucket_of(row[place], self._plan.buckets) == self._index

    def reports(self, relation: str, row: Row | None) -> bool:
        """Whether this bucket is the one that speaks about a row: of several that saw it, exactly one does."""
        if relation not in self._places:
            return self._index == 0
        return row is None or self.owns(relation, row)
