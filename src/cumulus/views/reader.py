"""The reader of one view over maps in this process: rows, columns, one row by its key."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from cumulus.catalog.arrow import table_of
from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.catalog.types import EXACT, Kind, coerce
from cumulus.errors import UsageError
from cumulus.m3.view_reads import key_columns
from cumulus.views.column_finishing import Columnar
from cumulus.views.consistency import Consistency as Consistency  # whoever reads imports it from here, too
from cumulus.views.entries import MapSource
from cumulus.views.finishing import Finished, Finisher
from cumulus.views.tables import FirstRows, Shown
from cumulus.views.vectors import NotColumnarError

if TYPE_CHECKING:
    pass

T = TypeVar("T")
_FEW_ENTRIES = 32
"""Beginning with columns takes as long as so many entries one by one."""


class MapViewReader(Shown):
    """Reads the rows of a view from maps in this process: it always sees the last committed transaction."""

    def __init__(self, finisher: Finisher, source: MapSource) -> None:
        self._finisher = finisher
        self._source = source
        keys = finisher.maps[0].keys
        shown = key_columns(finisher.view, keys)
        self._key_columns = tuple(place for place, column in enumerate(finisher.view.columns) if column.name in shown)
        self._key_places = tuple(shown.values())
        self._is_unique = len(shown) == len(keys)
        self.is_quick = (
            self._is_unique and not finisher.program.functions
        )  # then `get` is one look-up, and calls nothing
        self._is_in_order = self._key_places == tuple(range(len(keys)))
        types = [self.columns[place].type for place in self._key_columns]
        self._key_is_text = [each is not None and each.kind is Kind.VARCHAR for each in types]

    @property
    def finisher(self) -> Finisher:
        """What makes rows of map entries."""
        return self._finisher

    @property
    def name(self) -> str:
        """The view's name."""
        return self._finisher.view.name

    @property
    def columns(self) -> tuple[Column, ...]:
        """Names and types of the rows."""
        return self._finisher.view.columns

    def arrow(self, *, skip_errors: bool = False) -> pa.Table:
        """Return all rows as Arrow: the view's columns, types and order.

        Parameters
        ----------
        skip_errors
            Leave out the rows of which an expression cannot be computed.

        Raises
        ------
        EvaluationError
            If an expression of the view cannot be computed for some row.
        """
        table = self._by_columns(Columnar.table)
        return self._finisher.to_arrow(self._one_by_one(skip_errors)) if table is None else table

    def rows(self, *, skip_errors: bool = False) -> list[Row]:
        """Return all rows as tuples of plain values; see `arrow`."""
        rows = None if self._has_few_rows() else self._by_columns(Columnar.rows)
        return rows if rows is not None else self._one_by_one(skip_errors)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, as Arrow's."""
        if any(column.type is None for column in self.columns):
            return self.arrow().schema
        return table_of(self.columns, []).schema

    def head(self, count: int = 5) -> pa.Table:
        """Return the first rows as Arrow, without making the others."""
        made = self._by_columns(lambda columns: columns.table(limit=count))
        return self.arrow().slice(0, count) if made is None else made

    def count(self) -> int:
        """Return how many rows the view has."""
        found = self._by_columns(Columnar.count)
        return len(self.rows()) if found is None else found

    def columns_of(self, names: Sequence[str]) -> pa.Table:
        """Return some columns of all rows as Arrow."""
        made = self._by_columns(lambda columns: columns.table(self._places(names)))
        return self.arrow().select(names) if made is None else made

    def columns_where(self, names: Sequence[str], needed: Sequence[str], keep: Callable[[pa.Table], Any]) -> pa.Table:
        """Return some columns of the rows that a condition keeps.

        Parameters
        ----------
        names
            The columns that are wanted.
        needed, keep
            The columns that the condition needs, and the function from these to the numbers of the rows that it keeps.
        """
        made = self._by_columns(lambda columns: columns.filtered(self._places(names), self._places(needed), keep))
        if made is not None:
            return made
        table = self.arrow()
        return table.take(pa.array(keep(table.select(needed)))).select(names)

    def rows_at(self, values: Mapping[str, Any]) -> pa.Table | None:
        """Return the rows that have some values in some columns by one look-up; None if it takes more than that."""
        view = self._finisher.view
        places = [self.columns[place].name for place in self._key_columns]
        if not (self._is_unique and places and view.limit is None and not view.offset and values.keys() == set(places)):
            return None
        found = self._at(tuple(values[name] for name in places))
        return self._finisher.to_arrow([] if found is None else [found.row] * found.copies)

    def _places(self, names: Sequence[str]) -> list[int]:
        known = {column.name: place for place, column in enumerate(self.columns)}
        return [known[name] for name in names]

    def _has_few_rows(self) -> bool:
        """Whether rows are made sooner one by one than columns are begun with."""
        return all(self._source.stored_count(each) <= _FEW_ENTRIES for each in self._finisher.affected.maps)

    def _by_columns(self, make: Callable[[Columnar], T]) -> T | None:
        """Return what is made by columns; None where rows are made one by one, or only the first ones are."""
        if self._finisher.is_kept_in_order(self._source):
            return None
        try:
            return make(Columnar(self._finisher, self._source))
        except NotColumnarError:
            return None

    def _one_by_one(self, skip_errors: bool = False) -> list[Row]:
        if self._finisher.top is not None and not skip_errors:
            first = self._finisher.first_rows(self._source)
            if first is not None:
                return first[0]
        return self._finisher.rows(self._source.items, self._source, skip_errors=skip_errors)

    def get(self, *key: Any) -> Row | None:
        """Return the row with a key, None if there is none; ORDER BY and LIMIT play no part.

        Parameters
        ----------
        *key
            The values of the view's grouping columns, in the order of the SELECT list; none for a view without GROUP
            BY. One look-up if the SELECT list has all grouping columns, else a scan.

        Raises
        ------
        UsageError
            If the number of values is wrong, or several rows have them.
        """
        if len(key) != len(self._key_columns):
            names = ", ".join(self.columns[place].name for place in self._key_columns)
            raise UsageError(
                f"{self.name} is looked up by ({names}), {len(key)} values were given",
                hint="Give one value for each of these columns.",
            )
        wanted = key
        for place, value in enumerate(key):
            # What is nearly always given needs no check: a text without half characters.
            if not (type(value) is str and self._key_is_text[place] and value.isascii()):
                wanted = tuple(map(self._given, self._key_columns, key))
                break
        if not self._is_unique:
            return self._scan(wanted)
        found = self._at(wanted)
        return None if found is None else found.row

    def _at(self, wanted: Row) -> Finished | None:
        """Return what the entry with the values of all grouping columns gives."""
        whole = wanted
        if not self._is_in_order:
            ordered: list[Any] = [None] * len(self._key_places)
            for place, value in zip(self._key_places, wanted, strict=True):
                ordered[place] = value
            whole = tuple(ordered)
        read, maps = self._source.read, self._finisher.maps
        with decimal.localcontext(EXACT):
            return self._finisher.entry(whole, [read(each.name, whole) for each in maps], self._source)

    @property
    def key_of(self) -> Callable[[Row], Row] | None:
        """The function from a row to its grouping columns; None if the SELECT list does not have them all, or none."""
        places = self._key_columns
        return (lambda row: tuple([row[place] for place in places])) if self._is_unique and places else None

    def _given(self, place: int, value: Any) -> Any:
        column = self.columns[place]
        if column.type is None:
            return value
        try:
            return coerce(value, column.type)
        except (TypeError, ValueError) as problem:
            raise UsageError(f"{self.name}.{column.name}: {problem}", hint=f"It is a {column.type}.") from None

    def _scan(self, wanted: Row) -> Row | None:
        found = [row for row in self.rows() if tuple(row[place] for place in self._key_columns) == wanted]
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} rows of {self.name} have these values: its SELECT list lacks a grouping column",
                hint="Select all columns that the view groups by, or use rows().",
            )
        return found[0] if found else None

    def first(self, count: int) -> FirstRows:
        """Return so many of the first rows, to be shown."""
        types = [column.type for column in self.columns]
        if not self._has_few_rows() or any(each is None or each.kind is Kind.INTERVAL for each in types):
            return FirstRows.of(self.head(count), self.count())
        rows = self.rows()  # without Arrow, whose arrays import pandas
        return FirstRows.of_rows(self.columns, rows[:count], len(rows))

    def _title(self) -> str:
        return self.name
