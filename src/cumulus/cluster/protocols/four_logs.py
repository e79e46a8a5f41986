"""Target aggregation in no order: nodes answer and compute at once, and correct what was sent or got too early.

What a switch tells is as in `cumulus.cluster.protocols.central_target`, and there may be any number of switches. A node
takes what has come in the order of versions, behind no PUT that still waits for a PUSH; what comes after its turn is
done when it comes. So

* a FETCH is answered with the entries as they are before its version (WriteLog), and it is noted who got them for which
  version (SendLog);
* a delta of an entry that went out for a later version is sent there as a CORRECT, with its own version;
* who gets a CORRECT corrects what was got for later versions (ReceiveLog), and what the rows of these versions have
  added (OperationLog); these deltas may be late in turn. Each has a later version, so it ends, in circles, too.

With `elide-put` a node learns from a PUSH, or from its own FETCH, what it has to compute; what comes before that
bypasses it blindly, and is corrected. Even then a FETCH has its turn before the PUT of its block, so no node waits for
itself. The end of an epoch says how many blocks come so, and before they are here the epoch is not flushed.

With `patience` a FETCH is answered some time after it has come, so that what has earlier versions is there more often.

A CORRECT stands behind all PUSHes on its link that do not have it. Those of them whose PUT waits are corrected where
they lie, those whose block was computed by the node program (`cumulus.cluster.node_programs.four_logs_program`).

References
----------
Cumulus semester paper, sections 3.2 and 3.3; with `bypass` and `elide-put` section 3.5, with `patience` section 6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain

import numpy as np

from cumulus.cluster.messages import Block, Deltas, EpochEnd
from cumulus.cluster.node_programs.slice_entries import LoggedSlices
from cumulus.cluster.protocols.asked_slices import AskedSlices
from cumulus.cluster.protocols.central import ToldBlocks
from cumulus.cluster.protocols.central_messages import Correct, Fetch, Push, Put
from cumulus.cluster.protocols.deferred_work import (
    Arrival,
    AwaitedPuts,
    DeferredBlock,
    DeferredWork,
    is_behind,
    reads_unwritten,
)
from cumulus.cluster.protocols.late_deltas import LateDeltas
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.engine.frames.frame import MapFrame
from cumulus.errors import RemoteProtocolError


class FourLogsNode:
    """A `cumulus.cluster.protocols.protocol.NodeProtocol`.

    Attributes
    ----------
    work
        What waits.
    logs
        Who was sent what, and what was got.
    asked
        How messages of slices are read.
    """

    def __init__(self, life: NodeLife) -> None:
        plan, self.maps = life.plan, life.spread_maps()
        self.depths = plan.depths
        self.asked, self._blocks = AskedSlices(plan, self.maps), ToldBlocks(self.maps)
        self.logs, self._late = LoggedSlices(self.maps.maps), LateDeltas(self.maps.maps)
        self._elides_put, self._awaited = plan.options.elide_put, AwaitedPuts()
        self._patience_with, self._committed = plan.patience_with, life.committed
        waits = reads_unwritten if plan.options.bypass else is_behind
        self.work = DeferredWork(waits, arrival=Arrival.BY_VERSION)
        self._corrects: dict[int, list[MapFrame]] = {}
        """Slice → deltas of what was got for blocks that are computed; nothing was done with them yet."""
        self._amended: dict[int, list[tuple[int, MapFrame]]] = {}
        """Version of a block that waits → what has come since for its PUSHes: number of the slice, deltas."""
        self._rows = 0

    # --- what comes -------------------------------------------------------------------------------------------------

    def take(self, sender: int, message: object) -> None:
        """Take what switches ask for, and what nodes send."""
        match message:
            case Fetch() if sender < 0:
                read = self.asked.maps_read(message)
                version, not_before = self.maps.kept(message.version), self.work.now + self._patience_with(read)
                self.work.defer(DeferredBlock(version, read, frozenset(), 0, message, not_before=not_before))
                for target, put in message.puts:
                    if target == self.maps.number:
                        self._defer(put)
            case Put() if sender < 0 and not self._elides_put:
                self._defer(message)
            case Push() if sender >= 0:
                self.work.note(sender, self.maps.kept(message.version), message)
                for put in message.puts:
                    self._defer(put)
                    self._awaited.note(self.maps.window.epoch_of(self.maps.kept(put.version)))
            case EpochEnd(epoch, puts=puts) if sender < 0 and self._elides_put:
                self._awaited.expect(epoch, puts)
            case Correct(frames) if sender >= 0:
                for number, data in frames:
                    self._take_correction(sender, number, self.asked.versioned(number, data))
            case Deltas() if sender >= 0:
                self._blocks.take_failures(message)
            case _:
                raise RemoteProtocolError(f"{type(message).__name__} is no message of this mode")

    def _defer(self, put: Put) -> None:
        """Take what is to be computed for a block, whoever has sent it."""
        written = frozenset(self._blocks.group(put.block.group).writes)
        self.work.defer(DeferredBlock(self.maps.kept(put.version), frozenset(), written, put.pushes, put))

    def _take_correction(self, sender: int, number: int, deltas: MapFrame) -> None:
        """Take late deltas of what a node has sent: for what waits of it now, and for what was computed."""
        self._corrects.setdefault(number, []).append(deltas)
        place = len(deltas.layout.keys) - 1
        versions = deltas.numbers(place)
        for version in self.work.noted(sender):
            early = deltas.filter(versions < version)
            if early.rows:
                amended = early.with_numbers(place, np.full(early.rows, version))
                self._amended.setdefault(version, []).append((number, amended))

    # --- what is done -----------------------------------------------------------------------------------------------

    def drain(self, ended: int = 0, *, is_time: bool = False) -> Iterator[tuple[int, Push | Correct | Deltas]]:
        """Do what can be done now; yield what nodes must get."""
        yield from self._settled()
        if is_time:
            self.work.pass_time()
        for work, pushes in self.work.ready(self.maps.window.last_version(ended) if ended > self._committed else -1):
            if isinstance(work.message, Fetch):
                yield from self._answer(work)
            else:
                assert isinstance(work.message, Put), work
                self._compute(work.version, work.message.block, pushes)
                yield from self._settled()
            self.maps.note_errors()
        yield from self.maps.failures()

    def _answer(self, work: DeferredBlock) -> Iterator[tuple[int, Push]]:
        fetch = work.message
        assert isinstance(fetch, Fetch), fetch
        frames, sent_slices = self.asked.sent_for(fetch)
        for asked in sent_slices:
            read = (self.asked.slice(asked.slice).map,)
            is_late = self._late.is_late(read, work.version)
            found = self.logs.ask(asked.slice, asked.target, work.version, asked.keys, is_late=is_late)
            self._late.note_read(read, work.version, asked.count, is_late=is_late)
            found = self.asked.cut(found, asked.slice, asked.target)
            if found.rows:
                frames[asked.target].append((asked.slice, self.maps.bytes_of(found)))
        puts = dict(fetch.puts)
        for target, sent in frames.items():
            push = Push(fetch.version, sent, [puts[target]] if target in puts else [])
            if target == self.maps.number:
                self.work.note(target, work.version, push)
            else:
                yield target, push

    def _compute(self, version: int, block: Block, pushes: Sequence[Push]) -> None:
        """Compute what a block adds here, from what was sent for it."""
        for push in pushes:
            for number, data in push.frames:
                self.logs.give(number, self.asked.versioned(number, data))
        for number, deltas in self._amended.pop(version, ()):
            self.logs.give(number, deltas)
        self._rows += self._blocks.fire(block)

    def _settled(self) -> Iterator[tuple[int, Correct]]:
        """Add what was computed here, correct what follows from it here; yield what follows elsewhere."""
        owed: dict[int, dict[int, list[MapFrame]]] = defaultdict(dict)
        self._correct()
        while self._add_what_is_out():
            for number, node, deltas in self.logs.take_owed():
                needed = self.asked.cut(deltas, number, node)
                if not needed.rows:
                    continue
                if node == self.maps.number:
                    self._take_correction(node, number, needed)
                else:
                    owed[node].setdefault(number, []).append(needed)
            self._correct()
        self.maps.note_errors()
        for node, slices in sorted(owed.items()):
            frames = [
                (number, self.maps.bytes_of(self.logs.together(number, found))) for number, found in slices.items()
            ]
            self.maps.sent_epochs.note(list(chain.from_iterable(slices.values())), self.maps.window)
            yield node, Correct(frames)

    def _correct(self) -> None:
        """Correct what was computed from what was got for blocks of later versions."""
        corrects, self._corrects = self._corrects, {}
        for number, found in corrects.items():
            self.logs.correct(number, self.logs.together(number, found))

    def _add_what_is_out(self) -> bool:
        """Add what was computed to the maps of this node; return whether anything was.

        Where the result is another node's, it is not whole here, and left to that.
        """
        added = self.maps.maps.take_out()
        for name, deltas in added.items():
            self._late.receive({name: self.maps.own(name, deltas)})
        return bool(added)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def is_flushed(self, epoch: int) -> bool:
        """Whether nothing waits of an epoch, and nothing of it is to come."""
        return self._awaited.are_here(epoch) and self.work.is_empty_up_to(self.maps.window.last_version(epoch))

    def commit(self, epoch: int) -> None:
        """Forget what is not needed once an epoch is committed, and to whom something was sent up to it."""
        self.logs.cut(self.maps.window.last_version(epoch))
        self._awaited.forget(epoch)
        self._committed = epoch
        self.maps.cut(epoch)

    def reset(self, epoch: int) -> None:
        """Take back what is beyond a committed epoch, and forget what waits."""
        self.work.clear()
        self._awaited.clear()
        self._corrects.clear()
        self._amended.clear()
        self.logs.clear_sent()
        self._late.reset(self.maps.reset(epoch))

    def move_on(self, committed: int) -> None:
        """Count epochs from a later one if that is due."""
        if less := self.maps.move_on(committed):
            self.work.renumber(less)
            self._amended = {version - less: self._earlier(found, less) for version, found in self._amended.items()}
            self.logs.renumber(less)
            self._late.renumber(less)

    @staticmethod
    def _earlier(found: list[tuple[int, MapFrame]], less: int) -> list[tuple[int, MapFrame]]:
        moved = []
        for number, deltas in found:
            place = len(deltas.layout.keys) - 1
            moved.append((number, deltas.with_numbers(place, deltas.numbers(place) - less)))
        return moved

    def late_share(self) -> tuple[int, int]:
        """Return how many slices and deltas have come late in this life, and how many and rows have come at all."""
        shares = self._late.shares
        return shares.rows_late + shares.deltas_late, shares.total + self._rows

    def facts(self) -> dict[str, object]:
        """Return how much came late, and how much waits."""
        return {**asdict(self._late.shares), "blocks_waiting": len(self.work)}

    def check(self) -> None:
        """Check what holds between two steps."""
        self.work.check()
        assert not self._corrects, f"node {self.maps.number}: a CORRECT was not taken in"
        assert not self.maps.maps.take_out(), f"node {self.maps.number}: something computed was not added"
