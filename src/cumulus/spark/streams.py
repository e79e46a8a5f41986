"""What `maintain` takes as sources: folders, and any streaming or static DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.parquet as pq

from cumulus.catalog.names import known_name
from cumulus.durable.files import written_aside
from cumulus.durable.folders import file_name
from cumulus.epochs.sources import FolderSource, check_readable, sources_from
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


def as_sources(program: Program, sources: Source, checkpoint: Path) -> tuple[FolderSource | Frame, ...]:
    """Return one source per table.

    A static DataFrame is written once below `checkpoint`, and read as one epoch: a streaming query cannot read it
    twice alike.

    Raises
    ------
    InputError, UnknownNameError
        For a missing folder, a table without a source, an unknown table.
    """
    if isinstance(sources, (str, Path)):
        return tuple(map(_from_anywhere, sources_from([str(sources)], program)))
    found: list[FolderSource | Frame] = []
    for name, given in sources.items():
        table = known_name(name, [relation.name for relation in program.relations], "table")
        found.append(_source(table, given, checkpoint))
    named = {source.relation for source in found}
    missing = [relation.name for relation in program.relations if relation.name not in named]
    if missing:
        raise InputError(f"no source for table {missing[0]!r}", hint="Give each table a folder or a DataFrame.")
    return tuple(found)


def _from_anywhere(source: FolderSource) -> FolderSource:
    """Return a source with an absolute path: workers have working folders of their own."""
    return replace(source, path=str(Path(source.path).absolute()))


def _source(name: str, given: Any, checkpoint: Path) -> FolderSource | Frame:
    if isinstance(given, (str, Path)):
        given = FolderSource(name, str(given))
    if isinstance(given, FolderSource):
        check_readable(given)
        return _from_anywhere(given)
    frame = given if isinstance(given, Frame) else Frame(name, given)
    if frame.frame.isStreaming:
        return frame
    file = checkpoint / "static" / f"{file_name(name)}.parquet"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with written_aside(file) as making:
            pq.write_table(frame.frame.toArrow(), making)
    return replace(file_source(frame, str(file)), relation=name, whole=True)


def file_source(frame: Frame, path: str) -> FolderSource:
    """Return the source of the same rows in a file, with the options of a frame."""
    source = FolderSource(frame.relation, path, frame.format, frame.op, frame.order, frame.key)
    return replace(source, times=frame.times, decimals=frame.decimals, unavailable=frame.unavailable)
