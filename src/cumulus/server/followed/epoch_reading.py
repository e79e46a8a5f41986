"""Reading the last committed epoch, as a server's source does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.catalog.arrow import table_of
from cumulus.catalog.names import known_name
from cumulus.epochs.bucket.view_errors import SCHEMA as ERRORS
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.publish import QUARANTINE_SCHEMA
from cumulus.epochs.output.query import query
from cumulus.epochs.output.sink import Manifest, committed_epochs, read_manifest
from cumulus.epochs.output.stored_parts import entry_count
from cumulus.errors import StoreError
from cumulus.m3.program import Program
from cumulus.scalars.user import Functions
from cumulus.server.answers import UNLIMITED, QueryLimits, ReadRows
from cumulus.server.followed.epoch_changes import EpochChanges
from cumulus.server.followed.following import EpochFollower
from cumulus.server.reading import WantedRows
from cumulus.views.consistency import Consistency
from cumulus.views.duckdb_limits import QueryGuard
from cumulus.views.duckdb_selects import Parameters
from cumulus.views.folding import Bound

_EPOCHS = pa.schema(
    [
        ("at", pa.int64()),
        ("rows_of", pa.int64()),
        ("written", pa.timestamp("ms", "UTC")),
        *((name, pa.int64()) for name in ("events", "applied", "quarantined", "errors")),
    ]
)


class EpochReading:
    """Answers reads from the files of the last epoch that a follower knows of; any thread may ask.

    Parameters
    ----------
    functions
        The user's that the views call.
    """

    def __init__(self, follower: EpochFollower, program: Program, functions: Functions | None = None) -> None:
        self._follower, self._program, self._functions = follower, program, functions
        self._views = {view.name: view for view in program.shown_views}
        self._listed: dict[tuple[str, ...], pa.Table] = {}
        self._epochs: dict[int, dict[str, Any]] = {}
        self._entries: tuple[int, dict[str, int]] = 0, {}

    @cached_property
    def folder(self) -> OutputFolder:
        """The output folder; there is none before the first epoch."""
        return OutputFolder(self._follower.out, self._functions)

    def view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        limit: int | None = None,
        read: str = Consistency.COMMITTED,
    ) -> ReadRows:
        """Return rows of a view; all of them are committed, for who would take tentative ones as well."""
        view = self._views[known_name(name, self._views, "view")]
        wanted = WantedRows.of(view.name, view.columns, columns, where, limit)
        return self._read(lambda manifest: wanted.take(self.folder.rows_of(view.name, manifest)))

    def get(self, name: str, key: Sequence[Any], *, read: str = Consistency.COMMITTED) -> ReadRows:
        """Return the row of a view with a key."""
        view = self._views[known_name(name, self._views, "view")]

        def found(manifest: Manifest) -> pa.Table:
            row = self.folder.view(view.name, manifest.epoch).get(*key)
            return table_of(view.columns, [] if row is None else [row])

        return self._read(found)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        *,
        only: Collection[str] | None = None,
        limits: QueryLimits = UNLIMITED,
    ) -> ReadRows:
        """Return the result of a SELECT over the views, and for who sees all of them `quarantine` and `view_errors`."""
        out, guard = self._follower.out, QueryGuard(only, limits)
        return self._read(
            lambda manifest: query(out, sql, manifest.epoch, self._functions, parameters, guard),
        )

    def errors(self, view: str = "") -> ReadRows:
        """Return what a view, or all of them, could not take in, of all epochs."""
        wanted = known_name(view, self._views, "view") if view else ""

        def read(manifest: Manifest) -> pa.Table:
            failed = manifest.view_errors.items()
            return self._rows([path for each, paths in failed if wanted in ("", each) for path in paths], ERRORS)

        return self._read(read)

    def quarantine(self) -> ReadRows:
        """Return the rows that were refused, of all epochs."""
        return self._read(lambda manifest: self._rows(manifest.quarantine, QUARANTINE_SCHEMA))

    def epochs(self) -> ReadRows:
        """Return the epochs that are kept, the newest first."""
        kept = committed_epochs(self._follower.out)
        known = {}
        for epoch in reversed(kept):
            try:
                known[epoch] = self._epochs.get(epoch) or _facts(read_manifest(self._follower.out, epoch))
            except StoreError:
                if epoch in committed_epochs(self._follower.out):
                    raise
        self._epochs = known
        return ReadRows(pa.Table.from_pylist(list(known.values()), _EPOCHS), self._follower.at)

    def changes(self, view: str) -> tuple[int, EpochChanges]:
        """Return the changes of a view from now on, and the epoch after which that is."""
        found = EpochChanges(self._follower, self._views[known_name(view, self._views, "view")])
        return found.at, found

    def status(self) -> dict[str, Any]:
        """Return the numbers of the last epoch; `behind_ms` is how long ago it was committed."""
        manifest = self._follower.manifest
        if manifest is None:
            return {"at": 0, "problem": self._follower.problem}
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
            "problem": self._follower.problem,
        }

    def _read(self, read: Callable[[Manifest], pa.Table]) -> ReadRows:
        return ReadRows(*self._follower.read(read))

    def _entry_counts(self) -> dict[str, int]:
        """Return how many entries the maps have whose entries are in the folder."""

        def read(manifest: Manifest) -> tuple[int, dict[str, int]]:
            if self._entries[0] == manifest.epoch:
                return self._entries
            return manifest.epoch, {name: entry_count(self._follower.out, manifest, name) for name in manifest.parts}

        self._entries, _ = self._follower.read(read)
        return self._entries[1]

    def _rows(self, paths: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Return the rows of files that are only ever added to a list; those that were read before are known."""
        key = tuple(paths)
        found = self._listed.get(key)
        if found is None:
            try:
                tables = [pq.read_table(self._follower.out / path, partitioning=None) for path in paths]
            except (OSError, pa.ArrowException) as problem:
                raise StoreError(f"{self._follower.out}: a file cannot be read: {problem}") from None
            found = pa.concat_tables([schema.empty_table(), *(table.select(schema.names) for table in tables)])
            while len(self._listed) >= _MOST_LISTS:
                self._listed.pop(next(iter(self._listed)), None)
            self._listed[key] = found
        return found


_MOST_LISTS = 4


def _facts(manifest: Manifest) -> dict[str, Any]:
    counts = {name: manifest.counts.get(name, 0) for name in ("events", "applied", "quarantined", "errors")}
    return {
        "at": manifest.epoch,
        "rows_of": manifest.snapshot,
        "written": round(manifest.written_at * 1000),
        **counts,
    }
