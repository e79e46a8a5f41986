"""A running cluster as a source: committed views from its files, tentative ones from nodes, rows to switches."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from cumulus.cluster.live.address import read_address
from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.live.host import ClusterHost
from cumulus.epochs.output.follower import EpochFollower
from cumulus.errors import CumulusError, DataError, NotOfferedError, UsageError
from cumulus.hosts import WriteReceipt, WriteRequest
from cumulus.m3.program import Program
from cumulus.olap import CubeSource, FoldedSource
from cumulus.server.packing import PackedRequest, Packer
from cumulus.server.request_ids import AnsweredIds, now_ms
from cumulus.server.settings import ServerSettings

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
        self.host = ClusterHost(self._client, EpochFollower(home))
        committed = self.host.committed
        self.errors, self.quarantine, self.epochs = (
            committed.errors,
            committed.records.quarantine,
            committed.records.epochs,
        )
        self.status, self.listen = self.host.status, self.host.listen

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        return self.host.at

    def cubes(self) -> CubeSource:
        """Return what answers selections of the cubes, and tentative ones of the other views that are spread."""
        return FoldedSource(self.host)

    # --- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: WriteRequest) -> Future[WriteReceipt]:
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

    def _send(self, request: PackedRequest) -> WriteReceipt:
        before = self._ids.find(request.id, request.digest)
        if before is not None:
            return before
        if request.id in self._unsettled:
            raise UsageError(
                "a request of this id was sent before, and it is not known whether its rows are in",
                hint="Look in the views whether they are; if not, send them with a new id.",
            )
        read_address(self._home)  # nothing was sent where nothing runs
        done = WriteReceipt(self.at, 0)
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
            done = WriteReceipt(token.epoch, token.rows)
        self._ids.add(request.id, request.digest, done, now_ms())
        return done

    def execute(self, sql: str) -> Future[int]:
        """Refuse it: the views are those of the cluster's script."""
        raise NotOfferedError(
            f"{self._home} is the home of a cluster, whose views are those of its script",
            hint="Start another cluster with another script, in a home of its own.",
        )

    def snapshot(self) -> Future[int]:
        """Refuse it: machines write theirs when they are due."""
        raise NotOfferedError(
            f"{self._home} is the home of a cluster, whose machines write their snapshots by themselves",
            hint="Its epochs are on the disk as they are committed.",
        )

    def close(self) -> None:
        """Send what was taken, and leave the cluster, which goes on."""
        self._writing.shutdown()
        self.host.close()
