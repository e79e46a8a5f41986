"""How the rows of a query leave a command: a table on the terminal, JSON, CSV, or a file."""

from __future__ import annotations

import base64
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cumulus.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

AS_JSON = typer.Option(False, "--json", help="One JSON object per row.")
AS_CSV = typer.Option(False, "--csv", help="CSV with a line of names.")
PARQUET = typer.Option(None, "--parquet", help="Write the rows to this Parquet file.", show_default=False)
ARROW = typer.Option(None, "--arrow", help="Write the rows to this file, as an Arrow stream.", show_default=False)
MOST_ROWS = 1_000
"""How many rows are printed as a table."""
_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class RowOutput:
    """Which form a user has asked for; a table if none.

    Raises
    ------
    UsageError
        If it is more than one.
    """

    as_json: bool = False
    as_csv: bool = False
    parquet: Path | None = None
    arrow: Path | None = None

    def __post_init__(self) -> None:
        chosen = {"--json": self.as_json, "--csv": self.as_csv, "--parquet": self.parquet, "--arrow": self.arrow}
        asked = [name for name, value in chosen.items() if value]
        if len(asked) > 1:
            raise UsageError(f"{' and '.join(asked)} are two forms of the rows", hint="Choose one.")
        for file in (self.parquet, self.arrow):
            if file is not None and not _may_be_a_file(file):
                raise UsageError(f"{file} is no place for a file", hint="Name a file in a folder that exists.")

    def write(self, rows: pa.Table) -> None:
        """Print rows, or write them to the file.

        Raises
        ------
        UsageError
            If the form does not have such columns, or the file cannot be written.
        """
        if self.as_json:
            _print_json(rows)
        elif self.as_csv or self.parquet is not None or self.arrow is not None:
            self._write_bytes(rows)
        else:
            from cumulus.cli.terminal.consoles import plain_console
            from cumulus.cli.terminal.tables import print_rows

            print_rows(plain_console(), rows, most=MOST_ROWS)
            if rows.num_rows > MOST_ROWS:
                print("All of them: --json, --csv, --parquet FILE or --arrow FILE.")

    def _write_bytes(self, rows: pa.Table) -> None:
        from cumulus.durable.files import written_aside
        from cumulus.hosts import Answer
        from cumulus.server.http.formats import ARROW, CSV, PARQUET

        form = CSV if self.as_csv else PARQUET if self.parquet is not None else ARROW
        pieces = form.pieces(Answer(rows, None), "")
        if self.as_csv:
            for piece in pieces:
                sys.stdout.write(piece.decode())
            return
        place = self.parquet or self.arrow
        assert place is not None
        try:
            with written_aside(place) as aside, aside.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
        except OSError as problem:
            raise UsageError(f"cannot write {place}: {problem.strerror}", hint="Name another file.") from None
        print(f"{place}: {rows.num_rows:,} rows")


def _may_be_a_file(place: Path) -> bool:
    try:
        return place.absolute().parent.is_dir() and not place.is_dir()
    except OSError:  # the name is too long, or a folder is closed
        return False


def _print_json(rows: pa.Table) -> None:
    """Print one JSON object per row, batch by batch: no more than a batch is in memory as Python values."""
    encode = json.JSONEncoder(default=str, ensure_ascii=False, allow_nan=False).encode
    names = rows.column_names
    if len({*names}) < len(names):
        from cumulus.server.http.formats import refuse_twins

        refuse_twins(rows)
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        columns = [_json_values(column) for column in batch.columns]
        lines = (encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def _json_values(column: pa.Array) -> list[Any]:
    """Return a column as values that JSON has: what it has not is a text, as in the answers of a server."""
    import pyarrow as pa

    kind, values = column.type, column.to_pylist()
    is_awkward = pa.types.is_floating(kind) or pa.types.is_interval(kind) or pa.types.is_nested(kind)
    return [*map(_json_value, values)] if is_awkward or any(type(each) is bytes for each in values) else values


def _json_value(value: Any) -> Any:
    import pyarrow as pa

    from cumulus.catalog.arrow import interval_of
    from cumulus.catalog.text_values import span_as_text

    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case pa.MonthDayNano():
            return span_as_text(interval_of(value))
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): _json_value(each) for key, each in value.items()}
        case list() | tuple():
            return [*map(_json_value, value)]
    return value
