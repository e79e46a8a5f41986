"""Folding the views of a running cluster: from the files of the last epoch, or by the nodes that own the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from operator import add
from pathlib import Path

from cumulus.cluster.clients.parts import bounds_sent, nodes_to_ask, partial_of
from cumulus.cluster.live.committed_reads import not_committed
from cumulus.cluster.messages import PartsRead, ReadParts, node_name
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.epochs.output.folder import OutputFolder
from cumulus.epochs.output.sink import newest_manifest
from cumulus.epochs.output.stored_parts import entry_count
from cumulus.machine import Name
from cumulus.scalars.user import Functions
from cumulus.views.finishing import Finisher
from cumulus.views.folding import Bound, Folds, Partial
from cumulus.views.folding.access import WantedKeys
from cumulus.views.folding.reading import typed_bounds


class ClusterFolds:
    """Folds the views of a cluster.

    Parameters
    ----------
    home
        Its output folder, too.
    functions
        The user's that the views call.
    """

    def __init__(self, home: Path, plan: ClusterPlan, functions: Functions) -> None:
        self._home, self._plan, self._functions = home, plan, functions
        self._spread = plan.division.spread

    @cached_property
    def _finishers(self) -> dict[str, Finisher]:
        return {view.name: Finisher(self._spread, view) for view in self._spread.views}

    @cached_property
    def _folds(self) -> Folds:
        return Folds(self._spread, self._finishers)

    @cached_property
    def _folder(self) -> OutputFolder:
        return OutputFolder(self._home, self._functions)

    def committed(self, view: str, by: Sequence[str], where: Sequence[Bound], columns: Sequence[str] | None) -> Partial:
        """Return the parts of a cube after the last committed epoch.

        Raises
        ------
        DelayError
            If no epoch is committed yet.
        """
        if newest_manifest(self._home) is None:
            raise not_committed(self._home)
        return self._folder.fold(view, by, where, columns)

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

        nodes = nodes_to_ask(self._plan.layout, plan, WantedKeys(typed))
        return reduce(add, (partial_of(plan, choice, ask(node_name(node), asked)) for node in nodes))

    def _committed_count(self, map: str) -> int:
        """Return how many entries a map had in the last epoch: the nodes are not asked which level is the smallest."""
        manifest = newest_manifest(self._home)
        return 0 if manifest is None or map not in manifest.parts else entry_count(self._home, manifest, map)
