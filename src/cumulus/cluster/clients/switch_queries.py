"""What clients ask of other machines through a switch, on its way there and back.

Each machine is asked only so much at once, so that one that hangs keeps nobody waiting who asks others, and what a
switch may have of answers has a bound. A client has one query at a time: if it asks another one, it has given up the
one before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cumulus.cluster.clients.query_messages import ForwardedQuery, Query, QueryAnswer, QueryMark
from cumulus.cluster.messages import (
    EntriesRead,
    PartsRead,
    ReadEntries,
    ReadParts,
    RequestRefused,
    RowsHeld,
    StatusAsked,
)
from cumulus.cluster.output_files import ListOutput, ReadOutput
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Lost, Name, Received, Send

MOST_AT_ONCE = 4
"""So many queries a machine is asked before it has answered one of them; others wait at the switch."""


@dataclass(slots=True)
class _Asked:
    """A query that a machine has: whose it is, "" if nobody's any more."""

    client: Name
    machine: Name


class SwitchQueries:
    """The queries of a switch's clients.

    Parameters
    ----------
    nodes
        All of them.
    publisher
        Who is asked for what is committed.
    has_marks
        Whether nodes can tell each other how far they are within an epoch; else queries wait for its end.
    """

    def __init__(self, nodes: Sequence[Name], publisher: Name, *, has_marks: bool) -> None:
        self._nodes, self._publisher, self._has_marks = tuple(nodes), publisher, has_marks
        self._epoch = self._mark = 0
        """The last epoch of which anything was sent, and the last mark."""
        self._is_marked = True
        """Whether nothing was sent since."""
        self._last = 0
        self._open: dict[int, _Asked] = {}
        self._waiting: dict[Name, Query] = {}
        """Client → what it asks, and nobody was asked yet."""
        self._busy: Counter[Name] = Counter()
        """Machine → how many queries it has."""

    def note_sent(self, epoch: int) -> None:
        """Take notice that nodes were sent something of an epoch."""
        self._epoch, self._is_marked = epoch, False

    def take(self, what: Received | Lost) -> Iterator[Send]:
        """Take a query, an answer, or the loss of a client; yield what clients get now.

        Raises
        ------
        RemoteProtocolError
            If a machine answers what it was not asked.
        """
        match what:
            case Lost(peer):
                self._lose(peer)
            case Received(machine, QueryAnswer() as answer):
                yield from self._answer(machine, answer)
            case Received(client, Query() as query):
                yield from self._take_query(client, query)

    def _take_query(self, client: Name, query: Query) -> Iterator[Send]:
        """Take a query; yield what the client is told at once: that it is none, or must wait."""
        self._lose(client)
        why = self._why_refused(query)
        if why:
            yield Send(
                client, RequestRefused(query.number, why, "Connect again, with the same release as the cluster.")
            )
            return
        self._waiting[client] = query
        if self._busy[query.machine] >= MOST_AT_ONCE:
            held = f"{query.machine} has not answered {MOST_AT_ONCE} queries that came before"
            yield Send(client, RowsHeld(query.number, held))

    def _why_refused(self, query: Query) -> str:
        """Why nobody is asked; "" if somebody is."""
        if query.machine in self._nodes:
            kinds: tuple[type, ...] = (ReadEntries, ReadParts)
        elif query.machine == self._publisher:
            kinds = (ReadOutput, ListOutput, StatusAsked)
        else:
            return f"there is no node {query.machine!r:.50} to ask"
        if not isinstance(query.asked, kinds) or getattr(query.asked, "number", None) != query.number:
            return f"{query.machine} is not asked a {type(query.asked).__name__} through a switch"
        return ""

    def forwarded(self, committed: int, *, is_held: bool) -> Iterator[Send]:
        """Yield what machines are asked now, after everything that was sent before.

        Parameters
        ----------
        committed
            The last committed epoch.
        is_held
            Whether all queries wait: something that was accepted in a life before is not sent again yet.
        """
        if is_held:
            return
        for client, query in list(self._waiting.items()):
            if self._busy[query.machine] >= MOST_AT_ONCE:
                continue
            del self._waiting[client]
            epoch = mark = 0
            if query.machine != self._publisher and self._epoch > committed:
                if self._has_marks and not self._is_marked:
                    self._mark, self._is_marked = self._mark + 1, True
                    yield from (Send(each, QueryMark(self._mark, self._epoch)) for each in self._nodes)
                epoch, mark = self._epoch, self._mark
            self._last += 1
            self._busy[query.machine] += 1
            self._open[self._last] = _Asked(client, query.machine)
            yield Send(query.machine, ForwardedQuery(self._last, epoch, mark, query.asked))

    def _answer(self, machine: Name, told: QueryAnswer) -> Iterator[Send]:
        """Yield what a client gets of what a machine has answered; nothing if it has left."""
        asked = self._open.get(told.query)
        if asked is None or asked.machine != machine:
            raise RemoteProtocolError(f"{machine} answers query {told.query}, which it was not asked")
        if not isinstance(told.answer, EntriesRead | PartsRead) or not told.answer.left:
            del self._open[told.query]
            self._busy[machine] -= 1
        if asked.client:
            yield Send(asked.client, told.answer)

    def _lose(self, client: Name) -> None:
        """Take notice that a client has left, or asks something else: nobody waits for what it has asked."""
        self._waiting.pop(client, None)
        for each in self._open.values():
            if each.client == client:
                each.client = ""

    def reset(self) -> None:
        """Forget everything: in the next incarnation clients ask again, and what was sent is sent again."""
        self._open.clear()
        self._waiting.clear()
        self._busy.clear()
        self._mark, self._is_marked = 0, False

    def facts(self) -> dict[str, object]:
        """Return how many queries machines have, and how many wait to be asked."""
        return {"queries": len(self._open), "waiting_queries": len(self._waiting)}
