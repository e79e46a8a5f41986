"""The versions of a source in the folder of a ring, for the keeper's next life: `RING/versions/NUMBER`, a file each.

Only the keeper of the ring reads and writes them (`version_retention`); nodes are told of versions by messages.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from cumulus.durable.files import open_synced, written_aside
from cumulus.durable.folders import sync_folder
from cumulus.version import VERSION
from cumulus_ring.chunks.catalogue import Catalogue
from cumulus_ring.chunks.catalogue_json import catalogue_of, catalogue_said

_HEAD = struct.Struct("<8sI")
_MAGIC = b"cumulus4"
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


def links_folder(ring: Path) -> Path:
    """Return where a ring's own links to the files of its source are."""
    return ring / "files"


def numbers_of_versions(ring: Path) -> list[int]:
    """Return the numbers of the versions that are there, in order."""
    try:
        return sorted(int(file.name) for file in versions_folder(ring).iterdir() if _NUMBER.fullmatch(file.name))
    except FileNotFoundError:
        return []


def write_version(ring: Path, version: SourceVersion, source: Path) -> None:
    """Write a version in one atomic step.

    Raises
    ------
    OSError
        If the disk does not take it.
    """
    catalogue = version.catalogue
    plain = [VERSION, str(source), version.origin, version.is_adopted, catalogue_said(catalogue)]
    said = json.dumps(plain).encode()
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
    release, *rest = json.loads(bytes(said))
    if release != VERSION:
        return None
    source, origin, is_adopted, catalogue = rest
    return SourceVersion(origin, catalogue_of(catalogue, Path(source), links_folder(ring)), is_adopted)
