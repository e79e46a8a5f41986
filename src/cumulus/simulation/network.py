"""Links between machines: reliable, in order per pair, as late as chance says between pairs; and what cuts them.

A link is between two lives. When one ends, what is under way is lost and the other end is told so once; what is sent
after that waits for the next life. A message of a next life tells of the end of the one before, too, as a new
connection does. Partitions hold messages up and lose none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cumulus.machine import Input, Lost, Name, Received, Send
from cumulus.simulation.agenda import Agenda
from cumulus.simulation.choices import ChoiceStream
from cumulus.simulation.life import Life, VirtualLink
from cumulus.simulation.scenario import Travel, Wire

Tell = Callable[[Life, Input], None]

SHORTEST = 50
"""The shortest delay, in microseconds."""


def usual_travel(longest: int) -> Travel:
    """Return delays of up to so many microseconds, mostly short."""

    def travel(stream: ChoiceStream, sender: Name, to: Name, size: int, now: int) -> int:
        return SHORTEST + stream.mostly_short(longest)

    return travel


@dataclass(frozen=True, eq=False)
class Cut:
    """Pairs of machines whose messages wait, each in one direction."""

    pairs: frozenset[tuple[Name, Name]]


class Network:
    """All links of a world.

    Parameters
    ----------
    agenda
        When what arrives.
    lives
        The current life of each machine that has one.
    names
        All machines.
    wire, travel
        How messages travel, and how long.
    streams
        The choices about the messages of each machine.
    tell
        Puts an input into the inbox of a life.
    counts
        Where messages and what is lost of them are counted.
    """

    def __init__(
        self,
        agenda: Agenda,
        lives: Mapping[Name, Life],
        wire: Wire,
        travel: Travel,
        streams: Mapping[Name, ChoiceStream],
        tell: Tell,
        counts: Counter[str],
    ) -> None:
        self._agenda = agenda
        self._lives = lives
        self._encode = wire.encode
        self._decode = wire.decode
        self._travel = travel
        self._streams = streams
        self._tell = tell
        self._counts = counts
        self._cuts: list[Cut] = []
        self.messages = 0
        self.bytes = 0

    # --- messages ---------------------------------------------------------------------------------------------------

    def send(self, life: Life, effect: Send) -> None:
        """Send a message of a life."""
        to = effect.to
        data = self._encode(effect.message)
        link = life.links.get(to) or self._linked(life, to)
        self.messages += 1
        self.bytes += len(data)
        if link.peer is None:
            link.waiting.append(data)
        elif link.peer.is_alive:
            self._fly(link, data)
        else:
            self._counts["message lost"] += 1

    def _linked(self, life: Life, to: Name) -> VirtualLink:
        """Return a new link to the current life of a machine, or to its next one."""
        assert to in self._streams, f"{life.name} sends to {to}, and there is no such machine"
        pair = life.name, to
        link = VirtualLink(life, to, self._lives.get(to), sum(pair in cut.pairs for cut in self._cuts))
        life.links[to] = link
        return link

    def _fly(self, link: VirtualLink, data: bytes) -> None:
        agenda, name = self._agenda, link.sender.name
        delay = self._travel(self._streams[name], name, link.to, len(data), agenda.now)
        link.free = max(link.free, agenda.now + delay)
        link.flight.append(data)
        agenda.after(link.free - agenda.now, self._arrive, link)

    def _arrive(self, link: VirtualLink) -> None:
        """The first message of a link is there, if it still has both ends."""
        sender, receiver = link.sender, link.peer
        assert receiver is not None
        if not (sender.is_alive and receiver.is_alive):
            self._counts["message lost"] += 1
        elif link.cuts:
            link.stalled += 1
        else:
            if not link.is_known:
                self._meet(link, receiver)
            self._tell(receiver, Received(sender.name, self._decode(link.flight.popleft())))

    def _meet(self, link: VirtualLink, receiver: Life) -> None:
        """Let the receiver know of the link; if it still has one to an earlier life of the sender, that is lost."""
        link.is_known = True
        back = receiver.links.get(link.sender.name)
        if back is None:
            self._linked(receiver, link.sender.name)
        elif back.peer is not link.sender:
            self._lose(back)

    # --- ends of lives ----------------------------------------------------------------------------------------------

    def crashed(self, dead: Life, stream: ChoiceStream, longest: int) -> None:
        """Let all who have a link to a life that has ended know of it, each after a while."""
        for life in self._lives.values():
            link = life.links.get(dead.name)
            if link is not None and link.peer is dead:
                self._agenda.after(SHORTEST + stream.mostly_short(longest), self._notice, link)

    def _notice(self, link: VirtualLink) -> None:
        if link.sender.is_alive and link.sender.links[link.to] is link:
            if link.cuts:
                link.stalled += 1
            else:
                self._lose(link)

    def _lose(self, link: VirtualLink) -> None:
        self._linked(link.sender, link.to)
        self._tell(link.sender, Lost(link.to))

    def started(self, life: Life) -> None:
        """Send a new life what waits for it."""
        for each in self._lives.values():
            link = each.links.get(life.name)
            if link is not None and link.peer is None:
                link.peer = life
                waiting, link.waiting = link.waiting, []
                for data in waiting:
                    self._fly(link, data)

    # --- partitions -------------------------------------------------------------------------------------------------

    def cut(self, pairs: Iterable[tuple[Name, Name]]) -> Cut:
        """Hold up all messages of some pairs (sender, receiver), until `heal`."""
        cut = Cut(frozenset(pairs))
        self._cuts.append(cut)
        for link in self._links(cut):
            link.cuts += 1
        return cut

    def heal(self, cut: Cut) -> None:
        """End a cut: what was held up arrives, in its order."""
        self._cuts.remove(cut)
        for link in self._links(cut):
            link.cuts -= 1
            if not link.cuts:
                stalled, link.stalled = link.stalled, 0
                deed = self._arrive if link.peer is not None and link.peer.is_alive else self._notice
                for _ in range(stalled):
                    self._agenda.after(SHORTEST, deed, link)

    def _links(self, cut: Cut) -> list[VirtualLink]:
        return [
            link
            for life in self._lives.values()
            for link in life.links.values()
            if (link.sender.name, link.to) in cut.pairs
        ]
