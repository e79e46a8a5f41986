"""Which rows go to which bucket: a layout of `cumulus.m3.layout` together with a number of buckets."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cumulus.catalog.schema import Relation
from cumulus.m3.program import Program


@dataclass(frozen=True, slots=True)
class Plan:
    """The buckets of a run.

    Parameters
    ----------
    buckets
        How many, from 1.
    partitioned
        Relation → the column whose value chooses the bucket; all others go to every bucket.
    tags
        Map → "same", "local" or "part" (docs/m3.md, "One-round layouts"); empty with one bucket.
    why
        One sentence for the user.
    """

    buckets: int = 1
    partitioned: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    why: str = "one bucket runs the whole program"


def bucket_of(value: Any, buckets: int) -> int:
    """Return the bucket of a key value, 0 ≤ result < buckets: the same in every process and release.

    Examples
    --------
    >>> bucket_of(7, 4) == bucket_of(7.0, 4), bucket_of(None, 4)
    (True, 0)
    """
    if value is None:
        return 0
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value):
        value = int(value)  # equal numbers of all types share a bucket
    text = str(value)
    return zlib.crc32(text.encode()) % buckets


def parents_first(program: Program) -> tuple[Relation, ...]:
    """Return the relations so that a foreign key's parent comes before its children, by name where free.

    Relations on a cycle of foreign keys come last, by name.
    """
    names = {relation.name for relation in program.relations}
    waiting = sorted(program.relations, key=lambda relation: relation.name)
    placed: list[Relation] = []
    while waiting:
        done = {relation.name for relation in placed}
        ready = [
            relation
            for relation in waiting
            if all(
                key.parent in done or key.parent == relation.name or key.parent not in names
                for key in relation.foreign_keys
            )
        ]
        placed.extend(ready or waiting)
        waiting = [relation for relation in waiting if relation not in ready] if ready else []
    return tuple(placed)
