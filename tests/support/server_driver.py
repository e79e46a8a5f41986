"""A server in a process of its own, with small snapshots: ``python -m support.server_driver SCRIPT DATA [SYNC]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cumulus.server.process import serve
from cumulus.server.settings import ServerSettings


def main(script: str, data: str, sync: Any = "always") -> None:
    settings = ServerSettings(
        Path(data), port=0, sync=sync, engine="interpreter", snapshot_ratio=0.0, snapshot_bytes=20_000
    )
    serve(Path(script), settings, lambda address: print(address, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
