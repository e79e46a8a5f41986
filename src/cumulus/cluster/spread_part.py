"""What a node does for spread views: blocks in, deltas out and in, and what an epoch leaves to be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cumulus.cluster.eventual import EventualState
from cumulus.cluster.layout import FinishedBy
from cumulus.cluster.messages import OFFSET, SIGN, Block, Deltas
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.versions import LAST_VERSION, first_version, last_version
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.protocol import Engine
from cumulus.errors import RemoteProtocolError
from cumulus.m3.dataflow import depths
from cumulus.m3.program import ViewDef

NumberedFrames: TypeAlias = Sequence[tuple[int, bytes]]
"""Frames with the numbers of their maps in the spread program."""
ShareOfMap: TypeAlias = tuple[MapFrame, MapFrame]
"""Rows of a map, and rows that are to be taken away from them."""
Shares: TypeAlias = Mapping[str, Mapping[str, ShareOfMap]]
"""View → map → what a node has of it for the view."""
_NONE = np.zeros(0, dtype=np.int64)


class SpreadPart:
    """The spread maps of a node, by the numbers and bytes that messages have.

    Parameters
    ----------
    number
        Of the node.
    engine
        As `EventualState` takes it.
    """

    def __init__(self, plan: ClusterPlan, number: int, engine: str | Engine = "auto") -> None:
        self.number = number
        self.state = EventualState(plan.nodes_program, plan.layout, number, engine)
        self._layout, self._program = plan.layout, plan.division.spread
        self._names = [definition.name for definition in self._program.maps]
        self._numbers = {name: at for at, name in enumerate(self._names)}
        found = depths(self._program)
        self.depths = 1 + max(found.values(), default=-1)
        """How many depths the map graph has."""

    # --- what comes and goes ----------------------------------------------------------------------------------------

    def fire(self, block: Block) -> None:
        """Evaluate a block.

        Raises
        ------
        RemoteProtocolError
            If it has no rows of its group.
        """
        groups = self.state.made.groups
        table = block.table()
        if not 0 <= block.group < len(groups) or table.column_names != [*groups[block.group].columns, SIGN, OFFSET]:
            raise RemoteProtocolError(f"a block of group {block.group} has the columns {table.column_names}")
        signs, offsets = (table.column(name).to_numpy() for name in (SIGN, OFFSET))
        self.state.fire(block.group, block.version, table.drop_columns([SIGN, OFFSET]), signs, offsets)

    def receive(self, deltas: Deltas) -> None:
        """Take in what another node has sent.

        Raises
        ------
        RemoteProtocolError
            If it is not of maps of the program.
        """
        self.state.receive(dict(self._frames(deltas.frames, with_version=True)))

    def _frames(self, frames: NumberedFrames, *, with_version: bool) -> Iterator[tuple[str, MapFrame]]:
        """Yield the frames of maps, of deltas with a version behind the keys."""
        for at, data in frames:
            if not 0 <= at < len(self._names):
                raise RemoteProtocolError(f"deltas of map {at}, and there are {len(self._names)}")
            name = self._names[at]
            held = self.state.made.overlays[name].since if with_version else name
            yield name, MapFrame.of_bytes(layout_of(self.state.engine.program.map(held)), data)

    def drain(self) -> Iterator[tuple[int, Deltas]]:
        """Do everything that can be done here; yield what nodes must get."""
        for node, frames in self.state.drain().items():
            yield node, Deltas([(self._numbers[name], frame.to_bytes()) for name, frame in frames.items()])

    # --- epochs -----------------------------------------------------------------------------------------------------

    def deltas_of(self, epoch: int) -> dict[str, MapFrame]:
        """Return the deltas of an epoch; those of epoch 0 belong to the first one."""
        first, last = first_version(epoch if epoch > 1 else 0), last_version(epoch)
        return {name: found for name in self._names if (found := self.state.deltas(name, first, last)).rows}

    def shares(self, epoch: int, changed: Mapping[str, MapFrame], *, whole: bool) -> Shares:
        """Return by what this node writes views after an epoch: those that it has changed, or all of them."""
        views = [view for view in self._program.views if whole or not changed.keys().isdisjoint(view.reads)]
        mine = [view for view in views if self._has_part(view)]
        end = last_version(epoch)
        held = {name: self._as_of(name, end) for name in sorted({name for view in mine for name in view.reads})}
        return {view.name: self._share(view, held) for view in mine}

    def _as_of(self, name: str, end: int) -> ShareOfMap:
        """Return the newest values of a map, and the deltas beyond a version that are to be taken away."""
        later = self.state.deltas(name, end + 1, LAST_VERSION)
        return self.state.newest_values(name), later.without_key(len(self._program.map(name).keys))

    def _has_part(self, view: ViewDef) -> bool:
        return not self.number or self._layout.placement_of_view(view.name).by is not FinishedBy.FIRST

    def _share(self, view: ViewDef, held: Mapping[str, ShareOfMap]) -> dict[str, ShareOfMap]:
        placement = self._layout.placement_of_view(view.name)
        found = {name: held[name] for name in view.reads}
        if placement.by is FinishedBy.NODES:  # what else its rows read may lie on other nodes, too
            return {**found, view.maps[0]: self._own(found[view.maps[0]], placement.axis)}
        if placement.by is FinishedBy.MERGE:
            return {name: self._own(each, self._layout.sets[name][0].axis) for name, each in found.items()}
        return found

    def _own(self, share: ShareOfMap, axis: int) -> ShareOfMap:
        """Return the rows that are this node's by a key; by none they are node 0's."""
        newest, later = share
        if axis < 0:
            return share if not self.number else (newest.take(_NONE), later.take(_NONE))
        mine = [each.buckets(axis, self._layout.nodes) == self.number for each in share]
        return newest.filter(mine[0]), later.filter(mine[1])

    def cut(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed; the one before can still be read."""
        self.state.cut(last_version(epoch), last_version(epoch - 1))

    # --- keeping ----------------------------------------------------------------------------------------------------

    def numbered(self, frames: Mapping[str, MapFrame]) -> NumberedFrames:
        """Return frames as a log or a snapshot has them."""
        return [(self._numbers[name], frame.to_bytes()) for name, frame in frames.items() if frame.rows]

    def restore(self, frames: NumberedFrames) -> None:
        """Take in deltas of a committed epoch from a log: nobody has read anything yet."""
        for name, frame in self._frames(frames, with_version=True):
            self.state.restore(name, frame)

    def save(self, epoch: int) -> tuple[NumberedFrames, NumberedFrames]:
        """Return the newest values, and the deltas in them that are beyond an epoch."""
        newest = {name: self.state.newest_values(name) for name in self._names}
        beyond = last_version(epoch) + 1
        later = {name: self.state.deltas(name, beyond, LAST_VERSION) for name in self._names}
        return self.numbered(newest), self.numbered(later)

    def load(self, newest: NumberedFrames, later: NumberedFrames) -> None:
        """Replace the state by what `save` returned, without what is beyond its epoch."""
        self.state.load(dict(self._frames(newest, with_version=False)))
        for name, frame in self._frames(later, with_version=True):
            self.state.restore(name, frame, -1)
