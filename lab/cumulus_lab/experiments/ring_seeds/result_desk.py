"""Results at a node of a simulated ring: what its queries have computed, and searches for it (section 7.2)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection

from cumulus_lab.experiments.ring_seeds.question_desk import DeskParts, QuestionDesk
from cumulus_ring.machine.messages import ChunkId, IntermediateMade, QueryId
from cumulus_ring.machine.policies.intermediates import ResultSearch

FRAGMENTS = 3
"""Queries whose numbers are equal modulo this compute the same, as far as this desk goes."""


class ResultDesk(QuestionDesk[ResultSearch]):
    """Results of one life of a node.

    Parameters
    ----------
    parts
        Of the node.
    hear
        Tells the machine.
    """

    def __init__(self, parts: DeskParts, hear: Callable[[IntermediateMade], None]) -> None:
        super().__init__("search", parts)
        self._hear = hear
        self._have: dict[int, ChunkId] = {}
        """Fragment → its result here."""
        self._of: dict[ChunkId, int] = {}
        """Result → its fragment."""
        if parts.settings.intermediates:
            parts.engine.look_for = self._begin
            parts.engine.computed = self._computed

    def _begin(self, query: QueryId, now: int) -> None:
        """Let a query look for a result before it asks for chunks."""
        fragment = query % FRAGMENTS
        chunk = self._have.get(fragment)
        if chunk is not None:
            self._parts.engine.read_result(query, chunk)
        else:
            self._set_out(ResultSearch(self._me, query, self._ring_epoch, fragment, len(self._members) - 1), now)

    def _visited(self, question: ResultSearch) -> ResultSearch:
        return question.at_next(self._have.get(question.fragment))

    def _answered(self, question: ResultSearch) -> None:
        if question.chunk is None:
            self._unanswered(question.query)
        else:
            self._parts.engine.read_result(question.query, question.chunk)

    def _unanswered(self, query: QueryId) -> None:
        self._parts.engine.compute(query)

    def _computed(self, query: QueryId) -> None:
        """A query has computed its fragment: this node has the result, unless it has one of the kind."""
        fragment = query % FRAGMENTS
        if fragment in self._have:
            self._parts.reports("result there already")
            return
        chunk, size = self._parts.source.new_result()
        self._have[fragment] = chunk
        self._of[chunk] = fragment
        self._hear(IntermediateMade(chunk, size))

    def dropped(self, chunk: ChunkId) -> None:
        """The machine has given up a result."""
        del self._have[self._of.pop(chunk)]

    def and_owned(self, owned: dict[ChunkId, int]) -> Collection[ChunkId]:
        """Return the results of this node, and what else it owns."""
        return ChainMap(self._of, owned)

    @property
    def is_full(self) -> bool:
        """Whether the machine keeps more than it may in a ring at rest."""
        settings = self._parts.settings
        most = 0 if settings.is_eager else settings.intermediate_bytes
        return self._parts.node.results.bytes > most

    def check(self) -> None:
        """The machine has the results that it was told of, but for those that it has given up."""
        assert all(chunk in self._parts.node.results for chunk in self._of), "a result is lost"
