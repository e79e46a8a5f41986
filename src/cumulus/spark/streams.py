"""What `maintain` takes as sources: folders, and any streaming or static DataFrame."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cumulus.catalog.names import known_name
from cumulus.durable.folders import file_name
from cumulus.durable.parquet_writing import write_parquet_table
from cumulus.durable.store import NO_STORAGE, Storage, Store, absolute, address_of, is_address
from cumulus.epochs.folder_source import FolderSource
from cumulus.epochs.sources import check_readable, sources_from
from cumulus.epochs.view_source import check_view, split_place
from cumulus.errors import InputError
from cumulus.m3.program import Program

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Frame:
    """A streaming or static DataFrame as the source of a table; the options are those of `FolderSource`."""

    relation: str
    frame: DataFrame
    format: str = "auto"
    op: str = ""
    order: str = ""
    key: tuple[str, ...] = ()
    times: str = ""
    decimals: str = ""
    unavailable: str = ""


Source: TypeAlias = "str | Path | Mapping[str, str | Path | FolderSource | DataFrame | Frame]"


def as_sources(
    program: Program, sources: Source, checkpoint: Store, storage: Storage = NO_STORAGE
) -> tuple[FolderSource | Frame, ...]:
    """Return one source per table.

    Parameters
    ----------
    program, sources, storage
        As in `maintain`.
    checkpoint
        Where a static DataFrame is written once, to be read as one epoch: a streaming query cannot read it twice alike.

    Raises
    ------
    InputError, UnknownNameError
        For a missing folder, a table without a source, an unknown table.
    """
    if isinstance(sources, (str, Path)):
        return tuple(map(_from_anywhere, sources_from([str(sources)], program, storage=storage)))
    found: list[FolderSource | Frame] = []
    for name, given in sources.items():
        table = known_name(name, [relation.name for relation in program.relations], "table")
        found.append(_source(table, given, checkpoint, storage))
    named = {source.relation for source in found}
    missing = [relation.name for relation in program.relations if relation.name not in named]
    if missing:
        raise InputError(f"no source for table {missing[0]!r}", hint="Give each table a folder or a DataFrame.")
    return tuple(found)


def _from_anywhere(source: FolderSource) -> FolderSource:
    """Return a source with an absolute path: workers have working folders of their own."""
    return replace(source, path=absolute(source.path))


def _source(name: str, given: Any, checkpoint: Store, storage: Storage) -> FolderSource | Frame:
    place = split_place(str(given)) if isinstance(given, str) else None
    if place is not None:
        return _from_anywhere(check_view(FolderSource(name, place[0], view=place[1])))
    if isinstance(given, (str, Path)):
        given = FolderSource(name, address_of(given) if is_address(given) else str(given), storage=storage)
    if isinstance(given, FolderSource):
        check_readable(given, takes_addresses=True)
        return _from_anywhere(given)
    frame = given if isinstance(given, Frame) else Frame(name, given)
    if frame.frame.isStreaming:
        return frame
    file = f"static/{file_name(name)}.parquet"
    if checkpoint.size(file) is None:
        made = io.BytesIO()
        write_parquet_table(frame.frame.toArrow(), made)
        checkpoint.put(file, made.getvalue())
    return replace(file_source(frame, checkpoint.place(file)), relation=name, whole=True, storage=storage)


def file_source(frame: Frame, path: str) -> FolderSource:
    """Return the source of the same rows in a file, with the options of a frame."""
    source = FolderSource(frame.relation, path, frame.format, frame.op, frame.order, frame.key)
    return replace(source, times=frame.times, decimals=frame.decimals, unavailable=frame.unavailable)
