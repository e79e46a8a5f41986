"""Compaction of a node's deltas: those of one entry and one epoch, up to a version, become one delta.

Where nodes keep to an order, a read waits until it may see the newest value. So nobody looks back to a version within
an epoch, and the versions of deltas only say to which epoch each belongs: what an epoch has changed is written when it
ends, and what is not committed is taken back at a reset.

References
----------
Cumulus architecture, "Update Consistency and Garbage Collection" ("discarding all updates for values that were
overwritten before the commit version"); Cumulus consistency paper, figure 5, Cleanup.
"""

from __future__ import annotations

from cumulus.cluster.node_programs.evaluator import NodeMaps
from cumulus.cluster.versions import REST_BITS


class FoldedDeltas:
    """Compacts the deltas of a node's maps, and counts how many of each map were left.

    Attributes
    ----------
    folds
        How often the deltas of a map were gone through.
    """

    def __init__(self, maps: NodeMaps) -> None:
        self._maps, self.folds = maps, 0
        self._left: dict[str, int] = {}

    def fold(self, version: int) -> None:
        """Make one delta of those of an entry that an epoch has up to a version.

        A map is left alone until it has twice as many deltas as were left of those that were folded, so that folding
        costs no more than adding.

        Parameters
        ----------
        version
            As the node keeps it.
        """
        engine = self._maps.engine
        for name, overlay in self._maps.made.overlays.items():
            rows, left = engine.size(overlay.since), self._left.get(name, 0)
            if rows > 2 * left:
                self._left[name] = self._fold(name, overlay.since, version)
            elif rows < left:  # a commit has forgotten some
                self._left[name] = rows

    def _fold(self, name: str, since: str, version: int) -> int:
        """Fold the deltas of a map up to a version; return how many are left of them."""
        self.folds += 1
        deltas = self._maps.overlay(name)
        versions = self._maps.versions(name, deltas)
        is_old = versions <= version
        old, place = deltas.filter(is_old), len(self._maps.definition(name).keys)
        self._maps.engine.cut(since, place, version)
        self._maps.put(since, old.with_numbers(place, versions[is_old] >> REST_BITS << REST_BITS))
        return self._maps.engine.size(since) - deltas.rows + old.rows
