"""A table of `cumulus.workloads.tpch.generate`, a batch of rows after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.errors import InputError
from cumulus.workloads.tpch import BENCHMARK


class TableReader:
    """Reads one table from its beginning, as many rows at a time as are asked for."""

    def __init__(self, folder: Path, table: str, columns: tuple[str, ...]) -> None:
        path = folder / f"{table}.parquet"
        if not path.exists():
            raise InputError(f"{path} is not there", hint="Make the folder with tpch.generate.")
        declared = BENCHMARK.schema(table)
        self.schema = pa.schema([declared.field(name) for name in columns])
        self._file = pq.ParquetFile(path, pre_buffer=False)
        self._batches: Iterator[pa.RecordBatch] = self._file.iter_batches(batch_size=65_536, columns=list(columns))
        self._ready = self.schema.empty_table()

    @property
    def count(self) -> int:
        """Rows in the whole table."""
        return int(self._file.metadata.num_rows)

    def take(self, count: int) -> pa.Table:
        """Return the next `count` rows, fewer at the end."""
        parts = [self._ready]
        have = self._ready.num_rows
        while have < count:
            batch = next(self._batches, None)
            if batch is None:
                break
            # Strings come as views; plain strings are what every host knows.
            part = pa.Table.from_batches([batch]).select(self.schema.names).cast(self.schema)
            parts.append(part)
            have += part.num_rows
        joined = pa.concat_tables(parts)
        self._ready = joined.slice(count)
        return joined.slice(0, count)
