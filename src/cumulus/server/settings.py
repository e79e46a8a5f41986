"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where a server listens and keeps its things.

    Parameters
    ----------
    data
        The folder of log and snapshots.
    host, port
        Port 0 takes one that is free.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8321
