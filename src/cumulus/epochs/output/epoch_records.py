"""What a run writes beside its views: refused rows, errors of views, the epochs that are kept, their numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from cumulus.durable.store import Place, read_parquet, store_of
from cumulus.epochs.bucket.view_errors import SCHEMA as ERRORS
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, newest_manifest, read_manifest
from cumulus.epochs.output.follower import EpochFollower
from cumulus.epochs.output.publish import QUARANTINE_SCHEMA
from cumulus.epochs.output.stored_parts import entry_count
from cumulus.errors import StoreError
from cumulus.hosts.answers import Answer

T = TypeVar("T")
_EPOCHS = pa.schema(
    [
        ("at", pa.int64()),
        ("rows_of", pa.int64()),
        ("written", pa.timestamp("ms", "UTC")),
        *((name, pa.int64()) for name in ("events", "applied", "quarantined", "errors")),
    ]
)
_MOST_LISTS = 4


class EpochRecords:
    """Reads them.

    Parameters
    ----------
    read
        Returns what a function reads of the files of the last epoch, and the epoch whose rows these are.
    follower
        Returns who follows the folder, if anybody does.
    """

    def __init__(
        self,
        out: Place,
        read: Callable[[Callable[[Manifest], Any]], tuple[Any, int]],
        follower: Callable[[], EpochFollower | None],
    ) -> None:
        self.out, self._read, self._follower = store_of(out), read, follower
        self._listed: dict[tuple[str, ...], pa.Table] = {}
        self._epochs: dict[int, dict[str, Any]] = {}
        self._entries: tuple[int, dict[str, int]] = 0, {}

    def errors(self, view: str = "") -> Answer:
        """Return what a view, or all of them, could not take in, of all epochs."""

        def read(manifest: Manifest) -> pa.Table:
            failed = manifest.view_errors.items()
            return self._rows([path for each, paths in failed if view in ("", each) for path in paths], ERRORS)

        return Answer(*self._read(read))

    def quarantine(self) -> Answer:
        """Return the rows that were refused, of all epochs."""
        return Answer(*self._read(lambda manifest: self._rows(manifest.quarantine, QUARANTINE_SCHEMA)))

    def epochs(self) -> Answer:
        """Return the epochs that are kept, the newest first."""
        kept = committed_epochs(self.out)
        known = {}
        for epoch in reversed(kept):
            try:
                known[epoch] = self._epochs.get(epoch) or _facts(read_manifest(self.out, epoch))
            except StoreError:
                if epoch in committed_epochs(self.out):
                    raise
        self._epochs = known
        return Answer(pa.Table.from_pylist(list(known.values()), _EPOCHS), self.status()["at"])

    def status(self) -> dict[str, Any]:
        """Return the numbers of the last epoch; `behind_ms` is how long ago it was committed."""
        follower = self._follower()
        manifest = newest_manifest(self.out) if follower is None else follower.manifest
        problem = "" if follower is None else follower.problem
        if manifest is None:
            return {"at": 0, "problem": problem}
        return {
            "at": manifest.snapshot,
            "epoch": manifest.epoch,
            "events": manifest.totals.get("events", 0),
            "applied": manifest.totals.get("applied", 0),
            "quarantined": manifest.totals.get("quarantined", 0),
            "waiting": manifest.counts.get("waiting", 0),
            "errors": dict(manifest.view_error_totals),
            "entries": self._entry_counts(),
            "behind_ms": max(round((time.time() - manifest.written_at) * 1000), 0),
            "problem": problem,
        }

    def _entry_counts(self) -> dict[str, int]:
        """Return how many entries the maps have whose entries are in the folder; counted once an epoch."""

        def read(manifest: Manifest) -> tuple[int, dict[str, int]]:
            if self._entries[0] == manifest.epoch:
                return self._entries
            return manifest.epoch, {name: entry_count(self.out, manifest, name) for name in manifest.parts}

        self._entries, _ = self._read(read)
        return self._entries[1]

    def _rows(self, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Return the rows of files that are only ever added to a list; those that were read before are known."""
        key = tuple(paths)
        found = self._listed.get(key)
        if found is None:
            try:
                tables = [read_parquet(self.out, path) for path in paths]
            except (OSError, pa.ArrowException) as problem:
                raise StoreError(f"{self.out}: a file cannot be read: {problem}") from None
            found = pa.concat_tables([schema.empty_table(), *(table.select(schema.names) for table in tables)])
            while len(self._listed) >= _MOST_LISTS:
                self._listed.pop(next(iter(self._listed)), None)
            self._listed[key] = found
        return found


def _facts(manifest: Manifest) -> dict[str, Any]:
    counts = {name: manifest.counts.get(name, 0) for name in ("events", "applied", "quarantined", "errors")}
    return {
        "at": manifest.epoch,
        "rows_of": manifest.snapshot,
        "written": round(manifest.written_at * 1000),
        **counts,
    }
