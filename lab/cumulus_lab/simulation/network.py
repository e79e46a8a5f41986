"""Links between machines: reliable, in order per pair, as late as chance says between pairs; and what cuts them.

A link is between two lives. When one ends, what is under way is lost and the other end is told so once. What is sent
after that waits for the next life; a message of a next life tells of the end of the one before, as a new connection
does. Partitions hold messages up and lose none.

Between *members*, the machines that a supervisor has started, a link that is lost stays lost, as in
`cumulus.transport`: what is sent is dropped until the member meets the others anew. Then it loses all links that it
still has, also those to clients, and messages of members that have met before it wait for it.

A machine of which another member has too much unread *holds*, as in `cumulus.transport`: what clients send it, and
those members that feed it, arrives when that is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cumulus.machine import Input, Lost, Name, Received, Send
from cumulus_lab.simulation.agenda import Agenda
from cumulus_lab.simulation.choices import ChoiceStream
from cumulus_lab.simulation.life import IncarnationStart, Life, VirtualLink
from cumulus_lab.simulation.scenario import BackPressure, Travel, Wire

Tell = Callable[[Life, Input], None]
Reconnect = Callable[[Life, int], None]

NO_END = 1 << 62

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
    members, supervisor
        The machines whose links come back in a new incarnation only, and the one that lets them.
    wire, travel
        How messages travel, and how long.
    streams
        The choices about the messages of each machine.
    tell, reconnect
        Put an input into the inbox of a life; say to a member that it meets the others, in which incarnation.
    counts
        Where messages and what is lost of them are counted.
    pressure
        When machines hold.
    """

    def __init__(
        self,
        agenda: Agenda,
        lives: Mapping[Name, Life],
        members: frozenset[Name],
        supervisor: Name,
        wire: Wire,
        travel: Travel,
        streams: Mapping[Name, ChoiceStream],
        tell: Tell,
        reconnect: Reconnect,
        counts: Counter[str],
        pressure: BackPressure,
    ) -> None:
        self._agenda = agenda
        self._lives = lives
        self._members = members
        self._supervisor = supervisor
        self._encode = wire.encode
        self._decode = wire.decode
        self._travel = travel
        self._streams = streams
        self._tell = tell
        self._reconnect = reconnect
        self._counts = counts
        self._pressure = pressure
        self._cuts: list[Cut] = []
        self.messages = 0
        self.bytes = 0

    # --- messages ---------------------------------------------------------------------------------------------------

    def send(self, life: Life, effect: Send, incarnation: int) -> None:
        """Send a message that a life has made in an incarnation."""
        to = effect.to
        data = self._encode(effect.message)
        link = life.links.get(to) or self._linked(life, to)
        self.messages += 1
        self.bytes += len(data)
        is_old = incarnation != life.incarnation and to != self._supervisor
        # A supervisor does not wait for a member that has ended: what it starts instead is told anew.
        is_ended = link.peer is None and life.name == self._supervisor and to in self._members
        if is_old or is_ended or link.is_lost or (link.peer is not None and not link.peer.is_alive):
            self._counts["message lost"] += 1
        elif link.peer is None and link.incarnation is None:
            link.waiting.append(data)
        else:
            self._fly(link, data)

    def start_incarnation(self, supervisor: Life, incarnation: int, message: Any) -> None:
        """Send each running member the start of an incarnation, in order with its supervisor's other messages."""
        meeting = IncarnationStart(incarnation, None if message is None else self._encode(message))
        for name in self._streams:
            if name in self._members and name in self._lives:
                link = supervisor.links.get(name) or self._linked(supervisor, name)
                if link.peer is not self._lives[name]:
                    self._lose(link)
                self._fly(supervisor.links[name], meeting)

    def _linked(self, life: Life, to: Name) -> VirtualLink:
        """Return a new link to the current life of a machine, or to its next one; between members, to whom it meets."""
        assert to in self._streams, f"{life.name} sends to {to}, and there is no such machine"
        pair = life.name, to
        is_among = life.name in self._members and to in self._members
        peer = None if is_among else self._lives.get(to)
        cuts = sum(pair in cut.pairs for cut in self._cuts)
        link = life.links[to] = VirtualLink(life, to, peer, cuts, life.incarnation if is_among else None)
        return link

    def _fly(self, link: VirtualLink, data: bytes | IncarnationStart) -> None:
        agenda, name = self._agenda, link.sender.name
        size = len(data) if isinstance(data, bytes) else 0
        link.free = max(link.free, agenda.now + self._travel(self._streams[name], name, link.to, size, agenda.now))
        link.flight.append(data)
        link.unread += size
        agenda.after(link.free - agenda.now, self._arrive, link)

    def _arrive(self, link: VirtualLink) -> None:
        """The first message of a link is there, if it still has both ends."""
        sender = link.sender
        receiver = link.peer if link.incarnation is None else self._lives.get(link.to)
        is_gone = link.is_lost or not sender.is_alive or sender.links.get(link.to) is not link
        if is_gone or receiver is None or not receiver.is_alive or receiver.incarnation > (link.incarnation or NO_END):
            self._counts["message lost"] += 1
            is_old = receiver is not None and receiver.incarnation > (link.incarnation or NO_END)
            self._counts["message of an old incarnation"] += is_old
        elif link.cuts or receiver.incarnation < (link.incarnation or 0):
            link.stalled += 1
        elif self._is_held(link, receiver):
            self._counts["message held by back-pressure"] += 1
            receiver.is_holding = True
            link.stalled += 1
        else:
            if link.incarnation is None and not link.is_known:
                self._introduce(link, receiver)
            data = link.flight.popleft()
            if isinstance(data, bytes):
                link.unread -= len(data)
                self._read_on(sender)
            if isinstance(data, IncarnationStart):
                self._reconnect(receiver, data.incarnation)
                if data.message is not None and receiver.is_alive:
                    self._tell(receiver, Received(sender.name, self._decode(data.message)))
            else:
                self._tell(receiver, Received(sender.name, self._decode(data)))

    def _is_held(self, link: VirtualLink, receiver: Life) -> bool:
        """Whether a machine does not read now what comes over a link."""
        feeders = self._pressure.fed_by.get(receiver.name, frozenset())
        is_feeding = link.sender.name in feeders or self._is_client(link.sender.name)
        return is_feeding and self._is_congested(receiver)

    def _is_client(self, name: Name) -> bool:
        return name not in self._members and name != self._supervisor

    def _is_congested(self, life: Life) -> bool:
        """Whether another member leaves more unread than it should."""
        most = self._pressure.most_unread
        return bool(most) and any(
            link.unread >= most and not link.is_lost for to, link in life.links.items() if to in self._members
        )

    def _read_on(self, life: Life) -> None:
        """Let a machine that has held read again, once others have read what it has sent."""
        if life.is_holding and not self._is_congested(life):
            life.is_holding = False
            for each in self._lives.values():
                link = each.links.get(life.name)
                if link is not None and link.stalled and not link.cuts:
                    self._go_on(link)

    def _introduce(self, link: VirtualLink, receiver: Life) -> None:
        """Let the receiver know of the link; if it still has another one, that is lost."""
        link.is_known = True
        back = receiver.links.get(link.sender.name)
        if back is None:
            self._linked(receiver, link.sender.name)
        elif back.peer is not link.sender or back.is_lost:
            self._lose(back)

    # --- ends of links ----------------------------------------------------------------------------------------------

    def crashed(self, dead: Life, stream: ChoiceStream, longest: int) -> None:
        """Let all who have a link to a life that has ended know of it, each after a while."""
        for life in self._lives.values():
            link = life.links.get(dead.name)
            if link is not None and (link.peer is dead or link.incarnation):
                self._agenda.after(SHORTEST + stream.mostly_short(longest), self._notice, link)

    def _notice(self, link: VirtualLink) -> None:
        """A machine notices that a link has no other end any more."""
        if link.sender.is_alive and link.sender.links.get(link.to) is link:
            if link.cuts:
                link.is_ending = True
            else:
                self._lose(link)

    def _lose(self, link: VirtualLink) -> None:
        """Tell a machine that it has lost a link. Between members there is no other one yet."""
        if link.incarnation is None:
            self._linked(link.sender, link.to)
        elif link.is_lost:
            return
        link.is_lost = True
        self._tell(link.sender, Lost(link.to))
        self._read_on(link.sender)

    def started(self, life: Life) -> None:
        """Send a new life what waits for it."""
        for each in self._lives.values():
            link = each.links.get(life.name)
            if link is not None and link.peer is None and link.incarnation is None:
                link.peer = life
                waiting, link.waiting = link.waiting, []
                for data in waiting:
                    self._fly(link, data)

    def reconnected(self, life: Life, incarnation: int) -> None:
        """Replace the links of a member: it loses its old ones, also to clients, which notice it later."""
        former, life.incarnation = life.incarnation, incarnation
        for name in self._streams:
            old = life.links.get(name)
            if name in self._members and name != life.name:
                self._linked(life, name)
                if former and (old is None or not old.is_lost):
                    self._tell(life, Lost(name))
            elif former and old is not None and name != self._supervisor:
                self._lose(old)
                if old.peer is not None and (back := old.peer.links.get(life.name)) is not None and back.peer is life:
                    back.is_lost = True
                    self._agenda.after(SHORTEST, self._notice, back)
        for each in self._lives.values():
            link = each.links.get(life.name)
            if link is not None and link.incarnation == incarnation:
                self._go_on(link)
        self._read_on(life)

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
                self._go_on(link)

    def _go_on(self, link: VirtualLink) -> None:
        """Let arrive what was held up, and the news of the other end's end."""
        stalled, link.stalled = link.stalled, 0
        for _ in range(stalled):
            self._agenda.after(SHORTEST, self._arrive, link)
        if link.is_ending:
            self._agenda.after(SHORTEST, self._notice, link)

    def _links(self, cut: Cut) -> list[VirtualLink]:
        links = [link for life in self._lives.values() for link in life.links.values()]
        return [link for link in links if (link.sender.name, link.to) in cut.pairs]
