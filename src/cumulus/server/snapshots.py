"""Snapshots of a server: its warehouse and the ids of its requests, as they were after a record of the log.

A snapshot is a folder of its own; the manifest names it, and is replaced when all of it is on the disk. So whenever the
process is killed, the manifest names a whole snapshot, and the log has what came behind it.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from cumulus.durable.faults import crash_point
from cumulus.durable.files import write_durably
from cumulus.durable.folders import sync_folder
from cumulus.errors import CumulusError, MismatchError, StoreError
from cumulus.server.request_ids import AnsweredIds
from cumulus.server.settings import ServerSettings
from cumulus.version import VERSION
from cumulus.warehouse import Warehouse

_FORMAT = 1
_MANIFEST = "server.json"
_WAREHOUSE, _IDS = "warehouse", "ids.arrow"


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """Which snapshot counts.

    Parameters
    ----------
    sequence
        The number of the last record of the log that is in it.
    at
        That of the last transaction that is in it.
    script
        The file of tables and views that the server was last started with.
    bytes
        How large it is.
    """

    sequence: int
    at: int
    script: str
    bytes: int
    version: str = VERSION
    format: int = _FORMAT

    def folder(self, data: Path) -> Path:
        """Return where the snapshot is."""
        return data / f"snapshot-{self.sequence:020d}"

    def places(self, data: Path) -> tuple[Path, ...]:
        """Return the files and folders without which it cannot be opened."""
        folder = self.folder(data)
        return data / _MANIFEST, folder / _WAREHOUSE, folder / _IDS


def read_manifest(data: Path) -> SnapshotManifest | None:
    """Return what the manifest of a server's folder says; None if there is none.

    Raises
    ------
    StoreError
        If it cannot be read.
    MismatchError
        If another version has written it in another format.
    """
    path = data / _MANIFEST
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise MismatchError(
                f"{path}: Cumulus {found['version']} has written it in format {found['format']}, not {_FORMAT}",
                hint="Start the server with the version that wrote it.",
            )
        return SnapshotManifest(**found)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreError(f"{path} cannot be read: {problem}", hint="Give the right to read it.") from None
    except (KeyError, TypeError, ValueError) as problem:
        raise StoreError(f"{path} is damaged: {problem!r}", hint="Restore the folder from a copy.") from None


def save_snapshot(data: Path, warehouse: Warehouse, ids: AnsweredIds, sequence: int, script: str) -> SnapshotManifest:
    """Write a snapshot, and have the manifest name it; remove the one before.

    Raises
    ------
    StoreError
        If the disk does not take it; the snapshot before counts on.
    """
    at = warehouse.transaction_number
    folder = SnapshotManifest(sequence, at, script, 0).folder(data)
    try:
        shutil.rmtree(folder, ignore_errors=True)  # what a kill has left
        folder.mkdir(parents=True)
        crash_point("in-snapshot")
        warehouse.save(folder / _WAREHOUSE)
        ids.save(folder / _IDS)
        sync_folder(folder)
        sync_folder(data)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        manifest = SnapshotManifest(sequence, at, script, size)
        write_durably(data / _MANIFEST, json.dumps(asdict(manifest), indent=1).encode())
    except (OSError, CumulusError) as problem:
        shutil.rmtree(folder, ignore_errors=True)
        raise StoreError(
            f"{data}: no snapshot can be written: {getattr(problem, 'message', problem)}",
            hint="Make room there; the log has all that a snapshot would have.",
        ) from None
    crash_point("after-snapshot")
    remove_others(data, manifest)
    return manifest


def remove_others(data: Path, manifest: SnapshotManifest) -> None:
    """Remove the snapshots that do not count."""
    for other in data.glob("snapshot-*"):
        if other != manifest.folder(data):
            shutil.rmtree(other, ignore_errors=True)  # what a kill leaves here, the next one removes


def open_snapshot(data: Path, manifest: SnapshotManifest, ids: AnsweredIds, settings: ServerSettings) -> Warehouse:
    """Return the warehouse of a snapshot, and add the ids that it has to `ids`."""
    folder = manifest.folder(data)
    ids.load(folder / _IDS)
    return Warehouse.load(
        folder / _WAREHOUSE,
        engine=settings.engine,
        memory_limit=settings.memory_limit,
        functions=settings.functions,
    )
