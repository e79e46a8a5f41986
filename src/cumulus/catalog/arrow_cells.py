"""Arrow columns without their encodings, and single cells of them as Python's values.

Encodings are ways to store a column: a dictionary, runs of equal values, an extension type. `decoded` takes them off.
`plain_cells` reads what a cast of the whole column cannot: it notes each cell that has no value in Python, and reads
the others.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cumulus.catalog.types import Interval

BEYOND = "is beyond the years 1 to 9999"
FINER = "is more precise than a microsecond"


def decoded(array: Any) -> Any:
    """Return an Arrow array without dictionaries, runs and extension types; a dictionary's array comes in chunks."""
    while True:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            # The storage of a BOOLEAN of 8 bits is an integer; each other storage has the values.
            array = array.cast(pa.bool_()) if kind == pa.bool8() else _each(array, lambda piece: piece.storage)
        elif pa.types.is_dictionary(kind):
            array = _each(array, lambda piece: _taken(piece.dictionary, piece.indices))
        elif pa.types.is_run_end_encoded(kind):
            array = _each(array, _without_runs)
        else:
            return array


def _each(array: Any, change: Callable[[Any], Any]) -> Any:
    """Return a chunked array of the changed chunks; the type of one without chunks is that of an empty chunk."""
    pieces = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return pa.chunked_array(map(change, pieces or [pa.nulls(0, array.type)]))


def _taken(values: Any, indices: Any) -> Any:
    """Return values at indices: not every type has a `take`; views and encodings have none."""
    values = decoded(values)
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.binary())
    return values.take(indices)


def _without_runs(piece: Any) -> Any:
    ends = np.asarray(piece.run_ends).astype(np.int64) - piece.offset
    ends = np.clip(ends, 0, len(piece))
    counts = np.diff(ends, prepend=0)
    return _taken(piece.values, pa.array(np.repeat(np.arange(len(counts)), counts)))


def chunks_of(array: Any) -> list[Any]:
    """Return the chunks of an array, which is its own if it has none."""
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]


def plain_cells(array: Any) -> tuple[list[Any], dict[int, str]]:
    """Return the cells of an Arrow array as Python's values, and the index of each that has none → what it is.

    Times with a zone come in UTC, spans as `timedelta` or `Interval`. A cell without a value is None.

    Examples
    --------
    >>> plain_cells(pa.array([1000, 1], pa.timestamp("ns")))
    ([datetime.datetime(1970, 1, 1, 0, 0, 0, 1), None], {1: 'is more precise than a microsecond'})
    """
    values: list[Any] = []
    problems: dict[int, str] = {}
    for chunk in chunks_of(decoded(array)):
        first = len(values)
        cells, read = _cells_of(chunk)
        for index, cell in enumerate(cells, first):
            try:
                values.append(None if cell is None else read(cell))
            except _WRONG as problem:
                values.append(None)
                problems[index] = _reason(problem)
    return values, problems


_WRONG = (ValueError, OverflowError, TypeError, pa.ArrowException)


def _reason(problem: BaseException) -> str:
    if isinstance(problem, UnicodeDecodeError):
        return "is not UTF-8"
    if isinstance(problem, _CellError):
        return str(problem)
    if isinstance(problem, OverflowError):
        return BEYOND
    return f"cannot be read: {next(iter(str(problem).splitlines()), type(problem).__name__)}"


class _CellError(ValueError):
    """What is wrong with a cell."""


def _cells_of(chunk: Any) -> tuple[Sequence[Any], Callable[[Any], Any]]:
    """Return raw cells, None for NULL, and the function that reads one."""
    kind = chunk.type
    if pa.types.is_timestamp(kind):
        return chunk.view(pa.int64()).to_pylist(), _moment_reader(kind.unit, dt.UTC if kind.tz is not None else None)
    if pa.types.is_date32(kind):
        return chunk.view(pa.int32()).to_pylist(), _day
    if pa.types.is_date64(kind):
        return chunk.view(pa.int64()).to_pylist(), _day_of_millis
    if pa.types.is_duration(kind):
        return chunk.view(pa.int64()).to_pylist(), _span_reader(kind.unit)
    if kind == pa.month_day_nano_interval():
        return chunk.to_pylist(), _interval
    try:
        return chunk.to_pylist(), lambda value: value
    except _WRONG:
        cells = [cell if is_valid else None for cell, is_valid in zip(chunk, chunk.is_valid().to_pylist(), strict=True)]
        return cells, lambda cell: cell.as_py()


_EPOCH = dt.datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def _micros(number: int, unit: str) -> int:
    micros, rest = divmod(number * 1_000_000, _PER_SECOND[unit])
    if rest:
        raise _CellError(FINER)
    return micros


def _moment_reader(unit: str, zone: dt.tzinfo | None) -> Callable[[int], dt.datetime]:
    def read(number: int) -> dt.datetime:
        return (_EPOCH + dt.timedelta(microseconds=_micros(number, unit))).replace(tzinfo=zone)

    return read


def _day(number: int) -> dt.date:
    return (_EPOCH + dt.timedelta(days=number)).date()


def _day_of_millis(number: int) -> dt.date:
    days, rest = divmod(number, 86_400_000)
    if rest:
        raise _CellError("is a date with a time of day")
    return _day(days)


def _span_reader(unit: str) -> Callable[[int], dt.timedelta]:
    def read(number: int) -> dt.timedelta:
        micros = _micros(number, unit)
        try:
            return dt.timedelta(microseconds=micros)
        except OverflowError:
            raise _CellError("is longer than an INTERVAL of days can be") from None

    return read


def _interval(value: Any) -> Interval:
    if value.nanoseconds % 1000:
        raise _CellError(FINER)
    return Interval(value.months, value.days, value.nanoseconds // 1000)


def shown_cell(array: Any, index: int) -> Any:
    """Return one cell as it may be shown: as Python's value, or where it has none, as a text."""
    import pyarrow.compute as pc  # 30 ms, and rows of Python values need none of it

    try:
        array, index = decoded(array.slice(index, 1)), 0
        return array[index].as_py()
    except UnicodeDecodeError:
        return bytes(array[index].as_buffer()).decode("utf-8", "backslashreplace")
    except (*_WRONG, AttributeError):
        pass
    try:  # a time that Python does not have
        found = pc.cast(array.slice(index, 1), pa.string())[0].as_py()
    except _WRONG:
        found = None
    return f"a value of type {array.type}" if found is None else found
