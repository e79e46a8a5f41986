"""Processes in a ring that pass chunks on and do nothing else: what moving alone costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from cumulus.errors import ProcessError

TRANSPORTS = ("tcp", "local")
GOALS = {"tcp": 0.5, "local": 60.0}
"""At most: CPU-seconds per GB and hop over TCP, microseconds of CPU per hop over local links."""
_WARM_SECONDS = 0.5
_MODULE = "cumulus_lab.bench.ring.link_process"


def link_row(transport: str, chunk_mb: float, *, nodes: int, chunks: int, seconds: float) -> dict[str, Any]:
    """Let chunks go round for a while; return what a hop costs.

    Parameters
    ----------
    chunks
        Of each node, under way at once.
    """
    size = round(chunk_mb * 1e6)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        for _ in range(nodes)
    ]
    try:
        for number, each in enumerate(processes):
            what = {"me": number, "count": nodes, "is_local": transport == "local"}
            _tell(each, json.dumps({**what, "chunk_bytes": size, "chunks": chunks}))
        addresses = [_hear(each) for each in processes]
        for number, each in enumerate(processes):
            _tell(each, json.dumps(addresses[(number + 1) % nodes]))
        _ask(processes, "begin")
        time.sleep(min(seconds, _WARM_SECONDS))
        before = _ask(processes, "how")
        time.sleep(seconds)
        after = _ask(processes, "how")
    finally:
        for each in processes:
            each.kill()
        for each in processes:
            each.communicate()
    return _row(transport, size, nodes * chunks, before, after)


def _row(
    transport: str, size: int, chunks: int, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> dict[str, Any]:
    grown = [{name: end[name] - begin[name] for name in end} for begin, end in zip(before, after, strict=True)]
    cpu, hops, rotations = (sum(each[name] for each in grown) for name in ("cpu_s", "hops", "rotations"))
    seconds = sum(each["time_s"] for each in grown) / len(grown)
    if not rotations:
        raise ProcessError("no chunk has gone round in this time", hint="Give --seconds more, or --chunks less.")
    per_gb, per_hop = cpu / (hops * size / 1e9), cpu / hops * 1e6
    return {
        "measure": "links",
        "transport": transport,
        "chunk_mb": size / 1e6,
        "chunks": chunks,
        "hops_per_s": round(hops / seconds),
        "gb_hops_per_s": round(hops * size / seconds / 1e9, 2),
        "rotation_ms": round(chunks * seconds / rotations * 1000, 2),
        "cores": round(cpu / seconds, 2),
        "cpu_s_per_gb_hop": round(per_gb, 4),
        "cpu_us_per_hop": round(per_hop, 1),
        "goal": f"{GOALS[transport]:g} " + ("CPU-s per GB-hop" if transport == "tcp" else "us of CPU a hop"),
        "within": (per_gb if transport == "tcp" else per_hop) <= GOALS[transport],
    }


def _ask(processes: list[subprocess.Popen[str]], what: str) -> list[dict[str, Any]]:
    for each in processes:
        _tell(each, what)
    found = [_hear(each) for each in processes]
    for each in found:
        if "lost" in each:
            raise ProcessError(f"a link was lost: {each['lost']}", hint="Please report it, with the command.")
    return found


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def _hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ProcessError("a process of the ring has ended", hint="See what it has written above.")
    return json.loads(line)
