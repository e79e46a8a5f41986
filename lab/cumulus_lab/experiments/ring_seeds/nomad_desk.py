"""Nomads at a node of a simulated ring: those of its own queries, and visits of others (section 7.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from cumulus_lab.experiments.ring_seeds.engine import ScriptedRun
from cumulus_lab.experiments.ring_seeds.question_desk import DeskParts, QuestionDesk
from cumulus_ring.machine.messages import ChunkId, QueryId
from cumulus_ring.machine.policies.nomads import Nomad, bid_ms

BYTE_S, QUERY_S = 1e-5, 0.02


class NomadDesk(QuestionDesk[Nomad]):
    """Nomads of one life of a node.

    Parameters
    ----------
    parts
        Of the node.
    move
        Takes a query to the node of its script.
    """

    def __init__(self, parts: DeskParts, move: Callable[[ScriptedRun], None]) -> None:
        super().__init__("nomad", parts)
        self._move = move
        parts.engine.set_out = self._begin if parts.settings.nomad_hops else None

    def _begin(self, query: QueryId, chunks: Collection[ChunkId], now: int) -> None:
        """Let a query that has sent its requests look for a node."""
        hops = min(self._parts.settings.nomad_hops, len(self._members) - 1)
        known = self._parts.source.sizes
        sizes = {chunk: known[chunk] for chunk in sorted(chunks) if chunk < len(known)}
        self._set_out(Nomad(self._me, query, self._ring_epoch, sizes, hops, self._me, self._price(sizes)), now)

    def _visited(self, question: Nomad) -> Nomad:
        return question.with_bid(self._me, self._price(question.chunks))

    def _price(self, chunks: Collection[ChunkId]) -> float:
        node, known = self._parts.node, self._parts.source.sizes
        return bid_ms(sum(known[each] for each in chunks if node.lacks(each)), BYTE_S, node.status().queries, QUERY_S)

    def _answered(self, question: Nomad) -> None:
        assert question.node in self._members, f"a query settles at {question.node}, which is no member"
        if question.node == self._me:
            self._parts.engine.stay(question.query)
        elif (run := self._parts.engine.leave(question.query, question.node)) is not None:
            self._move(run)

    def _unanswered(self, query: QueryId) -> None:
        self._parts.engine.stay(query)
