"""Folding the views of a running cluster: from the files of the last epoch, or by the nodes that own the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from operator import add

from cumulus.cluster.clients.parts import bounds_sent, nodes_to_ask, partial_of
from cumulus.cluster.live.committed_reads import not_committed
from cumulus.cluster.messages import PartsRead, ReadParts, node_name
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.epochs.committed.manifest import newest_manifest
from cumulus.epochs.output.host import FolderHost
from cumulus.machine import Name
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Folds, Partial
from cumulus.views.folding.access import WantedKeys
from cumulus.views.folding.reading import typed_bounds


class ClusterFolds:
    """Folds the views of a cluster.

    Parameters
    ----------
    plan
        Returns how it lies on its nodes now.
    committed
        Its home, the output folder of its epochs.
    """

    def __init__(self, plan: Callable[[], ClusterPlan], committed: FolderHost) -> None:
        self._plan, self._committed = plan, committed
        self._spread = plan().division.spread  # the same in all layouts

    @cached_property
    def _finishers(self) -> dict[str, Finisher]:
        return {view.name: Finisher(self._spread, view) for view in self._spread.views}

    @cached_property
    def _folds(self) -> Folds:
        return Folds(self._spread, self._finishers)

    def committed(self, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str] | None) -> Partial:
        """Return the parts of a cube after the last committed epoch.

        Parameters
        ----------
        view, by, where, columns
            As folding takes them.

        Raises
        ------
        DelayError
            If no epoch is committed yet.
        """
        if newest_manifest(self._committed.out) is None:
            raise not_committed(self._committed.out)
        return self._committed.fold(view, by, where, columns)

    def tentative(
        self,
        ask: Callable[[Name, Callable[[int], ReadParts]], Sequence[PartsRead]],
        view: str,
        by: Sequence[str],
        where: Sequence[Bound],
        columns: Sequence[str] | None,
    ) -> Partial:
        """Return the parts of a spread view, as new as the nodes have them.

        Parameters
        ----------
        ask
            Asks a machine; gives what it answers.
        """
        plan, choice = self._folds.chosen(view, by, where, columns, self._committed_count)
        finisher = self._finishers[choice.view]
        typed = typed_bounds(finisher, where)
        bounds = bounds_sent(bound for bound, *_ in typed)
        wanted = [name for name, _ in plan.kinds]

        def asked(number: int) -> ReadParts:
            return ReadParts(number, choice.view, list(by), bounds, wanted)

        nodes = nodes_to_ask(self._plan().layout, plan, WantedKeys(typed))
        return reduce(add, (partial_of(plan, choice, ask(node_name(node), asked)) for node in nodes))

    def _committed_count(self, map: str) -> int:
        """Return how many entries a map had in the last epoch: the nodes are not asked which level is the smallest."""
        if newest_manifest(self._committed.out) is None:
            return 0
        return self._committed.entry_count(map) or 0
