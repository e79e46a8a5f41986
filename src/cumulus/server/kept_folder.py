"""What a single writer has in its folder, beside the warehouse in memory."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from cumulus.durable.folders import HeldFolder
from cumulus.errors import StoreError, StoreLostError
from cumulus.server.journal import Journal
from cumulus.server.request_ids import AnsweredIds
from cumulus.server.settings import ServerSettings
from cumulus.server.snapshots import SnapshotManifest, save_snapshot
from cumulus.warehouse import Warehouse

_PASSING_IDS, _PASSING_S = 10_000, 3600.0
_AGAIN_S = 60.0
"""So long after a snapshot that has failed the next one is tried."""
_TRIAL_BYTES = 64 << 10
_LOOK_S = 1.0
"""So often the last snapshot is looked for, before something is written."""


class KeptFolder:
    """The log, the last snapshot, the ids of requests, and the script it was started with."""

    def __init__(self, data: Path, journal: Journal, ids: AnsweredIds, manifest: SnapshotManifest, script: str) -> None:
        self.data, self.journal, self.ids = data, journal, ids
        self.manifest, self.script = manifest, script
        self.problem = ""
        """Why the last snapshot could not be written; "" if it could."""
        self.lost = ""
        """Why nothing can be written until the folder or the snapshot is back; "" if it can."""
        self._not_before = self._look_at = 0.0
        self._held, self._is_passing = HeldFolder(data), False
        self._saving = threading.Lock()

    @classmethod
    def passing(cls) -> KeptFolder:
        """Return a folder that is removed when nobody has it any more."""
        data = Path(tempfile.mkdtemp(prefix="cumulus-"))
        journal = Journal(data / "log", "off")
        assert not list(journal.replay(0)), "it is new"
        made = cls(data, journal, AnsweredIds(_PASSING_IDS, _PASSING_S), SnapshotManifest(0, 0, "", 0), "")
        made._is_passing = True
        weakref.finalize(made, shutil.rmtree, data, ignore_errors=True)
        return made

    def snapshot(self, warehouse: Warehouse) -> None:
        """Write a snapshot, unless nothing has come since the last one, and forget the log before it.

        Where the log has gone, or the last snapshot, this brings all that was acknowledged back to the disk.

        Raises
        ------
        StoreError
            If the disk does not take it; the last one counts on.
        StoreLostError
            If the folder has gone, or another one has taken its place.
        """
        is_lost = bool(self.look())
        if self.manifest.sequence == self.journal.last and not is_lost:
            return
        try:
            with self._saving:
                self._held.check()
                if not self.journal.lost:
                    self.journal.sync()  # or the snapshot might have what the log has not
                self.manifest = save_snapshot(self.data, warehouse, self.ids, self.journal.last, self.script)
                self._held.check()
                if self.journal.lost:
                    self.journal.begin_anew()
                self.journal.forget(self.manifest.sequence)
            self.problem = self.lost = ""
        except StoreError as problem:
            self.problem = problem.message
            self._not_before = monotonic() + _AGAIN_S
            raise

    def check(self) -> None:
        """See before a write, each second, whether the folder and the snapshot are there; the log sees to itself.

        Raises
        ------
        StoreLostError
            If not: a restart would not find what was acknowledged.
        """
        if monotonic() < self._look_at:
            return
        self._look_at = monotonic() + _LOOK_S
        try:
            self._held.check()
            self._check_snapshot()
        except StoreLostError as problem:
            self.lost, self._look_at = str(problem), 0.0
            raise
        self.lost = ""

    def _check_snapshot(self) -> None:
        if self._is_passing:
            return
        for path in self.manifest.places(self.data):
            if not path.exists():
                raise StoreLostError(
                    f"{path} has gone while the server ran",
                    hint="Let the server write it anew: cumulus serve snapshot ADDRESS. Or restore it from a copy.",
                )

    def look(self) -> str:
        """Return why nothing can be written until what is gone is back; "" if it can. Any thread may call it."""
        self.journal.look()
        if self._saving.acquire(blocking=False):  # while a snapshot is written another one goes
            try:
                self._held.check()
                self._check_snapshot()
                self.lost = ""
            except StoreLostError as problem:
                self.lost = str(problem)
            finally:
                self._saving.release()
        return self.lost or self.journal.lost

    def full(self) -> str:
        """Return why the last write has failed, if another one would fail, too; any thread may call it.

        As nothing may come as long as the server is not ready, the disk is tried.
        """
        problem = self.journal.problem
        if not problem:
            return ""
        trial = self.data / f"trial-{threading.get_ident()}"
        try:
            with trial.open("wb") as file:
                file.write(bytes(_TRIAL_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return problem
        finally:
            with suppress(OSError):
                trial.unlink()
        if self.journal.problem == problem:
            self.journal.problem = ""
        return ""

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
