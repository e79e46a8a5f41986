"""The status of a cluster: all machines are asked at once, and those that do not answer in time are named."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from cumulus.cluster.live.links import ClientLinks
from cumulus.cluster.messages import StatusAsked
from cumulus.cluster.publisher import PUBLISHER
from cumulus.errors import DelayError
from cumulus.machine import Name

STATUS_SECONDS = 1.0
"""How long machines may take to say how they are: between two of their steps they do at once. With what a command takes
to start, who asks has an answer within two seconds.
"""
_MOST_AT_ONCE = 64


def status_of(links: ClientLinks, pids: Mapping[Name, int], number: int, seconds: float) -> dict[Name, dict[str, Any]]:
    """Return how each machine is: docs/cluster.md, "Live". One that does not answer has its "process" and "problem".

    Parameters
    ----------
    pids
        Machine → the number of its process; 0 if nobody here knows it.
    number
        Of the question.
    seconds
        How long they may take.
    """
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(min(len(pids), _MOST_AT_ONCE), "status") as pool:
        facts = pool.map(partial(_facts, links, number, until, seconds), pids)
        found = {
            name: {**({"process": pid} if pid else {}), **told}
            for (name, pid), told in zip(pids.items(), facts, strict=True)
        }
    newest = found[PUBLISHER].get("epoch")
    for name, told in found.items():
        if name != PUBLISHER and newest is not None and "epoch" in told:  # who was asked later may be further by now
            told["lag_epochs"] = max(newest - told["epoch"], 0)
    return found


def silent_machines(status: Mapping[Name, Mapping[str, Any]]) -> list[Name]:
    """Return which machines have not answered."""
    return [name for name, facts in status.items() if "problem" in facts]


def _facts(links: ClientLinks, number: int, until: float, seconds: float, machine: Name) -> dict[str, Any]:
    try:
        (told,) = links.ask(machine, StatusAsked(number), until)
    except DelayError:
        return {"problem": f"no answer within {seconds:g} s"}
    return dict(told.facts)
