"""Sources of a ring: folders of Parquet files, and output folders of `cumulus run` at their last committed epoch.

`DIR/TABLE.parquet` is a table, and so are all `DIR/TABLE/*.parquet` together. What has another name, or begins with a
dot or an underscore, is none. Folders inside a table's folder are refused: their rows would be missing.

An output folder has its views as tables, and the tables that its run publishes. The files of an epoch may be gone when
a later one is committed; then that one is read. A view that could never be computed has no files, and is no table yet.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from cumulus.algebra.printing import quoted
from cumulus.durable.store import store_of
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, newest_manifest, paths_of_table
from cumulus.epochs.committed.program_text import written_program
from cumulus.epochs.output.published_tables import rows_of_table, select_of_table
from cumulus.errors import InputError
from cumulus_ring.chunks.catalogue import Catalogue, ChunkedTable, DataFile, PublishedTable
from cumulus_ring.chunks.parquet_files import declared_schema, read_footer

_SUFFIX = ".parquet"
_HINT = "A source is a folder with TABLE.parquet or TABLE/*.parquet, or an output folder of `cumulus run`."


def read_source(source: str | Path, before: Catalogue | None = None) -> Catalogue:
    """Return the catalogue of a folder, or of the last committed epoch of an output folder.

    Parameters
    ----------
    before
        What it was: footers of files that were there are not read again.

    Raises
    ------
    InputError
        If there are no tables, a file is not Parquet or empty, the files of a table disagree, or two tables have one
        name.
    StoreError
        If the last manifest of an output folder cannot be read.
    """
    root = Path(source)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder", hint=_HINT)
    if _is_output(root):
        return _read_epoch(root, before)
    try:
        files = _files(root)
        if not files:
            raise InputError(f"{root} has no Parquet files", hint=_HINT)
        return _catalogue(root, files, before, 1 if before is None else before.version + 1)
    except OSError as problem:
        raise InputError(
            f"{problem.filename or root} cannot be read: {problem.strerror}",
            hint="Leave the files of a source where they are, and readable.",
        ) from None


def newest_epoch(source: str | Path) -> int | None:
    """Return the last committed epoch of an output folder; None if there is none, or it is another folder."""
    epochs = committed_epochs(source) if _is_output(Path(source)) else []
    return epochs[-1] if epochs else None


def source_identity(source: str | Path) -> str:
    """Return what stays the same while a source changes: another run in the same output folder is another source.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    root = Path(source).absolute()
    try:
        return f"{root} {(root / 'cumulus.json').read_text()}" if _is_output(root) else str(root)
    except OSError as problem:
        raise InputError(f"{root / 'cumulus.json'} cannot be read: {problem.strerror}", hint=_HINT) from None


def _is_output(root: Path) -> bool:
    return (root / "epochs").is_dir() and (root / "cumulus.json").is_file()


def _read_epoch(root: Path, before: Catalogue | None) -> Catalogue:
    manifest = newest_manifest(root)
    while manifest is not None:
        try:
            return _with_published(root, manifest, _catalogue(root, _files_of_epoch(manifest), before, manifest.epoch))
        except OSError as problem:
            later = newest_manifest(root)
            if later is None or later.epoch == manifest.epoch:
                raise InputError(
                    f"{problem.filename or root} of epoch {manifest.epoch} cannot be read: {problem.strerror}",
                    hint="Leave the files of an output folder where they are; the next epoch may write them again.",
                ) from None
            manifest = later
    raise InputError(f"{root} has no committed epoch", hint="Wait for the first one, then try again.")


def _files_of_epoch(manifest: Manifest) -> list[tuple[str, list[str]]]:
    views = [(view, sorted(manifest.files(view))) for view in sorted(manifest.views)]
    tables = [
        (_part_name(name, kind), sorted(paths_of_table(table, kind)))
        for name, table in sorted(manifest.tables.items())
        for kind in ("data", "gone")
    ]
    return [(name, files) for name, files in [*views, *tables] if files]


