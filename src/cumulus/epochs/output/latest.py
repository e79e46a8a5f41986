"""`OUT/latest`: the views of the last epoch in a folder, as plain Parquet for any reader; one link each."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from cumulus.durable.files import written_aside
from cumulus.epochs.committed.manifest import Manifest
from cumulus.epochs.view_folders import view_folder


def show_latest(out: Path, manifest: Manifest) -> None:
    """Point `latest` at the views of an epoch; each view switches in one step."""
    for view in manifest.views:
        folder = view_folder(view)
        link = out / "latest" / folder
        files = {Path(path).name for path in manifest.files(view)}
        if not files or (link.is_dir() and {file.name for file in link.iterdir()} == files):
            continue
        target = out / "views" / folder / str(manifest.epoch)
        if not target.exists():
            with written_aside(target) as making:
                making.mkdir(parents=True)
                for path in manifest.files(view):
                    _link(out / path, making / Path(path).name)
        with written_aside(link) as fresh:
            fresh.symlink_to(Path("..") / "views" / folder / str(manifest.epoch))


def drop_shown(out: Path, epoch: int) -> None:
    """Remove the links to the views of an epoch that is shown no more."""
    for folder in (out / "views").glob(f"*/{epoch}"):
        if (out / "latest" / folder.parent.name).resolve().name != str(epoch):
            shutil.rmtree(folder, ignore_errors=True)


def drop_leftovers(out: Path, newest: Manifest | None) -> None:
    """Remove what an interrupted run left behind beside the files of views."""
    for leftover in [*(out / "latest").glob(".*"), *(out / "epochs").glob(".*"), *(out / "data").glob("*/.*")]:
        leftover.unlink(missing_ok=True)
    for leftover in (out / "views").glob("*/.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    shown = set(map(view_folder, () if newest is None else newest.views))
    for link in (out / "latest").iterdir():
        if link.name not in shown and link.is_symlink():
            link.unlink()  # of an earlier release, which wrote some names otherwise


def _link(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    target.symlink_to(source.resolve())
