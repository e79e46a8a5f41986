"""What a server is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cumulus.server.limits import Limits


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

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False
