"""What this machine is: the facts that belong beside every measured number."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
from typing import Any

from cumulus.version import VERSION


def memory() -> tuple[int, int]:
    """Return total and available memory in bytes, zeros where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            told = dict(line.split(":", 1) for line in file)
        return tuple(int(told[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))  # type: ignore[return-value]
    except (OSError, KeyError, ValueError):
        return 0, 0


def peak_memory() -> int:
    """Return the most bytes that this process has had in memory.

    What Linux counts for a process begins anew when it runs a program; what `getrusage` counts, with the parent's.
    """
    try:
        with open("/proc/self/status") as file:
            told = dict(line.split(":", 1) for line in file)
        return int(told["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if platform.system() == "Darwin" else most * 1024


def processor() -> str:
    """Return the model of the processor, or its architecture where the system does not say."""
    try:
        with open("/proc/cpuinfo") as file:
            told = dict(line.split(":", 1) for line in file if ":" in line)
        return {name.strip(): value.strip() for name, value in told.items()}["model name"]
    except (OSError, KeyError):
        return platform.processor() or platform.machine()


def facts(*packages: str) -> dict[str, Any]:
    """Return `machine` (cores, processor, memory in GB, system) and `versions` (Python, Cumulus, `packages`)."""
    return {
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
