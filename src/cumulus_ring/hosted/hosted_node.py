"""A node of a ring in a worker of an engine, as a process of its own: it ends with whatever has started it.

`keep_node` runs in the worker; its process reads what it is to join as one line of JSON, and goes when there is
nothing more to be read: the worker has ended then, or been killed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cumulus.errors import CumulusError, ProcessError
from cumulus.transport.local_process import machine_environment
from cumulus_ring.hosted.joining import join
from cumulus_ring.process.process import NodeProcess
from cumulus_ring.process.settings import NodePlace


@dataclass(frozen=True, slots=True)
class NodeTask:
    """What a node is told that an engine starts.

    Parameters
    ----------
    ring
        Where its keeper is, as HOST:PORT.
    secret
        Of the ring.
    source
        Where the files of the tables are; on a worker that does not see them, others bring what it needs.
    data
        The folder for nodes' homes on each worker; empty for a temporary one.
    threads
        Of its DuckDB.
    """

    ring: str
    secret: bytes
    source: str
    data: str = ""
    threads: int = 1


def keep_node(task: NodeTask, number: int, address: str) -> None:
    """Run a node until the ring is stopped or the node removed.

    Raises
    ------
    ProcessError
        If it has ended otherwise.
    """
    base = Path(task.data) if task.data else Path(tempfile.mkdtemp(prefix="cumulus-ring-"))
    source = task.source if Path(task.source).is_dir() else ""
    said: dict[str, Any] = {"ring": task.ring, "secret": task.secret.hex(), "name": f"node{number + 1}", "rack": ""}
    said |= {"folder": str(base / f"node{number + 1}"), "source": source, "threads": task.threads, "address": address}
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "cumulus_ring.hosted.hosted_node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=machine_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process, suppress(BrokenPipeError):
            process.stdin.write(json.dumps(said) + "\n")
            process.stdin.flush()
            lines = process.stdout.read()
        if process.returncode:
            last = lines.strip().splitlines()[-2:] or ["it has said nothing"]
            raise ProcessError(f"{said['name']} of the ring has ended: {' '.join(last)}")
    finally:
        if not task.data:
            shutil.rmtree(base, ignore_errors=True)


def _leave_with_parent(node: NodeProcess) -> None:
    """Leave the ring when nothing more can be read, and end a moment later whatever the keeper says."""

    def wait() -> None:
        sys.stdin.read()
        node.leave()
        late = threading.Timer(5.0, os._exit, [0])
        late.daemon = True
        late.start()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main() -> None:
    """Join the ring that standard input names."""
    said = json.loads(sys.stdin.readline())
    place = NodePlace(said["folder"], said["source"], "", "", "", said["threads"])
    try:
        join(
            said["ring"],
            bytes.fromhex(said["secret"]),
            place,
            name=said["name"],
            rack=said["rack"],
            on_node=_leave_with_parent,
        )
    except CumulusError as problem:
        print(f"{problem.message}\n{problem.hint}", flush=True)
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
