"""A running cluster as a host of cubes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NoReturn, TypeGuard

from cumulus.cluster.live.answers import WriteToken
from cumulus.cluster.live.client import ClusterClient
from cumulus.epochs.output.sink import newest_manifest
from cumulus.epochs.output.stored_parts import entry_count
from cumulus.errors import HistoryError, UsageError
from cumulus.m3.program import Program
from cumulus.olap import Freshness
from cumulus.views import Consistency, Finisher
from cumulus.views.folding import Bound, Partial


def is_client(given: object) -> TypeGuard[ClusterClient]:
    """Whether something is the client of a cluster."""
    return isinstance(given, ClusterClient)


@dataclass(frozen=True)
class ClusterHost:
    """Folds the cubes of a running cluster, and its spread views where they are read tentative."""

    client: ClusterClient
    look: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    """Called after an epoch was read: whoever follows them knows of it before the answer is out."""
    _finishers: dict[str, Finisher] = field(default_factory=dict, compare=False, repr=False)

    @property
    def program(self) -> Program:
        """What the cluster runs."""
        return self.client.program

    def finisher(self, view: str) -> Finisher:
        """Return what makes the rows of a view."""
        if view not in self._finishers:
            self._finishers[view] = Finisher(self.program, self.program.view(view), self.client.functions)
        return self._finishers[view]

    def reading(self) -> AbstractContextManager[None]:
        """Do nothing: each fold is of one epoch, or says that it is tentative."""
        return nullcontext()

    def fold(
        self, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str], freshness: Freshness
    ) -> tuple[Partial, Consistency]:
        """Return parts of a view's groups, committed unless tentative ones are asked for.

        Parameters
        ----------
        freshness
            `after` is a token of the client, or the number of an epoch.

        Raises
        ------
        HistoryError
            If an epoch is asked for: those that are kept are in the home.
        """
        if freshness.at is not None:
            raise HistoryError(
                f"at={freshness.at!r}: a running cluster gives its last state alone",
                hint=f"Ask its home, which keeps epochs: Cube({str(self.client.home)!r}, …).",
            )
        after, most = freshness.after, freshness.max_staleness
        found = self.client.fold(
            view,
            by,
            where,
            columns,
            read=freshness.read or Consistency.COMMITTED,
            after=WriteToken(after, 0) if isinstance(after, int) else after,
            max_staleness="" if most is None else f"{round(most * 1000)}ms",
        )
        self.look()
        return found, found.consistency

    def entries(self, map: str) -> int | None:
        """Return how many entries a map had in the last epoch; None if it has none that are written."""
        manifest = newest_manifest(self.client.home)
        if manifest is None or map not in manifest.parts:
            return None
        return entry_count(self.client.home, manifest, map)

    def facts(self, view: str, where: Sequence[Sequence[Bound]], limit: int) -> NoReturn:
        """Refuse it: the rows of tables are spread over nodes and gates.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(
            f"the rows behind {view} are not to be had from a cluster: it gives views, not tables",
            hint="Ask who has sent them, or a Warehouse that keeps rows.",
        )
