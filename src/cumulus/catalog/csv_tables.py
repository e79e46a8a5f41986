"""CSV with a header as an Arrow table of texts, of which nothing is guessed; a quote that is not closed is found."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa

from cumulus.errors import InputError

_END = "\x1e end of the file \x1e"
"""A cell of the row that is put behind the others, to see whether it is read as a row."""


def read_csv_texts(data: bytes, place: str, *, delimiter: str = ",", nulls: Sequence[str] = ("",)) -> pa.Table:
    """Return the rows of CSV, each cell as the text that stands there.

    Parameters
    ----------
    place
        What errors call it: a path, or "the body".
    nulls
        Cells that are NULL if no quotes stand around them.

    Raises
    ------
    InputError
        If a quote is not closed, which would take in all that comes after it.
    pyarrow.ArrowException
        If it is no CSV with a header.
    """
    import pyarrow.csv as pa_csv

    parsing = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    data = data if b"\n" in data else data + b"\n"
    first, _ = split_header(data)
    if first.count(b'"') % 2:
        raise InputError(
            f"{place}: a quote in the header is not closed",
            hint='Close it; inside quotes, a quote of the name is written twice: "".',
        )
    names = pa_csv.read_csv(io.BytesIO(first + b"\n"), parse_options=parsing).column_names
    has_quotes = b'"' in data
    if has_quotes:
        data += b"\n" + _END.encode() + delimiter.encode() * (len(names) - 1) + b"\n"
    converting = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=list(nulls),
    )

    def read(*, is_numbered: bool) -> pa.Table:
        reading = pa_csv.ReadOptions(use_threads=not is_numbered)  # rows have numbers only without threads
        return pa_csv.read_csv(io.BytesIO(data), reading, parsing, converting)

    try:
        table = read(is_numbered=False)
    except pa.ArrowInvalid:
        table = read(is_numbered=True)  # it tells which row is wrong
    return _without_end(table, place) if has_quotes else table


def _without_end(table: pa.Table, place: str) -> pa.Table:
    """Return the rows before the one that was put behind them, which a quote that is not closed has taken in."""
    count = table.num_rows - 1
    if table.column(0)[count].as_py() != _END:
        raise InputError(
            f"{place}, row {table.num_rows}: a quote is not closed",
            hint='Close it; inside quotes, a quote of the text is written twice: "".',
        )
    return table.slice(0, count)


def split_header(data: bytes) -> tuple[bytes, bytes]:
    r"""Return the first record, without its line break, and what follows; a line break in quotes is part of a name.

    If a quote of the first record is never closed, the record is the first line.

    Examples
    --------
    >>> split_header(b'id,"first\nname"\n1,ada\n')
    (b'id,"first\nname"', b'1,ada\n')
    """
    begin = quotes = 0
    while (end := data.find(b"\n", begin)) >= 0:
        quotes += data.count(b'"', begin, end)
        if quotes % 2 == 0:
            return data[:end], data[end + 1 :]
        begin = end + 1
    if (quotes + data.count(b'"', begin)) % 2 == 0:
        return data, b""
    first, _, rest = data.partition(b"\n")
    return first, rest
