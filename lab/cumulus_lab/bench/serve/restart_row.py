"""How long a server that was killed takes to load its snapshot and apply its log again."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from cumulus.hosts import TableRows, WriteRequest
from cumulus.server.opening import open_keeper
from cumulus.server.settings import ServerSettings
from cumulus.server.single_writer import SingleWriter
from cumulus_lab.bench.serve.rows import SCRIPT, sales
from cumulus_lab.bench.serve.write_rows import BATCH

_LOADED = 50_000


def restart(folder: Path, groups: int, events: int) -> dict[str, Any]:
    """Return how long opening a folder takes: a snapshot of so many groups, and so many events behind it in the log.

    The events belong to the groups that there are. The floor is reading the bytes of all files.
    """
    folder.mkdir()
    script = folder / "script.sql"
    script.write_text(SCRIPT)
    kept = ServerSettings(folder / "data", sync="off", snapshot_bytes=1 << 50)
    keeper = open_keeper(script, kept)
    for first in range(0, groups, _LOADED):
        _insert(keeper, first, sales(min(_LOADED, groups - first), first))
    keeper.snapshot().result()
    size = keeper.status()["bytes"]
    for first in range(groups, groups + events, BATCH):
        _insert(keeper, first, sales(BATCH, first, groups=groups))
    shutil.copytree(kept.data, folder / "killed")  # what a kill would leave
    keeper.close()
    shutil.rmtree(kept.data)
    began = time.perf_counter()
    stored = sum(len(path.read_bytes()) for path in (folder / "killed").rglob("*") if path.is_file())
    floor = time.perf_counter() - began
    began = time.perf_counter()
    again = open_keeper(script, ServerSettings(folder / "killed"))
    took = time.perf_counter() - began
    again.close()
    return {
        "what": "restart after a kill",
        "load": f"{size >> 20:,} MB of maps, {events:,} events in requests of {BATCH:,}; {stored >> 20:,} MB of files",
        "figure": round(took, 2),
        "unit": "s",
        "floor": round(floor, 3),
        "repetitions": 1,
    }


def _insert(keeper: SingleWriter, first: int, rows: pa.Table) -> None:
    keeper.write(WriteRequest((TableRows("insert", "sales", rows),), f"{first}")).result()
