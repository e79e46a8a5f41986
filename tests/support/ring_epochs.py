"""Waiting until a ring has an epoch of a run."""

from __future__ import annotations

import time

from cumulus_ring.process.client import RingClient

SOON = 10.0
"""Within so many seconds a ring knows a new epoch; it is one or two where others leave it some time."""


def wait_for_epoch(ring: RingClient, epoch: int, seconds: float = SOON) -> None:
    """Wait until each node answers from an epoch, or from a later one."""
    until = time.monotonic() + seconds
    while min(ring.query("SELECT 1", node=node).epoch for node in ring.nodes) < epoch:
        assert time.monotonic() < until, f"epoch {epoch} was not seen within {seconds:g} s"
        time.sleep(0.05)
