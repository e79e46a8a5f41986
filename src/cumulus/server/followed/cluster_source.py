"""A running cluster as a source: committed views from its files, tentative ones from nodes, rows to switches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cumulus.cluster.live.address import read_address
from cumulus.cluster.live.answers import Answer
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.live.status import silent_machines
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cubes.cluster_host import ClusterHost
from cumulus.errors import CumulusError, DataError, UsageError
from cumulus.m3.program import Program
from cumulus.olap import CubeSource, FoldedSource
from cumulus.server.answers import Acknowledged, ReadRows, WriteRequest
from cumulus.server.followed.epoch_reading import EpochReading
from cumulus.server.followed.following import EpochFollower
from cumulus.server.packing import PackedRequest, Packer
from cumulus.server.reading import WantedRows
from cumulus.server.request_ids import AnsweredIds, now_ms
from cumulus.server.settings import ServerSettings
from cumulus.views.folding import Bound
from cumulus.views.reader import Consistency

_PATIENCE_S = 5.0
"""How long a machine may be in a step until it is said not to answer."""
_MOST_UNSETTLED = 10_000


class FollowedCluster:
    """A `ServedSource` of a running cluster: `at` is the last committed epoch, 0 before the first one.

    Requests go to the switches one after the other. Their ids are known as long as this lives, and to nobody else.

    Raises
    ------
    InputError
        If this is no home of a cluster.
    NotRunningError
        If the cluster does not run.
    """

    kind = "cluster"

    def __init__(self, home: Path, settings: ServerSettings) -> None:
        self._client = ClusterClient(home, timeout_s=settings.limits.wait_s)
        self.program: Program = self._client.program
        """What the cluster runs."""
        self._home = home
        self._packer = Packer(self.program)
        self._ids = AnsweredIds(settings.kept_ids, settings.kept_ids_s)
        self._unsettled: dict[str, None] = {}
        """The ids of requests that were sent, to which no answer has come."""
        self._writing = ThreadPoolExecutor(1, "writing")
        self._follower = EpochFollower(home)
        self._cubes = FoldedSource(ClusterHost(self._client, self._follower.look))
        self._reading = reading = EpochReading(self._follower, self.program, self._client.functions)
        self.query, self.changes, self.listen = reading.query, reading.changes, self._follower.listen
        self.errors, self.quarantine, self.epochs = reading.errors, reading.quarantine, reading.epochs

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        return self._follower.at

    # --- reading ----------------------------------------------------------------------------------------------------

    def view(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Bound] = (),
        limit: int | None = None,
        read: str = Consistency.COMMITTED,
    ) -> ReadRows:
        """Return rows of a view; tentative ones, of a view that is spread, as new as the nodes have them."""
        if not self._is_tentative(name, read):
            return self._reading.view(name, columns=columns, where=where, limit=limit)
        found = self._client.view(name, Consistency.TENTATIVE)
        view = self.program.view(found.view)
        return _read_rows(found, WantedRows.of(view.name, view.columns, columns, where, limit))

    def get(self, name: str, key: Sequence[Any], *, read: str = Consistency.COMMITTED) -> ReadRows:
        """Return the row of a view with a key; a tentative one from the node that owns it."""
        if not self._is_tentative(name, read):
            return self._reading.get(name, key)
        return _read_rows(self._client.get(name, *key, read=Consistency.TENTATIVE))

    def _is_tentative(self, name: str, read: str) -> bool:
        return read == Consistency.TENTATIVE and name.lower() in map(str.lower, self._client.spread_views)

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes, and tentative ones of the other views that are spread."""
        return self._cubes

    def status(self) -> dict[str, Any]:
        """Return the numbers of the last epoch, how far each machine is behind, and what is the matter with them."""
        found = self._reading.status()
        try:
            machines = self._client.status(_PATIENCE_S)
        except CumulusError as problem:
            return {**found, "problem": found["problem"] or problem.message}
        silent = ", ".join(silent_machines(machines))
        if silent:
            found["problem"] = found["problem"] or f"{silent} of the cluster give no answer"
        if PUBLISHER not in silent_machines(machines):
            found["behind_ms"] = machines[PUBLISHER]["behind_ms"]
        return {**found, "lag_epochs": {name: each.get("lag_epochs", 0) for name, each in machines.items()}}

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[Acknowledged]:
        """Send rows to the switch of their table; `at` is the epoch from which on the committed views have them.

        Raises
        ------
        UsageError
            If they are of several parts, which no switch takes together.
        DataError
            If a row is not of its table.
        """
        if len(request.parts) > 1:
            raise UsageError(
                f"these are rows in {len(request.parts)} parts, and a cluster takes each part by itself",
                hint="Send a request for each part; or serve a script, whose transactions have several.",
            )
        return self._writing.submit(self._send, self._packer.pack(request))

    def _send(self, request: PackedRequest) -> Acknowledged:
        before = self._ids.find(request.id, request.digest)
        if before is not None:
            return before
        if request.id in self._unsettled:
            raise UsageError(
                "a request of this id was sent before, and it is not known whether its rows are in",
                hint="Look in the views whether they are; if not, send them with a new id.",
            )
        read_address(self._home)  # nothing was sent where nothing runs
        done = Acknowledged(self.at, 0)
        for part in request.parts:
            try:
                token = getattr(self._client, part.op)(part.table, part.rows)
            except (UsageError, DataError):
                raise
            except CumulusError:
                if request.id:
                    self._unsettled[request.id] = None
                    if len(self._unsettled) > _MOST_UNSETTLED:
                        del self._unsettled[next(iter(self._unsettled))]
                raise
            done = Acknowledged(token.epoch, token.rows)
        self._ids.add(request.id, request.digest, done, now_ms())
        return done

    def execute(self, sql: str) -> Future[int]:
        """Refuse it: the views are those of the cluster's script."""
        raise UsageError(
            f"{self._home} is the home of a cluster, whose views are those of its script",
            hint="Start another cluster with another script, in a home of its own.",
        )

    def snapshot(self) -> Future[int]:
        """Refuse it: machines write theirs when they are due."""
        raise UsageError(
            f"{self._home} is the home of a cluster, whose machines write their snapshots by themselves",
            hint="Its epochs are on the disk as they are committed.",
        )

    def close(self) -> None:
        """Send what was taken, and leave the cluster, which goes on."""
        self._writing.shutdown()
        self._follower.close()
        self._client.close()


def _read_rows(found: Answer, wanted: WantedRows | None = None) -> ReadRows:
    table = found.arrow()
    return ReadRows(table if wanted is None else wanted.take(table), found.epoch, found.consistency)
