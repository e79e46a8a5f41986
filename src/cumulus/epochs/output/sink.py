"""The output of a run: whole views per epoch, committed by one manifest each (docs/spark.md, "The output folder").

A manifest lists all files of all views of its epoch, also those that did not change, so an epoch needs no other
manifest. It is created if it is not there, by one step: whoever finds `N.json` there already keeps it and drops its own
files, which makes a replay harmless.

A folder has one run at a time by a lock. In an object store each run has a number, and creates ``runs/NUMBER.json``: a
run that finds a later number there commits no more. What it created before that is right, and is built on.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from cumulus.durable import faults
from cumulus.durable.store import FileStore, Place, store_of
from cumulus.epochs.bucket.view_errors import merge_errors, totals_with
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.committed.manifest import (
    REFUSED,
    Manifest,
    Written,
    committed_epochs,
    listed_files,
    manifest_path,
    read_manifest,
)
from cumulus.epochs.formats.parsed_rows import IGNORED
from cumulus.epochs.output.latest import drop_leftovers, drop_shown, show_latest
from cumulus.epochs.output.published_tables import add_tables
from cumulus.epochs.output.turns import FolderTurn, RunNumber, output_error
from cumulus.errors import EvaluationError, MismatchError, StoreError, StoreLostError

FORMAT = 1
CARD = "cumulus.json"


class Sink:
    """The output of a run, opened by the one run that may write it, and made if it is not there.

    It belongs to the identity of a checkpoint and the hash of a program. If the checkpoint has committed epochs
    (`resuming`), an empty output is a mismatch.

    Raises
    ------
    LockedError
        If another run writes there.
    MismatchError
        If it belongs to another checkpoint or program.
    StoreError
        If it cannot be written.
    """

    def __init__(self, out: Place, checkpoint: str, program: str, *, resuming: bool = False) -> None:
        self.store = store_of(out)
        self.checkpoint = checkpoint
        self.program = program
        self.generation = self.incarnation = 0
        """Of the checkpoint, by whose plan the next epoch is made; of the cluster that commits."""
        self._turn: FolderTurn | RunNumber | None = None
        try:
            self._turn = FolderTurn(self.store.path) if isinstance(self.store, FileStore) else RunNumber(self.store)
            self._bind(resuming)
        except OSError as problem:
            self.close()
            raise output_error(self.store, problem) from None
        except BaseException:
            self.close()
            raise

    @property
    def run(self) -> int:
        """The number of the run; 0 in a folder, where runs have none."""
        return self._turn.number if isinstance(self._turn, RunNumber) else 0

    def close(self) -> None:
        """Give the folder free."""
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _bind(self, resuming: bool) -> None:
        store = self.store
        if store.size(CARD) is not None:
            found = json.loads(store.get(CARD))
            if found["checkpoint"] != self.checkpoint:
                raise MismatchError(
                    f"{store}: this output belongs to another checkpoint",
                    hint="Give the checkpoint it was made with, or an empty output folder.",
                )
            if found["program"] != self.program:
                raise MismatchError(
                    f"{store}: this output was made by another program",
                    hint="The SQL has changed; start with an empty output folder and checkpoint, or run the old SQL.",
                )
        elif resuming:
            raise MismatchError(
                f"{store}: the checkpoint has committed epochs, but this output folder is not theirs",
                hint="Give the output folder that the checkpoint was made with, or a new checkpoint.",
            )
        else:
            identity = {"format": FORMAT, "checkpoint": self.checkpoint, "program": self.program}
            store.put(CARD, json.dumps(identity).encode())
        self.look()
        self._drop_orphans()
        if self._newest is not None:
            self._show(self._newest)

    def look(self) -> None:
        """Learn which epochs are committed, and their files."""
        manifests = [read_manifest(self.store, epoch) for epoch in committed_epochs(self.store)]
        self._newest = manifests[-1] if manifests else None
        self._files = {manifest.epoch: frozenset(listed_files(manifest)) for manifest in manifests}

    def check(self) -> None:
        """Look whether the output is where it was, with its last epoch, and whether it is still this run's.

        Raises
        ------
        StoreLostError
            If a folder was removed, moved or replaced since it was opened: what is written there would be nobody's.
        LockedError
            If another run has begun to write to an object store.
        """
        assert self._turn is not None
        self._turn.check()
        if self.store.is_local and self._newest and self.store.size(manifest_path(self._newest.epoch)) is None:
            raise StoreLostError(
                f"{self.store}: the manifest of epoch {self._newest.epoch} has gone while the run went on",
                hint="Restore the folder from a copy, or start with a new --out and --checkpoint.",
            )

    def newest(self) -> Manifest | None:
        """Return the last committed epoch that this run knows of: its own, or one that it found."""
        return self._newest

    def commit(
        self,
        epoch: int,
        written: Iterable[Written],
        offsets: Any = None,
        merge: Mapping[str, Any] | None = None,
        keep: int = 100,
        batch: int = -1,
        *,
        whole: bool = False,
    ) -> tuple[Manifest, bool]:
        """Commit an epoch.

        Parameters
        ----------
        merge
            View → function from its buckets' files to the path of one finished file; other views need no merging.
        batch
            As `Manifest.batch`.
        whole
            Whether the buckets have written all views: what other buckets wrote of them before is listed no more.

        Returns
        -------
        tuple
            The manifest that stands, and whether this call made it; an earlier run may have, as its last one.

        Raises
        ------
        StoreError
            If the disk does not take it; StoreLostError if the folder has gone (see `check`).
        LockedError
            If another run has begun to write to an object store.
        """
        reports = sorted(written, key=lambda each: each.bucket)
        before = self._newest
        if before is not None and epoch <= before.epoch:
            self.check()
            return self._kept(read_manifest(self.store, epoch), reports), False
        shown = before or Manifest(0, self.program, self.checkpoint, {}, [], {}, {})
        following = self._next(epoch, shown, reports, offsets, merge or {}, whole=whole)
        manifest = replace(following, batch=batch, generation=self.generation, incarnation=self.incarnation)
        faults.crash_point("before-manifest")
        self.check()
        before_files = frozenset() if before is None else self._files[before.epoch]
        files = frozenset(listed_files(manifest))
        place = manifest_path(epoch)
        try:
            self.store.settle(sorted(files - before_files))
            created = self.store.create(place, json.dumps(asdict(manifest)).encode())
            if not created:
                stands = read_manifest(self.store, epoch)
                if stands.nonce != manifest.nonce:  # else the answer to our own request was lost
                    assert not self.store.is_local, f"{place} appeared under our lock"
                    self.look()
                    return self._kept(stands, reports), False
        except OSError as problem:
            raise StoreError(
                f"{self.store.place(place)}: cannot be written: {problem.strerror}",
                hint="Make room, then run again: it resumes.",
            ) from None
        self._newest = manifest
        self._files[epoch] = files
        if self.store.is_local:
            self.check()
        faults.crash_point("after-manifest")
        self._drop(reports, files)  # parts of files that were merged
        self._show(manifest)
        self._drop_old_epochs(keep)
        return manifest, True

    def _kept(self, manifest: Manifest, reports: Iterable[Written]) -> Manifest:
        """Drop the files of an epoch whose manifest was there already, and show it."""
        self._drop(reports, frozenset(listed_files(manifest)))
        if manifest.epoch == max(self._files):
            self._show(manifest)
        return manifest

    def _next(
        self,
        epoch: int,
        shown: Manifest,
        reports: Sequence[Written],
        offsets: Any,
        merge: Mapping[str, Any],
        whole: bool,
    ) -> Manifest:
        before = _without_files(shown) if whole else shown
        views = {name: dict(files) for name, files in before.views.items()}
        parts = {name: dict(files) for name, files in before.parts.items()}
        merged, quarantine, errors = dict(before.merged), list(before.quarantine), dict(before.errors)
        counts: dict[str, int] = {}
        touched: set[str] = set()
        for report in reports:
            for name, path in report.files.items():
                if name == REFUSED:
                    quarantine.append(path)
                else:
                    views.setdefault(name, {})[str(report.bucket)] = path
                    touched.add(name)
            for name, path in report.parts.items():
                parts.setdefault(name, {})[str(report.bucket)] = path
            errors |= report.errors
            counts = totals_with(counts, report.counts)
        failing = _failing(before, reports)
        held = {name: shown.held.get(name, shown.files(name)) for name in failing}
        for name in sorted(touched - failing.keys()):
            errors.pop(name, None)
            if name in merge:
                try:
                    merged[name] = merge[name](epoch, list(views[name].values()))
                except EvaluationError as problem:
                    errors[name] = problem.message
        held |= _unmerged(shown, merge, merged, errors)
        error_files, error_counts = self._errors(epoch, before, reports)
        counts["errors"] = sum(error_counts.values())
        names = "events", "applied", "repeated", "quarantined", *IGNORED, "errors"
        totals = before.totals | {name: before.totals.get(name, 0) + counts.get(name, 0) for name in names}
        return Manifest(
            epoch,
            self.program,
            self.checkpoint,
            views,
            quarantine,
            counts,
            totals,
            offsets,
            merged,
            errors,
            time.time(),
            epoch if not before.epoch or all(report.snapshot for report in reports) else before.snapshot,
            error_files,
            error_counts,
            totals_with(before.view_error_totals, error_counts),
            # A report without counts is not of a bucket: nobody asks it about deletions.
            Poll.merge(Poll.of_plain(report.poll) for report in reports if report.counts).plain(),
            failing,
            held,
            parts,
            uuid.uuid4().hex,
            self.run,
            [*before.began, [epoch, self.run]] if self.run != before.run else before.began,
            tables=add_tables(before, reports) if reports else before.tables,
        )

    def _errors(
        self, epoch: int, before: Manifest, reports: Sequence[Written]
    ) -> tuple[dict[str, list[str]], dict[str, int]]:
        """Return the files with errors of views up to `epoch`, and how many errors the epoch has brought."""
        written: dict[str, list[str]] = {}
        counts: dict[str, int] = {}
        for report in reports:
            counts = totals_with(counts, report.view_error_counts)
            for view, path in report.view_errors.items():
                written.setdefault(view, []).append(path)
        files = {view: list(paths) for view, paths in before.view_errors.items()}
        for view, paths in sorted(written.items()):
            if len(paths) > 1:
                path, dropped = merge_errors(self.store, view, epoch, paths)
                paths, counts[view] = [path], counts[view] - dropped
            files.setdefault(view, []).extend(paths)
        return files, counts

    def _drop(self, reports: Iterable[Written], listed: frozenset[str]) -> None:
        for report in reports:
            for path in report.paths:
                if path not in listed:
                    self.store.delete(path)

    def _show(self, manifest: Manifest) -> None:
        """Point readers to an epoch: `latest` in a folder, ``latest.json`` elsewhere, which may be behind."""
        if isinstance(self.store, FileStore):
            show_latest(self.store.path, manifest)
        else:
            self.store.put("latest.json", json.dumps({"epoch": manifest.epoch}).encode())

    def _drop_old_epochs(self, keep: int) -> None:
        """Delete all but the last `keep` epochs, and the files that only they used."""
        epochs = sorted(self._files)
        if len(epochs) <= keep:
            return
        old, still = epochs[:-keep], self._files[epochs[-keep]]
        for epoch in old:
            if isinstance(self.store, FileStore):
                drop_shown(self.store.path, epoch)
            # A file used by an old and a new epoch is used by all between: looking at the oldest kept one is enough.
            for path in self._files[epoch] - still:
                self.store.delete(path)
            self.store.delete(manifest_path(epoch))
            del self._files[epoch]

    def _drop_orphans(self) -> None:
        """Delete files that no manifest lists: what an interrupted run left behind."""
        known = frozenset[str]().union(*self._files.values())
        last = max(self._files, default=0)
        for file in self.store.list("data"):
            # An earlier run may be about to commit the next epoch to an object store.
            if file.name not in known and (self.store.is_local or _epoch_of(file.name) <= last):
                self.store.delete(file.name)
        if isinstance(self.store, FileStore):
            drop_leftovers(self.store.path, self._newest)


def _failing(before: Manifest, reports: Iterable[Written]) -> dict[str, list[int]]:
    """Return which buckets could not compute their rows of which views when they last tried."""
    found = {view: set(buckets) for view, buckets in before.failing.items()}
    for report in reports:
        for view in report.files:
            found.get(view, set()).discard(report.bucket)
        for view in report.errors:
            found.setdefault(view, set()).add(report.bucket)
    return {view: sorted(buckets) for view, buckets in found.items() if buckets}


def _without_files(manifest: Manifest) -> Manifest:
    """Return what an epoch says, without the files of its views and parts."""
    return replace(manifest, views={name: {} for name in manifest.views}, parts={}, merged={}, failing={})


def _unmerged(
    before: Manifest, merge: Mapping[str, Any], merged: Mapping[str, str], errors: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the last good files of views whose rows could not be merged since other buckets write them."""
    last = {name: before.held.get(name, before.files(name)) for name in merge if name in errors and name not in merged}
    return {name: files for name, files in last.items() if files}


def _epoch_of(path: str) -> int:
    """Return the epoch that a file of views was written in."""
    number = path.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else 0
