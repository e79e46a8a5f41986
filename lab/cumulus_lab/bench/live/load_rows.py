"""What a cluster under steady load does, epoch after epoch, and what of it is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.errors import CumulusError
from cumulus.hosts import WriteReceipt
from cumulus.machine import Name
from cumulus.workloads import checks
from cumulus_lab.bench.agreement import compare
from cumulus_lab.bench.live.load import SQL, ShopLoad
from cumulus_lab.bench.live.running_cluster import RunningCluster
from cumulus_lab.bench.live.slowing import SlowedProcess

_LOOK_S, _PATIENCE_S = 0.02, 120.0
"""How often is looked for a new epoch, and how long one may take."""
SLOWED_SHARE = 0.1
"""What a process that is slowed has of the time."""
MAY_GROW_BYTES, EVENT_BYTES = 64_000_000, 1_000
"""What a process may have more while another one is slow: what waits at links, and events of epochs that are open."""
_OPEN_EPOCHS = 3


@dataclass(frozen=True, slots=True)
class LoadRow:
    """Some epochs of a cluster under load.

    Attributes
    ----------
    epoch
        The last of them, from the beginning of the load.
    slowed
        The machine that was slowed meanwhile; empty for none.
    events
        That were accepted meanwhile.
    resident
        Machine → the memory that its process had at the end.
    """

    epoch: int
    epochs: int
    slowed: Name
    seconds: float
    events: int
    resident: dict[Name, int]

    def columns(self) -> dict[str, Any]:
        """Return what is printed."""
        return {
            "epoch": self.epoch,
            "slowed": self.slowed,
            "events_per_s": round(self.events / self.seconds),
            "epoch_ms": round(self.seconds / self.epochs * 1000),
            **{f"{name}_mb": round(size / 1e6, 1) for name, size in self.resident.items()},
        }


def measure(cluster: RunningCluster, load: ShopLoad, *, epochs: int, every: int, slow: Name = "") -> Iterator[LoadRow]:
    """Yield a row each `every` epochs, or a few more; during the middle third of them `slow` is slowed.

    Raises
    ------
    CumulusError
        If no epoch is committed for long, or the load cannot go on.
    """
    first = done = _committed(cluster)
    began, before = time.monotonic(), load.events
    with ExitStack() as slowing:
        is_slowed = False
        while done < first + epochs:
            now = _next_epoch(cluster, load, done, every, began)
            until, events = time.monotonic(), load.events
            resident = cluster.resident_bytes()
            yield LoadRow(now - first, now - done, slow * is_slowed, until - began, events - before, resident)
            done, began, before = now, until, events
            is_due = bool(slow) and epochs <= 3 * (done - first) < 2 * epochs
            if is_due and not is_slowed:
                slowing.enter_context(SlowedProcess(cluster.pids[slow], SLOWED_SHARE))
            elif is_slowed and not is_due:
                slowing.close()
            is_slowed = is_due


def _next_epoch(cluster: RunningCluster, load: ShopLoad, done: int, every: int, began: float) -> int:
    """Wait until so many epochs more are committed; return the last one."""
    while (now := _committed(cluster)) < done + every:
        load.check()
        if time.monotonic() > began + every * _PATIENCE_S:
            raise CumulusError(
                f"epoch {now + 1} is not committed, and the one before long ago",
                hint=f"See how the cluster is: cumulus cluster status {cluster.home}",
            )
        time.sleep(_LOOK_S)
    return now


def _committed(cluster: RunningCluster) -> int:
    manifest = newest_manifest(cluster.home)
    return 0 if manifest is None else manifest.snapshot


def check_flat(rows: Sequence[LoadRow], warm: int, band: float) -> list[str]:
    """Return which processes had another size after the first `warm` epochs than at their end, by more than `band`."""
    counted = [row for row in rows if row.epoch >= warm]
    found = []
    for name, size in counted[0].resident.items():
        sizes = [row.resident[name] for row in counted]
        if min(sizes) < (1 - band) * size or max(sizes) > (1 + band) * size:
            told = [f"{each / 1e6:.1f}" for each in (size, min(sizes), max(sizes))]
            found.append(f"{name} had {told[0]} MB after epoch {counted[0].epoch}, then {told[1]} to {told[2]}")
    return found


def check_slowed(rows: Sequence[LoadRow], warm: int) -> list[str]:
    """Return what is wrong of a cluster of which a machine was slowed: that the source is not, or memory grows."""
    slowed = [row for row in rows if row.slowed]
    before = [row for row in rows if row.epoch >= warm and row.epoch < slowed[0].epoch] if slowed else []
    if not slowed or not before:
        return ["there are too few epochs for a slow time and one before: give more --epochs"]
    fast, slow = (sum(row.events for row in some) / sum(row.seconds for row in some) for some in (before, slowed))
    found = []
    if slow > fast * 2 / 3:
        found.append(f"{slow:,.0f} events/s were taken in while {slowed[0].slowed} was slow, {fast:,.0f} before")
    open_events = _OPEN_EPOCHS * max(row.events / row.epochs for row in rows if row.epoch >= slowed[0].epoch)
    may_grow = MAY_GROW_BYTES + EVENT_BYTES * open_events
    for name in before[0].resident:
        most = max(row.resident[name] for row in before)
        then = max(row.resident[name] for row in rows if row.epoch >= slowed[0].epoch)
        if then > most + may_grow:
            found.append(f"{name} grew from {most / 1e6:.1f} to {then / 1e6:.1f} MB")
    return found


def end(cluster: RunningCluster, load: ShopLoad, last: WriteReceipt, cpu_before: float) -> dict[str, Any]:
    """Return what all of the load has cost.

    Raises
    ------
    CumulusError
        If the views are not what DuckDB computes from the rows that are there.
    """
    tables = load.tables()
    with cluster.connect() as client:
        for view, select in checks.views(SQL).items():
            compare(checks.recompute(select, tables), client.view(view, after=last).arrow(), view)
        cpu = cluster.cpu_seconds() - cpu_before
        return {
            "events": load.events,
            "cpu_us_per_event": round(cpu / load.events * 1e6, 1),
            **cluster.late_shares(client),
            "restarts": cluster.restarts,
        }
