"""Opens a server's folder: loads the snapshot, replays the log behind it, and applies changes of the script."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from cumulus.cluster.live.address import is_cluster_home, is_running
from cumulus.durable.faults import crash_point
from cumulus.durable.folders import refuse_remote
from cumulus.errors import CumulusError, InputError, MemoryLimitError, StoreError
from cumulus.hosts import WriteReceipt
from cumulus.server.journal import Journal
from cumulus.server.kept_folder import KeptFolder
from cumulus.server.packing import Packer
from cumulus.server.records import LogRecord, RecordKind, ViewChange, apply_rows, apply_views
from cumulus.server.request_ids import AnsweredIds, now_ms
from cumulus.server.script_changes import script_change
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from cumulus.server.snapshots import open_snapshot, read_manifest, remove_others, save_snapshot
from cumulus.server.sources import ServedSource
from cumulus.warehouse import Warehouse

SourceKind: TypeAlias = Literal["warehouse", "folder", "cluster"]


def kind_of(place: Path) -> SourceKind:
    """Return what is at a path: a script for a warehouse, the output folder of a run, the home of a running cluster.

    The home of a cluster that does not run is the output folder that the cluster has left.

    Raises
    ------
    InputError
        If there is none of these.
    """
    refuse_remote(place, "")
    if (place / "cumulus.json").exists() or is_cluster_home(place):
        return "cluster" if is_running(place) else "folder"
    if place.is_dir():
        raise InputError(
            f"{place} is neither the output folder of a run nor the home of a cluster",
            hint="Give the folder that --out or --home has named; or a script, with --data for its rows.",
        )
    return "warehouse"


def open_source(place: Path, settings: ServerSettings) -> ServedSource:
    """Return what is at a path as a source; see `kind_of` and `open_keeper`.

    Raises
    ------
    InputError
        If there is nothing to serve at the path, or the run has not committed an epoch yet.
    """
    match kind_of(place):
        case "cluster":
            from cumulus.server.followed.cluster_source import FollowedCluster

            return FollowedCluster(place, settings)
        case "folder":
            from cumulus.server.followed.folder_source import FollowedFolder

            return FollowedFolder(place, settings.functions)
    return open_keeper(place, settings)


def open_keeper(script: Path, settings: ServerSettings) -> SingleWriter:
    """Return the single writer of a folder, which is made where there is none.

    Raises
    ------
    LockedError
        If another server has the folder.
    StoreError
        If it is damaged.
    UsageError
        If the script has other tables than the folder.
    InputError
        If there is no script, or a file in place of the folder.
    """
    text = _read(script)
    data = settings.data
    if data.exists() and not data.is_dir():
        raise InputError(f"{data} is a file", hint="Give --data a folder, or the name of one that is made.")
    journal = Journal(data / "log", settings.sync)
    try:
        return _open(text, script, settings, journal)
    except BaseException:
        journal.close()
        raise


def _read(script: Path) -> str:
    try:
        return script.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read {script}: {problem}", hint="Give the path of a script in UTF-8.") from None


def _open(text: str, script: Path, settings: ServerSettings, journal: Journal) -> SingleWriter:
    data, ids = settings.data, AnsweredIds(settings.kept_ids, settings.kept_ids_s)
    manifest = read_manifest(data)
    if manifest is None:
        warehouse = Warehouse(
            script,
            engine=settings.engine,
            keep=settings.keep,
            memory_limit=settings.memory_limit,
            functions=settings.functions,
        )
        if any(True for _ in journal.replay(0)):
            raise StoreError(f"{data}: there is a log, and no server.json", hint="Restore the folder from a copy.")
        kept = KeptFolder(data, journal, ids, save_snapshot(data, warehouse, ids, 0, text), text)
    else:
        remove_others(data, manifest)
        warehouse = open_snapshot(data, manifest, ids, settings)
        kept = KeptFolder(data, journal, ids, manifest, manifest.script)
        _replay(warehouse, kept)
        _follow(warehouse, kept, text, script.name)
    return SingleWriter(warehouse, kept, settings)


def _replay(warehouse: Warehouse, kept: KeptFolder) -> None:
    """Apply what came after the snapshot."""
    packer = Packer(warehouse.program)
    at = group_at = warehouse.transaction_number
    for number, record in kept.journal.replay(kept.manifest.sequence):
        crash_point("in-recovery")
        if record.at != group_at:
            group_at = record.at
            if at != group_at:
                raise StoreError(
                    f"{kept.data}: before record {number} were {record.at} transactions, and now there are {at}",
                    hint="The log cannot be applied again as it was: was it written with other functions, or by "
                    "another version? Start that one.",
                )
        try:
            rows = _apply(warehouse, packer, kept, record)
        except MemoryLimitError as problem:
            raise MemoryLimitError(
                f"{kept.data}: record {number} of the log cannot be applied: {problem.message}",
                hint="It may have been acknowledged: start the server with a larger --memory.",
            ) from None
        except CumulusError:
            continue  # and so it was when it came: the number of transactions before the next group tells
        if record.kind is RecordKind.DDL:
            packer = Packer(warehouse.program)
        at = warehouse.transaction_number
        kept.ids.add(record.id, record.digest, WriteReceipt(at, rows), record.written_ms)


def _apply(warehouse: Warehouse, packer: Packer, kept: KeptFolder, record: LogRecord) -> int:
    """Apply a record; return how many rows it has."""
    if record.kind is RecordKind.DDL:
        change = ViewChange.of(record.payload)
        apply_views(warehouse, change)
        if change.script is not None:
            kept.script = change.script
        return 0
    parts = packer.unpack(record.payload)
    apply_rows(warehouse, parts)
    return sum(len(part.rows) for part in parts)


def _follow(warehouse: Warehouse, kept: KeptFolder, text: str, name: str) -> None:
    """Change the views as the script has been changed since the server was last started with it."""
    if text == kept.script:
        return
    change = ViewChange(script_change(kept.script, text, name), text)
    record = LogRecord(RecordKind.DDL, change.payload(), written_ms=now_ms(), at=warehouse.transaction_number)
    (number,) = kept.journal.append([record])
    try:
        apply_views(warehouse, change)
    except CumulusError:
        kept.journal.refuse([number])
        raise
    kept.script = text
