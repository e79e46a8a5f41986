"""The output folder: whole views per epoch, committed by one manifest each (docs/spark.md, "The output folder").

A manifest lists all files of all views of its epoch, also those that did not change, so an epoch needs no other
manifest. Whoever finds `N.json` there already keeps it and drops its own files: that makes a replay harmless.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from cumulus.durable import faults
from cumulus.durable.files import create_durably, sync_entries, write_durably, written_aside
from cumulus.durable.folders import HeldFolder, lock_file
from cumulus.epochs.bucket.view_errors import merge_errors, totals_with
from cumulus.epochs.bucket.votes import Poll
from cumulus.epochs.formats.parsed_rows import IGNORED
from cumulus.epochs.view_folders import view_folder
from cumulus.errors import EvaluationError, LockedError, MismatchError, StoreError, StoreLostError

REFUSED = ""
"""What `Written.files` calls the file of the quarantine: no view has this name."""
FORMAT = 1
_FOLDERS = ("epochs", "data", "views", "latest")


@dataclass(frozen=True, slots=True)
class Written:
    """What one bucket wrote in one epoch.

    Parameters
    ----------
    files
        View, or `REFUSED`, → path of its file, relative to the sink.
    counts
        Numbers to add up over buckets: events, applied, repeated, waiting, quarantined, and what says nothing.
    errors
        View → why its rows could not be computed; its last good ones stay.
    snapshot
        The epoch writes views; else all views stay as they are.
    view_errors
        View → path of the file with the rows that it could not take in whole.
    view_error_counts
        View → how many such rows there were in this epoch; the file has the first of them.
    poll
        The bucket's vote, as `cumulus.epochs.bucket.votes.Poll.plain` says it.
    parts
        Map → path of the file with the bucket's entries of it.
    """

    bucket: int
    files: Mapping[str, str]
    counts: Mapping[str, int]
    errors: Mapping[str, str]
    snapshot: bool
    view_errors: Mapping[str, str] = field(default_factory=dict)
    view_error_counts: Mapping[str, int] = field(default_factory=dict)
    poll: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One committed epoch.

    Parameters
    ----------
    views
        View → bucket → its file: finished rows, or a share that is merged.
    quarantine
        All quarantine files up to this epoch.
    counts, totals
        Of this epoch, and since the beginning. In the totals, events are applied + repeated + quarantined + tombstones
        + messages, and what is waiting in the last epoch.
    offsets
        What of the sources is in.
    merged
        View → the file made from its partials.
    errors
        View → why its rows could not be computed since the epoch of its files, such as a division by zero.
    snapshot
        The epoch whose rows the views show: this one, or with ``snapshot_every`` an earlier one.
    view_errors
        View → the files of all epochs with the rows that it could not take in whole.
    view_error_counts, view_error_totals
        View → how many such rows there were: in this epoch, and since the beginning.
    poll
        What the buckets together have said about deletions that wait (`cumulus.epochs.bucket.votes.Poll.plain`).
    failing
        View → the buckets that could not compute their rows of it when they last tried.
    held
        View → the files of its last good rows, which it shows as long as some bucket fails.
    parts
        Map that folding a cube reads → bucket → the file with its entries (`cumulus.epochs.output.parts`).
    """

    epoch: int
    program: str
    checkpoint: str
    views: dict[str, dict[str, str]]
    quarantine: list[str]
    counts: dict[str, int]
    totals: dict[str, int]
    offsets: Any = None
    merged: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    written_at: float = 0.0
    snapshot: int = 0
    view_errors: dict[str, list[str]] = field(default_factory=dict)
    view_error_counts: dict[str, int] = field(default_factory=dict)
    view_error_totals: dict[str, int] = field(default_factory=dict)
    poll: dict[str, Any] = field(default_factory=dict)
    failing: dict[str, list[int]] = field(default_factory=dict)
    held: dict[str, list[str]] = field(default_factory=dict)
    parts: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.snapshot:  # a manifest from before there were such epochs
            object.__setattr__(self, "snapshot", self.epoch)

    def files(self, view: str) -> list[str]:
        """Return the files with the finished rows of `view`; none if it could never be computed yet."""
        if view in self.held:
            return self.held[view]
        if view in self.merged:
            return [self.merged[view]]
        return [path for _, path in sorted(self.views.get(view, {}).items()) if not path.endswith(".share")]


