"""What a node does for spread views: blocks in, deltas out and in, and what an epoch leaves to be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cumulus.algebra.float_sums import NOT_FINITE
from cumulus.cluster.eventual import EventualState
from cumulus.cluster.messages import OFFSET, SIGN, Block, Deltas
from cumulus.cluster.placement.layout import FinishedBy
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.versions import VersionOrder, first_version, last_version, switch_of, unpack
from cumulus.engine.frames.frame import MapFrame, concat
from cumulus.engine.frames.layout import layout_of
from cumulus.engine.protocol import Engine
from cumulus.errors import EvaluationError, RemoteProtocolError
from cumulus.m3.dataflow import depths, reachable, reads
from cumulus.m3.program import Program, ViewDef

NumberedFrames: TypeAlias = Sequence[tuple[int, bytes]]
"""Frames with the numbers of their maps in the spread program."""
ShareOfMap: TypeAlias = tuple[MapFrame, MapFrame]
"""Rows of a map, and rows that are to be taken away from them."""
Shares: TypeAlias = Mapping[str, Mapping[str, ShareOfMap]]
"""View → map → what a node has of it for the view."""
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SpreadFailure:
    """What could not be computed; nothing of the epoch, and of those behind it, is right then.

    Parameters
    ----------
    epoch
        0 for the first that is not over.
    is_sure
        Whether it is that one, or may be the next: the newest values have both.
    """

    epoch: int
    why: str
    is_sure: bool


@dataclass(frozen=True, slots=True)
class EndedEpoch:
    """The deltas of an epoch of which all has come, and those that have come of later ones: map → frame."""

    deltas: Mapping[str, MapFrame]
    later: Mapping[str, MapFrame]


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
    failure
        Of the first epoch in which a number was too large; None if there is none. Which numbers are depends on the
        order in which deltas come, so no other host would tell the same.
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
        self.failure: SpreadFailure | None = None
        self.state = EventualState(plan.nodes_program, plan.layout, number, engine)
        self._layout, self._program = plan.layout, plan.division.spread
        self._parts = plan.spread_parts
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
        with self.computing():
            self.state.fire(block.group, block.version, table.drop_columns([SIGN, OFFSET]), signs, offsets)

    def receive(self, deltas: Iterable[Deltas]) -> None:
        """Take in what other nodes have sent, in any order; what is of one map at once.

        Raises
        ------
        RemoteProtocolError
            If it is not of maps of the program.
        """
        frames: dict[str, list[MapFrame]] = {}
        for each in deltas:
            for name, frame in self._frames(each.frames, with_version=True):
                self._see(frame.numbers(len(frame.layout.keys) - 1))
                frames.setdefault(name, []).append(frame)
        with self.computing():
            self.state.receive({name: concat(found) for name, found in frames.items()})

    @property
    def program(self) -> Program:
        """The spread program."""
        return self._program

    @contextmanager
    def computing(self, epoch: int = 0) -> Iterator[None]:
        """Note what cannot be computed inside; `epoch` is the one that is looked at if it is over."""
        try:
            yield
        except EvaluationError as problem:
            self._fail(SpreadFailure(epoch, problem.message, is_sure=False))
        for error in self.state.maps.take_errors():  # the version is the last column of all events
            at = 0 if error.row is None else unpack(error.row[-1])[0]
            self._fail(SpreadFailure(at, f"{self._concerned(error.view)}: {error.message}", is_sure=at > 0))

    def _fail(self, failure: SpreadFailure) -> None:
        if self.failure is None or failure.epoch < self.failure.epoch:
            self.failure = failure

    def _concerned(self, name: str) -> str:
        """Return the views that are made from a map of the node program, as a text."""
        overlays = self.state.made.overlays
        spread = next((each for each, overlay in overlays.items() if name in (overlay.out, overlay.since)), name)
        graph = reads(self._program)
        views = [view.name for view in self._program.views if spread in reachable(graph, view.reads)]
        return ", ".join(views) or spread

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
        return frame.filter(self._layout.owners(name, frame) == self.number)

    def owns(self, name: str, key: tuple[object, ...]) -> bool:
        """Whether this node owns an entry."""
        return self._layout.owner_of(name, key) == self.number

    def drain(self) -> Iterator[tuple[int, Deltas]]:
        """Do everything that can be done here; yield what nodes must get."""
        sent: Mapping[int, Mapping[str, MapFrame]] = {}
        with self.computing():
            sent = self.state.drain()
        for node, frames in sent.items():
            yield node, Deltas([(self._numbers[name], frame.to_bytes()) for name, frame in frames.items()])

    # --- epochs -----------------------------------------------------------------------------------------------------

    def end(self, epoch: int) -> EndedEpoch:
        """Return the deltas of an epoch of which all has come, those of epoch 0 with the first one, and later ones."""
        first, last = first_version(epoch if epoch > 1 else 0), last_version(epoch)
        deltas, later = {}, {}
        for name in self.names:
            found = self.state.deltas(name)
            versions = found.numbers(len(self._program.map(name).keys))
            is_later = versions > last
            deltas[name], later[name] = found.filter((versions >= first) & ~is_later), found.filter(is_later)
        return EndedEpoch(deltas, later)

    def shares(self, ended: EndedEpoch, *, whole: bool) -> Shares:
        """Return by what this node writes views after an epoch: those that it has changed, or all of them."""
        changed = {name for name, deltas in ended.deltas.items() if deltas.rows}
        views = [view for view in self._program.shown_views if whole or not changed.isdisjoint(view.reads)]
        mine = [view for view in views if self._has_part(view)]
        read = sorted({name for view in mine for name in view.reads})
        held = {
            name: (self._newest(name), ended.later[name].without_key(len(self._program.map(name).keys)))
            for name in read
        }
        return {view.name: self._share(view, held) for view in mine}

    def parts(self, ended: EndedEpoch, *, whole: bool) -> Mapping[str, ShareOfMap]:
        """Return what this node owns of the maps of cubes after an epoch: of those that it has changed, or of all."""
        found = {}
        for name in self._parts:
            axis = self._layout.sets[name][0].axis
            if (whole or ended.deltas[name].rows) and (axis >= 0 or not self.number):
                later = ended.later[name].without_key(len(self._program.map(name).keys))
                found[name] = self._own((self._newest(name), later), axis)
        return found

    def _newest(self, name: str) -> MapFrame:
        """Return the newest values of a map.

        Raises
        ------
        EvaluationError
            If a sum of DOUBLE is none: nothing can be taken away from it.
        """
        newest = self.state.newest_values(name)
        if not newest.is_finite():
            raise EvaluationError(f"{self._concerned(name)}: {NOT_FINITE.message}", hint=NOT_FINITE.hint)
        return newest

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

    def save(self, ended: EndedEpoch) -> tuple[NumberedFrames, NumberedFrames]:
        """Return the newest values, and the deltas in them that are beyond an epoch."""
        newest = {name: self.state.newest_values(name) for name in self.names}
        return self.numbered(newest), self.numbered(ended.later)

    def load(self, newest: NumberedFrames, later: NumberedFrames) -> None:
        """Replace the state by what `save` returned, without what is beyond its epoch."""
        self.state.load(dict(self._frames(newest, with_version=False)))
        for name, frame in self._frames(later, with_version=True):
            self.state.restore(name, frame, -1)
