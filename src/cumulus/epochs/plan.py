"""Which rows go to which bucket: a one-round layout (`explain.layout`) and a number of buckets, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

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
