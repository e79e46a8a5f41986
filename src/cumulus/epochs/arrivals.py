"""Which files of a folder make the next epoch: those that were not taken before, in the order of names or of time.

Names that a person gives sort as they come. Spark's do not, `part-00000-<uuid>` of each job, and partition folders: in
such a folder files are taken by the time of their last change, and each that was taken is remembered by a hash of its
name. What comes late is taken all the same, since nothing in these folders says an order.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cumulus.durable.store import StoredFile, is_address
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.folder_source import BY_TIME, FolderSource, is_left_alone
from cumulus.epochs.source_files import file_path, list_objects
from cumulus.epochs.view_source import check_kept, list_epochs
from cumulus.errors import InputError

_SPARKS = re.compile(r"part-\d{5}-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b.*")
_MARKS = ("_SUCCESS", "_spark_metadata")


def list_files(source: FolderSource) -> list[str]:
    """Return the names of the data files of `source`, in order; hidden and unfinished ones are left out.

    Files in partition folders, such as ``k=1/``, have their folder in their name.

    Raises
    ------
    InputError
        If the folder cannot be listed, or has something that is no file: its rows would be lost.
    """
    if source.view:
        return list_epochs(source)
    if is_address(source.path):
        return list(list_objects(source))
    path = Path(source.path)
    if path.is_file():
        return [path.name]
    try:
        return sorted(_files_in(source, path, ""))
    except OSError as problem:
        raise InputError(
            f"{source.path}: the source of table {source.relation!r} cannot be listed: {problem.strerror}"
        ) from None


def _files_in(source: FolderSource, folder: Path, prefix: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        found = [each for each in entries if not is_left_alone(each.name)]
    for entry in found:
        if entry.is_symlink():  # of one that leads in a circle the entry itself would raise
            is_file, is_folder = os.path.isfile(entry), os.path.isdir(entry)
        else:
            is_file, is_folder = entry.is_file(), entry.is_dir()
        if is_file:
            yield prefix + entry.name
        elif is_folder and entry.name.find("=") > 0:
            yield from _files_in(source, folder / entry.name, f"{prefix}{entry.name}/")
        elif not (is_folder and not os.listdir(entry)):
            raise _no_file(source, entry)


def _no_file(source: FolderSource, entry: os.DirEntry[str]) -> InputError:
    """Return what to say of an entry that is no file."""
    if os.path.isdir(entry):
        what, way = (
            "a folder; the files of a table are in one folder, or in those of partitions (k=1)",
            "Move its files up",
        )
    elif entry.is_symlink():
        there = "neither a file nor a folder" if os.path.exists(entry) else "not there"
        what, way = f"a link to {os.readlink(entry)}, which is {there}", "Mend the link"
    else:
        what, way = "neither a file nor a folder", "Put a file in its place"
    return InputError(
        f"{entry.path}: this is {what}",
        hint=f"{way}, or give it a name that begins with '_': such names are left alone (table {source.relation!r}).",
    )


Progress = dict[str, dict[str, Any]]
"""Table → {"last": name of the last file taken, "count": files taken so far}, its "size" where that is known, and how
many of the others were "gone" by then: were they still counted on, as many late files would not be noticed. Where files
are taken by time, "taken" has the hashes of the names of all that were taken, `_HASH` characters each.

