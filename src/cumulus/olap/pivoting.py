"""Cells as columns: one column for each member of the pivoted levels and each measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cumulus.algebra.order import order_key
from cumulus.catalog.schema import Column
from cumulus.errors import UsageError
from cumulus.olap.blocks import RowSet, key_values
from cumulus.olap.ordering import OrderColumn, sorted_places
from cumulus.views.entries import Key

MAX_COLUMNS = 2_000
TOTAL = "total"


class Pivoted:
    """The rows of pivoted cells.

    Parameters
    ----------
    blocks
        Cells, and totals of them.
    rows, pivots
        The levels that are rows, and those that become columns.
    """

    def __init__(
        self, blocks: Sequence[RowSet], rows: Sequence[Column], pivots: Sequence[Column], measures: Sequence[str]
    ) -> None:
        self._rows, self._pivots, self._measures = list(rows), list(pivots), list(measures)
        self._row_names = [column.name for column in rows]
        self._cells: list[tuple[RowSet, Key, pa.Table]] = []
        for block in blocks:
            of = [column for column in pivots if column.name in block.pivots]
            keys = key_values(block.table, of)
            for key in dict.fromkeys(keys):
                places = [place for place, each in enumerate(keys) if each == key] if of else None
                self._cells.append((block, key, block.table if places is None else block.table.take(places)))
        self.places: dict[tuple[int, bool, Key], int] = {}
        """GROUPING, whether it is the rest, and the values of a row → its number."""
        self.first: list[tuple[RowSet, pa.Table, int]] = []
        for block, _, table in self._cells:
            if not block.is_hidden:
                for at, key in enumerate(self._keys(block, table)):
                    if self.places.setdefault(key, len(self.places)) == len(self.first):
                        self.first.append((block, table, at))

    def _keys(self, block: RowSet, table: pa.Table) -> list[tuple[int, bool, Key]]:
        columns = [column for column in self._rows if column.name in block.rows]
        grouping = block.grouping(self._row_names)
        return [(grouping, block.is_others, key) for key in key_values(table, columns)]

    def columns(self, taken: set[str]) -> dict[str, pa.Array]:
        """Return the columns of cells, members in their order, totals after them; none has a name that is taken.

        Raises
        ------
        UsageError
            If there are too many.
        """
        headers = self._headers()
        count = len(headers) * len(self._measures)
        if count > MAX_COLUMNS:
            raise UsageError(
                f"the pivot makes {count:,} columns, more than {MAX_COLUMNS:,}",
                hint="Pivot a coarser level, or take fewer members: dice(…).",
            )
        found: dict[str, pa.Array] = {}
        for text, pivots, member in headers:
            for measure in self._measures:
                name = free_name(f"{text}_{measure}", {*found, *taken})
                found[name] = self.measure(measure, pivots, member)
        return found

    def measure(self, measure: str, pivots: tuple[str, ...], member: Key, is_hidden: bool = False) -> pa.Array:
        """Return a measure of each row, in the column of a member; NULL where there is no cell."""
        sources: list[pa.ChunkedArray] = []
        taken: list[int | None] = [None] * len(self.places)
        start = 0
        for block, key, table in self._cells:
            if (block.pivots, key, block.is_hidden) == (pivots, member, is_hidden):
                for at, row in enumerate(self._keys(block, table)):
                    place = self.places.get(row)
                    if place is not None:
                        taken[place] = start + at
                sources.append(table.column(measure))
                start += table.num_rows
        if not sources:
            return pa.nulls(len(taken))
        together = pa.chunked_array([chunk for source in sources for chunk in source.chunks], sources[0].type)
        return together.take(pa.array(taken, pa.int64())).combine_chunks()

    def _headers(self) -> list[tuple[str, tuple[str, ...], Key]]:
        """Return the columns' names, and which members they are of."""
        shown = list(dict.fromkeys((block.pivots, key) for block, key, _ in self._cells if not block.is_hidden))
        whole = [tuple(self._spread(pivots, key)) for pivots, key in shown]
        order = []
        for place in range(len(self._pivots)):
            values = [member[place] for member in whole]
            order.append(OrderColumn(pa.array([value == (TOTAL,) for value in values])))
            order.append(OrderColumn(_sortable([None if value == (TOTAL,) else value[1] for value in values])))
        places = sorted_places(order).to_pylist() if shown else []
        return [(_header(whole[place]), *shown[place]) for place in places]

    def _spread(self, pivots: tuple[str, ...], key: Key) -> list[tuple[Any, ...]]:
        values = dict(zip([each.name for each in self._pivots if each.name in pivots], key, strict=True))
        return [("member", values[each.name]) if each.name in values else (TOTAL,) for each in self._pivots]


def _sortable(values: list[Any]) -> pa.Array:
    """Return values of one type as Arrow; spans and the like by their place among them."""
    order = sorted({value for value in values if value is not None}, key=order_key)
    places = {value: place for place, value in enumerate(order)}
    return pa.array([None if value is None else places[value] for value in values], pa.int64())


def _header(member: Sequence[tuple[Any, ...]]) -> str:
    if all(value == (TOTAL,) for value in member):
        return TOTAL
    return "_".join(TOTAL if value == (TOTAL,) else "NULL" if value[1] is None else str(value[1]) for value in member)


def free_name(name: str, taken: set[str]) -> str:
    """Return a name, with as many underscores behind it as make it a new one."""
    while name in taken:
        name += "_"
    return name
