"""Which rows and columns of a view somebody subscribes to, and what of a change they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import Row
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Column
from cumulus.m3.program import ViewDef
from cumulus.views.folding import Bound, column_tests
from cumulus.views.row_changes import CHANGE, check_change


@dataclass(frozen=True)
class RowSelection:
    """Some columns of the rows of a view that lie within bounds.

    Parameters
    ----------
    view
        Its name.
    columns
        All of its columns.
    places
        Which of them are wanted, in this order.
    where
        Bounds of any columns.
    """

    view: str
    columns: tuple[Column, ...]
    places: tuple[int, ...]
    where: tuple[Bound, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns that are wanted."""
        return [self.columns[place].name for place in self.places]

    @cached_property
    def _tests(self) -> list[tuple[int, Callable[[Any], bool]]]:
        return column_tests(self.view, self.columns, self.where)

    def net(self, changes: Iterable[tuple[Row, int]]) -> Counter[Row]:
        """Return how often each selected row came, or left (negative), of how often whole rows did."""
        tests, places, found = self._tests, self.places, Counter[Row]()
        for row, count in changes:
            if all(test(row[place]) for place, test in tests):
                found[tuple([row[place] for place in places])] += count
        return Counter({row: count for row, count in found.items() if count})

    def table(self, net: Counter[Row]) -> pa.Table:
        """Return changes as Arrow: how often a row came or left, then its columns."""
        rows = table_of(tuple(self.columns[place] for place in self.places), list(net))
        return rows.add_column(0, CHANGE, pa.array(net.values(), pa.int64()))


def select_rows(view: ViewDef, columns: Sequence[str] | None, where: Sequence[Bound]) -> RowSelection:
    """Return a selection of a view's rows.

    Raises
    ------
    UnknownNameError
        If the view has no such column.
    UsageError
        If a value is not of its column's type, or the view has a column `change` of its own.
    """
    known = [column.name for column in view.columns]
    names = known if columns is None else [known_name(name, known, f"column of {view.name}") for name in columns]
    check_change(view.name, names)
    found = RowSelection(view.name, view.columns, tuple(map(known.index, names)), tuple(where))
    found.net([])  # tells what is wrong with the bounds
    return found
