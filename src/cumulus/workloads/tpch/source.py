"""Where TPC-H's rows come from: `tpchgen-cli`, run once per scale, its Parquet files kept in a folder."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cumulus.errors import InputError, MissingError, UsageError
from cumulus.workloads.tpch.schema import BENCHMARK, TABLES


def generate(scale: float, cache: Path) -> Path:
    """Return the folder with the tables at `scale`, generating those that are not there.

    Parameters
    ----------
    scale
        The scale factor, positive; 1 is 6 million lineitems (150 MB of Parquet), any fraction will do.
    cache
        Folder in which each scale has its own.

    Returns
    -------
    Path
        ``cache/sf<scale>``, with one Parquet file for each of `TABLES`.

    Raises
    ------
    MissingError
        tpchgen-cli is not installed.
    InputError
        It failed; its words are in the message.
    """
    if not scale > 0:
        raise UsageError(f"the scale is {scale}", hint="Give a positive scale factor, 0.01 say.")
    name = f"{Decimal(str(scale)).normalize():f}"
    target = cache / f"sf{name}"
    missing = [table for table in TABLES if not (target / f"{table}.parquet").exists()]
    if not missing:
        return target
    target.mkdir(parents=True, exist_ok=True)
    # Generated aside and renamed, so an interrupted run leaves no half of a table behind.
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{target.name}.") as aside:
        command = [_generator(), "parquet", "-s", name, "--quiet", "-T", ",".join(missing), "-o", f"{aside}/tables"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise InputError(
                f"tpchgen-cli failed with {run.returncode}: {run.stderr.strip()}", hint=f"It ran {' '.join(command)}"
            )
        for table in missing:
            Path(aside, "tables", f"{table}.parquet").rename(target / f"{table}.parquet")
    return target


def _generator() -> str:
    beside = Path(sysconfig.get_path("scripts"), "tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise MissingError("TPC-H data needs tpchgen-cli", hint="pip install 'cumulus-ivm[workloads]'")
    return found


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
