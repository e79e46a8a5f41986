"""Manifests: what an epoch has committed, one JSON file each, and how they are found and read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cumulus.durable.store import FileStore, Place, store_of
from cumulus.errors import StoreError

REFUSED = ""
"""What `Written.files` calls the file of the quarantine: no view has this name."""


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
    tables
        Published table → its ``layout``, whether it was written ``whole``, and the files of rows that came and went,
        ``data`` and ``gone``, as [path, epoch, rows]; see `cumulus.epochs.output.published_tables`.
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
    tables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        """The files that it names, but for those of quarantined rows."""
        rows = [told[kind][0] for told in self.tables.values() for kind in ("data", "gone") if kind in told]
        return [*self.files.values(), *self.view_errors.values(), *self.parts.values(), *rows]


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
    nonce
        By which who created it knows it again.
    run
        The number of the run, in an object store; 0 in a folder.
    began
        The epochs from which on other runs have committed, each with the number of the run.
    batch
        The number that the host gives the epoch: on Spark its batch, from 0, of which some are no epochs.
    generation
        Of the checkpoint: the number of the plan by which the epoch was made (`cumulus.epochs.generations`).
    incarnation
        Of the cluster that has made it; 0 for other hosts.
    tables
        Published table → its ``layout``, and under ``buckets`` bucket → its files of rows that came and went, ``data``
        and ``gone``, as lists of [path, epoch, rows].
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
    nonce: str = ""
    run: int = 0
    began: list[list[int]] = field(default_factory=list)
    batch: int = -1
    generation: int = 0
    incarnation: int = 0
    tables: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch < 0:  # nothing but an epoch was a batch before this was noted
            object.__setattr__(self, "batch", self.epoch - 1)
        if not self.snapshot:  # a manifest from before there were such epochs
            object.__setattr__(self, "snapshot", self.epoch)

    def files(self, view: str) -> list[str]:
        """Return the files with the finished rows of `view`; none if it could never be computed yet."""
        if view in self.held:
            return self.held[view]
        if view in self.merged:
            return [self.merged[view]]
        return [path for _, path in sorted(self.views.get(view, {}).items()) if not path.endswith(".share")]


def listed_files(manifest: Manifest) -> set[str]:
    """Return all files that `manifest` lists."""
    files = {
        path for held in (manifest.views, manifest.parts) for buckets in held.values() for path in buckets.values()
    }
    errors = {path for paths in manifest.view_errors.values() for path in paths}
    held = {path for paths in manifest.held.values() for path in paths}
    tables = {
        path for table in manifest.tables.values() for kind in ("data", "gone") for path in paths_of_table(table, kind)
    }
    return files | held | set(manifest.merged.values()) | set(manifest.quarantine) | errors | tables


def paths_of_table(table: Mapping[str, Any], kind: str) -> list[str]:
    """Return the files of a published table, as `Manifest.tables` has it, of one kind: ``data`` or ``gone``."""
    return [file[0] for _, bucket in sorted(table["buckets"].items()) for file in bucket[kind]]


def manifest_path(epoch: int) -> str:
    """Return the path of the manifest of an epoch, relative to the output."""
    return f"epochs/{epoch}.json"


def committed_epochs(out: Place) -> list[int]:
    """Return the committed epochs of an output, in order."""
    store = store_of(out)
    if isinstance(store, FileStore):
        return sorted(int(file.stem) for file in (store.path / "epochs").glob("[0-9]*.json"))
    found = (file.name.removeprefix("epochs/") for file in store.list("epochs"))
    return sorted(int(name[: -len(".json")]) for name in found if name[:1].isdigit() and name.endswith(".json"))


def newest_epoch(out: Place) -> int | None:
    """Return the last committed epoch, None if there is none; of an object store what ``latest.json`` says, which may
    be behind.
    """
    store = store_of(out)
    if store.is_local:
        return max(committed_epochs(store), default=None)
    try:
        return int(json.loads(store.get("latest.json"))["epoch"])
    except (OSError, ValueError, KeyError):
        return None


def read_manifest(out: Place, epoch: int) -> Manifest:
    """Return the manifest of `epoch`.

    Raises
    ------
    StoreError
        If it is not there or not a manifest.
    """
    store = store_of(out)
    try:
        return Manifest(**json.loads(store.get(manifest_path(epoch))))
    except (OSError, ValueError, TypeError) as problem:
        raise StoreError(
            f"{store.place(manifest_path(epoch))}: not a manifest: {problem}", hint="Is this the --out folder of a run?"
        ) from None


def newest_manifest(out: Place) -> Manifest | None:
    """Return the manifest of the last committed epoch; None if none is committed.

    Raises
    ------
    StoreError
        If it is not a manifest.
    """
    while epochs := committed_epochs(out):
        try:
            return read_manifest(out, epochs[-1])
        except StoreError:
            if epochs[-1] in committed_epochs(out):
                raise  # else it is dropped, so a later one is committed
    return None
