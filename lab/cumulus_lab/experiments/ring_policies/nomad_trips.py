"""Trips of nomads in a simulated ring: from node to node upstream, with bids, and home again (section 7.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cumulus_lab.experiments.ring.set_up import RingSetUp
from cumulus_lab.experiments.ring_policies.node_work import NodeWork
from cumulus_lab.simulation import Agenda
from cumulus_ring.machine import RingNode
from cumulus_ring.machine.messages import QueryEnded, QuerySubmitted, RingEvent
from cumulus_ring.machine.policies.nomads import Nomad, bid_ms

if TYPE_CHECKING:
    from cumulus_lab.experiments.ring.world import QueryRun


class NomadTrips:
    """All nomads of a ring that are under way. Links lose nothing here, so each comes home.

    Parameters
    ----------
    agenda, set_up, nodes, work, sizes
        Of the world: sizes of chunks in bytes, by number.
    step, start
        Lets a node, by number, take in an event; lets a query run at its node.
    """

    def __init__(
        self,
        agenda: Agenda,
        set_up: RingSetUp,
        nodes: Sequence[RingNode],
        work: Sequence[NodeWork],
        sizes: Sequence[int],
        step: Callable[[int, RingEvent], None],
        start: Callable[[QueryRun], None],
    ) -> None:
        self._agenda = agenda
        self._latency_us = set_up.latency_us
        self._nodes = nodes
        self._work = work
        self._sizes = sizes
        self._step = step
        self._start = start
        self._under_way: dict[int, QueryRun] = {}
        self._numbers = {node.name: number for number, node in enumerate(nodes)}
        self.hops = 0
        """Visits of nomads to nodes other than their own."""
        self.moved = 0
        """Queries that have settled at another node than the one to which they came."""

    def set_out(self, run: QueryRun, most_hops: int) -> None:
        """Send the nomad of a query, which has sent its requests, to the predecessor of its node."""
        script = run.script
        self._under_way[script.number] = run
        name = self._nodes[script.node].name
        chunks = {chunk: self._sizes[chunk] for chunk in script.chunks}
        hops = min(most_hops, len(self._nodes) - 1)
        price = self._price(script.node, chunks)
        self._send(script.node, Nomad(name, script.number, 1, chunks, hops, name, price))

    def lacking(self, number: int, chunks: Sequence[int]) -> int:
        """Return how many bytes of chunks would have to come to a node."""
        return sum(self._sizes[chunk] for chunk in chunks if self._nodes[number].lacks(chunk))

    def _price(self, number: int, chunks: dict[int, int]) -> float:
        work = self._work[number]
        return bid_ms(self.lacking(number, [*chunks]), work.byte_s, len(work), work.query_s)

    def _send(self, number: int, nomad: Nomad) -> None:
        to = self._numbers[nomad.origin] if nomad.is_done else (number - 1) % len(self._nodes)
        self._agenda.after(self._latency_us, partial(self._came, to), nomad)

    def _came(self, number: int, nomad: Nomad) -> None:
        name = self._nodes[number].name
        if nomad.origin == name:
            self._settle(self._under_way.pop(nomad.query), self._numbers[nomad.node])
            return
        self.hops += 1
        self._send(number, nomad.with_bid(name, self._price(number, dict(nomad.chunks))))

    def _settle(self, run: QueryRun, number: int) -> None:
        """A nomad is home: its query moves to the cheapest node, unless it has failed meanwhile."""
        if run.failure:
            return
        query = run.script.number
        if number != run.script.node:
            self.moved += 1
            self._step(run.script.node, QueryEnded(query))
            run.script = replace(run.script, node=number)
            self._step(number, QuerySubmitted(query, run.begin()))
        self._start(run)
