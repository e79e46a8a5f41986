"""A view as it was: its maps are copied in the turn of whoever changes them, its columns are made afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from cumulus.m3.view_reads import reads_of
from cumulus.views.batches import ColumnsAlone, MapColumns, is_far
from cumulus.views.column_finishing import Columnar
from cumulus.views.entries import Key, MapSource, Values
from cumulus.views.finishing import Finisher
from cumulus.views.vectors import NotColumnarError


class CopiedSource(MapSource, Protocol):
    """Maps that can be read, and copied."""

    def copied_columns(self, map: str, turn: AbstractContextManager[object]) -> MapColumns | None:
        """Return the entries as columns that stay as they are; see `cumulus.engine.protocol.Maps`."""


class _CopiedMaps(ColumnsAlone):
    """The maps of a view as they were, a `MapSource`; what only columns cannot tell is `NotColumnarError`."""

    def __init__(self, finisher: Finisher, source: CopiedSource, turn: AbstractContextManager[object]) -> None:
        read = [each.map for each in reads_of(finisher.program, finisher.view)]
        self._columns: dict[str, MapColumns | None] = {}
        self._single: dict[str, Values | None] = {}
        self._sizes: dict[str, int] = {}
        for each in dict.fromkeys([*finisher.maps, *read]):
            self._sizes[each.name] = source.stored_count(each.name)
            if each.keys:
                self._columns[each.name] = source.copied_columns(each.name, turn)
            else:
                self._single[each.name] = source.read(each.name, ())

    def columns(self, map: str) -> MapColumns | None:
        return self._columns[map]

    def stored_count(self, map: str) -> int:
        return self._sizes[map]

    def read(self, map: str, key: Key) -> Values | None:
        if map not in self._single:
            raise NotColumnarError
        return self._single[map]


class CopiedRows:
    """The rows of a view as they were when this was made; each column is made when it is first wanted, in one thread.

    Parameters
    ----------
    turn
        Taken for a moment where texts are looked up.

    Raises
    ------
    NotColumnarError
        From here and `columns`, where the view must be read row by row.
    """

    def __init__(self, finisher: Finisher, source: CopiedSource, turn: AbstractContextManager[object]) -> None:
        if finisher.is_kept_in_order(source) or not finisher.maps[0].keys:
            raise NotColumnarError  # it has few rows
        rows = source.stored_count(finisher.maps[0].name)
        ends = [each.map.name for each in reads_of(finisher.program, finisher.view) if each.end]
        if any(is_far(source.stored_count(each), rows) for each in ends):
            raise NotColumnarError  # so it has
        self._maps = _CopiedMaps(finisher, source, turn)
        if self._maps.columns(finisher.maps[0].name) is None:
            raise NotColumnarError
        self._finisher = finisher
        self._columnar: Columnar | None = None
        self._made: dict[str, Any] = {}

    def columns(self, names: Sequence[str] | None = None) -> pa.Table:
        """Return columns of all rows, some or all of them; the rows are in the order of the view."""
        if names is None:
            names = [column.name for column in self._finisher.view.columns]
        missing = [each for each in dict.fromkeys(names) if each not in self._made]
        if missing:
            if self._columnar is None:
                self._columnar = Columnar(self._finisher, self._maps)
            table = self._columnar.named(missing)
            self._made.update(zip(missing, table.columns, strict=True))
        return pa.table([self._made[each] for each in names], names=list(names))
