"""Tables that show well: what a view reader and the result of a query have in common."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.cells import cell_len

from cumulus.catalog.events import Row
from cumulus.catalog.schema import Column
from cumulus.errors import MissingError, UsageError
from cumulus.views.cell_texts import cell, padded

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_ROWS = 10
_SHOWN_WIDTH = 32


@dataclass(frozen=True, slots=True)
class FirstRows:
    """What is shown of a table.

    Parameters
    ----------
    columns
        The values of each column.
    numeric
        Which columns hold numbers.
    count
        How many rows there are in all.
    """

    names: list[str]
    columns: list[list[Any]]
    numeric: list[bool]
    count: int

    @classmethod
    def of(cls, table: pa.Table, count: int) -> FirstRows:
        """Return the rows of a table as the first of so many."""
        types = [field.type for field in table.schema]
        numeric = [pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in types]
        return cls(table.column_names, [column.to_pylist() for column in table.columns], numeric, count)

    @classmethod
    def of_rows(cls, columns: Sequence[Column], rows: Sequence[Row], count: int) -> FirstRows:
        """Return rows of typed columns as the first of so many."""
        values = [[row[place] for row in rows] for place in range(len(columns))]
        numeric = [column.type is not None and column.type.is_numeric for column in columns]
        return cls([column.name for column in columns], values, numeric, count)

    def cells(self) -> list[list[str]]:
        """Return the texts of each column, its name first."""
        texts = ([cell(value, _SHOWN_WIDTH) for value in column] for column in self.columns)
        return [[cell(name), *column] for name, column in zip(self.names, texts, strict=True)]


class Shown(ABC):
    """Something with rows and columns."""

    @abstractmethod
    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""

    def rows(self) -> list[Row]:
        """Return the rows as tuples of Python values."""
        columns = [column.to_pylist() for column in self.arrow().columns]
        return list(zip(*columns, strict=True))

    def pandas(self, *, exact: bool = False) -> pd.DataFrame:
        """Return the rows as a pandas frame of numbers and times.

        As DuckDB's ``df()``: decimals become float64, dates datetime64, and numbers with NULLs float64 with NaN. Whole
        numbers that SQL keeps in 128 bits, such as a SUM of integers, become int64 if all of them fit.

        Parameters
        ----------
        exact
            Leave decimals, and whole numbers that do not fit int64, as objects of `decimal.Decimal`.
        """
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise MissingError("pandas is not installed", hint="pip install pandas") from None
        table = self.arrow()
        columns = [_plottable(column, exact) for column in table.columns]
        plain = pa.Table.from_arrays(columns, names=table.column_names)
        frame: pd.DataFrame = plain.to_pandas(date_as_object=False)
        return frame

    def polars(self) -> Any:
        """Return the rows as a polars frame; decimals stay exact.

        Raises
        ------
        UsageError
            If a column is an INTERVAL: polars has nothing with months.
        """
        try:
            import polars
        except ImportError:
            raise MissingError("polars is not installed", hint="pip install polars") from None
        table = self.arrow()
        spans = [field.name for field in table.schema if pa.types.is_interval(field.type)]
        if spans:  # polars would panic
            raise UsageError(
                f"polars has no INTERVAL, which {', '.join(spans)} {'is' if len(spans) == 1 else 'are'}",
                hint='Make it seconds or a text: query("SELECT epoch(span) AS seconds FROM …").polars().',
            )
        return polars.from_arrow(table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the rows to anything that takes Arrow."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def _title(self) -> str:
        return ""

    def _notes(self) -> list[str]:
        """Return what must be said below the rows."""
        return []

    def first(self, count: int) -> FirstRows:
        """Return so many of the first rows, to be shown."""
        table = self.arrow()
        return FirstRows.of(table.slice(0, count), table.num_rows)

    def __repr__(self) -> str:
        first = self.first(_SHOWN_ROWS)
        cells, numeric = first.cells(), first.numeric
        widths = [max(map(cell_len, column)) for column in cells]
        lines = [
            "  ".join(
                padded(text, width, right=right) for text, width, right in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in zip(*cells, strict=True)
        ]
        if lines:
            lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, _footer(self._title(), first.count), *self._notes()])

    def _repr_html_(self) -> str:
        first = self.first(_SHOWN_ROWS)
        cells, numeric = first.cells(), first.numeric
        styles = ["text-align:right" if right else "text-align:left" for right in numeric]
        body = []
        for place, line in enumerate(zip(*cells, strict=True)):
            tag = "td" if place else "th"
            marked = (f'<{tag} style="{s}">{html.escape(c)}</{tag}>' for c, s in zip(line, styles, strict=True))
            body.append(f"<tr>{''.join(marked)}</tr>")
        below = "".join(f"<p>{html.escape(line)}</p>" for line in (_footer(self._title(), first.count), *self._notes()))
        return f"<table>{''.join(body)}</table>{below}"


class Result(Shown):
    """The rows of a query.

    Parameters
    ----------
    at
        The number of the transaction after which they are; None where that was not asked.
    """

    def __init__(self, table: pa.Table, at: int | None = None) -> None:
        self._table, self.at = table, at

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table


def _footer(title: str, rows: int) -> str:
    count = f"{rows} row{'' if rows == 1 else 's'}"
    more = f", the first {_SHOWN_ROWS} shown" if rows > _SHOWN_ROWS else ""
    return f"{title + ': ' if title else ''}{count}{more}"


def _plottable(column: Any, exact: bool) -> Any:
    """Return decimals as the numbers that pandas computes with."""
    if not pa.types.is_decimal(column.type):
        return column
    if column.type.scale == 0 and not (exact and column.null_count):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    return column if exact else column.cast(pa.float64())
