"""A run of the cluster host, for tests that kill it, in a process: `python cluster_driver.py IN OUT [FACTORY]`.

It is what `cumulus run --host cluster --nodes 2 --switches 2` does, with snapshots that come soon. With
a factory, which may make other machines than it has (`support.broken_machines`), there are none, and it interprets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from cumulus.cluster.mode import Mode
from cumulus.cluster.processes.home import Home
from cumulus.cluster.processes.run import ClusterRun
from cumulus.errors import CumulusError
from cumulus.interrupts import Interrupt
from support.sales_stream import SalesStream, cluster_program

TESTS = Path(__file__).parents[1]
SNAPSHOT_BYTES = 3000
WHOLE = "cumulus.cluster.processes.import_without_pandas:start_machine"


def start(
    stream: SalesStream, out: Path, crash: str = "", before: Callable[[], None] | None = None, factory: str = ""
) -> subprocess.Popen[str]:
    """Start a run; it tells the numbers of epochs, notes and its error in lines."""
    environment = {**os.environ, "CUMULUS_CRASH": crash, "CUMULUS_CRASH_DIR": str(out.parent)}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, __file__, str(stream.folder), str(out), *filter(None, [factory])],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=before,
        start_new_session=True,
    )


def run_through(stream: SalesStream, out: Path, crash: str = "") -> list[str]:
    """Run until all is read; return the lines that were told."""
    process = start(stream, out, crash)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    return told.splitlines()


def machines(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """Return the processes of a run's machines that say so, by name: those that have a log open."""
    found = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            logs = [Path(file.path) for file in child.open_files() if file.path.endswith("/log/lock")]
        except psutil.Error:
            continue
        found.update({path.parents[1].name: child for path in logs})
    return found


def main(folder: str, out: str, factory: str = "") -> None:
    """Maintain the program of `sales_stream` until all files are read; tell each epoch."""
    program, sources = cluster_program(), SalesStream(Path(folder), 0).sources
    settings: dict[str, Any] = {"nodes": 2, "switches": 2, "keep": 10_000}
    settings |= {"engine": "interpreter", "order": "switch"} if factory else {"snapshot_bytes": SNAPSHOT_BYTES}
    with Home(program, sources, Path(out), None, mode=Mode.EVENTUAL, **settings) as home, Interrupt() as stop:
        running = ClusterRun(home, None, note=partial(print, "note:", flush=True), factory=factory or WHOLE)
        for epoch in running.epochs(lambda: stop.wished):
            print("epoch", epoch.number, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CumulusError as problem:
        print(f"{type(problem).__name__}: {problem}", flush=True)
        sys.exit(1)
