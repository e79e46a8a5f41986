"""The states of the parts of a run, as values: the buckets of each stage, and what they hold.

A plan has one set of buckets that run the same program; or with judges several, those of the judges first, then those
of each group of views.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cumulus.epochs.bucket.contents import BucketContents
from cumulus.epochs.keeping import judging_program
from cumulus.epochs.plan import BucketPlan, plan_of_group, program_of_group
from cumulus.m3.program import Program


class BucketSet(NamedTuple):
    """Buckets that run the same program, and where its rows go."""

    program: Program
    plan: BucketPlan


def bucket_sets(program: Program, plan: BucketPlan) -> list[BucketSet]:
    """Return the sets of buckets of a plan; the first one judges rows."""
    if not plan.groups:
        return [BucketSet(program, plan)]
    judging, _ = judging_program(program)
    groups = (BucketSet(program_of_group(program, group), plan_of_group(group)) for group in plan.groups)
    return [BucketSet(judging, replace(plan, groups=())), *groups]


def part_counts(plan: BucketPlan) -> list[int]:
    """Return how many parts each stage of a plan has."""
    return [plan.buckets] * (2 if plan.groups else 1)


def unpack_parts(plan: BucketPlan, parts: Sequence[bytes]) -> list[list[BucketContents]]:
    """Return what the buckets of each set hold, from the states of all parts, those of the first stage first.

    Parameters
    ----------
    plan
        Of the run.
    parts
        What `cumulus.epochs.stages.parts.Part.dump` has given.
    """
    found = [[BucketContents.unpack(data) for data in parts[: plan.buckets]]]
    views = [pickle.loads(data) for data in parts[plan.buckets :]]
    for number, group in enumerate(plan.groups):
        found.append([BucketContents.unpack(views[index][number]) for index in range(group.buckets)])
    return found


def pack_parts(plan: BucketPlan, sets: Sequence[Sequence[BucketContents]]) -> Iterator[bytes]:
    """Yield the states of all parts, from what the buckets of each set hold: the way back from `unpack_parts`."""
    rows, *groups = sets
    yield from (contents.pack() for contents in rows)
    for index in range(plan.buckets if groups else 0):
        mine = {number: group[index].pack() for number, group in enumerate(groups) if index < len(group)}
        yield pack_groups(mine)


def pack_groups(dumps: dict[int, bytes]) -> bytes:
    """Return the state of the buckets of views with one number, from those of their groups."""
    return pickle.dumps(dumps, protocol=5)
