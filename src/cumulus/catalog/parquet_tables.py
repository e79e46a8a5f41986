"""Parquet files as Arrow tables, with times of 96 bits (INT96, as Spark and Hive write them) exactly.

Arrow reads INT96 as nanoseconds of 64 bits, which are those of the years 1677 to 2262, and wraps all others: the day
9999-12-31 would be one of 1816.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999, since 1970."""


def read_parquet_table(path: Any, groups: Sequence[int] | None = None) -> pa.Table:
    """Return a Parquet file, or some of its row groups, as a table; two of its columns may have one name.

    The path may also be a file that Arrow has opened. A folder of such files is one table; times of 96 bits are read to
    the microsecond there.

    Raises
    ------
    pyarrow.ArrowException, OSError
        If it is no whole Parquet file.
    """
    import pyarrow.parquet as pq

    if isinstance(path, str) and Path(path).is_dir():
        return pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us")

    def read(file: pq.ParquetFile, columns: list[str] | None = None) -> pa.Table:
        return file.read(columns) if groups is None else file.read_row_groups(list(groups), columns)

    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        table = read(file)
    return with_wide_times(table, partial(pq.ParquetFile, path), read)


def with_wide_times(table: pa.Table, open_file: Callable[..., Any], read: Callable[[Any, list[str]], Any]) -> pa.Table:
    """Return a table of a Parquet file with its times of 96 bits as they are: the reader wraps those far away.

    Parameters
    ----------
    open_file
        Opens the file with an argument ``coerce_int96_timestamp_unit``.
    read
        Reads some columns of the rows of the table.
    """
    with open_file(coerce_int96_timestamp_unit="s") as file:
        columns = map(file.schema.column, range(len(file.schema)))
        wide = [each.name for each in columns if each.physical_type == "INT96" and each.path == each.name]
        wide = [name for name in wide if table.schema.get_field_index(name) >= 0]  # the name of one column only
        if not wide:
            return table
        seconds = read(file, wide)
    with open_file(coerce_int96_timestamp_unit="ns") as file:
        nanos = read(file, wide)
    for name in wide:
        made = _exact(seconds.column(name), nanos.column(name))
        table = table.set_column(table.schema.get_field_index(name), name, made)
    return table


def _exact(seconds: pa.ChunkedArray, nanos: pa.ChunkedArray) -> Any:
    """Return times of 96 bits, of which seconds and wrapped nanoseconds are known.

    They are microseconds if that holds all of them. A column with a finer one is of nanoseconds, and where that holds
    not all others, of texts: so the finer one is found and refused.
    """
    whole, wrapped = (_numbers(column) for column in (seconds, nanos))
    rest = (wrapped.view(np.uint64) - (whole * 1_000_000_000).view(np.uint64)).astype(np.int64)
    is_null = seconds.is_null().to_numpy()
    is_beyond = (whole < _FIRST) | (whole > _LAST)
    is_finer = (rest % 1000 != 0) & ~is_null & ~is_beyond
    if is_finer.any():
        if bool(np.all(np.abs(whole) < 2**63 // 1_000_000_000)):
            return nanos
        return pa.array(
            [None if null else _text(*each) for null, *each in zip(is_null, whole, rest, strict=True)], pa.string()
        )
    # Any time beyond is far beyond: microseconds hold 290,000 years.
    micros = np.clip(whole, -(2**43), 2**43) * 1_000_000 + rest // 1000
    return pa.array(micros, pa.int64(), mask=is_null).view(pa.timestamp("us"))


def _numbers(times: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    column = times.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # of more than 2**31 rows
        column = pa.concat_arrays(column.chunks)
    found: np.ndarray[Any, np.dtype[np.int64]] = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _text(second: int, rest: int) -> str:
    return f"{np.datetime64(int(second), 's')}.{int(rest):09}".replace("T", " ")
