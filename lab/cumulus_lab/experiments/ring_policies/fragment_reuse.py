"""Results of fragments in a simulated ring: who has one, who reads it, and who computes it (section 7.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from cumulus_lab.experiments.ring.set_up import FragmentAccess, RingSetUp, ScriptedQuery
from cumulus_lab.simulation import Agenda
from cumulus_ring.machine import RingNode
from cumulus_ring.machine.messages import IntermediateMade
from cumulus_ring.machine.policies.intermediates import ResultSearch


class FragmentReuse:
    """The results of all nodes, and searches for them. Links lose nothing here, so each search comes home.

    Parameters
    ----------
    agenda, set_up, nodes
        Of the world.
    sizes
        Sizes of chunks in bytes, by number; results are added.
    go_on
        Is given the script that a query runs: that of its fragment, or one that reads a result.
    """

    def __init__(
        self,
        agenda: Agenda,
        set_up: RingSetUp,
        nodes: Sequence[RingNode],
        sizes: list[int],
        go_on: Callable[[ScriptedQuery], None],
    ) -> None:
        self._agenda = agenda
        self._latency_us = set_up.latency_us
        self._access = set_up.access
        self._nodes = nodes
        self._numbers = {node.name: number for number, node in enumerate(nodes)}
        self._sizes = sizes
        self._chunks = len(sizes)
        self._go_on = go_on
        self._have: list[dict[int, int]] = [{} for _ in nodes]
        """By node: the chunk that is the result of a fragment."""
        self._fragments: dict[int, int] = {}
        """By result: its fragment."""
        self._scripts: dict[int, ScriptedQuery] = {}
        """What queries that read a result would do without it."""
        self.reads = 0
        """Queries that have read a result in place of computing it."""
        self.twice = 0
        """Results that their node has computed when it had them already."""

    def __contains__(self, chunk: int) -> bool:
        """Whether a chunk is a result, which is in memory."""
        return chunk >= self._chunks

    def look_for(self, script: ScriptedQuery) -> None:
        """Look for the result of a query's fragment: at its own node, then upstream from node to node."""
        name = self._nodes[script.node].name
        self._scripts[script.number] = script
        search = ResultSearch(name, script.number, 1, script.fragment, len(self._nodes))
        self._visit(script.node, search)

    def _visit(self, number: int, search: ResultSearch) -> None:
        search = search.at_next(self._have[number].get(search.fragment))
        origin = self._numbers[search.origin]
        if search.is_done and origin == number:
            self._home(search)
        else:
            to = origin if search.is_done else (number - 1) % len(self._nodes)
            self._agenda.after(self._latency_us, partial(self._came, to), search)

    def _came(self, number: int, search: ResultSearch) -> None:
        if search.origin == self._nodes[number].name:
            self._home(search)
        else:
            self._visit(number, search)

    def _home(self, search: ResultSearch) -> None:
        """Read the result, or compute it."""
        script = self._scripts[search.query]
        if search.chunk is None:
            del self._scripts[search.query]
            self._go_on(script)
            return
        assert isinstance(self._access, FragmentAccess)
        self._go_on(replace(script, chunks=(search.chunk,), work_us=(self._access.reuse_ms * 1000,)))

    def falls_back(self, query: int) -> bool:
        """A query has failed: compute its fragment, if it has tried to read a result, which is gone."""
        script = self._scripts.pop(query, None)
        if script is None:
            return False
        self._go_on(script)
        return True

    def finished(self, script: ScriptedQuery) -> tuple[ScriptedQuery, IntermediateMade | None]:
        """A query is at its end: return its fragment's script, and the result if it has computed one.

        A result that its node has already, as another query was quicker, is none.
        """
        computed = self._scripts.pop(script.number, None)
        if computed is not None:
            self.reads += 1
            return computed, None
        have = self._have[script.node]
        if script.fragment in have:
            self.twice += 1
            return script, None
        assert isinstance(self._access, FragmentAccess)
        chunk = have[script.fragment] = len(self._sizes)
        self._sizes.append(round(self._access.result_share * sum(self._sizes[each] for each in script.chunks)))
        self._fragments[chunk] = script.fragment
        return script, IntermediateMade(chunk, self._sizes[chunk])

    def dropped(self, number: int, chunk: int) -> None:
        """A node has given up a result."""
        del self._have[number][self._fragments.pop(chunk)]