It is JSON, part of every offset.
"""


def progress_of(manifest: Manifest) -> Progress:
    """Return which files were in after an epoch.

    Raises
    ------
    InputError
        If a source is not a folder.
    """
    offsets: Any = manifest.offsets
    if isinstance(offsets, list) and offsets and isinstance(offsets[0], dict) and "done" in offsets[0]:
        offsets = json.loads(offsets[0]["done"])
    if not isinstance(offsets, dict) or not all(isinstance(each, dict) for each in offsets.values()):
        raise InputError(
            f"epoch {manifest.epoch} does not say which files it has read: its sources were not folders",
            hint="Only runs over folders can be rechecked, or go on in other buckets.",
        )
    return {name: dict(each) for name, each in offsets.items()}


_HASH = 11
"""Characters of the hash of a name: 64 bits in base64."""
_START = {"last": "", "count": 0}


@dataclass(frozen=True, slots=True)
class ObjectList:
    """What is below an address: all, or what sorts behind the last file that was taken, and that one."""

    files: Mapping[str, StoredFile]
    is_whole: bool


class ObjectLists:
    """What was listed of sources in object stores: once each.

    Parameters
    ----------
    is_whole
        Ask for everything, so that a file that came late under an earlier name is seen; else only for what is behind
        the last file that was taken, if files are taken by name.
    """

    def __init__(self, *, is_whole: bool = True) -> None:
        self._is_whole = is_whole
        self._lists: dict[str, ObjectList] = {}

    def of(self, source: FolderSource, state: Mapping[str, Any]) -> ObjectList:
        """Return what is below the address of a source of which a state says what was taken."""
        if source.relation not in self._lists:
            is_whole = self._is_whole or not state["last"] or "taken" in state
            files = list_objects(source, "" if is_whole else state["last"])
            self._lists[source.relation] = ObjectList(files, is_whole)
        return self._lists[source.relation]


def next_files(
    sources: Iterable[FolderSource],
    done: Mapping[str, Mapping[str, Any]],
    limit: int,
    target: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    sizes: bool = False,
    lists: ObjectLists | None = None,
) -> tuple[dict[str, list[str]], Progress]:
    """Return the files of the next epoch and the progress after it.

    Parameters
    ----------
    limit
        Files of one table an epoch, at most; 0 means all there are.
    target
        A progress not to go beyond.
    sizes
        Whether to note the size of the last file, for those who keep the progress only if the file could be read: Spark
        writes it down before, and a file that was broken may be put right.
    lists
        What is known to be in object stores, and how much of it is to be asked; each address is listed once.

    Returns
    -------
    tuple
        Table → names in order (tables without new files are left out), and the new progress.

    Raises
    ------
    InputError
        If the last file taken has another size by now, or, in the order of names, one appeared whose name sorts before
        one already taken: its rows would be lost.
    """
    files: dict[str, list[str]] = {}
    after: Progress = {}
    for source in sources:
        state = dict(done.get(source.relation, _START))
        objects = (lists or ObjectLists()).of(source, state) if is_address(source.path) else None
        if objects is not None and not objects.is_whole:
            names = [name for name in objects.files if name > state["last"]]
            new = names
        else:
            names = list_files(source) if objects is None else list(objects.files)
            if source.view:
                check_kept(source, state, names)
            by_time = _goes_by_time(source, state, names)
            new = _by_time(source, state, names, objects) if by_time else _by_name(source, state, names)
        check_unchanged(source, state, objects)
        if target is not None:
            new = _up_to(target.get(source.relation, _START), new)
        new = new[: None if source.whole else limit or None]
        if new:
            files[source.relation] = new
            state |= {"last": new[-1], "count": state["count"] + len(new)}
            state.pop("size", None)
            state.pop("etag", None)
            if objects is not None:
                state |= {"size": objects.files[new[-1]].size, "etag": objects.files[new[-1]].etag}
            elif sizes:
                state["size"] = _size_of(source, new[-1])
            if "taken" in state:
                state["taken"] += "".join(map(_hash_of, new))
        after[source.relation] = state
    return files, after


def _goes_by_time(source: FolderSource, state: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether files are taken by time: as it was begun, else as the source says, else where Spark has written."""
    if source.view:
        return False
    if state["count"] or source.files:
        return "taken" in state or source.files == BY_TIME
    if is_address(source.path):
        return any("/" in name or _SPARKS.fullmatch(name) for name in names)
    if Path(source.path).is_file():
        return False
    has_mark = any((Path(source.path) / mark).exists() for mark in _MARKS)
    return has_mark or any("/" in name or _SPARKS.fullmatch(name) for name in names)


