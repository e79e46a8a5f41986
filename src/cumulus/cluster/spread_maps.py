"""The spread maps of a node, the same for all protocols: numbers and bytes of messages, and what an epoch leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.cluster.messages import OFFSET, SIGN, Block, Deltas
from cumulus.cluster.node_programs.evaluator import NodeMaps, Signs
from cumulus.cluster.placement.layout import FinishedBy
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.versions import EpochWindow, VersionOrder, switch_of
from cumulus.engine.frames.compressed import compressed, decompressed
from cumulus.engine.frames.frame import MapFrame
from cumulus.engine.frames.unbounded import fitted, frame_of_bytes
from cumulus.errors import EvaluationError, RemoteProtocolError
from cumulus.m3.dataflow import reachable, reads
from cumulus.m3.program import Program, ViewDef

NumberedFrames: TypeAlias = Sequence[tuple[int, bytes]]
"""Frames with the numbers of their maps in the spread program."""
ShareOfMap: TypeAlias = tuple[MapFrame, MapFrame]
"""Rows of a map, and rows that are to be taken away from them."""
Shares: TypeAlias = Mapping[str, Mapping[str, ShareOfMap]]
"""View → map → what a node has of it for the view."""
_FAILED_HINT = 'The last good rows are those of read="committed"; new folders with --mode gated compute the others.'
Failure: TypeAlias = tuple[int, str]
"""The first epoch in which a map is wrong, 0 if that is not known, and why."""


@dataclass(frozen=True, slots=True)
class EndedEpoch:
    """The deltas of an epoch of which all has come, and those that have come of later ones: map → frame."""

    epoch: int
    deltas: Mapping[str, MapFrame]
    later: Mapping[str, MapFrame]


@dataclass(frozen=True, slots=True)
class SharesOfViews:
    """What a node has of views after an epoch, and view → why it has none: a number of it cannot be computed."""

    shares: Shares
    errors: Mapping[str, str]


class FailedMaps:
    """The spread maps that are wrong.

    Which steps there are depends on the order in which deltas come, so what has failed is not taken back by a deletion:
    the map is wrong from then on. A sum of whole numbers or decimals is no such step: it has no bound.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._names = [definition.name for definition in program.maps]
        self._failed: dict[str, Failure] = {}
        self._untold: dict[str, Failure] = {}
        """What other nodes must be told."""

    def note(self, source: str, epoch: int, why: str) -> None:
        """Note that a map is wrong from an epoch on, with all that are made from it."""
        graph = reads(self._program)
        for at, name in enumerate(self._names):
            if source in reachable(graph, (name,)) and self._add(name, epoch, why):
                self._untold[str(at)] = self._failed[name]

    def _add(self, name: str, epoch: int, why: str) -> bool:
        """Note it of one map; whether that is new."""
        known = self._failed.get(name)
        if known is not None and known[0] <= epoch:
            return False
        self._failed[name] = epoch, why if known is None else known[1]
        return True

    def check(self, name: str) -> None:
        """Check that a map is not wrong.

        Raises
        ------
        EvaluationError
            If it is.
        """
        if name in self._failed:
            raise EvaluationError(f"{name}: {self._failed[name][1]}", hint=_FAILED_HINT)

    def views(self, epoch: int) -> dict[str, str]:
        """Return the shown views that are wrong in an epoch, and why."""
        bad = {name: why for name, (first, why) in self._failed.items() if first <= epoch}
        return {view.name: bad[name] for view in self._program.shown_views for name in view.reads if name in bad}

    def take_untold(self) -> Mapping[str, Failure]:
        """Return what other nodes must be told, once: number of the map as text → failure."""
        untold, self._untold = self._untold, {}
        return untold

    def reset(self, epoch: int) -> None:
        """Forget what has failed beyond an epoch: it is computed again."""
        self._failed = {name: found for name, found in self._failed.items() if found[0] <= epoch}
        self.tell_again()

    def tell_again(self) -> None:
        """Let other nodes be told of all failures: one that starts anew may have ended before it heard of them."""
        self._untold = dict(self.dump())

    def dump(self) -> Mapping[str, Failure]:
        """Return all failures as a log or a snapshot has them: number of the map as text → failure."""
        return {str(at): self._failed[name] for at, name in enumerate(self._names) if name in self._failed}

    def load(self, failed: Mapping[str, Sequence[object]]) -> None:
        """Note the failures of another node, or of a life before.

        Raises
        ------
        RemoteProtocolError
            If they are not of maps of the program.
        """
        for at, told in failed.items():
            match (at.isdecimal() and int(at) < len(self._names), *told):
                case (True, int() as epoch, str() as why):
                    self._add(self._names[int(at)], epoch, why)
                case _:
                    raise RemoteProtocolError(f"{told!r:.100} of map {at!r:.20} is no failure")


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows of a block as a node takes them.

    Parameters
    ----------
    group
        The number of the group of their statements.
    first
        The first version of the block, as the node keeps it.
    rows, signs
        The columns of the group; +1 or -1 for each row.
    places
        The numbers of these rows in the block, ascending.
    """

    group: int
    first: int
    rows: pa.Table
    signs: Signs
    places: npt.NDArray[np.int64]


class SentEpochs:
    """From which epoch on deltas were sent, where maps feed each other in a circle (`cumulus.cluster.epoch_marks`).

    Parameters
    ----------
    is_cyclic
        Whether they do; else nothing is noted.
    """

    def __init__(self, is_cyclic: bool) -> None:
        self.is_cyclic = is_cyclic
        self._oldest: int | None = None

    def note(self, deltas: Iterable[MapFrame], window: EpochWindow) -> None:
        """Note deltas that are sent, whose last key is the version; what answers a question is waited for anyway."""
        if self.is_cyclic:
            for frame in deltas:
                oldest = window.epoch_of(int(frame.numbers(len(frame.layout.keys) - 1).min()))
                self._oldest = oldest if self._oldest is None else min(oldest, self._oldest)

    def note_all(self) -> None:
        """Note that something is sent which concerns all epochs."""
        self._oldest = 0 if self.is_cyclic else None

    def take(self) -> int | None:
        """Return the first epoch of what was sent since the last call; None if nothing was."""
        oldest, self._oldest = self._oldest, None
        return oldest


class SpreadMaps:
    """The spread maps of a node, by the numbers and bytes that messages have.

    Parameters
    ----------
    number
        Of the node.
    maps
        What evaluates.
    order
        Of versions.
    committed
        The last epoch that has a manifest.

    Attributes
    ----------
    names
        The spread maps, by their numbers.
    seen
        Switch → the last version of it that may be in the newest values.
    failed, sent_epochs
        Which maps are wrong; and of which epochs deltas were sent.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        number: int,
        maps: NodeMaps,
        order: VersionOrder = VersionOrder.CLOCK,
        committed: int = 0,
    ) -> None:
        self.number, self.maps, self._order = number, maps, order
        self.window = EpochWindow.from_committed(committed)
        self.seen: dict[int, int] = {}
        self.failed = FailedMaps(plan.division.spread)
        self.layout, self._program, self._compresses = plan.layout, plan.division.spread, plan.options.compress
        self._parts, self.sent_epochs = plan.spread_parts, SentEpochs(plan.is_cyclic)
        self.names = [definition.name for definition in self._program.maps]
        self._numbers = {name: at for at, name in enumerate(self.names)}

    # --- what comes and goes ----------------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The spread program."""
        return self._program

    def kept(self, version: int) -> int:
        """Return the version of a message as the node keeps it."""
        return int(self.window.kept(np.array([version]))[0])

    def block_rows(self, block: Block) -> BlockRows:
        """Return what a block has.

        Raises
        ------
        RemoteProtocolError
            If it is not of the program.
        """
        groups, first = self.maps.made.groups, self.kept(block.version)
        table = block.table()
        if not 0 <= block.group < len(groups) or table.column_names != [*groups[block.group].columns, SIGN, OFFSET]:
            raise RemoteProtocolError(f"a block of group {block.group} has the columns {table.column_names}")
        signs, offsets = (table.column(name).to_numpy() for name in (SIGN, OFFSET))
        if len(offsets):
            self._see(np.array([first + int(offsets[-1])]))
        return BlockRows(block.group, first, table.drop_columns([SIGN, OFFSET]), signs, offsets)

    def received(self, frames: NumberedFrames) -> Iterator[tuple[str, MapFrame]]:
        """Yield deltas that another node has sent, with versions as the node keeps them."""
        if self._compresses:
            frames = [(at, decompressed(data)) for at, data in frames]
        for name, frame in self._frames(frames, with_version=True):
            kept = self._kept(frame)
            self._see(kept.numbers(len(kept.layout.keys) - 1))
            yield name, kept

    def sent(self, deltas: Mapping[str, MapFrame]) -> NumberedFrames:
        """Return deltas as another node gets them."""
        self.sent_epochs.note(deltas.values(), self.window)
        return [(self._numbers[name], self.bytes_of(frame)) for name, frame in deltas.items()]

    def note_errors(self) -> None:
        """Note which maps are wrong from now on, since a step of theirs has failed."""
        errors = self.maps.take_errors()
        if not errors:
            return
        held = self.maps.made.fed
        for error in errors:  # the version is the last column of all events
            epoch = 0 if error.row is None else self.window.epoch_of(error.row[-1])
            for name in held[error.view]:
                self.failed.note(name, epoch, error.message)

    def failures(self) -> Iterator[tuple[int, Deltas]]:
        """Yield what other nodes must be told of maps that are wrong, once."""
        if untold := self.failed.take_untold():
            self.sent_epochs.note_all()
            yield from ((node, Deltas([], untold)) for node in range(self.layout.nodes) if node != self.number)

    def frame_of(self, name: str, data: bytes) -> MapFrame:
        """Return what `packed` has made of entries of a map of the node program."""
        return frame_of_bytes(self.maps.definition(name), decompressed(data) if self._compresses else data)

    def packed(self, frame: MapFrame) -> bytes:
        """Return entries as another node gets them."""
        data = frame.to_bytes()
        return compressed(data) if self._compresses else data

    def versioned_frame_of(self, name: str, data: bytes) -> MapFrame:
        """Return what `bytes_of` has written of a map of the node program whose last key is the version."""
        return self._kept(self.frame_of(name, data))

    def bytes_of(self, frame: MapFrame) -> bytes:
        """Return entries whose last key is the version as another node gets them."""
        return self.packed(self._sent(frame))

    def _kept(self, frame: MapFrame) -> MapFrame:
        """Return entries with versions as the node keeps them."""
        if not self.window.first:
            return frame
        place = len(frame.layout.keys) - 1
        return frame.with_numbers(place, self.window.kept(frame.numbers(place)))

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
            held = self.maps.made.overlays[name].since if with_version else name
            yield name, frame_of_bytes(self.maps.definition(held), data)

    def owned(self, name: str) -> MapFrame:
        """Return the newest entries of a map that this node owns, unbounded if a sum of one of them does not fit.

        Raises
        ------
        EvaluationError
            If a step of a view that is made from the map has failed.
        """
        self.failed.check(name)
        [frame] = fitted(self._program.map(name), [self.maps.newest(name)])
        return self.own(name, frame)

    def own(self, name: str, entries: MapFrame) -> MapFrame:
        """Return those of some entries of a map, or of its deltas, that this node owns."""
        return entries.filter(self.layout.owners(name, entries) == self.number)

    def owns(self, name: str, key: tuple[object, ...]) -> bool:
        """Whether this node owns an entry."""
        return self.layout.owner_of(name, key) == self.number

    def _sent(self, deltas: MapFrame) -> MapFrame:
        """Return deltas with versions as messages have them."""
        if not self.window.first:
            return deltas
        place = len(deltas.layout.keys) - 1
        return deltas.with_numbers(place, self.window.sent(deltas.numbers(place)))

    def seen_versions(self) -> dict[str, int]:
        """Return switch → the last version of it that may be in the newest values, with the number of its epoch."""
        return {str(switch): self.window.whole(version) for switch, version in self.seen.items()}

    # --- epochs -----------------------------------------------------------------------------------------------------

    def end(self, epoch: int) -> EndedEpoch:
        """Return the deltas of an epoch of which all has come, those of epoch 0 with the first one, and later ones."""
        first, last = self.window.first_version(epoch if epoch > 1 else 0), self.window.last_version(epoch)
        deltas, later = {}, {}
        for name in self.names:
            found = self.maps.overlay(name)
            versions = found.numbers(len(self._program.map(name).keys))
            is_later = versions > last
            deltas[name], later[name] = found.filter((versions >= first) & ~is_later), found.filter(is_later)
        return EndedEpoch(epoch, deltas, later)

    def shares(self, ended: EndedEpoch, *, whole: bool) -> SharesOfViews:
        """Return by what this node writes views after an epoch: those that it has changed, or all of them."""
        changed = {name for name, deltas in ended.deltas.items() if deltas.rows}
        views = [view for view in self._program.shown_views if whole or not changed.isdisjoint(view.reads)]
        errors = self.failed.views(ended.epoch)
        held: dict[str, ShareOfMap] = {}
        shares: dict[str, Mapping[str, ShareOfMap]] = {}
        for view in views:
            if not self._has_part(view) or view.name in errors:
                continue
            try:
                held |= {name: self._held(name, ended) for name in view.reads if name not in held}
            except EvaluationError as problem:
                errors[view.name] = problem.message
            else:
                shares[view.name] = self._share(view, held)
        return SharesOfViews(shares, errors)

    def parts(self, ended: EndedEpoch, *, whole: bool) -> Mapping[str, ShareOfMap]:
        """Return what this node owns of the maps of cubes after an epoch: of those that it has changed, or of all."""
        found = {}
        for name in self._parts:
            if (whole or ended.deltas[name].rows) and (self.layout.regions[name].axes or not self.number):
                found[name] = self._own(name, self._pair(name, self.maps.newest(name), ended))
        return found

    def _held(self, name: str, ended: EndedEpoch) -> ShareOfMap:
        """Return the newest values of a map, and what of them is of later epochs."""
        return self._pair(name, self.maps.newest(name), ended)

    def _pair(self, name: str, newest: MapFrame, ended: EndedEpoch) -> ShareOfMap:
        later = ended.later[name].without_key(len(self._program.map(name).keys))
        newest, later = fitted(self._program.map(name), [newest, later])
        return newest, later

    def _has_part(self, view: ViewDef) -> bool:
        return not self.number or self.layout.placement_of_view(view.name).by is not FinishedBy.FIRST

    def _share(self, view: ViewDef, held: Mapping[str, ShareOfMap]) -> dict[str, ShareOfMap]:
        placement = self.layout.placement_of_view(view.name)
        found = {name: held[name] for name in view.reads}
        if placement.by is FinishedBy.NODES:  # what else its rows read may lie on other nodes, too
            return {**found, view.maps[0]: self._by_key(found[view.maps[0]], placement.axis)}
        if placement.by is FinishedBy.MERGE:
            return {name: self._own(name, each) for name, each in found.items()}
        return found

    def _own(self, name: str, share: ShareOfMap) -> ShareOfMap:
        """Return the rows of a map that this node owns."""
        newest, later = (self.own(name, each) for each in share)
        return newest, later

    def _by_key(self, share: ShareOfMap, axis: int) -> ShareOfMap:
        """Return the rows that are this node's by a key."""
        mine = [self.layout.whole.parts_of_key(each, axis) == self.number for each in share]
        return share[0].filter(mine[0]), share[1].filter(mine[1])

    def cut(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed; the one before can still be read."""
        self.maps.cut(self.window.last_version(epoch), self.window.last_version(epoch - 1))

    def reset(self, epoch: int) -> int:
        """Take back what is beyond a committed epoch; return its last version."""
        last = self.window.last_version(epoch) if epoch else -1  # static tables, of epoch 0, come with the first one
        self.maps.roll_back(last)
        self.seen = {switch: min(version, last) for switch, version in self.seen.items()}
        self.failed.reset(epoch)
        return last

    def move_on(self, committed: int) -> int:
        """Count epochs from a later one if that is due; return what was taken away from all versions, 0 if nothing was.

        What has come must be drained; what is computed may wait to be sent.
        """
        if less := self.window.moves(committed):
            self.maps.renumber(less)
            self.seen = {switch: max(version - less, 0) for switch, version in self.seen.items()}
        return less

    def open_rows(self) -> tuple[int, int]:
        """Return how many entries wait for a commit to be forgotten: of overlays, and of histories."""
        engine, made = self.maps.engine, self.maps.made
        overlays = sum(engine.size(overlay.since) for overlay in made.overlays.values())
        return overlays, sum(engine.size(name) for name in made.histories)

    def facts(self) -> dict[str, object]:
        """Return how much is here."""
        engine = self.maps.engine
        overlay_rows, history_rows = self.open_rows()
        return {
            "engine": engine.name,
            "rows": sum(engine.size(name) for name in self.names),
            "overlay_rows": overlay_rows,
            "history_rows": history_rows,
            "bytes": engine.memory(),
        } | self.layout.whole.facts(self.number)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def numbered(self, frames: Mapping[str, MapFrame]) -> NumberedFrames:
        """Return frames as a log or a snapshot has them."""
        return [(self._numbers[name], frame.to_bytes()) for name, frame in frames.items() if frame.rows]

    def restore(self, frames: NumberedFrames) -> None:
        """Take in deltas of a committed epoch from a log: nobody has read anything yet."""
        for name, frame in self._frames(frames, with_version=True):
            self.maps.restore(name, frame)

    def save(self, ended: EndedEpoch) -> tuple[NumberedFrames, NumberedFrames]:
        """Return the newest values, and the deltas in them that are beyond an epoch."""
        newest = {name: self.maps.newest(name) for name in self.names}
        return self.numbered(newest), self.numbered(ended.later)

    def load(self, newest: NumberedFrames, later: NumberedFrames) -> None:
        """Replace the state by what `save` returned, without what is beyond its epoch."""
        self.maps.load(dict(self._frames(newest, with_version=False)))
        for name, frame in self._frames(later, with_version=True):
            self.maps.restore(name, frame, -1)
