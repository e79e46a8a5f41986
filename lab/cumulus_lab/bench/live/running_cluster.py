"""A cluster that runs on in processes of its own, as `cumulus cluster start` starts one, and what they use."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from cumulus.cluster.live import daemon
from cumulus.cluster.live.address import ClusterAddress, read_address
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.mode import Mode
from cumulus.compiler import compile_sql
from cumulus.errors import NotRunningError
from cumulus.machine import Name
from cumulus.machine_facts import cpu_seconds, resident_bytes


class RunningCluster:
    """A cluster, as a context: it runs while it is entered.

    Parameters
    ----------
    script
        The SQL of its views.
    home
        The folder for them.
    every_s
        How often an epoch may begin.
    keep
        How many epochs stay there.
    mode, options
        How nodes keep the maps.

    Attributes
    ----------
    address
        Where its machines were, and who they are, when it began.
    """

    def __init__(
        self,
        script: str,
        home: Path,
        *,
        nodes: int,
        switches: int,
        every_s: float,
        engine: str = "auto",
        keep: int = 1_000_000,
        mode: Mode = Mode.EVENTUAL,
        options: tuple[str, ...] = (),
    ) -> None:
        self.home = home.absolute()
        self._settings = daemon.LiveSettings(
            str(compile_sql(script, rely=False, enforced=False)),
            (),
            str(self.home),
            mode.value,
            nodes,
            switches,
            every_s,
            "",
            (),
            {"engine": engine, "files_per_epoch": 1, "keep": keep, "options": options},
        )

    def __enter__(self) -> RunningCluster:
        """Start it; ProcessError if it cannot start."""
        daemon.start(self._settings)
        self.address = read_address(self.home)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        if kind is None:
            daemon.stop(self.home)
        else:
            with suppress(NotRunningError):  # what has ended it is told already
                daemon.stop(self.home)

    def connect(self, timeout_s: float = 60.0) -> ClusterClient:
        """Return a client."""
        return ClusterClient(self.home, timeout_s=timeout_s)

    @property
    def restarts(self) -> int:
        """How often its processes have started anew."""
        return read_address(self.home).incarnation - self.address.incarnation

    @property
    def pids(self) -> dict[Name, int]:
        """Machine → its process; with the one that keeps them running."""
        now: ClusterAddress = read_address(self.home)
        return {"supervisor": now.pid, **now.pids}

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes so far."""
        return cpu_seconds(self.pids.values())

    def resident_bytes(self) -> dict[Name, int]:
        """Return how much memory each process has now."""
        return {name: resident_bytes(pid) for name, pid in self.pids.items()}

    def late_shares(self, client: ClusterClient) -> dict[str, Any]:
        """Return how many rows and deltas have come to the nodes in order and late."""
        facts = [each for name, each in client.status(60.0).items() if name.startswith("node")]
        names = ("rows_in_order", "rows_late", "deltas_in_order", "deltas_late")
        return {name: sum(each.get(name, 0) for each in facts) for name in names}
