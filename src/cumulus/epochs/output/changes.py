"""How a view changes from epoch to epoch, from the files of its rows."""

from __future__ import annotations

import pyarrow as pa

from cumulus.catalog.arrow import net_rows, plain_list, table_of
from cumulus.durable.store import Store, read_parquet
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, read_manifest
from cumulus.epochs.output.follower import EpochFollower
from cumulus.errors import StoreError
from cumulus.m3.program import ViewDef
from cumulus.scalars.python_code import canonical
from cumulus.views.row_changes import Change, ViewChanges


class EpochChanges:
    """The changes of a view after the last epoch that is known; one thread takes them.

    The rows of the last epoch are held, file by file: its own files may be gone when the next one is read. Files that
    two epochs share, of buckets that did not change, are read once.

    Parameters
    ----------
    owns
        Whether the follower ends with it.

    Raises
    ------
    StoreError
        If a file cannot be read.
    """

    def __init__(self, follower: EpochFollower, view: ViewDef, *, owns: bool = False) -> None:
        self._follower, self._view, self._owns = follower, view, owns
        self._tables: dict[str, pa.Table] = {}
        self._epoch = 0
        self.at = 0
        """Changes are those after this epoch."""
        if follower.manifest is not None:
            follower.read(self._begin)

    def take(self) -> list[ViewChanges]:
        """Return the changes of the epochs that are committed since; of several together where some are gone."""
        found: list[ViewChanges] = []
        while (manifest := self._follower.manifest) is not None and self._epoch < manifest.epoch:
            for epoch in committed_epochs(self._follower.out):
                if self._epoch < epoch <= manifest.epoch:
                    found += self._of(epoch)
            if self._epoch < manifest.epoch:  # it has gone meanwhile, so there are later ones
                self._follower.look()
        return found

    def close(self) -> None:
        """Hold no rows any more."""
        self._tables = {}
        if self._owns:
            self._follower.close()

    def _begin(self, manifest: Manifest) -> None:
        self._hold(manifest, self._read(manifest))

    def _of(self, epoch: int) -> list[ViewChanges]:
        out = self._follower.out
        try:
            manifest = read_manifest(out, epoch)
            tables = self._read(manifest)
        except StoreError:
            if epoch in committed_epochs(out):
                raise
            return []
        before, since = self._tables, self.at
        self._hold(manifest, tables)
        if manifest.snapshot == since:
            return []
        rows = self._rows(before, tables)
        is_sum = manifest.snapshot - since > 1
        return [ViewChanges(self._view.name, manifest.snapshot, since, rows, self._view.columns, is_sum=is_sum)]

    def _hold(self, manifest: Manifest, tables: dict[str, pa.Table]) -> None:
        self._tables, self._epoch, self.at = tables, manifest.epoch, manifest.snapshot

    def _read(self, manifest: Manifest) -> dict[str, pa.Table]:
        out = self._follower.out
        return {
            path: self._tables[path] if path in self._tables else _table(out, path)
            for path in manifest.files(self._view.name)
        }

    def _rows(self, before: dict[str, pa.Table], after: dict[str, pa.Table]) -> list[Change]:
        gone = [table for path, table in before.items() if path not in after]
        come = [table for path, table in after.items() if path not in before]
        names = [column.name for column in self._view.columns]
        shape = (gone + come)[0].schema if gone or come else table_of(self._view.columns, []).schema
        counted = "change"
        while counted in names:
            counted += "_"
        net = net_rows(shape, gone, come, counted)
        found: list[Change] = []
        # canonical, since a NaN from a file equals no other, and whoever adds changes up looks rows up
        rows = zip(*(map(canonical, plain_list(net[name])) for name in names), strict=True)
        for row, count in zip(rows, net[counted].to_pylist(), strict=True):
            found += [Change(None, row) if count > 0 else Change(row, None)] * abs(count)
        return found


def _table(out: Store, path: str) -> pa.Table:
    try:
        return read_parquet(out, path)
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"{out.place(path)} cannot be read: {problem}", hint="Was it removed? Run again.") from None
