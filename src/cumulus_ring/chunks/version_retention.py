"""Version retention: the supervisor notices new versions of a ring's source and keeps their files by hard links.

The files of an epoch may be deleted by the run that writes them, and those of a plain folder replaced by anybody, while
queries still read them. So the supervisor gives each file of the last few versions a name of the ring's own, a hard
link `RING/files/STAMP`, and tells of a version only when all of its links are there. What no version lists
is removed. All nodes beside the supervisor read the same links, and make none; others read the files where they are.

- The steps are: read the footers, make links, look whether they are links to what was read, write the version, remove
  old versions, remove links. After a crash between any two of them there are links too many, which the next
  supervisor removes; there is never a version without its links.
- A file that was replaced has another stamp, so another link; the old one keeps its rows. One that was written into
  changes under its link: the versions that list it are gone, as they cannot be read any more.
- Where hard links cannot be made (another file system, files of another user, no such links there), files are read
  where they are: `unlinked` says which and why. A copy would take the disk a second time and minutes at the start; and
  to refuse would keep rings from disks that can only be read. The price is that a version goes with its files.
- A version that all nodes have adopted needs no files: `let_go` removes its links, and its source may go.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

from cumulus.durable.folders import lock_file
from cumulus.errors import InputError, LockedError, StoreError
from cumulus_ring.chunks.catalogue import Catalogue, DataFile
from cumulus_ring.chunks.catalogue_json import link_name
from cumulus_ring.chunks.folders import newest_epoch, read_source, source_identity
from cumulus_ring.chunks.kept_versions import (
    SourceVersion,
    links_folder,
    numbers_of_versions,
    read_version,
    versions_folder,
    write_version,
)
from cumulus_ring.chunks.parquet_files import file_stamp

KEEP = 3
"""Versions that are kept, if nobody says otherwise."""
_TRIES = 5
_NO_LINKS = frozenset((errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS))


class VersionRetention:
    """The versions of one source, for a ring.

    Parameters
    ----------
    source
        A folder of Parquet files, or an output folder (`cumulus_ring.chunks.folders`).
    ring
        The folder of the ring; versions and links from an earlier supervisor are used.
    keep
        How many versions are kept, the last ones.

    Raises
    ------
    LockedError
        If another process holds the lock of the ring.
    StoreError
        If the folder of the ring cannot be written.
    """

    def __init__(self, source: str | Path, ring: str | Path, keep: int = KEEP) -> None:
        assert keep > 0, "the last version is always kept"
        self.source = Path(source).absolute()
        self.unlinked = ""
        """Which file of the last version is read where it is, and why; empty if all have links."""
        self._ring = Path(ring).absolute()
        self._files = links_folder(self._ring)
        self._keep = keep
        self._versions: dict[int, SourceVersion] = {}
        try:
            for folder in (self._files, versions_folder(self._ring)):
                folder.mkdir(parents=True, exist_ok=True)
            lock: IO[bytes] | None = lock_file(versions_folder(self._ring) / ".lock")
        except OSError as problem:
            raise self._unwritable(problem) from None
        if lock is None:
            raise LockedError(f"{self._ring} is the folder of a ring that runs", hint="Stop it, or use another folder.")
        self._lock = lock
        self._find()

    def close(self) -> None:
        """Release the lock of the ring's folder; versions and links stay for the next supervisor."""
        self._lock.close()

    @property
    def epochs(self) -> tuple[int, ...]:
        """The versions that nodes can read, in order."""
        return tuple(self._versions)

    @property
    def catalogues(self) -> Mapping[int, Catalogue]:
        """Version → its catalogue, in order."""
        return {number: each.catalogue for number, each in self._versions.items()}

    @property
    def newest(self) -> Catalogue | None:
        """The last version; None before the first `refresh`."""
        return self._versions[self.epochs[-1]].catalogue if self._versions else None

    def refresh(self) -> Catalogue:
        """Look at the source; return the last version, which is another one if the source has changed.

        Where nothing has changed, this is one look into a folder for an output folder, and one at each file for others.

        Raises
        ------
        InputError
            If the source cannot be read as it is now; the versions that are there stay.
        StoreError
            If the folder of the ring cannot be written, or a manifest not read.
        """
        origin = source_identity(self.source)
        same = [each for each in self._versions.values() if each.origin == origin]
        newest = same[-1].catalogue if same else None
        if newest is not None and newest_epoch(self.source) == newest.version:
            return newest
        try:
            for _ in range(_TRIES):
                found = read_source(self.source, newest)
                if newest is not None and found.tables == newest.tables and newest_epoch(self.source) is None:
                    return newest
                with contextlib.suppress(_ChangedError):
                    linked = self._linked(found)
                    self._add(SourceVersion(origin, linked))
                    return linked
        except OSError as problem:
            raise self._unwritable(problem) from None
        raise InputError(
            f"{self.source} changes faster than it can be read",
            hint="Wait until its files are written.",
        )

    def let_go(self, epoch: int) -> None:
        """Remove what a version needs of the source: all nodes have adopted its chunks."""
        version = self._versions[epoch]
        tables = [
            replace(table, files=tuple(replace(file, link=None) for file in table.files))
            for table in version.catalogue.tables
        ]
        try:
            self._write(SourceVersion(version.origin, version.catalogue.with_tables(epoch, tables), is_adopted=True))
            self._remove_links()
        except OSError as problem:
            raise self._unwritable(problem) from None

    # --- Versions -----------------------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Load the complete versions that an earlier supervisor wrote."""
        try:
            for half in versions_folder(self._ring).glob(".?*"):
                if half.name != ".lock":
                    half.unlink()
            found = {number: read_version(self._ring, number) for number in numbers_of_versions(self._ring)}
            self._versions = {number: version for number, version in found.items() if version is not None}
            self._retire()
        except OSError as problem:
            raise self._unwritable(problem) from None

    def _add(self, version: SourceVersion) -> None:
        self._versions = {number: each for number, each in self._versions.items() if each.origin == version.origin}
        self._write(version)
        self._retire()

    def _write(self, version: SourceVersion) -> None:
        write_version(self._ring, version, self.source)
        self._versions[version.catalogue.version] = version

    def _retire(self) -> None:
        """Remove versions that are too old or cannot be read, then links that nobody lists."""
        last = list(self._versions)[-self._keep :]
        stamps: dict[Path, tuple[int, ...] | None] = {}
        self._versions = {
            number: each
            for number, each in self._versions.items()
            if number in last and (each.is_adopted or _is_whole(each.catalogue, stamps))
        }
        for number in numbers_of_versions(self._ring):
            if number not in self._versions:
                (versions_folder(self._ring) / str(number)).unlink(missing_ok=True)
        self._remove_links()

    # --- Links --------------------------------------------------------------------------------------------------------

    def _linked(self, found: Catalogue) -> Catalogue:
        """Return a catalogue that was just read with links to all of its files that can have one.

        Raises
        ------
        _ChangedError
            If a link is not to what was read.
        """
        self.unlinked = ""
        tables = []
        for table in found.tables:
            files = tuple(self._with_link(file) for file in table.files)
            tables.append(table if files == table.files else replace(table, files=files))
        linked = found.with_tables(found.version, tables)
        if not _is_whole(linked, {}):
            self._remove_links()
            raise _ChangedError
        return linked

    def _with_link(self, file: DataFile) -> DataFile:
        link = self._files / link_name(file.stamp)
        try:
            os.link(os.path.realpath(file.path), link)
        except FileExistsError:
            pass
        except FileNotFoundError:
            if self._files.is_dir():
                raise _ChangedError from None
            raise
        except OSError as problem:
            if problem.errno not in _NO_LINKS:
                raise
            self.unlinked = self.unlinked or f"{file.path} is read where it is: {problem.strerror}"
            return file if file.link is None else replace(file, link=None)
        return file if file.link == link else replace(file, link=link)

    def _remove_links(self) -> None:
        listed = {file.link for each in self._versions.values() for file in _files(each.catalogue)}
        for link in self._files.iterdir():
            if link not in listed:
                link.unlink(missing_ok=True)

    def _unwritable(self, problem: OSError) -> StoreError:
        return StoreError(
            f"{self._ring}: the folder of the ring cannot be written: {problem.strerror}",
            hint="Make room or allow it, or use another folder.",
        )


class _ChangedError(Exception):
    """A file is not what was read a moment ago."""


def _files(catalogue: Catalogue) -> Collection[DataFile]:
    return [file for table in catalogue.tables for file in table.files]


def _is_whole(catalogue: Catalogue, stamps: dict[Path, tuple[int, ...] | None]) -> bool:
    """Whether all files of a version are what they were; `stamps` has those of places that were looked at before."""
    for file in _files(catalogue):
        place = file.link or file.path
        if place not in stamps:
            try:
                stamps[place] = file_stamp(place)
            except (OSError, InputError):
                stamps[place] = None
        if stamps[place] != file.stamp:
            return False
    return True
