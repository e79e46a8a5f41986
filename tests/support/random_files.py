"""Parquet files with columns of every type that chunks have, and what DuckDB says of their rows."""

from __future__ import annotations

import datetime as dt
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from cumulus.epochs.committed.manifest import Written
from cumulus.epochs.output.sink import Sink
from cumulus_ring.chunks.catalogue import ChunkedTable, ChunkGroup
from cumulus_ring.chunks.encoding import declared, decode
from cumulus_ring.chunks.store import ChunkStore

PREFIX = "a common beginning of sixty characters and some more " * 2
TEXTS = st.one_of(
    st.text(max_size=3), st.sampled_from(["", "a", "ab", "ä", "𝄞", PREFIX, PREFIX + "b", "\x00", "\U0010ffff"])
)


_WIDE = Context(prec=60)


def decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    few = st.integers(-9, 9) | st.sampled_from([most, -most])
    return (few | st.integers(-most, most)).map(lambda number: Decimal(number).scaleb(-scale, _WIDE))


_MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)) | st.datetimes(
    dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 2)
)


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(max(low, -3), 3) | st.integers(low, high) | st.sampled_from([low, high])


COLUMNS: dict[str, tuple[pa.DataType, str, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), "TINYINT", _integers(8, True)),
    "i32": (pa.int32(), "INTEGER", _integers(32, True)),
    "i64": (pa.int64(), "BIGINT", _integers(64, True)),
    "u8": (pa.uint8(), "UTINYINT", _integers(8, False)),
    "u32": (pa.uint32(), "UINTEGER", _integers(32, False)),
    "u64": (pa.uint64(), "UBIGINT", _integers(64, False)),
    "real": (pa.float32(), "FLOAT", st.floats(width=32)),
    "double": (pa.float64(), "DOUBLE", st.floats() | st.sampled_from([0.0, -0.0, 1.0, float("nan")])),
    "short": (pa.decimal128(9, 2), "DECIMAL(9,2)", decimals(9, 2)),
    "middle": (pa.decimal128(18, 4), "DECIMAL(18,4)", decimals(18, 4)),
    "long": (pa.decimal128(38, 10), "DECIMAL(38,10)", decimals(38, 10)),
    "Text": (pa.string(), "VARCHAR", TEXTS),
    'a "quoted" name': (pa.large_string(), "VARCHAR", TEXTS),
    "a.b": (pa.dictionary(pa.int8(), pa.string()), "VARCHAR", st.sampled_from(["x", "y", "zz"])),
    "blob": (pa.binary(), "BLOB", st.binary(max_size=3)),
    "yes": (pa.bool_(), "BOOLEAN", st.booleans()),
    "day": (pa.date32(), "DATE", st.dates()),
    "moment": (pa.timestamp("us"), "TIMESTAMP", _MOMENTS),
    "milliseconds": (
        pa.timestamp("ms"),
        "TIMESTAMP",
        _MOMENTS.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
    ),
    "instant": (pa.timestamp("us", "UTC"), "TIMESTAMP WITH TIME ZONE", _MOMENTS),
    "clock": (pa.time64("us"), "TIME", st.times()),
}
"""Column → its Arrow type, DuckDB's name of it, and its values."""


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Tables of some columns; NULL anywhere."""
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(0, 24))
    arrays = {}
    for name in names:
        kind, _, values = COLUMNS[name]
        few = draw(st.lists(st.none() | values, min_size=1, max_size=4))
        step = draw(st.integers(1, 24))
        arrays[name] = pa.array([few[row // step % len(few)] for row in range(count)], kind)
    return pa.table(arrays)


def connected() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def write(table: pa.Table, path: Path, group_rows: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group_rows)


def committed(out: Path, epoch: int, views: dict[str, pa.Table], keep: int = 100, checkpoint: str = "one") -> None:
    """Commit an epoch as `cumulus run` does."""
    sink = Sink(out, checkpoint, "program")
    files = {}
    for view, table in views.items():
        files[view] = f"data/{view}/{epoch}-0-0.parquet"
        write(table, out / files[view], 2)
    sink.commit(epoch, [Written(0, files, {}, {}, True)], keep=keep)
    sink.close()


def scanned(table: ChunkedTable, store: ChunkStore, batches: list[ChunkGroup] | None = None) -> pa.Table:
    """What a scan of all columns gives."""
    found = table.groups(table.schema.names) if batches is None else batches
    parts = [declared([decode(store.load(chunk)) for chunk in batch.chunks], table.schema) for batch in found]
    return pa.Table.from_batches(parts, table.schema)
