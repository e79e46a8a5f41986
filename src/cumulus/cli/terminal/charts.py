"""What the demo shows: tables of rows, and bars, on a terminal or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

BAR_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def rows_table(title: str, rows: pa.Table, limit: int) -> Table:
    """Return the first rows of a result as a table, `limit` at most, with how many there are."""
    import pyarrow as pa  # 0.1 s that the help of all commands need not wait for

    count = rows.num_rows
    caption = f"{count:,} rows" if count <= limit else f"the first {limit} of {count:,} rows"
    table = Table(title=f"{title} ({caption})", title_justify="left", title_style="bold", header_style="", box=None)
    for field in rows.schema:
        is_text = pa.types.is_string(field.type)
        table.add_column(field.name, justify="left" if is_text else "right", no_wrap=not is_text)
    for row in rows.slice(0, limit).to_pylist():
        table.add_row(*(cell(value) for value in row.values()))
    return table


def cell(value: Any) -> str:
    """Return a value as the tables show it.

    Examples
    --------
    >>> cell(None), cell(12.3456), cell(Decimal(1234567)), cell(3535), cell("JFK")
    ('NULL', '12.35', '1,234,567', '3535', 'JFK')
    """
    match value:
        case None:
            return "NULL"
        case float():
            return f"{value:.2f}"
        case Decimal():
            return f"{value:,}"
        case _:
            return str(value)


def bars(title: str, entries: Sequence[tuple[str, float]], unit: str) -> str:
    """Return a chart of horizontal bars, one line each, the longest `BAR_CELLS` wide.

    What is below zero has no bar, only its number.

    Examples
    --------
    >>> print(bars("Delay", [("Jan", 10.0), ("Feb", 5.0), ("Mar", -1.0)], "min"))
    Delay
      Jan  ████████████████████████████████████████  10.0 min
      Feb  ████████████████████                       5.0 min
      Mar                                            -1.0 min
    """
    longest = max((number for _, number in entries), default=0.0)
    width = max((len(label) for label, _ in entries), default=0)
    lines = [title]
    for label, number in entries:
        lines.append(f"  {label:<{width}}  {_bar(number, longest):<{BAR_CELLS}}  {number:4.1f} {unit}")
    return "\n".join(lines)


def _bar(number: float, longest: float) -> str:
    if longest <= 0 or number <= 0:
        return ""
    eighths = round(number / longest * BAR_CELLS * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
