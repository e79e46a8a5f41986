"""The changes of a view of another run as the rows of a table: each epoch that run has committed is a file.

Such a source names an output folder and a view. Its files are the committed epochs, by number; what one gives are the
rows that have gone and have come since the epoch before. The first that is taken gives all rows, as its epoch is
the oldest that is kept. So every change is taken once: what was taken is remembered as it is of files, and an epoch is
the same whenever it is read.

References
----------
Cumulus semester paper, section 2: update streams may come from other M3 programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.arrow import net_rows, table_of
from cumulus.catalog.names import fresh_column, known_name
from cumulus.catalog.schema import Relation
from cumulus.durable.folders import refuse_remote
from cumulus.durable.store import Store, read_parquet, store_of
from cumulus.epochs.committed.manifest import committed_epochs, manifest_path, read_manifest
from cumulus.epochs.committed.program_text import written_program
from cumulus.epochs.folder_source import NONE, FolderSource
from cumulus.errors import CumulusError, InputError

PREFIXES = ("cluster:", "view:")
"""What stands before OUT/VIEW in `--from`."""
_CHANGES = "-changes"
_DIGITS = 10


def split_place(text: str) -> tuple[str, str] | None:
    """Return the folder and the view that a text of `--from` names; None if it names files.

    Examples
    --------
    >>> split_place("cluster:live/revenue"), split_place("in/orders")
    (('live', 'revenue'), None)
    """
    prefix = next((each for each in PREFIXES if text.startswith(each)), None)
    if prefix is None:
        return None
    folder, _, view = text.removeprefix(prefix).rpartition("/")
    return folder, view


def check_view(source: FolderSource) -> FolderSource:
    """Return a source with the name of its view as it is written there.

    Raises
    ------
    InputError
        If the folder is no output, or has no such view.
    """
    way = "Give the --out folder of a run, or the home of a cluster: view:OUT/VIEW."
    refuse_remote(source.path, f"--from {source.relation}=")
    if not Path(source.path).is_dir():
        raise InputError(f"{source.path}: there is no such folder with a view {source.view!r}", hint=way)
    try:
        program = written_program(_output(source))
        views = [view.name for view in program.shown_views]
        found = known_name(source.view, views, "view")
    except CumulusError as problem:
        raise InputError(
            f"{source.path}: it is no output with a view {source.view!r}: {problem.message}",
            hint=way,
        ) from None
    return FolderSource(source.relation, source.path, view=found)


def _output(source: FolderSource) -> Store:
    return store_of(source.path)


def list_epochs(source: FolderSource) -> list[str]:
    """Return the names of the committed epochs of a view's run, in order."""
    epochs = committed_epochs(_output(source))
    return [f"{epoch:0{_DIGITS}}{_CHANGES if at else ''}" for at, epoch in enumerate(epochs)]


def epoch_path(source: FolderSource, name: str) -> str:
    """Return the file that says that an epoch is committed."""
    return str(Path(source.path) / manifest_path(_epoch_of(name)))


def _epoch_of(name: str) -> int:
    return int(name[:_DIGITS])


def check_kept(source: FolderSource, state: Mapping[str, Any], names: list[str]) -> None:
    """Check that the last epoch that was taken is kept as long as there are later ones.

    Raises
    ------
    InputError
        If it is not: what the next ones have changed cannot be known.
    """
    last = state["last"]
    if last and names and _epoch_of(names[-1]) > _epoch_of(last) < _epoch_of(names[0]):
        raise _gone(source, _epoch_of(last))


def _gone(source: FolderSource, epoch: int) -> InputError:
    return InputError(
        f"{source.path}: epoch {epoch} of view {source.view} was taken, and is not kept any more; what the next ones "
        "have changed is not known",
        hint="Start into new folders: the first epoch gives all rows. And let the run of the view keep more of them "
        "(--keep), or look more often.",
    )


def read_changes(source: FolderSource, relation: Relation, path: str, label: str) -> tuple[FolderSource, pa.Table]:
    """Return the rows of an epoch, those that have gone in front, and the source with the column that says which.

    Parameters
    ----------
    path
        That of `epoch_path`.
    label
        Ends with the name of the epoch.

    Raises
    ------
    InputError
        If the epoch, or the one before, is not kept any more or cannot be read.
    """
    out, epoch = _output(source), int(Path(path).stem)
    before = [each for each in committed_epochs(out) if each < epoch]
    is_whole = not label.endswith(_CHANGES)
    if not is_whole and not before:
        raise _gone(source, epoch - 1)
    try:
        after = read_manifest(out, epoch).files(source.view)
        known = [] if is_whole else read_manifest(out, before[-1]).files(source.view)
        tables = {file: read_parquet(out, file) for file in {*after, *known} if not (file in after and file in known)}
    except (CumulusError, OSError, pa.ArrowException) as problem:
        raise InputError(f"{path}: the rows of view {source.view} cannot be read: {problem}") from None
    gone, come = ([tables[file] for file in files if file in tables] for files in (known, after))
    op = fresh_column("op", relation.column_names)
    told = FolderSource(source.relation, source.path, op=op, order=NONE, view=source.view)
    if not gone and not come:
        return told, table_of(relation.columns, ()).append_column(op, pa.array([], pa.string()))
    counted = fresh_column("change", (gone + come)[0].column_names)
    net = net_rows((gone + come)[0].schema, gone, come, counted)
    net = net.sort_by(counted)  # what has gone is in front
    counts = net[counted].to_numpy()
    rows = net.drop_columns([counted]).take(pa.array(np.repeat(np.arange(len(counts)), np.abs(counts))))
    ops = np.where(np.repeat(counts, np.abs(counts)) > 0, "insert", "delete")
    return told, rows.append_column(op, pa.array(ops.tolist(), pa.string()))
