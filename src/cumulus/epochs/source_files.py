"""The files of a source: their paths and their bytes, and which objects of an object store they are."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from cumulus.durable.store import Storage, Store, StoredFile, is_address, store_of
from cumulus.epochs.folder_source import FolderSource, is_left_alone
from cumulus.epochs.view_source import epoch_path
from cumulus.errors import InputError


@lru_cache(maxsize=256)
def _store(address: str, storage: Storage) -> Store:
    return store_of(address, storage)


def store_of_source(source: FolderSource) -> Store:
    """Return the store of a source that is an address."""
    return _store(source.path, source.storage)


@lru_cache(maxsize=1024)
def _is_one_object(address: str, storage: Storage) -> bool:
    folder, _, name = address.rpartition("/")
    return not folder.endswith("/") and _store(folder, storage).size(name) is not None


def is_one_object(source: FolderSource) -> bool:
    """Whether a source is an address of one object, not of a folder of them."""
    return _is_one_object(source.path, source.storage)


def list_objects(source: FolderSource, after: str = "") -> dict[str, StoredFile]:
    """Return the data files below the address of a source by their names, in order; hidden ones are left out.

    Parameters
    ----------
    after
        Of the names that sort behind this one alone; the first one may come, too.

    Raises
    ------
    InputError
        If they cannot be listed, or one is in a folder that is none of a partition: its rows would be lost.
    """
    try:
        if is_one_object(source):
            folder, _, name = source.path.rpartition("/")
            found: Iterable[StoredFile] = [each for each in _store(folder, source.storage).list() if each.name == name]
        else:
            # What is behind all but the last letter of a name begins with the name itself: is it as it was?
            found = store_of_source(source).list(after=after[:-1].rstrip("/"))
    except OSError as problem:
        raise InputError(
            f"{problem.filename or source.path}: the source of table {source.relation!r} cannot be listed: "
            f"{problem.strerror}"
        ) from None
    files: dict[str, StoredFile] = {}
    for file in found:
        *folders, name = file.name.split("/")
        if not name or any(is_left_alone(each) for each in (*folders, name)):
            continue
        stray = next((each for each in folders if each.find("=") < 1), None)
        if stray is not None:
            raise InputError(
                f"{source.path}/{file.name}: the files of a table are in one folder, or in those of partitions (k=1)",
                hint="Move its files up, or give the folder a name that begins with '_': such names are left alone "
                f"(table {source.relation!r}).",
            )
        files[file.name] = file
    return files


def check_objects(source: FolderSource) -> None:
    """Raise InputError if nothing is at the address of a source, or it cannot be asked."""
    try:
        if is_one_object(source) or store_of_source(source).list():
            return
    except OSError as problem:
        raise InputError(
            f"{source.path}: the source of table {source.relation!r} cannot be read: {problem.strerror}"
        ) from None
    raise InputError(
        f"{source.path}: there is nothing there for table {source.relation!r}",
        hint="Correct the address; or, if its files come later, put an empty object _begin there.",
    )


def object_store(source: FolderSource, path: str) -> tuple[Store, str]:
    """Return the store of a file of a source, and its name there."""
    if path == source.path:
        folder, _, name = path.rpartition("/")
        return _store(folder, source.storage), name
    return store_of_source(source), path.removeprefix(f"{source.path}/")


def opened(source: FolderSource, path: str) -> Any:
    """Return what Arrow reads a file of a source from: its path, or ranges of an object."""
    if not is_address(path):
        return path
    store, name = object_store(source, path)
    return store.open(name)


def opened_bytes(source: FolderSource, path: str) -> str | io.BytesIO:
    """Return what a file of text is read from: its path, or the bytes of an object."""
    if not is_address(path):
        return path
    store, name = object_store(source, path)
    return io.BytesIO(store.get(name))


def file_path(source: FolderSource, name: str) -> str:
    """Return the path of the file of `source` called `name`."""
    if source.view:
        return epoch_path(source, name)
    if is_address(source.path):
        return source.path if is_one_object(source) else f"{source.path}/{name}"
    path = Path(source.path)
    return str(path if path.is_file() else path / name)