def _by_name(source: FolderSource, state: dict[str, Any], names: list[str]) -> list[str]:
    """Return the names that sort after the last file taken; how many of those before it are gone becomes part of the
    state.
    """
    taken = [name for name in names if name <= state["last"]]
    known = state["count"] - state.get("gone", 0)
    if len(taken) > known:
        raise InputError(
            f"{source.path}: {len(taken)} files sort up to {state['last']!r}, but only {known} are in: "
            f"a file came late under an earlier name",
            hint="Files are read in the order of their names; rename the late one to sort after the last, or start "
            f"anew with files={BY_TIME}.",
        )
    new = names[len(taken) :]
    gone = state["count"] - len(taken)
    if new and gone:
        state["gone"] = gone
    return new


def _by_time(
    source: FolderSource, state: dict[str, Any], names: list[str], objects: ObjectList | None = None
) -> list[str]:
    """Return the names of files that were not taken, the one that was changed first in front."""
    if "taken" not in state:  # what was begun by name goes on by time
        new = set(_by_name(source, state, names)) if state["count"] else set(names)
        state["taken"] = "".join(_hash_of(name) for name in names if name not in new)
    hashes = _hashes_in(state)
    fresh = [name for name in names if _hash_of(name) not in hashes]
    if objects is not None:
        times = {name: objects.files[name].changed_ns for name in fresh}
    else:
        times = {name: _time_of(source, name) for name in fresh}
    return sorted(times, key=lambda name: (times[name], name))


def _up_to(target: Mapping[str, Any], names: list[str]) -> list[str]:
    """Return the names that a progress has taken."""
    if "taken" in target:
        hashes = _hashes_in(target)
        return [name for name in names if _hash_of(name) in hashes]
    return [name for name in names if name <= target["last"]]


def _hash_of(name: str) -> str:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return base64.urlsafe_b64encode(digest).decode()[:_HASH]


def _hashes_in(state: Mapping[str, Any]) -> set[str]:
    taken: str = state["taken"]
    return {taken[at : at + _HASH] for at in range(0, len(taken), _HASH)}


def _time_of(source: FolderSource, name: str) -> int:
    """Return when a file was changed, in nanoseconds; 0 if it has gone, which its reader tells."""
    try:
        return os.stat(file_path(source, name)).st_mtime_ns
    except OSError:
        return 0


def check_unchanged(source: FolderSource, state: Mapping[str, Any], objects: ObjectList | None = None) -> None:
    """Raise InputError if the last file taken is there with another size: rows that were added would be lost.

    Of an object store, also if its content is another one.
    """
    taken = state.get("size")  # neither outputs of an earlier version nor Spark's have it
    if is_address(source.path):
        _check_object(source, state, objects)
        return
    now = None if taken is None else _size_of(source, state["last"])
    if now is not None and now != taken:
        raise InputError(
            f"{file_path(source, state['last'])}: it has {now:,} bytes, and had {taken:,} when it was read; what was "
            "read is not read again",
            hint="Put it back as it was. New rows go into a file of their own in the table's folder, with a name that "
            "sorts after it.",
        )


def _check_object(source: FolderSource, state: Mapping[str, Any], objects: ObjectList | None) -> None:
    if "etag" not in state:
        return
    file = (ObjectLists().of(source, state) if objects is None else objects).files.get(state["last"])
    if file is not None and (file.size, file.etag) != (state["size"], state["etag"]):
        raise InputError(
            f"{file_path(source, state['last'])}: this object was replaced after it was read: {file.size:,} bytes "
            f"({file.etag}) are not {state['size']:,} ({state['etag']}); what was read is not read again",
            hint="Put it back as it was. New rows go into an object of their own, with a name that sorts after it.",
        )


def _size_of(source: FolderSource, name: str) -> int | None:
    try:
        return os.stat(file_path(source, name)).st_size
    except OSError:
        return None


def files_left(
    sources: Iterable[FolderSource], done: Mapping[str, Mapping[str, Any]], lists: ObjectLists | None = None
) -> int:
    """Return how many files are there beyond the progress `done`."""
    files, _ = next_files(sources, done, 0, lists=lists)
    return sum(map(len, files.values()))
