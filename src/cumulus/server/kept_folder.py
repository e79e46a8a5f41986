"""What a keeper has in its folder, beside the warehouse in memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from time import monotonic
from typing import Any

from cumulus.errors import StoreError
from cumulus.server.journal import Journal
from cumulus.server.request_ids import AnsweredIds
from cumulus.server.settings import ServerSettings
from cumulus.server.snapshots import SnapshotManifest, save_snapshot
from cumulus.warehouse import Warehouse

_PASSING_IDS, _PASSING_S = 10_000, 3600.0
_AGAIN_S = 60.0
"""So long after a snapshot that has failed the next one is tried."""


class KeptFolder:
    """The log, the last snapshot, the ids of requests, and the script it was started with."""

    def __init__(self, data: Path, journal: Journal, ids: AnsweredIds, manifest: SnapshotManifest, script: str) -> None:
        self.data, self.journal, self.ids = data, journal, ids
        self.manifest, self.script = manifest, script
        self.problem = ""
        """Why the last snapshot could not be written; "" if it could."""
        self._not_before = 0.0

    @classmethod
    def passing(cls) -> KeptFolder:
        """Return a folder that is removed when nobody has it any more."""
        data = Path(tempfile.mkdtemp(prefix="cumulus-"))
        journal = Journal(data / "log", "off")
        assert not list(journal.replay(0)), "it is new"
        made = cls(data, journal, AnsweredIds(_PASSING_IDS, _PASSING_S), SnapshotManifest(0, 0, "", 0), "")
        weakref.finalize(made, shutil.rmtree, data, ignore_errors=True)
        return made

    def snapshot(self, warehouse: Warehouse) -> None:
        """Write a snapshot, unless nothing has come since the last one, and forget the log before it.

        Raises
        ------
        StoreError
            If the disk does not take it; the last one counts on.
        """
        if self.manifest.sequence == self.journal.last:
            return
        try:
            self.journal.sync()  # or the snapshot might have what the log has not
            self.manifest = save_snapshot(self.data, warehouse, self.ids, self.journal.last, self.script)
            self.journal.forget(self.manifest.sequence)
            self.problem = ""
        except StoreError as problem:
            self.problem = problem.message
            self._not_before = monotonic() + _AGAIN_S
            raise

    def status(self) -> dict[str, Any]:
        """Return the numbers of the log and the snapshot."""
        journal, last = self.journal, self.manifest
        log = {"records": journal.last, "bytes": journal.bytes, "sync_ms": journal.sync_ms, "problem": journal.problem}
        snapshot = {"at": last.at, "records": last.sequence, "bytes": last.bytes, "problem": self.problem}
        return {"log": log, "snapshot": snapshot, "ids": len(self.ids)}

    def is_due(self, settings: ServerSettings) -> bool:
        """Whether the log has outgrown the snapshot; not again at once where the last one has failed."""
        most = max(settings.snapshot_bytes, settings.snapshot_ratio * self.manifest.bytes)
        return self.journal.bytes > most and monotonic() >= self._not_before
