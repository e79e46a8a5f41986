"""Parquet files with times of 96 bits, which pyarrow writes for the years 1677 to 2262 only."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_MARK = dt.datetime(2020, 1, 1, 0, 0, 0, 1)
_UNIX = 2_440_588
"""The Julian day of 1970-01-01."""

WideTime = tuple[int, int]
"""Nanoseconds of a day, and the days since 1970."""


def wide(day: dt.date, nanos: int = 0) -> WideTime:
    return nanos, (day - dt.date(1970, 1, 1)).days


def write_wide_times(path: Path, times: Sequence[WideTime | None], *, row_group_size: int = 2) -> None:
    """Write a file with the columns `k`, which counts, and `t`, the times."""
    marks = pa.array([None if each is None else _MARK for each in times], pa.timestamp("us"))
    table = pa.table({"k": pa.array(range(len(times)), pa.int32()), "t": marks})
    pq.write_table(
        table,
        path,
        use_deprecated_int96_timestamps=True,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        row_group_size=row_group_size,
    )
    data = path.read_bytes()
    mark = struct.pack("<qi", 1000, _UNIX + (_MARK.date() - dt.date(1970, 1, 1)).days)
    given = [each for each in times if each is not None]
    assert data.count(mark) == len(given)
    for nanos, days in given:
        data = data.replace(mark, struct.pack("<qi", nanos, _UNIX + days), 1)
    path.write_bytes(data)
