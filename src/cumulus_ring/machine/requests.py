"""Requests: what this node asks for, and what it does with what others ask for (figure 6, E1-E7, E25)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cumulus.machine import Name
from cumulus_ring.machine.buffers import Buffers
from cumulus_ring.machine.catalogs import Need, Outstanding, OutstandingRequests, Owned
from cumulus_ring.machine.loading import Loader
from cumulus_ring.machine.messages import ChunkId, ChunkRequest, Refresh, SendRequests
from cumulus_ring.machine.node_context import Deadlines, NodeContext

FailAll = Callable[[ChunkId, str], None]

MOST_PATIENCE = 8
"""A request is sent again after so many time-outs at the latest."""
MOST_EXPONENT = 64
"""The highest power of the back-off that is computed; 2.0 to the power of 1,024 overflows."""
JITTER = 0.1


class Requests:
    """Requests of this node (S2) and of others.

    Parameters
    ----------
    context, owned, outstanding, buffers, loader
        The node's.
    fail_all
        Fails all queries that need a chunk.
    expected
        How many scans of nodes further on wait for a chunk (section 6.3.1).
    relevance
        How much scans of this node want a chunk (section 8.2).
    """

    def __init__(
        self,
        context: NodeContext,
        owned: Owned,
        outstanding: OutstandingRequests,
        buffers: Buffers,
        loader: Loader,
        fail_all: FailAll,
        expected: Callable[[ChunkId], int],
        relevance: Callable[[Outstanding], float],
    ) -> None:
        self._s = context
        self._owned = owned
        self._outstanding = outstanding
        self._buffers = buffers
        self._loader = loader
        self._fail_all = fail_all
        self._expected = expected
        self._relevance = relevance
        self._deadlines = Deadlines()
        self._leaving: list[ChunkRequest] = []
        self._early: dict[tuple[Name, ChunkId], ChunkRequest] = {}
        """Requests of a ring epoch or a catalogue that this node does not know yet (E7)."""
        self._refreshes_to: int | None = None
        """The version that is asked for, until there is an answer."""

    # --- this node's ------------------------------------------------------------------------------------------------

    def need(self, chunk: ChunkId, need: Need) -> None:
        """A query will want a chunk."""
        entry = self._outstanding.get(chunk)
        if entry is None:
            entry = self._outstanding[chunk] = Outstanding(chunk)
        entry.needs[need] = None

    def ask(self, chunk: ChunkId) -> None:
        """Ask for a chunk that is needed, unless it is asked for, here, or this node's own (DC-09)."""
        entry = self._outstanding[chunk]
        if chunk in self._owned or (entry.is_sent and not self._has_gone(entry)):
            return
        record = self._buffers.find(entry.chunk)
        if record is not None and (record.is_kept or record.references):
            self._deadlines.set(self._s.now + self._s.resend_us, entry.chunk)
        else:
            self._send(entry)

    def _has_gone(self, entry: Outstanding) -> bool:
        """Whether a chunk that was sent for has come by, was not taken, and does not go round any more."""
        return (
            self._s.settings.asks_again
            and entry.seen_at >= entry.sent_at
            and self._s.now - entry.seen_at > self._s.cycle_us
        )

    def _send(self, entry: Outstanding) -> None:
        entry.is_sent = True
        entry.sent_at = self._s.now
        self._s.counts["request"] += 1
        now, tries = (self._s.ring_epoch, self._s.version), entry.tries
        is_again = tries > 0 and tries & (tries - 1) == 0  # at the 1st, 2nd, 4th, 8th try: few of many go all the way
        touches = len(entry.needs) + self._expected(entry.chunk) if self._s.settings.forwarding else 1
        relevance = self._relevance(entry) if self._s.settings.relevance else 1.0
        self._leaving.append(
            ChunkRequest(self._s.name, entry.chunk, *now, is_again=is_again, touches=touches, relevance=relevance)
        )
        self._deadlines.set(self._s.now + self._patience(entry), entry.chunk)

    def _patience(self, entry: Outstanding) -> int:
        """How long to wait for a chunk: longer each time that it has not come, and not as long as others (E25)."""
        factor = min(float(MOST_PATIENCE), self._s.settings.resend_backoff ** min(entry.tries, MOST_EXPONENT))
        return int(self._s.resend_us * factor * (1 + JITTER * self._s.rng.random()))

    def note_passed(self, entry: Outstanding) -> None:
        """Record that the chunk passed this node: start its resend timer if none runs, and note the time."""
        if not entry.is_sent:
            entry.is_sent = True
            self._deadlines.set(self._s.now + self._patience(entry), entry.chunk)
        entry.seen_at = self._s.now
        entry.tries = 0
        entry.held.clear()

    def note_straight(self, entry: Outstanding) -> None:
        """Record that the owner's straight copy came: what no scan has taken is asked for anew when it is not kept.

        Requests of other nodes that were absorbed go on, since these nodes do not see the copy.
        """
        self._leaving += entry.held
        entry.held.clear()
        if entry.needs:
            entry.is_sent, entry.tries = False, 0
            self._deadlines.set(self._s.now + self._s.resend_us, entry.chunk)

    def resend(self) -> None:
        """Ask again for what has not been seen for long (E25); nobody stands behind an entry that is gone (E43)."""
        for chunk in self._deadlines.due(self._s.now):
            entry = self._outstanding.get(chunk)
            if entry is None or chunk in self._owned:
                continue
            if self._s.members == 1 and self._buffers.find(chunk) is None:
                self._fail_all(chunk, _nobody(chunk))  # no request comes back to say so (E18)
            elif entry.is_sent:
                self._send_again(entry)
            else:
                self.ask(chunk)

    def _send_again(self, entry: Outstanding) -> None:
        """Send a request again, or plan to, if its chunk was seen meanwhile."""
        due = max(entry.sent_at, entry.seen_at) + self._patience(entry)
        if due > self._s.now:
            self._deadlines.set(due, entry.chunk)
            return
        entry.tries += 1
        self._s.counts["request sent again"] += 1
        self._send(entry)

    # --- others' ----------------------------------------------------------------------------------------------------

    def came(self, request: ChunkRequest) -> None:
        """Take in a request from the successor: figure 6, as its text has it."""
        if request.ring_epoch > self._s.ring_epoch:
            self._early[request.origin, request.chunk] = request
        elif request.refusal:
            if request.origin != self._s.name:
                self._fail_all(request.chunk, request.refusal)
                self._leaving.append(request)
        elif request.origin == self._s.name:
            self._came_round(request)
        elif request.chunk in self._owned:
            mode = self._s.settings.mode
            # Nobody is sent a chunk straight who may have left: who has not asks anew.
            is_old = mode != "ring" and request.ring_epoch < self._s.ring_epoch
            if not is_old and (not request.is_absorbed or mode == "auto"):
                self._loader.wanted(request.chunk, request.origin, request.relevance)
        elif request.version > self._s.version and request.chunk not in self._outstanding:
            self._hold(request)
        else:
            self._meet(request)

    def _hold(self, request: ChunkRequest) -> None:
        """Keep a request until it is known whether this node owns the chunk (E7)."""
        self._s.counts["request held for a refresh"] += 1
        self._early[request.origin, request.chunk] = request
        if self._refreshes_to is None:
            self._refreshes_to = request.version
            self._s.effects.append(Refresh(request.version))

    def _came_round(self, request: ChunkRequest) -> None:
        """No node owns the chunk, unless owners have changed meanwhile (E5-E7)."""
        entry = self._outstanding.get(request.chunk)
        if entry is None or request.chunk in self._owned:
            return
        self._s.counts["request returned"] += 1
        if request.ring_epoch < self._s.ring_epoch:
            self._send(entry)
        else:
            self._fail_all(request.chunk, _nobody(request.chunk))

    def _meet(self, request: ChunkRequest) -> None:
        """Send mine instead, absorb, or forward (E3, E4).

        If nobody owns a chunk, two nodes that want it absorb each other's requests, and neither would come round. So
        what is sent again goes on: no owner does anything about it, but if there is none its origin hears of that.

        In mode pull each request goes on, since the owner sends each node a copy of its own; with an inner ring, since
        its nodes are to know who waits after them (figure 18). In mode auto a request
        that was absorbed goes on when the owner has sent the chunk to this node alone (section 8.1).
        """
        entry = self._outstanding.get(request.chunk)
        mode = self._s.settings.mode
        if entry is None or request.is_absorbed or mode == "pull" or self._s.settings.has_inner_ring:
            self._leaving.append(request)
        elif not entry.is_sent:
            if mode == "auto" and self._buffers.find(request.chunk) is not None:
                self._leaving.append(request)  # this node has a copy already, and needs no other one
                return
            self._send(entry)
            self._hold_absorbed(entry, request)
        elif entry.absorbs:
            entry.absorbed += 1
            self._hold_absorbed(entry, request)
            self._s.counts["request absorbed"] += 1
            if request.is_again:
                self._leaving.append(replace(request, is_absorbed=True))
        else:
            self._s.counts["request forwarded past a sent one"] += 1
            self._leaving.append(request)

    def _hold_absorbed(self, entry: Outstanding, request: ChunkRequest) -> None:
        if self._s.settings.mode == "auto" and all(each.origin != request.origin for each in entry.held):
            entry.held.append(request)

    def refuse(self, chunk: ChunkId, reason: str) -> None:
        """Let all nodes know that a chunk of this one cannot be had."""
        self._leaving.append(ChunkRequest(self._s.name, chunk, self._s.ring_epoch, self._s.version, reason))

    def reconfigured(self) -> None:
        """All is to be asked for anew, at all nodes: what was under way may be lost, and owners are others (E7)."""
        for entry in self._outstanding.values():
            entry.is_sent = False
            entry.held.clear()
        now = self._s.ring_epoch
        self._early = {key: each for key, each in self._early.items() if each.ring_epoch >= now}
        self._take_early()

    def refreshed(self) -> None:
        """Go on with what was of a later catalogue; what is of a still later one waits for that."""
        if self._refreshes_to is not None and self._refreshes_to <= self._s.version:
            self._refreshes_to = None
        self._take_early()

    def refresh_failed(self) -> None:
        """Let others own what was of a later catalogue."""
        self._refreshes_to = None
        early, self._early = self._early, {}
        for key, request in early.items():
            if request.ring_epoch > self._s.ring_epoch:
                self._early[key] = request
            else:
                self._meet(request)

    def _take_early(self) -> None:
        early, self._early = self._early, {}
        for request in early.values():
            self.came(request)

    def flush(self) -> None:
        """Send what this step has made, in one message."""
        if self._leaving:
            self._s.effects.append(SendRequests(tuple(self._leaving)))
            self._leaving.clear()

    def check(self) -> None:
        """Nobody waits for another node for ever."""
        sent = [chunk for chunk, entry in self._outstanding.items() if entry.is_sent]
        assert all(map(self.sees_to, sent)), "nobody will ask again for a chunk"

    def sees_to(self, chunk: ChunkId) -> bool:
        """Whether a chunk is this node's own, or will be asked for again until it comes."""
        return chunk in self._owned or chunk in self._deadlines


def _nobody(chunk: ChunkId) -> str:
    return f"no node has chunk {chunk:#x}"
