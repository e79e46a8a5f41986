"""How a command asks a running cluster for another number of nodes, and hears what has become of it: two files."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from cumulus.cluster.live.address import STATE, read_address
from cumulus.cluster.processes.cluster_settings import read_settings
from cumulus.durable.files import write_durably
from cumulus.errors import CumulusError, DelayError, InputError, ProcessError, UsageError

_WISH, _ANSWER = "resize.json", "resized.json"
_LOOK_S = 0.1


def ask(home: Path, nodes: int, seconds: float) -> tuple[int, int]:
    """Ask the cluster of a home for so many nodes, and wait until they run; return how many there were, and are.

    Raises
    ------
    InputError
        If it is no home of a cluster.
    NotRunningError
        If the cluster does not run, or ends meanwhile.
    UsageError
        If somebody else has asked, and has no answer yet.
    ProcessError
        With what the cluster has against it; it goes on as it was.
    DelayError
        If they do not run in time; they will.
    """
    read_address(home)
    before = read_settings(home / STATE)
    if before is None:
        raise InputError(f"{home}: not the home of a cluster", hint="Give the folder that --home has named.")
    if before.nodes == nodes:
        return nodes, nodes
    wish, said = home / STATE / _WISH, home / STATE / _ANSWER
    if wish.exists():
        raise UsageError(f"{home}: another resize has been asked for", hint=f"Wait for it, or remove {wish}.")
    said.unlink(missing_ok=True)
    write_durably(wish, json.dumps({"nodes": nodes}).encode())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(FileNotFoundError):
            told = json.loads(said.read_text(encoding="utf-8"))
            said.unlink()
            if told["problem"]:
                raise ProcessError(f"{home}: it stays as it was: {told['problem']}", hint=told["hint"])
            return before.nodes, nodes
        read_address(home)  # it may have ended
        time.sleep(_LOOK_S)
    raise DelayError(f"{home}: the new nodes do not run yet", hint=f"Look again: cumulus cluster status {home}.")


def wished(home: Path) -> int:
    """Return for how many nodes the cluster of a home was asked; 0 for none."""
    try:
        return int(json.loads((home / STATE / _WISH).read_text(encoding="utf-8"))["nodes"])
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        (home / STATE / _WISH).unlink(missing_ok=True)  # nobody of ours has written it
        return 0


def answer(home: Path, problem: CumulusError | None = None) -> None:
    """Say what has become of a wish: done, or what there was against it."""
    if not (home / STATE / _WISH).exists():
        return
    said = {"problem": "" if problem is None else problem.message, "hint": "" if problem is None else problem.hint}
    write_durably(home / STATE / _ANSWER, json.dumps(said).encode())
    (home / STATE / _WISH).unlink(missing_ok=True)
