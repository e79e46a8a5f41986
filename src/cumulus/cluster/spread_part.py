"""What a node does for spread views: blocks in, deltas out and in, and what an epoch leaves to be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cumulus.catalog.partition import bucket_of
from cumulus.cluster.eventual import EventualState
from cumulus.cluster.layout import FinishedBy
from cumulus.cluster.messages import OFFSET, SIGN, Block, Deltas
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.versions import LAST_VERSION, VersionOrder, first_version, last_version, switch_of
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
    order
        Of versions.

    Attributes
    ----------
    names
        The spread maps, by their numbers.
    seen
        Switch → the last version of it that may be in the newest values.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        number: int,
        engine: str | Engine = "auto",
        order: VersionOrder = VersionOrder.CLOCK,
    ) -> None:
        self.number, self._order = number, order
        self.seen: dict[int, int] = {}
        self.state = EventualState(plan.nodes_program, plan.layout, number, engine)
        self._layout, self._program = plan.layout, plan.division.spread
        self.names = [definition.name for definition in self._program.maps]
        self._numbers = {name: at for at, name in enumerate(self.names)}
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
        if len(offsets):
            self._see(np.array([block.version + int(offsets[-1])]))
        self.state.fire(block.group, block.version, table.drop_columns([SIGN, OFFSET]), signs, offsets)

    def receive(self, deltas: Deltas) -> None:
        """Take in what another node has sent.

        Raises
        ------
        RemoteProtocolError
            If it is not of maps of the program.
        """
        frames = dict(self._frames(deltas.frames, with_version=True))
        for frame in frames.values():
            self._see(frame.numbers(len(frame.layout.keys) - 1))
        self.state.receive(frames)

    def _see(self, versions: npt.NDArray[np.int64]) -> None:
        switches = switch_of(versions, self._order)
        for switch in np.unique(switches).tolist():
            self.seen[switch] = max(self.seen.get(switch, 0), int(versions[switches == switch].max()))

    def _frames(self, frames: NumberedFrames, *, with_version: bool) -> Iterator[tuple[str, MapFrame]]:
        """Yield the frames of maps, of deltas with a version behind the keys."""
        for at, data in frames:
            if not 0 <= at < len(self.names):
                raise RemoteProtocolError(f"deltas of map {at}, and there are {len(self.names)}")
            name = self.names[at]
            held = self.state.made.overlays[name].since if with_version else name
            yield name, MapFrame.of_bytes(layout_of(self.state.engine.program.map(held)), data)

    def owned(self, name: str) -> MapFrame:
        """Return the newest entries of a map that this node owns."""
        frame = self.state.newest_values(name)
        keys = [frame.key(place) for place in range(len(frame.layout.keys))]
        return frame.filter(self._layout.owners(name, keys, frame.rows) == self.number)

    def drain(self) -> Iterator[tuple[int, Deltas]]:
        """Do everything that can be done here; yield what nodes must get."""
        for node, frames in self.state.drain().items():
            yield node, Deltas([(self._numbers[name], frame.to_bytes()) for name, frame in frames.items()])

    # --- epochs -----------------------------------------------------------------------------------------------------

    def deltas_of(self, epoch: int) -> dict[str, MapFrame]:
        """Return the deltas of an epoch; those of epoch 0 belong to the first one."""
        first, last = first_version(epoch if epoch > 1 else 0), last_version(epoch)
        return {name: found for name in self.names if (found := self.state.deltas(name, first, last)).rows}

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

    def facts(self) -> dict[str, object]:
        """Return how much is here, and how much of it came late."""
        engine, made = self.state.engine, self.state.made
        return {
            "engine": engine.name,
            "rows": sum(engine.size(name) for name in self.names),
            "overlay_rows": sum(engine.size(overlay.since) for overlay in made.overlays.values()),
            "history_rows": sum(engine.size(name) for name in made.histories),
            "bytes": engine.memory(),
            **asdict(self.state.shares),
        }

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
        newest = {name: self.state.newest_values(name) for name in self.names}
        beyond = last_version(epoch) + 1
        later = {name: self.state.deltas(name, beyond, LAST_VERSION) for name in self.names}
        return self.numbered(newest), self.numbered(later)

    def load(self, newest: NumberedFrames, later: NumberedFrames) -> None:
        """Replace the state by what `save` returned, without what is beyond its epoch."""
        self.state.load(dict(self._frames(newest, with_version=False)))
        for name, frame in self._frames(later, with_version=True):
            self.state.restore(name, frame, -1)
