"""Tables that show well: what a view reader and the result of a query have in common."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cumulus.catalog.events import Row
from cumulus.errors import MissingError

if TYPE_CHECKING:
    import pandas as pd

_SHOWN_ROWS = 10
_SHOWN_WIDTH = 32


class Shown(ABC):
    """Something with rows and columns."""

    @abstractmethod
    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""

    def rows(self) -> list[Row]:
        """Return the rows as tuples of Python values."""
        columns = [column.to_pylist() for column in self.arrow().columns]
        return list(zip(*columns, strict=True))

    def pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise MissingError("pandas is not installed", hint="pip install pandas") from None
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def polars(self) -> Any:
        """Return the rows as a polars frame."""
        try:
            import polars
        except ImportError:
            raise MissingError("polars is not installed", hint="pip install polars") from None
        return polars.from_arrow(self.arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the rows to anything that takes Arrow."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def _title(self) -> str:
        return ""

    def _notes(self) -> list[str]:
        """Return what must be said below the rows."""
        return []

    def __repr__(self) -> str:
        table = self.arrow()
        cells, numeric = _cells(table)
        widths = [max(map(len, column)) for column in cells]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in zip(*cells, strict=True)
        ]
        if lines:
            lines.insert(1, "  ".join("─" * width for width in widths))
        return "\n".join([*lines, _footer(self._title(), table), *self._notes()])

    def _repr_html_(self) -> str:
        table = self.arrow()
        cells, numeric = _cells(table)
        styles = ["text-align:right" if right else "text-align:left" for right in numeric]
        body = []
        for place, line in enumerate(zip(*cells, strict=True)):
            tag = "td" if place else "th"
            marked = (f'<{tag} style="{s}">{html.escape(c)}</{tag}>' for c, s in zip(line, styles, strict=True))
            body.append(f"<tr>{''.join(marked)}</tr>")
        below = "".join(f"<p>{html.escape(line)}</p>" for line in (_footer(self._title(), table), *self._notes()))
        return f"<table>{''.join(body)}</table>{below}"


class Result(Shown):
    """The rows of a query."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._table


def _cells(table: pa.Table) -> tuple[list[list[str]], list[bool]]:
    """Return the texts of each column, its name first, and which columns hold numbers."""
    shown = table.slice(0, _SHOWN_ROWS)
    cells = [
        [name, *(_cell(value) for value in column.to_pylist())]
        for name, column in zip(table.column_names, shown.columns, strict=True)
    ]
    types = [field.type for field in table.schema]
    return cells, [pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t) for t in types]


def _cell(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _SHOWN_WIDTH else f"{text[: _SHOWN_WIDTH - 1]}…"


def _footer(title: str, table: pa.Table) -> str:
    count = f"{table.num_rows} row{'' if table.num_rows == 1 else 's'}"
    more = f", the first {_SHOWN_ROWS} shown" if table.num_rows > _SHOWN_ROWS else ""
    return f"{title + ': ' if title else ''}{count}{more}"
