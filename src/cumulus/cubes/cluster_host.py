"""A running cluster as a host of cubes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NoReturn

from cumulus.errors import HistoryError, UsageError
from cumulus.local_cluster.live.answers import WriteToken
from cumulus.local_cluster.live.client import ClusterClient
from cumulus.m3.program import Program
from cumulus.olap import Freshness
from cumulus.scalars.user import Functions
from cumulus.views import Consistency, Finisher
from cumulus.views.folding import Bound, Partial


@dataclass(frozen=True)
class ClusterHost:
    """Folds the views of a cluster: what its last epoch has committed, or tentatively what its nodes have now.

    Parameters
    ----------
    functions
        The user's that the views call.
    """

    client: ClusterClient
    functions: Functions | None = None
    _finishers: dict[str, Finisher] = field(default_factory=dict, compare=False, repr=False)

    @property
    def program(self) -> Program:
        """What it runs."""
        return self.client.program

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        made = self._finishers.get(view)
        if made is None:
            made = self._finishers[view] = Finisher(self.program, self.program.view(view), self.functions)
        return made

    def reading(self) -> AbstractContextManager[None]:
        """Do nothing: a cluster does not stand still."""
        return nullcontext()

    def fold(
        self, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str], freshness: Freshness
    ) -> tuple[Partial, Consistency]:
        """Return parts of a view's groups.

        Raises
        ------
        HistoryError
            If an epoch is asked for: there is the last one alone.
        DelayError
            If it takes too long until what was asked for is committed.
        """
        if freshness.at is not None:
            raise HistoryError(
                f"at={freshness.at!r}: a cluster shows its last epoch alone", hint="Read its home as an output folder."
            )
        after = freshness.after
        found = self.client.fold(
            view,
            by,
            where,
            columns,
            read=freshness.read or Consistency.COMMITTED,
            after=WriteToken(after, 0) if isinstance(after, int) else after,
            max_staleness="" if freshness.max_staleness is None else f"{round(freshness.max_staleness * 1000)}ms",
        )
        return found, found.consistency

    def entries(self, map: str) -> None:
        """Return None: the nodes are not asked how large their maps are."""

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> NoReturn:
        """Refuse it: clients do not read the rows of tables.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(
            f"the rows behind {view} cannot be read from a cluster: its clients read views, not tables",
            hint="Keep a Warehouse of the tables, or ask where the rows come from.",
        )
