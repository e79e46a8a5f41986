"""A process that says how it was started: `python -m support.process_facts FD`, or a fork that runs `main`.

It writes a line of JSON, and ends with the code that it is sent; 0 when the other end of its pair is closed.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP)


def kind_of(file: int) -> str:
    mode = os.fstat(file).st_mode
    kinds = {"socket": stat.S_ISSOCK, "pipe": stat.S_ISFIFO, "device": stat.S_ISCHR, "file": stat.S_ISREG}
    return next((kind for kind, is_it in kinds.items() if is_it(mode)), "other")


def files_of(pid: int | str = "self") -> list[str]:
    """Return the kinds of the descriptors that a process has open, the first three in their order."""
    kinds = []
    for each in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
        place = Path(f"/proc/{pid}/fd/{each}")
        if place.exists() or place.is_symlink():  # not the one that lists them
            kinds.append(os.readlink(place).partition(":[")[0])
    return kinds


def facts() -> dict[str, Any]:
    tasks = len(os.listdir("/proc/self/task"))
    from numpy import random as numpy_random  # which starts threads, where it is not there yet

    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(dict.fromkeys(sys.path)),
        "arguments": len(sys.argv),
        "files": files_of(),
        "inherited": [file for file in range(3, 100) if os.path.exists(f"/proc/self/fd/{file}") and is_inherited(file)],
        "signals": {each.name: str(signal.getsignal(each)) for each in SIGNALS},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "wakes": signal.set_wakeup_fd(-1),
        "is_leader": os.getsid(0) == os.getpid(),
        "mask": os.umask(0),
        "threads": [each.name for each in threading.enumerate()],
        "tasks": tasks,
        "collects": gc.isenabled(),
        "drawn": [random.random(), float(numpy_random.random()), os.urandom(4).hex()],
    }


def is_inherited(file: int) -> bool:
    try:
        return os.get_inheritable(file)
    except OSError:
        return False


def main(arguments: Sequence[str]) -> None:
    pair = socket.socket(fileno=int(arguments[0]))
    pair.set_inheritable(False)
    print(json.dumps(facts()), flush=True)
    said = pair.recv(1 << 16)
    os._exit(said[-1] if said else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
