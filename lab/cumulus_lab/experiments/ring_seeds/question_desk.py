"""Questions at a node of a simulated ring: those of its own queries on their way, and visits of others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cumulus.machine import Name
from cumulus_lab.experiments.ring_seeds.engine import ScriptedEngine
from cumulus_lab.experiments.ring_seeds.random_faults import RandomFaults
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.simulation import Reports
from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.messages import QueryId
from cumulus_ring.machine.policies.intermediates import ResultSearch
from cumulus_ring.machine.policies.nomads import Nomad
from cumulus_ring.machine.policies.questions import OpenQuestions

Question = TypeVar("Question", Nomad, ResultSearch)


@dataclass(frozen=True)
class DeskParts:
    """What a desk works with.

    Parameters
    ----------
    node, source, settings, engine
        The machine, what queries read, settings of all nodes, and what runs the queries.
    send
        Sends a question to a node.
    faults
        What happens to questions on the way here.
    reports
        Where it is counted what happens.
    """

    node: RingNode
    source: SimulatedSource
    settings: RingSettings
    engine: ScriptedEngine
    send: Callable[[Name, Nomad | ResultSearch], None]
    faults: RandomFaults
    reports: Reports


class QuestionDesk(ABC, Generic[Question]):
    """Questions of one kind, of one life of a node.

    Parameters
    ----------
    kind
        What they are called.
    parts
        Of the node.
    """

    def __init__(self, kind: str, parts: DeskParts) -> None:
        self._kind = kind
        self._parts = parts
        self._me = parts.node.name
        self._ring_epoch = 0
        self._members: Sequence[Name] = ()
        self._open = OpenQuestions()

    def __len__(self) -> int:
        """How many queries wait for an answer."""
        return len(self._open)

    def joins(self, ring_epoch: int, members: Sequence[Name]) -> None:
        """A ring epoch begins: questions under way are of the one before, and get no answer."""
        self._ring_epoch, self._members = ring_epoch, members
        for query in self._open.close_all():
            self._parts.reports(f"{self._kind} of a former ring")
            self._unanswered(query)

    def tick(self, now: int) -> None:
        """Let queries go on whose questions have not come home in time."""
        for query in self._open.overdue(now):
            self._parts.reports(f"{self._kind} lost")
            self._unanswered(query)

    def came(self, question: Question) -> None:
        """A question has come, unless it is lost; perhaps twice."""
        for _ in range(self._parts.faults.copies(self._kind, self._parts.reports)):
            self._take(question)

    def _take(self, question: Question) -> None:
        """Take a question in: home again, or for a visit. One of another ring goes no further."""
        if question.ring_epoch != self._ring_epoch:
            self._parts.reports(f"{self._kind} of another ring")
        elif question.origin != self._me:
            assert question.hops_left > 0, f"a {self._kind} visits more nodes than it may"
            self._parts.reports(f"{self._kind} at a node")
            self._send(self._visited(question))
        elif self._open.close(question.query):
            self._answered(question)
        else:
            self._parts.reports(f"{self._kind} home twice or too late")

    def _set_out(self, question: Question, now: int) -> None:
        """Send a question of this node's own upstream; in a ring of one there is no other node."""
        if question.is_done:
            self._unanswered(question.query)
            return
        self._open.open(question.query, now + self._parts.settings.resend_floor_us)
        self._send(question)

    def _send(self, question: Question) -> None:
        before = self._members[self._members.index(self._me) - 1]
        self._parts.send(question.origin if question.is_done else before, question)

    @abstractmethod
    def _visited(self, question: Question) -> Question:
        """Return a question of another node after its visit here."""

    @abstractmethod
    def _answered(self, question: Question) -> None:
        """Let a query of this node go on with what its question has brought home."""

    @abstractmethod
    def _unanswered(self, query: QueryId) -> None:
        """Let a query of this node go on without an answer."""
