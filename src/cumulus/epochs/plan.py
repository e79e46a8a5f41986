"""Which rows go to which bucket: a one-round layout (`explain.layout`) and a number of buckets, as plain data.

A bucket holds some rows, and speaks of some: of those that all buckets hold, one of them does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cumulus.catalog.events import Row
from cumulus.catalog.partition import bucket_of_row, buckets_of
from cumulus.catalog.schema import Relation
from cumulus.explain.layout.co_partitioning import Columns, Layout, Partitioned, lay_out
from cumulus.explain.layout.view_parts import part_of_views
from cumulus.m3.program import Program

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """The buckets of views that are kept behind the judges of rows.

    Parameters
    ----------
    views
        Their names.
    buckets, partitioned
        As of `BucketPlan`.
    """

    views: tuple[str, ...]
    buckets: int = 1
    partitioned: Partitioned = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """The buckets of a run.

    Parameters
    ----------
    partitioned
        Relation → the columns whose values choose the bucket; all others go to every bucket.
    why
        One sentence for the user.
    by_key
        Relations partitioned by columns of their primary keys: the old row of an update is where the new one is.
    groups
        If there are some, the buckets keep and judge rows, and views are in buckets of these groups.
    """

    buckets: int = 1
    partitioned: Partitioned = field(default_factory=dict)
    why: str = "one bucket runs the whole program"
    by_key: tuple[str, ...] = ()
    groups: tuple[GroupPlan, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.groups:
            del found["groups"]
        return found

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> BucketPlan:
        """Return what `plain` was made from; earlier releases knew only single columns."""
        groups = tuple(
            GroupPlan(tuple(each["views"]), each["buckets"], columns_of_plain(each["partitioned"]))
            for each in plain.get("groups", ())
        )
        by_key = tuple(plain.get("by_key", ()))
        return cls(plain["buckets"], columns_of_plain(plain["partitioned"]), plain["why"], by_key, groups)


def columns_of_plain(plain: Mapping[str, Any]) -> dict[str, Columns]:
    """Return relation → columns, from JSON of this release or an earlier one, which had one column as a text."""
    return {name: (found,) if isinstance(found, str) else tuple(found) for name, found in plain.items()}


def keyed_tables(program: Program, partitioned: Partitioned) -> tuple[str, ...]:
    """Return the relations that are partitioned by columns of their primary keys."""
    return tuple(name for name, columns in partitioned.items() if {*columns} <= {*program.relation(name).key})


@lru_cache(maxsize=16)
def _layout(program: Program, partitioned: tuple[tuple[str, Columns], ...]) -> Layout:
    return lay_out(program, dict(partitioned))


@lru_cache(maxsize=64)
def _program_of_group(program: Program, views: tuple[str, ...]) -> Program:
    part = part_of_views(program, views)
    plain = (
        replace(each, key=(), foreign_keys=tuple(replace(key, enforced=False) for key in each.foreign_keys))
        for each in part.relations
    )
    return replace(part, relations=tuple(plain))


def program_of_group(program: Program, group: GroupPlan) -> Program:
    """Return what keeps the views of a group, of rows that have been judged: no keys are checked any more."""
    return _program_of_group(program, group.views)


def plan_of_group(group: GroupPlan) -> BucketPlan:
    """Return the plan of a group, of which each bucket is one of views alone."""
    return BucketPlan(group.buckets, group.partitioned)


def where_view_is(program: Program, plan: BucketPlan, view: str) -> tuple[Program, BucketPlan]:
    """Return the program and the plan of the buckets that keep a view."""
    for group in plan.groups:
        if view in group.views:
            return program_of_group(program, group), plan_of_group(group)
    return program, plan


def layout_of(program: Program, plan: BucketPlan) -> Layout:
    """Return the layout that `plan` stands for."""
    return _layout(program, tuple(sorted(plan.partitioned.items())))


class Ownership:
    """The rows of the bucket with a number.

    Parameters
    ----------
    alone
        Relations that are not partitioned, and that no other bucket has.
    """

    def __init__(self, program: Program, plan: BucketPlan, index: int, alone: Collection[str] = ()) -> None:
        self._plan, self.index, self._alone = plan, index, frozenset(alone)
        self._places = {
            name: tuple(map(program.relation(name).position, columns)) for name, columns in plan.partitioned.items()
        }

    def owns(self, relation: str, row: Row) -> bool:
        """Whether a row lives here."""
        places = self._places.get(relation)
        if places is None or self._plan.buckets == 1:
            return True
        return bucket_of_row([row[place] for place in places], self._plan.buckets) == self.index

    def may_own(self, relation: Relation, key: Row) -> bool:
        """Whether a row with a primary key may live here: in each bucket if the key does not say in which."""
        if not {*self._places.get(relation.name, ())} <= {*relation.key_positions}:
            return True
        row: list[object] = [None] * len(relation.columns)
        for place, value in zip(relation.key_positions, key, strict=True):
            row[place] = value
        return self.owns(relation.name, tuple(row))

    def buckets_of_keys(self, relation: Relation, keys: pa.Table) -> pa.Array | None:
        """Return the bucket of each primary key in a table; None where a key does not say in which its row is."""
        columns = self._plan.partitioned.get(relation.name, ())
        if not columns or self._plan.buckets == 1 or not {*columns} <= {*relation.key}:
            return None
        first, *more = (keys.column(name) for name in columns)
        return buckets_of(first, self._plan.buckets, *more)

    def reports(self, relation: str, row: Row | None) -> bool:
        """Whether this bucket is the one that speaks about a row: of several that saw it, exactly one does."""
        if relation not in self._places:
            return self.index == 0 or relation in self._alone
        return row is None or self.owns(relation, row)
