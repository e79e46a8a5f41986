"""What a client knows of how a cluster lies on its nodes; learnt anew when the cluster goes on with others."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from cumulus.catalog.arrow import from_ipc, to_ipc
from cumulus.catalog.names import known_name
from cumulus.catalog.schema import Relation
from cumulus.cluster.live.cluster_places import ClusterPlace
from cumulus.cluster.live.links import ClientLinks
from cumulus.cluster.messages import ClientRows, switch_name
from cumulus.cluster.placement.table_shares import rows_of_shares
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.processes.home import plan_of
from cumulus.errors import RemoteProtocolError
from cumulus.m3.program import ViewDef
from cumulus.machine import Name
from cumulus.transport.greeting import RefusalError, RefusalPolicy

T = TypeVar("T")
_PAUSE_S = 0.05
"""Between two attempts, while the machines come to the layout of the card."""
_NEVER_AGREED = "Connect again, with the same release of Cumulus as the cluster."


class KnownLayout:
    """The settings, program and plan of a cluster, as they were when it was asked last.

    Parameters
    ----------
    place
        Where the cluster is found.

    Attributes
    ----------
    views, tables
        By name; the same in all layouts.
    """

    def __init__(self, place: ClusterPlace) -> None:
        self._place = place
        self.settings, self.program = place.card()
        self.views = {view.name: view for view in self.program.shown_views}
        self.tables = {relation.name: relation for relation in self.program.relations}
        self._last_epochs: dict[str, int] = {}
        """Table that switches share → the last epoch that was told of its rows."""

    def view_named(self, name: str) -> ViewDef:
        """Return a view by its name, whatever its case; UnknownNameError if there is none."""
        return self.views[known_name(name, self.views, "view")]

    def table_named(self, name: str) -> Relation:
        """Return a table as `view_named` does a view."""
        return self.tables[known_name(name, self.tables, "table")]

    @cached_property
    def plan(self) -> ClusterPlan:
        """Its plan."""
        return plan_of(self.program, self.settings)

    def send(self, links: ClientLinks, rows: ClientRows, until: float) -> int:
        """Send rows to the switches that have their table now, all at once; see `ClientLinks.send`.

        Return the last epoch that has some of them, and never one before that of earlier rows of the same table.
        """
        tables = self.plan.tables
        if rows.table not in tables.splits:
            return links.send(switch_name(tables.switch_of[rows.table]), rows, until).epoch
        parts = self._parts(rows)
        with ThreadPoolExecutor(len(parts), "rows") as pool:
            accepted = list(pool.map(lambda switch: links.send(switch, parts[switch], until), parts))
        last = max(each.epoch for each in accepted)  # switches need not be in the same epoch
        self._last_epochs[rows.table] = max(last, self._last_epochs.get(rows.table, 0))
        return self._last_epochs[rows.table]

    def _parts(self, rows: ClientRows) -> dict[Name, ClientRows]:
        """Return what each switch gets of the rows of a table that is split, all under their number."""
        tables = self.plan.tables
        whole = from_ipc(rows.rows)
        parts = rows_of_shares(whole, tables.splits[rows.table], tables.switches)
        if len(parts) == 1:
            return {switch_name(next(iter(parts))): rows}
        return {switch_name(number): replace(rows, rows=to_ipc(mine)) for number, mine in parts.items()}

    def agreed(self, work: Callable[[], T], links: ClientLinks, until: float) -> T:
        """Return what some work with the machines gives; done again where their layout is another than was known.

        Machines refuse who has an old one, so nothing of the first time is used. The card changes a little before the
        machines do, and layouts may follow each other, so it is asked for as long as they refuse.

        Parameters
        ----------
        until
            For how long, by `time.monotonic`.
        """
        while True:
            try:
                return work()
            except RemoteProtocolError as problem:
                settings, _ = self._place.card()
                if settings.agreed == links.program:
                    if not (isinstance(problem, RefusalError) and problem.outlook is RefusalPolicy.CHANGED):
                        raise
                    if time.monotonic() > until:
                        raise RemoteProtocolError(problem.message, hint=_NEVER_AGREED) from None
                    time.sleep(_PAUSE_S)
                    continue
            if settings.layout != self.settings.layout:
                self.settings = settings
                self.__dict__.pop("plan", None)
            links.agree_on(settings.agreed)
