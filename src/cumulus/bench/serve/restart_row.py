"""How long a server that was killed takes to apply its log again."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from cumulus.bench.serve.rows import SCRIPT, sales
from cumulus.bench.serve.write_rows import BATCH
from cumulus.server.answers import TableRows, WriteRequest
from cumulus.server.opening import open_keeper
from cumulus.server.settings import ServerSettings


def restart(folder: Path, events: int) -> dict[str, Any]:
    """Return how long opening a folder takes of which everything is in the log; the floor is reading its bytes."""
    folder.mkdir()
    script = folder / "script.sql"
    script.write_text(SCRIPT)
    kept = ServerSettings(folder / "data", sync="off", snapshot_bytes=1 << 50)
    keeper = open_keeper(script, kept)
    for first in range(0, events, BATCH):
        keeper.write(WriteRequest((TableRows("insert", "sales", sales(BATCH, first)),), f"{first}")).result()
    shutil.copytree(kept.data, folder / "killed")  # what a kill would leave
    keeper.close()
    began = time.perf_counter()
    size = sum(len(path.read_bytes()) for path in (folder / "killed" / "log").iterdir())
    floor = time.perf_counter() - began
    began = time.perf_counter()
    again = open_keeper(script, ServerSettings(folder / "killed"))
    took = time.perf_counter() - began
    again.close()
    return {
        "what": "restart after a kill",
        "load": f"{events:,} events in requests of {BATCH:,}, {size >> 20} MB of log",
        "figure": round(took, 2),
        "unit": "s",
        "floor": round(floor, 3),
        "repetitions": 1,
    }
