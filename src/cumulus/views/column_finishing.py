"""The finishing step by columns: from the words of maps to the columns of a view, without a tuple for each row.

`Columnar` says what `cumulus.views.finishing.Finisher` says. An expression that vectors do not know is computed value
by value, the others stay columns; where anything is unusual (an error, a number beyond its type), `NotColumnarError`
leaves the whole view to the `Finisher`, which then also finds the error.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.algebra.terms import Scalar
from cumulus.catalog.arrow import array_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.catalog.types import EXACT, Kind
from cumulus.views import kernels
from cumulus.views.batches import EntryColumns, Tables
from cumulus.views.entries import MapSource, WholeMaps
from cumulus.views.finishing import Finisher, ready_arrays
from cumulus.views.vector_values import arrow_values, python_values
from cumulus.views.vectors import Mask, NotColumnarError, Vector

_AT_ONCE = 4096
"""Entries that are looked at together where a few rows are wanted; then twice as many, and so on."""


class Columnar:
    """The finishing step of one view over a source that has maps as columns.

    Raises
    ------
    NotColumnarError
        From here and every method, where the view must be made row by row.
    """

    def __init__(self, finisher: Finisher, source: MapSource) -> None:
        if not finisher.maps[0].keys:
            raise NotColumnarError
        ready_arrays()
        self._finisher, self._source = finisher, source
        self._view = finisher.view
        self._tables = Tables(finisher, source)
        self._whole: WholeMaps | None = None
        self._all: EntryColumns | None = None

    # --- out --------------------------------------------------------------------------------------------------------

    def table(self, columns: Sequence[int] | None = None, limit: int | None = None) -> pa.Table:
        """Return the rows of the view as Arrow: some columns, by their numbers, of so many of the first rows."""
        if limit is None:
            self._load(columns)
        return self._arrow_table(self._batch(limit), columns)

    def named(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows; which rows they are is found once."""
        places = [next(at for at, each in enumerate(self._view.columns) if each.name == name) for name in names]
        self._load(places)
        if self._all is None:
            self._all = self._batch(None)
        return self._arrow_table(self._all, places)

    def rows(self) -> list[Row]:
        """Return the rows of the view as tuples."""
        self._load(None)
        batch = self._batch(None)
        found = []
        for scalar, column in zip(self._view.select, self._view.columns, strict=True):
            vector = self._vector(batch, scalar)
            if isinstance(vector, Vector) and column.type is not None:
                found.append(python_values(vector, column.type))
            else:
                found.append(self._one_by_one(batch, scalar, column))
        return list(zip(*found, strict=True))

    def count(self) -> int:
        """Return how many rows the view has."""
        tables, view = self._tables, self._view
        if view.where is None and view.repeat is None:
            count = int(np.count_nonzero(tables.first.there(slice(0, tables.first.size), positive=True)))
        else:
            visible = self._visible(slice(0, tables.first.size))
            count = visible.count if view.repeat is None else int(self._copies(visible).sum())
        count = max(count - view.offset, 0)
        return count if view.limit is None else min(count, view.limit)

    def filtered(self, columns: Sequence[int], names: Sequence[int], keep: Callable[[pa.Table], Any]) -> pa.Table:
        """Return some columns of the rows that a condition keeps; the others are not read for those that it does not.

        Parameters
        ----------
        names
            The columns that the condition needs.
        keep
            From these to the numbers of the rows that are kept.
        """
        self._load(names)
        batch = self._batch(None)
        places = keep(self._arrow_table(batch, names))
        if len(places) < batch.count:
            batch = batch.take(np.asarray(places, np.int64))
        return self._arrow_table(batch, columns)

    def _load(self, columns: Sequence[int] | None) -> None:
        """Read what some columns of all rows take, if nothing bounds how many these are."""
        view = self._view
        if view.limit is None or view.order_by:
            shown = view.select if columns is None else [view.select[place] for place in columns]
            self._tables.load([*shown, *(each for each in view.expressions if each not in view.select)])

    def _arrow_table(self, batch: EntryColumns, columns: Sequence[int] | None) -> pa.Table:
        wanted = range(len(self._view.columns)) if columns is None else columns
        arrays = [self._array(batch, self._view.select[place], self._view.columns[place]) for place in wanted]
        return pa.Table.from_arrays(arrays, names=[self._view.columns[place].name for place in wanted])

    # --- which rows -------------------------------------------------------------------------------------------------

    def _batch(self, limit: int | None) -> EntryColumns:
        """Return the entries of the view's rows in its order, of a bag as often as they stand, at most so many."""
        view = self._view
        most = view.limit if limit is None else limit if view.limit is None else min(limit, view.limit)
        wanted = None if most is None else most + view.offset
        if wanted is not None and not view.order_by:
            batch = self._first(wanted)
        else:
            batch = self._repeated(self._visible(slice(0, self._tables.first.size)))
            if view.order_by:
                batch = batch.take(self._order(batch, wanted))
        if view.offset or (wanted is not None and batch.count > wanted):
            end = batch.count if wanted is None else min(wanted, batch.count)
            batch = batch.take(np.arange(min(view.offset, end), end))
        return batch

    def _visible(self, at: slice) -> EntryColumns:
        """Return those of some numbers that have an entry which the view shows."""
        batch = EntryColumns(self._tables, at).part(self._tables.first.there(at, positive=True))
        return batch if self._view.where is None else batch.part(self._truth(batch, self._view.where))

    def _first(self, wanted: int) -> EntryColumns:
        """Return the first entries, looking at no more of them than needed."""
        size, start, step, parts, count = self._tables.first.size, 0, _AT_ONCE, list[Any](), 0
        while start < size and count < wanted:
            batch = self._repeated(self._visible(slice(start, min(start + step, size))))
            parts.append(batch.numbers)
            count += batch.count
            start, step = start + step, step * 2
        return EntryColumns(self._tables, np.concatenate(parts) if parts else np.zeros(0, np.int64))

    def _copies(self, batch: EntryColumns) -> npt.NDArray[np.int64]:
        """Return how often the row of each entry stands."""
        assert self._view.repeat is not None
        found = self._vector(batch, self._view.repeat)
        if not isinstance(found, Vector):
            return np.array([max(int(each), 0) for each in found], np.int64)
        if found.null is not None or not found.type.is_integer:
            raise NotColumnarError
        copies: npt.NDArray[np.int64] = np.maximum(found.narrow(), 0)
        return copies

    def _repeated(self, batch: EntryColumns) -> EntryColumns:
        copies = None if self._view.repeat is None else self._copies(batch)
        if copies is None or (copies == 1).all():
            return batch
        return EntryColumns(self._tables, np.repeat(batch.numbers, copies))

    def _order(self, batch: EntryColumns, wanted: int | None) -> npt.NDArray[np.int64]:
        """Return the places of a batch in the view's order; at least the first `wanted` of them."""
        words: list[npt.NDArray[np.int64]] = []
        for item in self._view.order_by:
            vector = self._vector(batch, item.expression)
            if not isinstance(vector, Vector):
                raise NotColumnarError
            if vector.null is not None:
                words.append(np.where(vector.null, -1 if item.nulls_first else 1, 0))
            for word in [] if vector.type.kind is Kind.NULL else vector.sortable():
                signed = ~word if item.descending else word
                words.append(signed if vector.null is None else np.where(vector.null, 0, signed))
        places = np.arange(batch.count)
        if wanted is not None and wanted < batch.count // 8:  # leave out what comes behind the last that is wanted
            worst = np.partition(words[0], wanted)[wanted]
            places = np.flatnonzero(words[0] <= worst)
            words = [word[places] for word in words]
        return places[np.lexsort(words[::-1])] if len(words) > 1 else places[np.argsort(words[0], kind="stable")]

    # --- values -----------------------------------------------------------------------------------------------------

    def _vector(self, batch: EntryColumns, scalar: Scalar) -> Vector | list[Any]:
        """Return an expression for each entry, as a list of values where vectors do not know it."""
        try:
            return batch.value(scalar)
        except NotColumnarError:
            return self._one_by_one(batch, scalar, None)

    def _truth(self, batch: EntryColumns, condition: Scalar) -> Mask:
        found = self._vector(batch, condition)
        if isinstance(found, Vector):
            return kernels.is_true(found)
        return np.fromiter(map(bool, found), np.bool_, batch.count)

    def _array(self, batch: EntryColumns, scalar: Scalar, column: Column) -> Any:
        if column.type is None:
            raise NotColumnarError
        try:
            return arrow_values(batch.value(scalar), column.type)
        except NotColumnarError:
            values = self._one_by_one(batch, scalar, column)
        try:
            return array_of(values, column.type)
        except (pa.ArrowException, OverflowError):
            raise NotColumnarError from None

    def _one_by_one(self, batch: EntryColumns, scalar: Scalar, column: Column | None) -> list[Any]:
        """Return the values of an expression, of the type of a column if one is given, by its Python code."""
        names, compute = self._finisher.expression(scalar, column)
        if self._whole is None:
            source = self._source
            self._whole = WholeMaps(source.items, source, source.stored_count(self._finisher.maps[0].name))
        vectors = [batch.named(name).full(batch.count) for name in names]
        given = [python_values(vector, vector.type) for vector in vectors]  # as the `Finisher` sees them
        lines = zip(*given, strict=True) if given else repeat((), batch.count)
        try:
            with decimal.localcontext(EXACT):
                return [compute(self._whole, *values) for values in lines]
        except Exception:  # noqa: BLE001  # a user's function may raise anything; row by row it is told properly
            raise NotColumnarError from None
