"""Files that are on the disk whole, or not at all: written aside, synced, then given their name."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cumulus.durable.folders import sync_folder
from cumulus.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def open_synced(path: Path) -> Iterator[BinaryIO]:
    """Open a new file whose bytes are on the disk when the block ends."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def open_durably(path: Path) -> Iterator[BinaryIO]:
    """Open a file of a run as `open_synced` does; if the disk does not take it, it is removed again.

    Raises
    ------
    StoreError
        If the disk does not take it.
    """
    try:
        with open_synced(path) as file:
            yield file
    except OSError as problem:
        with suppress(OSError):
            path.unlink()
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        raise StoreError(
            f"{path.parent}: cannot be written: {reason}",
            hint="Make room there, or give the right to write, and start the run again: it goes on after the last "
            "committed epoch.",
        ) from None


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table down to the disk; folders are made. The entry in its folder is not synced: `sync_entries`."""
    from cumulus.durable.parquet_writing import write_parquet_table  # a saved warehouse is no Parquet

    make_folder(path.parent)
    with open_durably(path) as file:
        write_parquet_table(table, file)


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes down to the disk as `write_parquet` does."""
    make_folder(path.parent)
    with open_durably(path) as file:
        file.write(data)


def make_folder(path: Path) -> None:
    """Make a folder, with those that it is in, whose entries are on the disk then."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_entries(paths: Iterable[Path]) -> None:
    """Bring the entries of written files to the disk, each folder once: a synced file may have no name after a crash.

    What refers to files is written behind this.
    """
    for folder in dict.fromkeys(path.parent for path in paths):
        sync_folder(folder)


def aside_of(place: Path) -> Path:
    """Return an unused hidden name beside `place`."""
    return place.with_name(f".{place.name}-{uuid.uuid4().hex}")


@contextmanager
def written_aside(place: Path) -> Iterator[Path]:
    """Yield a path to write a file or folder at; it is renamed to `place` when the block ends, and removed if it fails.

    Nobody sees half of it, but it is not synced: for what can be made again.
    """
    aside = aside_of(place)
    try:
        yield aside
        aside.rename(place)
    except BaseException:
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)
        raise


def write_durably(place: Path, data: bytes) -> None:
    """Write a file so that it is there, whole, after a power failure; replaces an old one in one step."""
    aside = aside_of(place)
    write_bytes(aside, data)
    aside.rename(place)
    sync_folder(place.parent)


def read_number(path: Path, hint: str) -> int:
    """Return the number in a file; 0 if it is not there.

    Parameters
    ----------
    hint
        What to do if it cannot be read.

    Raises
    ------
    StoreError
        If it cannot be read.
    """
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}", hint=hint) from None


def create_durably(place: Path, data: bytes) -> bool:
    """Like `write_durably`, but return False and change nothing if the file is there."""
    aside = aside_of(place)
    write_bytes(aside, data)
    try:
        os.link(aside, place)
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_folder(place.parent)
    return True
