"""Named points at which a test may kill the process, to prove that nothing is lost or doubled.

`CUMULUS_CRASH=point:n,…` kills the process that comes to `point` for the n-th time. Times are counted across processes
and restarts in the folder `CUMULUS_CRASH_DIR`, so each fault strikes once; `hits.log` there says which did. Points that
machines of a cluster come to are counted for each machine: `node0.after-outputs:2`. Without the variable a point costs
one look-up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

POINTS = (
    "after-read",
    "in-pack",
    "in-handler",
    "between-stages",
    "after-state-write",
    "before-manifest",
    "after-manifest",
    "in-compaction",
    "before-change",
    "after-change",
    "in-reshape",
    "before-generation",
    "after-generation",
    "before-layout",
    "after-layout",
    "in-start",
    "in-recovery",
    "before-append",
    "after-append",
    "after-apply",
    "between-peers",
    "after-outputs",
    "in-snapshot",
    "after-snapshot",
)


def crash_point(point: str, machine: str = "") -> None:
    """Say that `point` is reached, by a machine of a cluster if it is named; does not return if a fault is due."""
    wishes = os.environ.get("CUMULUS_CRASH")
    if not wishes:
        return
    assert point in POINTS, point
    point = f"{machine}.{point}" if machine else point
    folder = Path(os.environ["CUMULUS_CRASH_DIR"])
    with (folder / f"{point}.reached").open("ab", buffering=0) as log:
        log.write(b".")  # appends are atomic: the size is the number of times
        times = log.tell()
    if f"{point}:{times}" in wishes.split(","):
        with (folder / "hits.log").open("a") as hits:
            hits.write(f"{point} {times} pid {os.getpid()}\n")
            hits.flush()
            os.fsync(hits.fileno())
        os.kill(os.getpid(), signal.SIGKILL)
