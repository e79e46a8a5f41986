"""Parts of cubes as files: the entries of maps as a bucket stores them, for whoever folds a cube of an epoch.

A file has what `cumulus.engine.snapshot.dump` makes of a map: its keys, and its values as they are added, a sum of
DOUBLE with its compensation and size. Nobody puts the files of buckets together before they are read. Where entries of
several buckets are to be added, the file is a share and its name says so; elsewhere each entry is in one file.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import pyarrow as pa

from cumulus.catalog.arrow import plain_list
from cumulus.durable.store import Place, store_of
from cumulus.engine.snapshot import dump, tagged
from cumulus.epochs.bucket.bucket import Bucket
from cumulus.epochs.bucket.outcome import Outcome
from cumulus.epochs.plan import BucketPlan, layout_of
from cumulus.epochs.view_folders import PARTS
from cumulus.explain.layout.co_partitioning import Merge
from cumulus.m3.program import Program
from cumulus.views.folding.measures import maps_to_fold

SHARE = ".share.parquet"


@lru_cache(maxsize=16)
def maps_of_cubes(program: Program) -> tuple[str, ...]:
    """Return the maps that folding the cubes of a program reads, in the program's order.

    Of a part of a program it is those of the views that are there.
    """
    views = {view for cube in program.cubes for view in (cube.name, *(level.view for level in cube.levels))}
    found = {name for view in program.views if view.name in views for name in maps_to_fold(program, view)}
    return tuple(each.name for each in program.maps if each.name in found)


def write_parts(
    bucket: Bucket, outcome: Outcome, epoch: int, attempt: str, out: Place, maps: Collection[str], *, whole: bool
) -> dict[str, str]:
    """Write a bucket's entries of the maps of cubes that an epoch has changed, or of all; return their files.

    Parameters
    ----------
    bucket
        The bucket.
    outcome
        The outcome of the epoch in the bucket.
    epoch
        The epoch.
    attempt
        Name of the attempt, so that files of two attempts do not collide.
    out
        The output folder.
    maps
        The maps of cubes.
    whole
        Whether all maps of cubes are written, or only the changed ones.

    Raises
    ------
    OSError
        If they cannot be written.
    """
    files = {}
    for name in maps:
        merge = _merge_of_map(bucket.plan, bucket.program, name)
        if (whole or name in outcome.maps) and not (merge is Merge.ANY and bucket.index):
            table = dump(bucket.engine, name)
            number = [each.name for each in bucket.program.maps].index(name)
            path = part_path(epoch, bucket.index, attempt, number, is_share=merge is Merge.ADD)
            write_part(out, path, table)
            files[name] = path
    return files


def part_path(epoch: int, bucket: int, attempt: str, number: int, *, is_share: bool) -> str:
    """Return the path of the file of a map, which has a number, relative to the output folder.

    Parameters
    ----------
    epoch, bucket, attempt
        As in `write_parts`; the bucket by its index.
    number
        0-based position of the map in the program.
    is_share
        Whether the file is a share that is added to those of other buckets.
    """
    return f"data/{PARTS}/{epoch}-{bucket}-{attempt}-{number}{SHARE if is_share else '.parquet'}"


def write_part(out: Place, path: str, table: pa.Table) -> None:
    """Write the entries of a map to a path of an output; what Parquet has no type for goes as text."""
    for place, field in enumerate(table.schema):
        if pa.types.is_interval(field.type):
            array, metadata = tagged(plain_list(table.column(place)))
            table = table.set_column(place, pa.field(field.name, array.type, metadata=metadata), array)
    store_of(out).write_new(path, table)


def _merge_of_map(plan: BucketPlan, program: Program, name: str) -> Merge:
    return Merge.ANY if plan.buckets == 1 else layout_of(program, plan).merge(name)
