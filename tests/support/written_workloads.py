"""The input of a workload as folders of files, and its script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cumulus.workloads import changes, flights, shop
from cumulus_lab.workloads import tpch


def write(workload: str, folder: Path, *, weeks: int, epochs: int, queries: Sequence[str]) -> str:
    """Write the shop, weeks of flights, or some queries of TPC-H with refreshes; return the script."""
    if workload == "shop":
        shop.write(folder, seed=3)
        return shop.sql()
    if workload == "flights":
        flights.write(folder, epochs=weeks)
        return flights.sql()
    shares: dict[str, Any] = {"epochs": epochs, "deletions": 0.2, "updates": 0.1, "repeats": True, "seed": 5}
    stream = tpch.refreshes(tpch.sample(), queries=tuple(queries), **shares)
    changes.write(folder, stream.epochs())
    return stream.sql("foreign")
