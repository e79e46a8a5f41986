"""A running cluster as a `cumulus.hosts.Host`: committed views from its files, tentative ones from nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from cumulus.cluster.live.client import ClusterClient
from cumulus.cluster.live.status import silent_machines
from cumulus.cluster.publisher import PUBLISHER
from cumulus.epochs.output.changes import EpochChanges
from cumulus.epochs.output.follower import EpochFollower
from cumulus.epochs.output.host import FolderHost
from cumulus.errors import CumulusError, HistoryError, NotOfferedError
from cumulus.hosts.answers import Answer, WriteReceipt
from cumulus.hosts.host import Host
from cumulus.hosts.requests import LATEST, Freshness, RowRequest
from cumulus.hosts.selecting import TableSelection
from cumulus.m3.program import Program
from cumulus.views.consistency import Consistency
from cumulus.views.duckdb_sql.limits import QueryGuard
from cumulus.views.duckdb_sql.selects import Parameters
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Partial

_PATIENCE_S = 5.0
"""How long a machine may be in a step until it is said not to answer."""


class ClusterHost(Host):
    """Reads a running cluster; what is committed as `FolderHost` reads it, tentative rows of spread views from nodes.

    Parameters
    ----------
    follower
        Of the cluster's home, where committed reads are to be of the last epoch that it knows of.
    """

    lacks: ClassVar = {
        "write": (
            "this reads a cluster, and does not write",
            "Call insert, delete or upsert of what cumulus.connect returns, or serve the cluster.",
        ),
    }

    def __init__(self, client: ClusterClient, follower: EpochFollower | None = None) -> None:
        self.client, self._follower = client, follower
        self.committed = FolderHost(client.home, client.functions, program=client.program, follower=follower)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterHost) and self.client is other.client

    def __hash__(self) -> int:
        return id(self.client)

    @property
    def program(self) -> Program:
        """What the cluster runs."""
        return self.client.program

    @property
    def at(self) -> int:
        """The committed epoch whose rows readers see."""
        return self.committed.at

    def read(self, request: RowRequest, freshness: Freshness = LATEST) -> Answer:
        """Return rows of a view; tentative ones, of a view that is spread, as new as the nodes have them."""
        self._check(freshness)
        spread = map(str.lower, self.client.spread_views)
        if freshness.read != Consistency.TENTATIVE or request.view.lower() not in spread:
            self._wait(freshness)
            return self.committed.read(request)
        age: dict[str, Any] = {"after": _receipt(freshness), "max_staleness": _staleness(freshness)}  # which is refused
        if request.key is not None:
            found = self.client.get(request.view, *request.key, read=Consistency.TENTATIVE, **age)
        else:
            found = self.client.view(request.view, Consistency.TENTATIVE, **age)
        selection = TableSelection.of(request, self.program.view(found.view).columns)
        return type(found)(selection.take(found.table), None, found.consistency, found.view, found.versions)

    def query(
        self,
        sql: str,
        parameters: Parameters = None,
        guard: QueryGuard | None = None,
        freshness: Freshness = LATEST,
    ) -> Answer:
        """Return the result of a SELECT over the committed views."""
        self._check(freshness)
        self._wait(freshness)
        return self.committed.query(sql, parameters, guard)

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        return self.committed.finisher(view)

    def fold(
        self,
        view: str,
        by: Sequence[str],
        where: Sequence[Bound] = (),
        columns: Sequence[str] | None = None,
        freshness: Freshness = LATEST,
    ) -> Partial:
        """Return parts of a view's groups, committed unless tentative ones are asked for."""
        self._check(freshness)
        found = self.client.fold(
            view,
            by,
            where,
            columns,
            read=freshness.read or Consistency.COMMITTED,
            after=_receipt(freshness),
            max_staleness=_staleness(freshness),
        )
        if self._follower is not None:
            self._follower.look()  # whoever follows the epochs knows of this one before the answer is out
        return found

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> pa.Table:
        """Refuse it: the rows of tables are spread over nodes and gates."""
        raise NotOfferedError(
            f"the rows behind {view} are not to be had from a cluster: it gives views, not tables",
            hint="Ask who has sent them, or a Warehouse that keeps rows.",
        )

    def entry_count(self, map: str) -> int | None:
        """Return how many entries a map had in the last epoch; None if it has none that are written."""
        return self.committed.entry_count(map) if self.committed.at else None

    def changes(self, view: str) -> tuple[int, EpochChanges]:
        """Return the changes of a view from now on, and the epoch after which that is."""
        return self.committed.changes(view)

    def listen(self, moved: Callable[[int], None]) -> None:
        """Call a function each time that another epoch is committed."""
        self.committed.listen(moved)

    def status(self) -> Mapping[str, Any]:
        """Return the numbers of the last epoch, how far each machine is behind, and what is the matter with them."""
        found = self.committed.status()
        try:
            machines = self.client.status(_PATIENCE_S)
        except CumulusError as problem:
            return {**found, "problem": found["problem"] or problem.message}
        silent = silent_machines(machines)
        if silent:
            found["problem"] = found["problem"] or f"{', '.join(silent)} of the cluster give no answer"
        if PUBLISHER not in silent:
            found["behind_ms"] = machines[PUBLISHER]["behind_ms"]
        return {**found, "lag_epochs": {name: each.get("lag_epochs", 0) for name, each in machines.items()}}

    def close(self) -> None:
        """Leave the cluster, which goes on."""
        self.committed.close()
        self.client.close()

    def _check(self, freshness: Freshness) -> None:
        if freshness.at is not None:
            raise HistoryError(
                f"at={freshness.at!r}: a running cluster gives its last state alone",
                hint=f"Ask its home, which keeps epochs: Cube({str(self.client.home)!r}, …).",
            )

    def _wait(self, freshness: Freshness) -> None:
        """Wait until what is to be committed is so; DelayError if it is not in time, or too old."""
        if freshness.after is not None or freshness.max_staleness is not None:
            self.client.wait_committed(_receipt(freshness), _staleness(freshness))
            if self._follower is not None:
                self._follower.look()


def _receipt(freshness: Freshness) -> WriteReceipt | None:
    """Return what must be committed before, as a client takes it."""
    after = freshness.after
    return WriteReceipt(after, 0) if isinstance(after, int) else after


def _staleness(freshness: Freshness) -> str:
    """Return how old committed rows may be, as a client takes it; "" for any age."""
    most_s = freshness.max_staleness
    return "" if most_s is None else f"{round(most_s * 1000)}ms"