class Sink:
    """An output folder, opened by the one run that may write it, and created if it is not there.

    It belongs to the identity of a checkpoint and the hash of a program. If the checkpoint has committed epochs
    (`resuming`), an empty folder is a mismatch.
    """

    def __init__(self, path: str | Path, checkpoint: str, program: str, *, resuming: bool = False) -> None:
        self.path = Path(path)
        self.checkpoint = checkpoint
        self.program = program
        self._lock: IO[bytes] | None = None
        try:
            for name in _FOLDERS:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            self._lock = lock_file(self.path / ".lock")
            self._held = [HeldFolder(self.path), *(HeldFolder(self.path / name) for name in _FOLDERS)]
        except OSError as problem:
            raise StoreError(
                f"{self.path}: the output folder cannot be written: {problem.strerror}",
                hint="Check the path and its permissions.",
            ) from None
        if self._lock is None:
            raise LockedError(
                f"{self.path}: another run is writing here", hint="Wait for it, stop it, or choose another --out."
            )
        try:
            self._bind(resuming)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the folder free."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _bind(self, resuming: bool) -> None:
        card = self.path / "cumulus.json"
        if card.exists():
            found = json.loads(card.read_text())
            if found["checkpoint"] != self.checkpoint:
                raise MismatchError(
                    f"{self.path}: this output belongs to another checkpoint",
                    hint="Give the checkpoint it was made with, or an empty output folder.",
                )
            if found["program"] != self.program:
                raise MismatchError(
                    f"{self.path}: this output was made by another program",
                    hint="The SQL has changed; start with an empty output folder and checkpoint, or run the old SQL.",
                )
        elif resuming:
            raise MismatchError(
                f"{self.path}: the checkpoint has committed epochs, but this output folder is not theirs",
                hint="Give the output folder that the checkpoint was made with, or a new checkpoint.",
            )
        else:
            identity = {"format": FORMAT, "checkpoint": self.checkpoint, "program": self.program}
            write_durably(card, json.dumps(identity).encode())
        self.drop_orphans()
        newest = self.newest()
        self._last = 0 if newest is None else newest.epoch
        if newest is not None:
            self.show(newest)

    def check(self) -> None:
        """Look whether the folder is where it was, with its last epoch.

        Raises
        ------
        StoreLostError
            If it was removed, moved or replaced since it was opened: what is written there would be nobody's.
        """
        for each in self._held:
            each.check()
        if self._last and not (self.path / "epochs" / f"{self._last}.json").exists():
            raise StoreLostError(
                f"{self.path}: the manifest of epoch {self._last} has gone while the run went on",
                hint="Restore the folder from a copy, or start with a new --out and --checkpoint.",
            )

    def newest(self) -> Manifest | None:
        """Return the last committed epoch."""
        return newest_manifest(self.path)

    def commit(
        self,
        epoch: int,
        written: Iterable[Written],
        offsets: Any = None,
        merge: Mapping[str, Any] | None = None,
        keep: int = 100,
    ) -> tuple[Manifest, bool]:
        """Commit an epoch.

        Parameters
        ----------
        merge
            View → function from its buckets' files to the path of one finished file; other views need no merging.

        Returns
        -------
        tuple
            The manifest that stands, and whether this call made it.

        Raises
        ------
        StoreError
            If the disk does not take it; StoreLostError if the folder has gone (see `check`).
        """
        self.check()
        reports = sorted(written, key=lambda each: each.bucket)
        place = self.path / "epochs" / f"{epoch}.json"
        if place.exists():
            manifest = read_manifest(self.path, epoch)
            self._last = max(self._last, epoch)
            self._drop(reports, manifest)
            self.show(manifest)
            return manifest, False
        before = self.newest()
        assert before is None or before.epoch < epoch, f"epoch {epoch} after {before.epoch}"
        manifest = self._next(epoch, before, reports, offsets, merge or {})
        faults.crash_point("before-manifest")
        try:
            before_files = set() if before is None else listed_files(before)
            sync_entries(self.path / path for path in sorted(listed_files(manifest) - before_files))
            created = create_durably(place, json.dumps(asdict(manifest)).encode())
        except OSError as problem:
            raise StoreError(
                f"{place}: cannot be written: {problem.strerror}", hint="Make room, then run again: it resumes."
            ) from None
        assert created, f"{place} appeared under our lock"
        self._last = epoch
        self.check()
        faults.crash_point("after-manifest")
        self._drop(reports, manifest)  # parts of files that were merged
        self.show(manifest)
        self.drop_old_epochs(keep)
        return manifest, True

    def _next(
        self, epoch: int, before: Manifest | None, reports: Sequence[Written], offsets: Any, merge: Mapping[str, Any]
    ) -> Manifest:
        before = before or Manifest(0, self.program, self.checkpoint, {}, [], {}, {})
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
        held = {name: before.held.get(name, before.files(name)) for name in failing}
        for name in sorted(touched - failing.keys()):
            errors.pop(name, None)
            if name in merge:
                try:
                    merged[name] = merge[name](epoch, [str(self.path / path) for path in views[name].values()])
                except EvaluationError as problem:
                    errors[name] = problem.message
        error_files, error_counts = self._errors(epoch, before, reports)
        counts["errors"] = sum(error_counts.values())
        totals = dict(before.totals)
        for name in ("events", "applied", "repeated", "quarantined", *IGNORED, "errors"):
            totals[name] = totals.get(name, 0) + counts.get(name, 0)
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
                path, dropped = merge_errors(self.path, view, epoch, paths)
                paths, counts[view] = [path], counts[view] - dropped
            files.setdefault(view, []).extend(paths)
        return files, counts

    def _drop(self, reports: Iterable[Written], manifest: Manifest) -> None:
        listed = listed_files(manifest)
        for report in reports:
            for path in (*report.files.values(), *report.view_errors.values(), *report.parts.values()):
                if path not in listed:
                    (self.path / path).unlink(missing_ok=True)

    def show(self, manifest: Manifest) -> None:
        """Point `latest` at the views of `manifest`; each view switches in one step."""
        for view in manifest.views:
            folder = view_folder(view)
            link = self.path / "latest" / folder
            files = {Path(path).name for path in manifest.files(view)}
            if not files or (link.is_dir() and {file.name for file in link.iterdir()} == files):
                continue
            target = self.path / "views" / folder / str(manifest.epoch)
            if not target.exists():
                with written_aside(target) as making:
                    making.mkdir(parents=True)
                    for path in manifest.files(view):
                        _link(self.path / path, making / Path(path).name)
            with written_aside(link) as fresh:
                fresh.symlink_to(Path("..") / "views" / folder / str(manifest.epoch))

    def drop_old_epochs(self, keep: int) -> None:
        """Delete all but the last `keep` epochs, and the files that only they used."""
        epochs = committed_epochs(self.path)
        if len(epochs) <= keep:
            return
        old, kept = epochs[:-keep], epochs[-keep:]
        still = listed_files(read_manifest(self.path, kept[0]))
        for epoch in old:
            manifest = read_manifest(self.path, epoch)
            for view in manifest.views:
                folder = view_folder(view)
                shown = (self.path / "latest" / folder).resolve().name
                if shown != str(epoch):
                    shutil.rmtree(self.path / "views" / folder / str(epoch), ignore_errors=True)
            # A file used by an old and a new epoch is used by all between: looking at the oldest kept one is enough.
            for path in listed_files(manifest) - still:
                (self.path / path).unlink(missing_ok=True)
            (self.path / "epochs" / f"{epoch}.json").unlink(missing_ok=True)

    def drop_orphans(self) -> None:
        """Delete files that no manifest lists: what an interrupted run left behind."""
        known: set[str] = set()
        for epoch in committed_epochs(self.path):
            known |= listed_files(read_manifest(self.path, epoch))
        for file in (self.path / "data").glob("*/*"):
            if str(file.relative_to(self.path)) not in known:
                file.unlink(missing_ok=True)
        for leftover in [*(self.path / "latest").glob(".*"), *(self.path / "epochs").glob(".*")]:
            leftover.unlink(missing_ok=True)
        for leftover in (self.path / "views").glob("*/.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        newest = self.newest()
        shown = set(map(view_folder, () if newest is None else newest.views))
        for link in (self.path / "latest").iterdir():
            if link.name not in shown and link.is_symlink():
                link.unlink()  # of an earlier release, which wrote some names otherwise


def listed_files(manifest: Manifest) -> set[str]:
    """Return all files that `manifest` lists."""
    files = {
        path for held in (manifest.views, manifest.parts) for buckets in held.values() for path in buckets.values()
    }
    errors = {path for paths in manifest.view_errors.values() for path in paths}
    held = {path for paths in manifest.held.values() for path in paths}
    return files | held | set(manifest.merged.values()) | set(manifest.quarantine) | errors


def _failing(before: Manifest, reports: Iterable[Written]) -> dict[str, list[int]]:
    """Return which buckets could not compute their rows of which views when they last tried."""
    found = {view: set(buckets) for view, buckets in before.failing.items()}
    for report in reports:
        for view in report.files:
            found.get(view, set()).discard(report.bucket)
        for view in report.errors:
            found.setdefault(view, set()).add(report.bucket)
    return {view: sorted(buckets) for view, buckets in found.items() if buckets}


def committed_epochs(path: str | Path) -> list[int]:
    """Return the committed epochs in an output folder, in order."""
    return sorted(int(file.stem) for file in (Path(path) / "epochs").glob("[0-9]*.json"))


def read_manifest(path: str | Path, epoch: int) -> Manifest:
    """Return the manifest of `epoch`.

    Raises
    ------
    StoreError
        If it is not there or not a manifest.
    """
    file = Path(path) / "epochs" / f"{epoch}.json"
    try:
        return Manifest(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as problem:
        raise StoreError(f"{file}: not a manifest: {problem}", hint="Is this the --out folder of a run?") from None


def newest_manifest(path: str | Path) -> Manifest | None:
    """Return the manifest of the last committed epoch; None if none is committed.

    Raises
    ------
    StoreError
        If it is not a manifest.
    """
    while epochs := committed_epochs(path):
        try:
            return read_manifest(path, epochs[-1])
        except StoreError:
            if epochs[-1] in committed_epochs(path):
                raise  # else it is dropped, so a later one is committed
    return None


def _link(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    target.symlink_to(source.resolve())
