"""The four logs with elided PUSHes: what was got is kept, and a PUSH is sent only if something has changed since.

A node that computes waits for nothing. It uses what it has got so far, and corrects what it has computed when more
comes: the PUSH of a FETCH, if there is one, or a CORRECT of a version for which it had been sent something already. So
it is as in `cumulus.cluster.protocols.eventual`, of maps that lie where somebody has asked for them.

With `look-ahead` a node that is asked again for entries sends what changes in them as soon as it does, until a commit.
So it is there when it is read, and is not asked for first.

Or it waits for some time: nobody tells it whether a PUSH comes, so it goes on when all have come or its time is over,
and corrects if one comes later. Then what has a later version waits behind it, but with `bypass`. At the end of an
epoch nothing of it waits any more.

What a node has asked for once it is sent in time: when versions are forgotten at a commit, before that what it has not
been sent of them.

References
----------
Cumulus semester paper, section 3.5, "PUSH Optimization": "Wait for some timeout", or "optimistically continue and do
corrective updates if the PUSH messages arrive"; "Look ahead".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict

from cumulus.cluster.messages import Deltas
from cumulus.cluster.node_programs.evaluator import versions_of
from cumulus.cluster.node_programs.slice_entries import KeptSlices
from cumulus.cluster.protocols.asked_slices import AskedSlices
from cumulus.cluster.protocols.central import ToldBlocks
from cumulus.cluster.protocols.central_messages import Correct, Fetch, Push, Put
from cumulus.cluster.protocols.deferred_work import Arrival, DeferredBlock, DeferredWork, is_behind, reads_unwritten
from cumulus.cluster.protocols.late_deltas import LateDeltas
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.engine.frames.frame import MapFrame
from cumulus.errors import RemoteProtocolError


class ElidedPushNode:
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`.

    Attributes
    ----------
    kept
        Who was sent what, and what was got.
    work
        What waits.
    late
        What comes late.
    """

    def __init__(self, life: NodeLife) -> None:
        plan, self.maps = life.plan, life.spread_maps()
        self.depths, self._committed = plan.depths, life.committed
        self._asked, self._blocks = AskedSlices(plan, self.maps), ToldBlocks(self.maps)
        self.kept, self.late = KeptSlices(self.maps.maps), LateDeltas(self.maps.maps)
        options = plan.options
        self._looks_ahead = options.look_ahead
        self._patience_with, self._wait = plan.patience_with, options.ticks(options.wait_ms)
        """For how many ticks a FETCH waits, and a PUT for PUSHes."""
        self.work = DeferredWork(reads_unwritten if plan.options.bypass else is_behind, arrival=Arrival.BY_VERSION)
        self._deltas: dict[int, list[MapFrame]] = {}
        """Slice → deltas of what was got; nothing was done with them yet."""
        self._owed: dict[int, dict[int, list[MapFrame]]] = defaultdict(dict)
        """Node → slice → deltas that it must be told."""

    # --- what comes -------------------------------------------------------------------------------------------------

    def take(self, sender: int, message: object) -> None:
        """Take what switches ask for, and what nodes send."""
        match message:
            case Fetch() if sender < 0:
                read = self._asked.maps_read(message)
                version, not_before = self.maps.kept(message.version), self.work.now + self._patience_with(read)
                self.work.defer(DeferredBlock(version, read, frozenset(), 0, message, not_before=not_before))
            case Put(block, pushes) if sender < 0:
                written, waits_for = frozenset(self._blocks.group(block.group).writes), pushes if self._wait else 0
                until = self.work.now + self._wait if waits_for else None
                version = self.maps.kept(block.version)
                self.work.defer(DeferredBlock(version, frozenset(), written, waits_for, message, until))
            case Push(frames=frames) | Correct(frames) if sender >= 0:
                for number, data in frames:
                    self._deltas.setdefault(number, []).append(self._asked.versioned(number, data))
                if self._wait and isinstance(message, Push):
                    self.work.note(sender, self.maps.kept(message.version), message)
            case Deltas() if sender >= 0:
                self._blocks.take_failures(message)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no message of this mode")

    # --- what is done -----------------------------------------------------------------------------------------------

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Push | Correct | Deltas]]:
        """Do what can be done now, in the order of versions; yield what nodes must get."""
        self._settle()
        if is_time:
            self.work.pass_time()
        for work, _ in self.work.ready(self.maps.window.last_version(ended) if ended > self._committed else -1):
            if isinstance(work.message, Fetch):
                yield from self._answer(work.message)
            else:
                assert isinstance(work.message, Put), work
                self._compute(work.message)
            self._settle()
        for node, slices in sorted(self._owed.items()):
            frames = [
                (number, self.maps.bytes_of(self.kept.together(number, found))) for number, found in slices.items()
            ]
            yield node, Correct(frames)
        self._owed.clear()
        self.maps.note_errors()
        yield from self.maps.failures()

    def _answer(self, fetch: Fetch) -> Iterator[tuple[int, Push]]:
        """Send what has changed; nothing to whom nothing has."""
        version = self.maps.kept(fetch.version)
        oldest = max(self.maps.window.last_version(self._committed - 1), 0)
        frames, sent_slices = self._asked.sent_for(fetch)
        for asked in sent_slices:
            read = (self._asked.slice(asked.slice).map,)
            found = self.kept.ask(asked.slice, asked.target, version, asked.keys, oldest)
            if self._looks_ahead:
                self.late.tell_of(*read)
            is_late = self.late.is_late(read, version)
            self.late.note_read(read, version, asked.count, is_late=is_late)
            found = self._asked.cut(found, asked.slice, asked.target)
            if not found.rows:
                continue
            if asked.target == self.maps.number:
                self._deltas.setdefault(asked.slice, []).append(found)
            else:
                frames[asked.target].append((asked.slice, self.maps.bytes_of(found)))
        for target, sent in frames.items():
            if target == self.maps.number:
                if self._wait:
                    self.work.note(target, version, Push(fetch.version, []))
            elif sent:
                yield target, Push(fetch.version, sent)

    def _compute(self, put: Put) -> None:
        found = self.maps.block_rows(put.block)
        if not len(found.signs):
            return
        group = self._blocks.group(found.group)
        versions = versions_of(group, found.first, found.places)
        is_late = self.late.is_late(group.reads, int(versions[0]))
        self.maps.maps.fire(group, found.rows, found.signs, versions, is_late=is_late)
        self.late.note_read(group.reads, int(versions[-1]), len(versions), is_late=is_late)

    def _settle(self) -> None:
        """Add what was computed here, and correct what follows from it here, until nothing does; note the rest."""
        self._take_in()
        while added := self.maps.maps.take_out():
            for name, deltas in added.items():
                self.late.receive({name: self.maps.own(name, deltas)})
            self._take_owed()
            self._take_in()

    def _take_in(self) -> None:
        """Add what was got to what was got before; correct what was computed from that."""
        deltas, self._deltas = self._deltas, {}
        for number, found in deltas.items():
            self.late.receive({self._asked.slice(number).got: self.kept.together(number, found)})

    def _take_owed(self) -> None:
        for number, node, deltas in self.kept.take_owed():
            needed = self._asked.cut(deltas, number, node)
            if needed.rows:
                to = self._deltas if node == self.maps.number else self._owed[node]
                to.setdefault(number, []).append(needed)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing waits of an epoch."""
        return self.work.is_empty_up_to(self.maps.window.last_version(epoch))

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed; who has asked for entries must be told before."""
        self.kept.forget_versions(self.maps.window.last_version(epoch - 1))
        self._take_owed()  # the next `drain` sends it
        self.work.forget(self.maps.window.last_version(epoch))
        self._committed = epoch
        if self._looks_ahead:
            self.late.tell_nobody()
            self.kept.look_no_further(self.late.seen)
        self.maps.cut(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch, and forget what was got, and sent."""
        self.work.clear()
        self._deltas.clear()
        self._owed.clear()
        self.kept.clear_sent()
        self.late.reset(self.maps.reset(epoch))
        self.kept.clear_got()

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        if less := self.maps.move_on(committed):
            self.work.renumber(less)
            self.kept.renumber(less)
            self.late.renumber(less)

    def late_share(self) -> tuple[int, int]:
        """Return how many slices, rows and deltas have come late in this life, and how many have come at all."""
        shares = self.late.shares
        return shares.rows_late + shares.deltas_late, shares.total

    def facts(self) -> dict[str, object]:
        """Return how much came late, and how much waits."""
        return {**asdict(self.late.shares), "blocks_waiting": len(self.work)}

    def check(self) -> None:
        """Check what holds between two steps."""
        self.work.check()
        assert not self._deltas, f"node {self.maps.number}: something got was not taken in"
        assert not self._owed, f"node {self.maps.number}: something owed was not sent"
        assert not self.maps.maps.take_out(), f"node {self.maps.number}: something computed was not added"
