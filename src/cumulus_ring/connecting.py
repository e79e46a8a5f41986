"""What `cumulus.connect` asks of a folder or an address: whether it is that of a ring, and then for a client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cumulus_ring.process.home import is_home

if TYPE_CHECKING:
    from cumulus_ring.process.client import RingClient


def open_client(home: str | Path, secret_file: str | Path = "") -> RingClient | None:
    """Return a client of the ring of a home, or at such an address as ``ring://h1:7200``; None if it is neither.

    Raises
    ------
    NotRunningError
        If the ring does not run.
    UsageError, InputError
        If it is an address without a port, or the secret cannot be read.
    """
    if str(home).startswith("ring://"):
        from cumulus_ring.process.client import RingClient
        from cumulus_ring.process.ring_places import RingByAddress

        return RingClient(RingByAddress(str(home), secret_file))
    if not is_home(Path(home)):
        return None
    from cumulus_ring.process.client import RingClient  # brings Arrow along

    return RingClient(home)
