"""What `cumulus.connect` asks of a folder: whether it is the home of a ring, and then for a client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cumulus_ring.process.home import is_home

if TYPE_CHECKING:
    from cumulus_ring.process.client import RingClient


def open_client(home: Path) -> RingClient | None:
    """Return a client of the ring of a home, None if it is no home of a ring.

    Raises
    ------
    NotRunningError
        If the ring does not run.
    """
    if not is_home(home):
        return None
    from cumulus_ring.process.client import RingClient  # brings Arrow along

    return RingClient(home)
