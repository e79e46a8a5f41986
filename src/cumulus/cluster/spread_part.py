"""What a node does for spread views: blocks in, deltas out and in, and what an epoch leaves to be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from cumulus.catalog.partition import bucket_of
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
from cumulus.m3.program import Entry, ViewDef

NumberedFrames: TypeAlias = Sequence[tuple[int, bytes]]
"""Frames with the numbers of their maps in the spread program."""
Shares: TypeAlias = Mapping[str, Mapping[str, Sequence[Entry]]]
"""View → map → the entries of a node by which its rows are made, or its share of them."""


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
        """Return the entries of views after an epoch: of those that it has changed, or of all of them."""
        views = [view for view in self._program.views if whole or not changed.keys().isdisjoint(view.reads)]
        wanted = {name for view in views if self._has_part(view) for name in view.reads}
        entries = {name: list(self.state.committed(name, last_version(epoch))) for name in sorted(wanted)}
        return {view.name: self._share(view, entries) for view in views if self._has_part(view)}

    def _has_part(self, view: ViewDef) -> bool:
        return not self.number or self._layout.placement_of_view(view.name).by is not FinishedBy.FIRST

    def _share(self, view: ViewDef, entries: Mapping[str, Sequence[Entry]]) -> dict[str, Sequence[Entry]]:
        placement, nodes = self._layout.placement_of_view(view.name), self._layout.nodes
        found = {name: entries[name] for name in view.reads}
        if placement.by is FinishedBy.NODES:
            rows = view.maps[0]
            mine = [each for each in found[rows] if bucket_of(each[0][placement.axis], nodes) == self.number]
            return {**found, rows: mine}
        if placement.by is FinishedBy.MERGE:
            owner_of = self._layout.owner_of
            return {
                name: [each for each in those if owner_of(name, each[0]) == self.number]
                for name, those in found.items()
            }
        return found

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