def _part_name(table: str, kind: str) -> str:
    return f"{kind} of {table}"


def _with_published(root: Path, manifest: Manifest, found: Catalogue) -> Catalogue:
    """Return a catalogue with the tables that the run publishes in the place of their files.

    One of which no row went is a table as others are, without the number of the epoch.
    """
    if not manifest.tables:
        return replace(found, output=manifest.checkpoint)
    program, known = written_program(store_of(root)), {table.name: table for table in found.tables}
    published = []
    for name in sorted(manifest.tables):
        relation, data = program.relation(name), known[_part_name(name, "data")]
        schema = pa.schema([data.schema.field(column) for column in relation.column_names])
        gone = known.get(_part_name(name, "gone"))
        if gone is None:
            known[data.name] = replace(data, name=name, schema=schema)
        else:
            select = select_of_table(relation, quoted(data.name), quoted(gone.name))
            rows = rows_of_table(manifest.tables[name])
            published.append(PublishedTable(name, schema, rows, select, (data, gone)))
    return Catalogue(found.version, tuple(known.values()), tuple(published), manifest.checkpoint)


def _files(root: Path) -> list[tuple[str, list[str]]]:
    """Return the tables of a folder with the names of their files; a name may come twice."""
    found: list[tuple[str, list[str]]] = []
    for entry in _entries(root):
        if entry.is_dir():
            inside = [each.name for each in _entries(entry) if _is_parquet(each)]
            for folder in (each for each in _entries(entry) if each.is_dir()):
                if any(_is_parquet(Path(place, name)) for place, _, names in os.walk(folder) for name in names):
                    raise InputError(
                        f"{folder} is a folder inside the folder of a table",
                        hint="Put the files of a table into its folder; partitioned folders are not read.",
                    )
            if inside:
                found.append((entry.name, [f"{entry.name}/{name}" for name in inside]))
        elif _is_parquet(entry):
            found.append((entry.name[: -len(_SUFFIX)], [entry.name]))
    for table, names in found:
        for name in (table, *names):
            if not _is_text(name):
                raise InputError(
                    f"{name.encode(errors='backslashreplace').decode()} in {root} has a name that is no text",
                    hint="Names are of UTF-8: rename it.",
                )
    return found


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))


def _is_parquet(path: Path) -> bool:
    return len(path.name) > len(_SUFFIX) and path.name.lower().endswith(_SUFFIX)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes of a file name that Python could not read
        return False
    return True


def _catalogue(root: Path, files: list[tuple[str, list[str]]], before: Catalogue | None, version: int) -> Catalogue:
    known = {} if before is None else {table.name: table for table in before.tables}
    return Catalogue(version, tuple(_table(root, table, names, known.get(table)) for table, names in files))


def _table(root: Path, table: str, names: list[str], before: ChunkedTable | None) -> ChunkedTable:
    known = {} if before is None else {file.name: file for file in before.files}
    files = tuple(read_footer(name, root / name, known.get(name)) for name in names)
    first = files[0]
    for file in files[1:]:
        if file.schema != first.schema:
            raise InputError(
                f"{file.path} and {first.path} are of one table, {table}, but disagree: {_difference(first, file)}",
                hint="Write all files of a table with the same columns and types, in the same order.",
            )
    if before is not None and _first_with_rows(files) is _first_with_rows(before.files):
        return ChunkedTable(table, before.schema, files)
    return ChunkedTable(table, declared_schema(_first_with_rows(files)), files)


def _first_with_rows(files: tuple[DataFile, ...]) -> DataFile:
    return next((file for file in files if file.row_groups), files[0])


def _difference(one: DataFile, other: DataFile) -> str:
    """Return the first difference of two schemas."""
    for left, right in zip(one.schema, other.schema, strict=False):
        if left.name != right.name:
            return f"where one has the column {left.name}, the other has {right.name}"
        if left.type != right.type:
            return f"{left.name} is {left.type} in one and {right.type} in the other"
    return f"one has {len(one.schema)} columns, the other {len(other.schema)}"
