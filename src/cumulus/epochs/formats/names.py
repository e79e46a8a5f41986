"""Columns of files by their names, found as SQL finds them: in any case, and what is written alike comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cumulus.catalog.names import folded
from cumulus.catalog.schema import Relation
from cumulus.epochs.folder_source import FolderSource


class AmbiguousNameError(ValueError):
    """Two columns differ only in the case of their letters, and none is written as the table says."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How a file calls a table's columns, in their order, the operation and the order; None where it has none."""

    columns: tuple[str | None, ...]
    operation: str | None
    order: str | None


def find_names(found: Iterable[str], relation: Relation, source: FolderSource) -> FileColumns:
    """Return the names that belong together.

    Raises
    ------
    AmbiguousNameError
        If two names differ only in their case and none is written as wanted.
    """
    exact = dict.fromkeys(found)
    by_folded: dict[str, list[str]] = {}
    for name in exact:
        by_folded.setdefault(folded(name), []).append(name)

    def find(wanted: str | None) -> str | None:
        if wanted is None or wanted in exact:
            return wanted
        alike = by_folded.get(folded(wanted), [])
        if len(alike) > 1:
            raise AmbiguousNameError(f"{' and '.join(map(repr, alike))} differ only in case, and neither is {wanted!r}")
        return alike[0] if alike else None

    operation, order = source.operation_column(relation), source.order_column(relation)
    return FileColumns(tuple(map(find, relation.column_names)), find(operation), find(order))
