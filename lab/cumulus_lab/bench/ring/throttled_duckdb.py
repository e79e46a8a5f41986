"""DuckDB over Parquet files on a disk with a byte rate, and with a page cache of a given size.

DuckDB scans a pyarrow dataset. Each Parquet file of it is opened by `ThrottledFile`, whose reads go through blocks of
64 kB: a block that is in the cache is free, any other one takes its time from a token bucket (`DiskRate`) that all
files of a process share, as they share a disk. The real reads come from the system's page cache and cost no time
themselves. Blocks that were used longest ago leave the cache first.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, local
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from cumulus.errors import ProcessError
from cumulus.views.duckdb_sql.functions import set_utc
from cumulus_ring.chunks.disk_rate import DiskRate

BLOCK_BYTES = 1 << 16


class ThrottledDisk:
    """The byte rate and the page cache of one process's disk.

    Parameters
    ----------
    mb_s
        Megabytes (10^6 bytes) per second.
    cache_bytes
        Size of the page cache.
    """

    def __init__(self, mb_s: float, cache_bytes: int) -> None:
        self._rate = DiskRate(mb_s * 1e6, time.monotonic, time.sleep)
        self._blocks = cache_bytes // BLOCK_BYTES
        self._cached: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._lock = Lock()
        self.bytes_read = 0

    def touch(self, file: str, begin: int, end: int) -> None:
        """Return when the bytes of a file would have been read; 0-based, `end` excluded."""
        with self._lock:
            for block in range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
                key = file, block
                if key in self._cached:
                    self._cached.move_to_end(key)
                    continue
                self._rate.take(BLOCK_BYTES)
                self.bytes_read += BLOCK_BYTES
                self._cached[key] = None
                if len(self._cached) > self._blocks:
                    self._cached.popitem(last=False)


class ThrottledFile:
    """A file for reading, as `pyarrow.PythonFile` wants it.

    Each thread has a position of its own: two scans of one table move to a place and read, each in its thread.
    """

    def __init__(self, path: Path, disk: ThrottledDisk) -> None:
        self._name, self._disk = str(path), disk
        self._file = path.open("rb")
        self._size = path.stat().st_size
        self._at = local()
        self.mode = "rb"

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position, and return it."""
        self._at.offset = (0, self.tell(), self._size)[whence] + offset
        return self.tell()

    def tell(self) -> int:
        """Return the position."""
        return getattr(self._at, "offset", 0)

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, when the disk would have read them."""
        begin = self.tell()
        found = os.pread(self._file.fileno(), self._size - begin if size < 0 else size, begin)
        self._at.offset = begin + len(found)
        self._disk.touch(self._name, begin, begin + len(found))
        return found

    def flush(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class DuckdbRun:
    """What one process has done.

    Parameters
    ----------
    cpu_s, disk_bytes
        Of its queries, without its start.
    answers
        The rows of each query, as asked for; empty if they are not kept.
    """

    cpu_s: float
    disk_bytes: int
    answers: tuple[pa.Table, ...]


def connect(source: Path, disk: ThrottledDisk, threads: int, memory: str) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB that has the Parquet files of a folder as tables, on a throttled disk."""
    pa.set_io_thread_count(1)
    pa.set_cpu_count(threads)
    connection = duckdb.connect(config={"threads": str(threads), "memory_limit": memory})
    set_utc(connection)
    form = ds.ParquetFileFormat()
    for path in sorted(source.glob("*.parquet")):
        fragment = form.make_fragment(pa.PythonFile(ThrottledFile(path, disk), mode="r"))
        connection.register(path.stem, ds.FileSystemDataset([fragment], fragment.physical_schema, form))
    return connection


def run_processes(
    source: Path, shares: Sequence[Sequence[str]], *, mb_s: float, cache_bytes: int, threads: int, keeps: bool
) -> tuple[float, list[DuckdbRun]]:
    """Run queries in processes, one for each share, each with a disk of its own; return seconds and what they did.

    The clock runs from the moment at which all processes have opened their files to the last answer.

    Raises
    ------
    ProcessError
        If one of them ends before.
    """
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in shares]
    processes = [
        context.Process(target=_process, args=[there, source, list(share), mb_s, cache_bytes, threads, keeps])
        for (_, there), share in zip(pipes, shares, strict=True)
    ]
    for process, (_, there) in zip(processes, pipes, strict=True):
        process.start()
        there.close()  # else nobody would hear that the process has ended
    for here, _ in pipes:
        here.recv()
    began = time.perf_counter()
    for here, _ in pipes:
        here.send("go")
    try:
        runs: list[DuckdbRun] = [here.recv() for here, _ in pipes]
    except EOFError:
        raise ProcessError(
            "a process of DuckDB has ended before its last answer", hint="What it has printed says why."
        ) from None
    seconds = time.perf_counter() - began
    for each in processes:
        each.join()
    return seconds, runs


def _process(
    pipe: Connection[Any, Any],
    source: Path,
    queries: list[str],
    mb_s: float,
    cache_bytes: int,
    threads: int,
    keeps: bool,
) -> None:
    disk = ThrottledDisk(mb_s, cache_bytes)
    connection = connect(source, disk, threads, "1GB")
    pipe.send("ready")
    pipe.recv()
    cpu, answers = time.process_time(), []
    for sql in queries:
        rows = connection.sql(sql).to_arrow_table()
        if keeps:
            answers.append(rows)
    pipe.send(DuckdbRun(time.process_time() - cpu, disk.bytes_read, tuple(answers)))
