"""A run of the cluster host in a process of its own, for tests that kill it: `python cluster_driver.py IN OUT`.

It is what `cumulus run --host cluster` does, with snapshots that come soon.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from cumulus.cluster.mode import Mode
from cumulus.errors import CumulusError
from cumulus.epochs.sources import sources_from
from cumulus.interrupts import Interrupt
from cumulus.local_cluster.home import Home
from cumulus.local_cluster.run import ClusterRun
from support.sales_stream import program


def main(folder: str, out: str, snapshot_bytes: str = "3000") -> None:
    """Maintain the program of `sales_stream` until all files are read; tell each epoch."""
    made = program()
    sources = sources_from([folder], made)
    settings = {"nodes": 2, "switches": 2, "keep": 10_000, "snapshot_bytes": int(snapshot_bytes)}
    with Home(made, sources, Path(out), None, mode=Mode.EVENTUAL, **settings) as home, Interrupt() as stop:
        running = ClusterRun(home, None, note=partial(print, "note:", flush=True))
        for epoch in running.epochs(lambda: stop.wished):
            print(epoch.number, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CumulusError as problem:
        print(f"{type(problem).__name__}: {problem}", flush=True)
        sys.exit(1)
