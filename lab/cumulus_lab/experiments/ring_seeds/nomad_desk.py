"""Nomads at a node of a simulated ring: those of its own queries, and visits of others (section 7.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cumulus.machine import Name
from cumulus_lab.experiments.ring_seeds.engine import ScriptedEngine, ScriptedRun
from cumulus_lab.experiments.ring_seeds.random_faults import RandomFaults
from cumulus_lab.experiments.ring_seeds.source import SimulatedSource
from cumulus_lab.simulation import Reports
from cumulus_ring.machine import RingNode, RingSettings
from cumulus_ring.machine.messages import ChunkId, QueryId
from cumulus_ring.machine.policies.nomads import Nomad, bid_ms
from cumulus_ring.machine.policies.questions import OpenQuestions

BYTE_S, QUERY_S = 1e-5, 0.02


class NomadDesk:
    """Nomads of one life of a node.

    Parameters
    ----------
    node, source, settings, engine
        Its machine, what queries read, settings of all nodes, and what runs the queries.
    send
        Sends a nomad to a node.
    move
        Takes a query to the node of its script.
    faults
        What happens to nomads on the way here.
    reports
        Where it is counted what happens.
    """

    def __init__(
        self,
        node: RingNode,
        source: SimulatedSource,
        settings: RingSettings,
        engine: ScriptedEngine,
        send: Callable[[Name, Nomad], None],
        move: Callable[[ScriptedRun], None],
        faults: RandomFaults,
        reports: Reports,
    ) -> None:
        self._node = node
        self._source = source
        self._settings = settings
        self._engine = engine
        self._send_to = send
        self._move = move
        self._faults = faults
        self._reports = reports
        self._ring_epoch = 0
        self._members: Sequence[Name] = ()
        self._open = OpenQuestions()
        engine.set_out = self._set_out if settings.nomad_hops else None

    def __len__(self) -> int:
        """How many queries wait for their nomads."""
        return len(self._open)

    def joins(self, ring_epoch: int, members: Sequence[Name]) -> None:
        """A ring epoch begins: nomads under way are of the one before, so their queries stay here."""
        self._ring_epoch, self._members = ring_epoch, members
        for query in self._open.close_all():
            self._reports("nomad of a former ring")
            self._engine.stay(query)

    def tick(self, now: int) -> None:
        """Let queries stay here whose nomads have not come home in time."""
        for query in self._open.overdue(now):
            self._reports("nomad lost")
            self._engine.stay(query)

    def _set_out(self, query: QueryId, chunks: Collection[ChunkId], now: int) -> None:
        """Send the nomad of a query upstream, which has sent its requests; in a ring of one there is no other node."""
        hops = min(self._settings.nomad_hops, len(self._members) - 1)
        if not hops:
            self._engine.stay(query)
            return
        self._open.open(query, now + self._settings.resend_floor_us)
        sizes = {chunk: self._source.sizes[chunk] for chunk in sorted(chunks) if chunk < len(self._source.sizes)}
        me = self._node.name
        self._send(Nomad(me, query, self._ring_epoch, sizes, hops, me, self._price(sizes)))

    def came(self, nomad: Nomad) -> None:
        """A nomad has come, unless it is lost; perhaps twice."""
        if self._faults.strikes(self._faults.drop):
            self._reports("nomad dropped")
            return
        for _ in range(1 + self._faults.strikes(self._faults.duplicate)):
            self._take(nomad)

    def _take(self, nomad: Nomad) -> None:
        """Take a nomad in: home again, or for a bid. One of another ring goes no further."""
        me = self._node.name
        if nomad.ring_epoch != self._ring_epoch:
            self._reports("nomad of another ring")
        elif nomad.origin != me:
            assert not nomad.is_done, "a nomad visits more nodes than it may"
            self._reports("bid")
            self._send(nomad.with_bid(me, self._price(nomad.chunks)))
        elif self._open.close(nomad.query):
            assert nomad.node in self._members, f"a query settles at {nomad.node}, which is no member"
            if nomad.node == me:
                self._engine.stay(nomad.query)
            elif (run := self._engine.leave(nomad.query, nomad.node)) is not None:
                self._move(run)
        else:
            self._reports("nomad home twice or too late")

    def _price(self, chunks: Collection[ChunkId]) -> float:
        moved = sum(self._source.sizes[chunk] for chunk in chunks if self._node.lacks(chunk))
        return bid_ms(moved, BYTE_S, self._node.status().queries, QUERY_S)

    def _send(self, nomad: Nomad) -> None:
        before = self._members[self._members.index(self._node.name) - 1]
        self._send_to(nomad.origin if nomad.is_done else before, nomad)
