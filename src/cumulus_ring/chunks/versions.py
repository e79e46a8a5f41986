"""The versions of a source that a ring knows, as all of its processes on one machine see them: a file for each.

A version is a committed epoch of an output folder, or a state of a plain folder; the word on the ring is epoch for
both. The supervisor of the ring (`version_retention`) writes `RING/versions/NUMBER` with the whole catalogue; nodes
read it here and need to be told its number alone. To send a catalogue rather than to let each node read the footers was
measured: of TPC-H at scale factor 1 it takes a node 7 ms instead of 120, of which most go into texts that are read to
know whether they are dictionaries; and it can be had when the source has gone.

Nodes write nothing here. A version that they have read may be retired at any time: then it is told of as soon as it
is asked for again.
"""

from __future__ import annotations

import pickle
import re
import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cumulus.durable.files import open_synced, written_aside
from cumulus.durable.folders import sync_folder
from cumulus.errors import EpochMissingError
from cumulus.version import VERSION
from cumulus_ring.chunks.catalogue import Catalogue, Chunk

_HEAD = struct.Struct("<8sI")
_MAGIC = b"cumulus3"
_NUMBER = re.compile("[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """A version of a source.

    Parameters
    ----------
    origin
        What it is a version of: versions of two sources never stand side by side.
    is_adopted
        The nodes have all of its chunks on their disks, so that it needs no files.
    """

    origin: str
    catalogue: Catalogue
    is_adopted: bool = False


def versions_folder(ring: Path) -> Path:
    """Return where the versions of a ring are."""
    return ring / "versions"


def numbers_of_versions(ring: Path) -> list[int]:
    """Return the numbers of the versions that are there, in order."""
    try:
        return sorted(int(file.name) for file in versions_folder(ring).iterdir() if _NUMBER.fullmatch(file.name))
    except FileNotFoundError:
        return []


def write_version(ring: Path, version: SourceVersion) -> None:
    """Write a version in one atomic step; only the supervisor calls this.

    Raises
    ------
    OSError
        If the disk does not take it.
    """
    catalogue = version.catalogue
    said = pickle.dumps((VERSION, version.origin, version.is_adopted, catalogue.version, catalogue.tables), protocol=5)
    place = versions_folder(ring) / str(catalogue.version)
    with written_aside(place) as aside, open_synced(aside) as file:
        file.write(_HEAD.pack(_MAGIC, zlib.crc32(said)) + said)
    sync_folder(place.parent)


def read_version(ring: Path, number: int) -> SourceVersion | None:
    """Return a version; None if it is not there whole, or was written by another release.

    Raises
    ------
    OSError
        If the disk cannot read it.
    """
    try:
        data = (versions_folder(ring) / str(number)).read_bytes()
    except FileNotFoundError:
        return None
    said = memoryview(data)[_HEAD.size :]
    if data[: _HEAD.size] != _HEAD.pack(_MAGIC, zlib.crc32(said)):
        return None
    release, *rest = pickle.loads(said)
    if release != VERSION:
        return None
    origin, is_adopted, found, tables = rest
    return SourceVersion(origin, Catalogue(found, tables), is_adopted)


class SourceVersions:
    """What a node of a ring knows of its source; any number of processes may look at one ring.

    Parameters
    ----------
    ring
        The folder of the ring.
    """

    def __init__(self, ring: str | Path) -> None:
        self._ring = Path(ring)
        self._known: dict[int, tuple[tuple[int, int], Catalogue]] = {}

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that are there, in order."""
        return tuple(numbers_of_versions(self._ring))

    def catalogue(self, epoch: int | None = None) -> Catalogue:
        """Return the catalogue of an epoch; of the last one if none is named.

        Raises
        ------
        EpochMissingError
            If it is not there, or not any more.
        """
        for number in reversed(self.epochs) if epoch is None else (epoch,):
            found = self._read(number)
            if found is not None:
                return found
        there = self.epochs
        if not there:
            raise EpochMissingError("the ring has no epoch of its source", hint="Wait until it has read its source.")
        known = " and ".join(filter(None, (", ".join(map(str, there[:-1])), str(there[-1]))))
        raise EpochMissingError(
            f"the ring has no epoch {epoch}, or not any more",
            epochs=there,
            hint=f"It has {known}; without an epoch a query is about the last one.",
        )

    def chunks(self) -> dict[int, Chunk]:
        """Return all chunks of all epochs that are there."""
        known = [found for found in map(self._read, self.epochs) if found is not None]
        return {number: chunk for catalogue in known for number, chunk in catalogue.chunks.items()}

    def share(self, member: str, members: Collection[str]) -> list[Chunk]:
        """Return the chunks that a member of a ring owns of all epochs that are there, each once."""
        known = [found for found in map(self._read, self.epochs) if found is not None]
        return list({chunk.id: chunk for catalogue in known for chunk in catalogue.share(member, members)}.values())

    def chunk(self, number: int) -> Chunk | None:
        """Return the chunk of a number, whichever epoch it is in; None if no epoch that is there has it."""
        for epoch in reversed(self.epochs):
            found = self._read(epoch)
            if found is not None and number in found.chunks:
                return found.chunks[number]
        return None

    def _read(self, number: int) -> Catalogue | None:
        try:
            facts = (versions_folder(self._ring) / str(number)).stat()
        except FileNotFoundError:
            return None
        seen = (facts.st_ino, facts.st_mtime_ns)  # another source may have an epoch of the same number
        known = self._known.get(number)
        if known is not None and known[0] == seen:
            return known[1]
        found = read_version(self._ring, number)
        if found is None:
            return None
        there = self.epochs
        # Replaced as a whole: several threads may look at once, and one that comes too late reads once more.
        others = {each: other for each, other in self._known.items() if each in there and each != number}
        self._known = {**others, number: (seen, found.catalogue)}
        return found.catalogue
