"""The eventual mode: everything is computed at once from what has come, and corrected when something earlier comes.

Every block has a version, or one for each row. A block that comes after deltas of its own version or later ones to what
it reads is *late*: it looks back behind them. So is a delta whose map a later row has read: what that row has added is
corrected. Most come in order, and cost what they cost in one process. The node program has statements for both
(`cumulus.cluster.node_programs.program`); what is decided here is which of them run, and where deltas go.

References
----------
Cumulus consistency paper, section 4.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.cluster.node_programs.evaluator import NodeMaps, Router, Signs, versions_of
from cumulus.cluster.node_programs.program import NodeProgram
from cumulus.cluster.protocols.late_deltas import LateDeltas, Shares
from cumulus.engine.frames.frame import MapFrame, concat
from cumulus.engine.protocol import Engine

Indices: TypeAlias = npt.NDArray[np.int64]
Deltas: TypeAlias = Mapping[str, MapFrame]
"""Spread map → deltas: keys, version, numbers."""


class EventualState:
    """The spread maps of one node.

    Nothing is sent but what `drain` returns, and nothing is waited for: messages may come in any order that keeps that
    of `cut`.

    Parameters
    ----------
    router
        Must say of initial entries, too, where they lie.
    node
        The number of this one.
    """

    def __init__(self, made: NodeProgram, router: Router, node: int, engine: str | Engine = "auto") -> None:
        self.made, self.node = made, node
        self._router = router
        self._maps = NodeMaps(made, engine)
        self._late = LateDeltas(self._maps)
        self._maps.keep_own_entries(router, node)

    @property
    def engine(self) -> Engine:
        """Where the newest values are; nobody changes them but this."""
        return self._maps.engine

    @property
    def maps(self) -> NodeMaps:
        """What evaluates blocks and late deltas."""
        return self._maps

    @property
    def shares(self) -> Shares:
        """What has come late."""
        return self._late.shares

    @property
    def newest(self) -> int:
        """The last version of any delta that has come; -1 if none has."""
        return max(self._late.newest.values(), default=-1)

    # --- what comes -------------------------------------------------------------------------------------------------

    def fire(self, group: int, first: int, rows: pa.Table, signs: Signs, places: Indices | None = None) -> None:
        """Evaluate rows of a block.

        Parameters
        ----------
        group
            The place of their group in `NodeProgram.groups`.
        first
            The first version of the block.
        rows, signs
            The columns of the group; +1 or -1 for each row.
        places
            The numbers of these rows in the block, ascending; None if all of it is here. Only where rows have versions.
        """
        count = len(signs)  # a group may have no columns
        if not count:
            return
        own = self.made.groups[group]
        versions = versions_of(own, first, np.arange(count) if places is None else places)
        is_late = self._late.is_late(own.reads, int(versions[0]))
        self._maps.fire(own, rows, signs, versions, is_late=is_late)
        self._late.note_read(own.reads, int(versions[-1]), count, is_late=is_late)

    def receive(self, deltas: Deltas) -> None:
        """Add deltas, and correct what later rows have added."""
        self._late.receive(deltas)

    # --- what goes --------------------------------------------------------------------------------------------------

    def drain(self, names: Collection[str] | None = None) -> dict[int, dict[str, MapFrame]]:
        """Do everything that can be done here; return what other nodes must receive: node → map → deltas.

        Parameters
        ----------
        names
            The maps whose deltas go on; None: all.
        """
        found: dict[int, dict[str, list[MapFrame]]] = defaultdict(dict)
        while computed := self._maps.take_out(names):
            mine: dict[str, MapFrame] = {}
            for name, frame in computed.items():
                for node, places in enumerate(self._router.targets(name, frame)):
                    if not len(places):
                        continue
                    part = frame if len(places) == frame.rows else frame.take(places)
                    if node == self.node:
                        mine[name] = part
                    else:
                        found[node].setdefault(name, []).append(part)
            self.receive(mine)
        return {
            node: {name: concat(self._maps.alike(name, frames)) for name, frames in maps.items()}
            for node, maps in sorted(found.items())
        }

    # --- epochs -----------------------------------------------------------------------------------------------------

    def reset(self, last: int) -> None:
        """Note that deltas beyond a version, and all rows that have read, are taken back: they will come again."""
        self._late.reset(last)

    def renumber(self, less: int) -> None:
        """Note that something is taken away from all versions."""
        self._late.renumber(less)

    def check(self) -> None:
        """Check what must hold whenever everything is drained; AssertionError if it does not."""
        assert not self._maps.take_out(), f"node {self.node}: something computed was not sent"
        for name, overlay in self.made.overlays.items():
            if not self.engine.size(overlay.since):
                continue
            deltas = self._maps.overlay(name)
            newest = self._late.newest.get(name, -1)
            assert not (self._maps.versions(name, deltas) > newest).any(), f"node {self.node}: {name} is newer"
