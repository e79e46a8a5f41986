"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal, TypeAlias

from cumulus.scalars.user import Functions
from cumulus.server.limits import Limits

SyncPolicy: TypeAlias = Literal["always", "100ms", "off"]
"""When the log comes to the disk: before anything is acknowledged, every 100 ms, or when the system likes.

What was acknowledged survives the end of the process in any case, and that of the machine but for the last 100 ms, or
the last half minute.
"""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where a server listens and keeps its things.

    Parameters
    ----------
    data
        The folder of log and snapshots.
    host, port
        Port 0 takes one that is free.
    certificate, private_key
        PEM files for TLS.
    insecure
        Listen beyond this machine without users or without TLS: docs/security.md.
    hosts
        Names, beside those of this machine, by which it is reached.
    access_log
        A file that gets a line of JSON for each request; "-" is the standard output.
    sync
        See `SyncPolicy`.
    engine, keep, memory_limit
        As for a `cumulus.Warehouse`; `keep` counts when the folder is new.
    functions
        The user's that the views call.
    kept_ids, kept_ids_s
        So many ids of requests are kept, and so many seconds: a request that comes again is known by its id.
    snapshot_ratio, snapshot_bytes
        A snapshot is written when the log is so many times as large as the last one, and has so many bytes.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8321
    certificate: Path | None = None
    private_key: Path | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    access_log: str = ""
    limits: Limits = field(default_factory=Limits)
    sync: SyncPolicy = "always"
    engine: str = "auto"
    keep: str = "auto"
    memory_limit: int | str | None = None
    functions: Functions | None = None
    kept_ids: int = 200_000
    kept_ids_s: float = 86_400.0
    snapshot_ratio: float = 4.0
    snapshot_bytes: int = 64 << 20

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
