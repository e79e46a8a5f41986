"""Whether two output folders say the same: epochs, counts, views, quarantine, errors of views."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cumulus.epochs.bucket.view_errors import VIEW_ERRORS
from cumulus.epochs.committed.manifest import Manifest, committed_epochs, read_manifest
from cumulus.epochs.view_folders import QUARANTINE

_SAME = ("counts", "totals", "offsets", "view_error_counts", "view_error_totals", "snapshot")


_PLACES = ("epoch", "source", "position")
"""Columns that say where a row comes from."""


def difference(one: Path, other: Path, *, same_host: bool = True) -> str:
    """Return the first difference between two output folders of the same files, "" if there is none.

    Parameters
    ----------
    same_host
        Whether they say in the same words what of the files is in.
    """
    names = [name for name in _SAME if same_host or name != "offsets"]
    epochs = committed_epochs(one)
    if epochs != committed_epochs(other):
        return f"epochs {epochs} and {committed_epochs(other)}"
    for epoch in epochs:
        mine, theirs = (_manifest_of(out, epoch) for out in (one, other))
        found = _manifests_difference(mine, theirs, names) or _views_difference(one, epoch, other, epoch)
        if found:
            return f"epoch {epoch}: {found}"
    return ""


def difference_in_parts(one: Path, parts: Mapping[int, Sequence[int]], other: Path) -> str:
    """Return the first difference between output folders if an epoch of one is several of the other.

    The rows are the same, and come from other files. Of errors of views the counts are compared.

    Parameters
    ----------
    parts
        Epoch of `other` → its epochs in `one`.
    """
    if list(parts) != committed_epochs(other):
        return f"epochs {list(parts)} and {committed_epochs(other)}"
    for epoch, mine in parts.items():
        told = [_manifest_of(one, each) for each in mine]
        whole = {**told[-1]}
        for name in ("counts", "view_error_counts"):
            whole[name] = dict(sum((Counter(each[name]) for each in told), Counter()))
        counts = told[-1]["counts"]
        whole["counts"] = {**dict.fromkeys(counts, 0), **whole["counts"], "waiting": counts["waiting"]}
        names = [name for name in _SAME if name not in ("offsets", "snapshot")]
        found = _manifests_difference(whole, _manifest_of(other, epoch), names)
        found = found or _views_difference(one, mine[-1], other, epoch, same_files=False)
        if found:
            return f"epoch {epoch}: {found}"
    return ""


def _manifest_of(out: Path, epoch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "epochs" / f"{epoch}.json").read_text())
    return found


def _manifests_difference(mine: Mapping[str, Any], theirs: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        if mine[name] != theirs[name]:
            return f"{name} {mine[name]} and {theirs[name]}"
    if mine["errors"].keys() != theirs["errors"].keys():
        return f"errors {mine['errors']} and {theirs['errors']}"
    return ""


def _views_difference(one: Path, mine: int, other: Path, theirs: int, *, same_files: bool = True) -> str:
    manifests = [(one, read_manifest(one, mine)), (other, read_manifest(other, theirs))]
    shown, also = ([view for view in each.views if each.files(view)] for _, each in manifests)
    if {*shown} != {*also}:
        return f"it shows {shown} and {also}"
    for view in (*shown, QUARANTINE, *([VIEW_ERRORS] if same_files else [])):
        tables = [_rows(out, manifest, view) for out, manifest in manifests]
        if not same_files and view == QUARANTINE:
            tables = [_without_places(table) for table in tables]
        found = _rows_difference(*tables)
        if found:
            return f"{view}: {found}"
    return ""


def _rows(out: Path, manifest: Manifest, view: str) -> pa.Table | None:
    """Return what an epoch has of a view, or of what was refused; None without any file."""
    files = {
        QUARANTINE: manifest.quarantine,
        VIEW_ERRORS: [path for paths in manifest.view_errors.values() for path in paths],
    }.get(view) or (manifest.files(view) if view in manifest.views else [])
    if not files:
        return None
    table = pa.concat_tables(pq.read_table(out / path, partitioning=None) for path in files)
    if view == VIEW_ERRORS:
        # Where an event meets several rows for which a view fails, the one that is named depends on their order in a
        # map.
        place = table.column_names.index("message")
        told = pc.replace_substring_regex(table.column(place), r"\(.*\)", "", max_replacements=1)
        table = table.set_column(place, "message", told)
    return table


def _without_places(table: pa.Table | None) -> pa.Table | None:
    return None if table is None else table.drop_columns([each for each in _PLACES if each in table.column_names])


def _rows_difference(one: pa.Table | None, other: pa.Table | None) -> str:
    """Return the first difference; no file is no row."""
    if one is None or other is None:
        rows = sum(table.num_rows for table in (one, other) if table is not None)
        return f"{rows} rows, and no file" if rows else ""
    return _table_difference(one, other)


def _table_difference(one: pa.Table, other: pa.Table) -> str:
    """Return the first difference between two bags of rows; floats may differ by what adding in another order makes."""
    if one.schema != other.schema:
        return f"{one.schema} and {other.schema}"
    floats = [place for place, field in enumerate(one.schema) if pa.types.is_floating(field.type)]

    def rows(table: pa.Table) -> list[tuple[Any, ...]]:
        listed = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return sorted(listed, key=lambda row: ([repr(row[at]) for at in exact], [_rounded(row[at]) for at in floats]))

    exact = [place for place in range(one.num_columns) if place not in floats]
    mine, theirs = rows(one), rows(other)
    if len(mine) != len(theirs):
        return f"{len(mine)} and {len(theirs)} rows"
    unequal = (pair for pair in zip(mine, theirs, strict=True) if not _is_same(*pair))
    return next((f"{row} and {their}" for row, their in unequal), "")


def _rounded(value: float | None) -> str:
    return repr(None if value is None else float(f"{value:.6g}"))


def _is_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(
        math.isclose(mine, their, rel_tol=1e-9, abs_tol=1e-9) or (mine != mine and their != their)
        if isinstance(mine, float) and isinstance(their, float)
        else repr(mine) == repr(their)
        for mine, their in zip(one, other, strict=True)
    )
