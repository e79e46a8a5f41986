"""Queries that come to a node through switches: each waits until all is there that its switch had sent before.

What a node has got from a switch is not all: what other nodes have computed of the same blocks may still be on its way.
So a switch sends a mark behind its blocks, and nodes tell each other, depth by depth of the map graph, that everything
before it has been sent, as they do at the end of an epoch (consistency paper, section 4.3). Nothing is committed for
it, and no other switch is waited for. Where there are no marks, the end of the epoch is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cumulus.cluster.clients.parts import part_answers
from cumulus.cluster.clients.query_messages import ForwardedQuery, QueryAnswer, QueryCheckpoint, QueryMark
from cumulus.cluster.clients.reads import answers
from cumulus.cluster.epoch_marks import EpochMarks
from cumulus.cluster.messages import (
    EntriesRead,
    PartsRead,
    ReadEntries,
    ReadParts,
    RequestRefused,
    node_name,
)
from cumulus.cluster.planning.epoch_routes import NodeRoutes
from cumulus.cluster.protocols.protocol import NodeProtocol
from cumulus.cluster.senders import NODE
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name, Send

MOST_ANSWER_BYTES = 16 << 20
"""Of an answer that goes through a switch, which has better things to do than to carry large ones."""
_ONLY = 0
"""The marks of a switch wait for nobody but that switch: its number among those that tell them."""


class HeldQueries:
    """What clients ask of a node: at once, or through a switch, for whose marks it waits then.

    Parameters
    ----------
    routes
        Whom the node tells how far it is, and for whom it waits.
    protocol
        What is done for its spread maps; None without any.
    """

    def __init__(self, routes: NodeRoutes, protocol: NodeProtocol | None) -> None:
        self._routes, self._protocol = routes, protocol
        self._marks: dict[Name, EpochMarks] = {}
        """Switch → its marks, which are told as the ends of epochs are."""
        self._epochs: dict[tuple[Name, int], int] = {}
        """Switch and mark → the epoch of what was sent before it."""
        self._held: list[tuple[Name, ForwardedQuery]] = []

    def take(self, sender: Name, message: object) -> Iterator[Send]:
        """Take a question, a query or a mark; yield what a client is answered that sees this node.

        Raises
        ------
        RemoteProtocolError
            If it is none, or was told before.
        """
        match message:
            case ReadEntries() | ReadParts():
                yield from (Send(sender, each) for each in self._answers(message))
                is_new = True
            case ForwardedQuery():
                self._held.append((sender, message))
                is_new = True
            case QueryMark(mark, epoch):
                self._epochs[sender, mark] = epoch
                is_new = self._of(sender).end(mark, _ONLY)
            case QueryCheckpoint(switch, mark, depth):
                is_new = self._of(switch).checkpoint(mark, depth, int(sender.removeprefix(NODE)))
            case _:
                is_new = False
        if not is_new:
            raise RemoteProtocolError(f"{message!r:.200} has come, and need not")

    def _of(self, switch: Name) -> EpochMarks:
        if switch not in self._marks:
            self._marks[switch] = EpochMarks((_ONLY,), self._routes.sources, 0)
        return self._marks[switch]

    def answered(self, over: int) -> Iterator[Send]:
        """Tell nodes how far this one is with marks; yield the answers that may be given now.

        Parameters
        ----------
        over
            The last epoch of which everything has come here.
        """
        for switch, marks in self._marks.items():
            yield from self._checkpoints(switch, marks)
        held, self._held = self._held, []
        for switch, query in held:
            marks = self._of(switch)
            if query.epoch > over and not 0 < query.mark <= marks.over:
                self._held.append((switch, query))
                continue
            found = self._answers(query.asked, MOST_ANSWER_BYTES)
            yield from (Send(switch, QueryAnswer(query.query, each)) for each in found)

    def _answers(self, asked: object, most: int | None = None) -> Iterator[EntriesRead | PartsRead | RequestRefused]:
        """Yield what this node answers, of so many bytes at most; None: of what a client may take."""
        maps = None if self._protocol is None else self._protocol.maps
        if isinstance(asked, ReadParts):
            return part_answers(maps, asked, most)
        assert isinstance(asked, ReadEntries), asked
        return answers(maps, asked, most)

    def _checkpoints(self, switch: Name, marks: EpochMarks) -> Iterator[Send]:
        is_done = partial(self._is_flushed, switch)
        for mark, depth in marks.tell(is_done):
            told = QueryCheckpoint(switch, mark, depth)
            yield from (Send(node_name(each), told) for each in self._routes.targets[depth])
        while (over := marks.next_over(is_done)) is not None:
            del self._epochs[switch, over]

    def _is_flushed(self, switch: Name, mark: int) -> bool:
        return self._protocol is None or self._protocol.is_flushed(self._epochs[switch, mark])
