"""What this machine is: the facts that belong beside every measured number."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cumulus.version import VERSION


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def memory() -> tuple[int, int]:
    """Return total and available memory in bytes, zeros where the system does not say."""
    told = _system_facts("/proc/meminfo")
    try:
        return _bytes(told["MemTotal"]), _bytes(told["MemAvailable"])
    except (KeyError, ValueError):
        return 0, 0


def peak_memory() -> int:
    """Return the most bytes that this process has had in memory.

    What Linux counts for a process begins anew when it runs a program; what `getrusage` counts, with the parent's.
    """
    try:
        return _bytes(_system_facts("/proc/self/status")["VmHWM"])
    except (KeyError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if platform.system() == "Darwin" else most * 1024


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of processes so far, their threads included; 0 for those that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def exact_cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of processes so far in nanoseconds' steps, where `cpu_seconds` counts ticks of 10 ms.

    Raises
    ------
    OSError
        If one of them has ended.
    """
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)  # as clock_getcpuclockid(3) makes it


def resident_bytes(pid: int) -> int:
    """Return how much memory of the machine a process has now; 0 if it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def processor() -> str:
    """Return the model of the processor, or its architecture where the system does not say."""
    return _system_facts("/proc/cpuinfo").get("model name") or platform.processor() or platform.machine()


def _system_facts(path: str) -> dict[str, str]:
    """Return what a file of the system says by name; nothing where there is no such file."""
    try:
        with open(path) as file:
            pairs = [line.split(":", 1) for line in file if ":" in line]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, value in pairs}


def _bytes(text: str) -> int:
    return int(text.split()[0]) * 1024


def facts(load_before: list[float], *packages: str) -> dict[str, Any]:
    """Return how busy the machine was and is, what it is, and the versions of Python, Cumulus and `packages`."""
    return {
        "load_average_before": load_before,
        "load_average_after": load_average(),
        "machine": {
            "cores": os.cpu_count(),
            "processor": processor(),
            "memory_gb": round(memory()[0] / 2**30, 1),
            "system": f"{platform.system()} {platform.release()}",
        },
        "versions": {
            "cumulus": VERSION,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
    }


def load_average() -> list[float]:
    """Return how many processes wanted a core, over the last 1, 5 and 15 minutes."""
    return [round(each, 2) for each in os.getloadavg()]
