"""The planner of the cluster: on the node of which column each statement is computed.

A home makes replica sets necessary (`cumulus.cluster.placement.segments`), and a replica set costs memory and messages.
The planner looks for homes by whose replica sets the least bytes lie and travel: first one home for all statements of a
table, then others for some of them. What it counts with are the bounds of `cumulus.explain.sizes`, from counts of the
user's or from guesses by references. Homes do not depend on how many nodes there are, so the node program is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cumulus.cluster.node_programs.program import Homes
from cumulus.cluster.placement.home_costs import HomeCosts, various_columns
from cumulus.cluster.placement.segments import At, Flow, flows
from cumulus.cluster.placement.table_columns import table_column
from cumulus.errors import UsageError
from cumulus.explain.sizes import Statistics
from cumulus.m3.program import Program

MOST_LOOKS = 20_000
"""How many homes are looked at for the cheapest ones."""
PASSES = 4
"""How often the planner goes over all tables at most."""


def choose_homes(spread: Program, statistics: Statistics, hints: Mapping[str, str] | None = None) -> Homes:
    """Return the home of every statement of single events; those of ``+r`` and ``-r`` that do the same have the same.

    Parameters
    ----------
    spread
        A program whose statements nodes can compute alone (`cumulus.cluster.spread`).
    statistics
        What is known of the tables.
    hints
        Relation → the home of all its statements, as `homes_asked_for` reads them.

    Returns
    -------
    Homes
        Columns of the relations and not variables, as ``ON +r`` and ``ON -r`` may call them differently.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +r(a, b) { q[] += m[b] } ON +s(b) { m[b] += 1 }")
    >>> choose_homes(program, Statistics())
    {(0, 0): 'b', (1, 0): 'b'}
    """
    found = flows(spread)
    costs = HomeCosts(spread, list(found), statistics)
    _Search(costs).run(hints or {})
    chosen: dict[At, str | None] = {at: costs.homes[flow] for flow, places in found.items() for at in places}
    return dict(sorted(chosen.items()))


def homes_asked_for(program: Program, texts: Iterable[str]) -> dict[str, str]:
    """Return relation → column of hints such as ``orders.oid``.

    Raises
    ------
    UsageError
        If there is no such column, or two are named for one table.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, column = table_column(program, "--home", text)
        if found.setdefault(name, column) != column:
            raise UsageError(f"two homes for {name}: {found[name]} and {column}", hint="Give --home once for a table.")
    return found


class _Search:
    """Looks for homes that cost little; the costs have those of the flows that have one so far."""

    def __init__(self, costs: HomeCosts) -> None:
        self._costs, self._homes = costs, costs.homes

    def run(self, hints: Mapping[str, str]) -> None:
        """Choose: one home for each table, the largest first; then others for single flows, while it gets cheaper."""
        rows, of_relation = self._costs.known.rows, self._costs.of_relation
        relations = sorted(of_relation, key=lambda name: (-rows[name], name))

        def choices(together: Sequence[Flow]) -> Sequence[str | None]:
            relation = together[0].relation
            return [hints[relation]] if relation in hints else candidates[relation] + _no_home(together)

        candidates = {name: _candidates(self._costs.program, name, of_relation[name]) for name in relations}
        for turn in range(PASSES):
            changed = [self._place(each, choices(each)) for each in map(of_relation.__getitem__, relations)]
            if turn:
                changed += [self._place([flow], choices([flow])) for flow in self._costs.every]
            if not any(changed):
                break

    def _place(self, together: Sequence[Flow], choices: Sequence[str | None]) -> bool:
        """Give some flows of a relation the home that costs least, the one that they have before others; say if new."""
        before = {flow: self._homes[flow] for flow in together if flow in self._homes}
        maps = sorted({flow.writes.map for flow in together} | {read.map for flow in together for read in flow.reads})
        best, least = before, self._costs.cost_of(maps, together[0].relation) if before else float("inf")
        for choice in choices:
            tried: dict[Flow, str | None] = dict.fromkeys(together, choice)
            self._homes.update(tried)
            cost = self._costs.cost_of(maps, together[0].relation)
            if cost < least * (1 - 1e-9):
                best, least = tried, cost
        self._homes.update(best)
        return best != before


@dataclass(frozen=True, slots=True)
class CostOfHomes:
    """What homes cost, in bytes that are kept beyond one copy or sent, as the planner counts them.

    Parameters
    ----------
    chosen
        Of those that were chosen.
    cheapest
        Of the cheapest ones of all that there are; None if they are too many to be looked at.
    """

    chosen: float
    cheapest: float | None


def cost_of_homes(spread: Program, homes: Homes, statistics: Statistics, most: int = MOST_LOOKS) -> CostOfHomes:
    """Return what homes cost, and what the cheapest ones would.

    All homes of all flows are gone through, but for those that begin as something that costs more already: with more
    flows nothing gets cheaper.

    Parameters
    ----------
    most
        How many homes of a flow are looked at before it is given up.
    """
    found = flows(spread)
    costs = HomeCosts(spread, list(found), statistics)
    costs.homes.update({flow: homes[places[0]] for flow, places in found.items()})
    chosen = costs.total()
    costs.homes.clear()
    order = sorted(found, key=lambda flow: -costs.known.rows[flow.relation])
    choices = {
        flow: _candidates(spread, flow.relation, costs.of_relation[flow.relation]) + _no_home([flow]) for flow in order
    }
    best, looks = chosen, 0

    def go_through(at: int) -> None:
        nonlocal best, looks
        if at == len(order):
            best = min(best, costs.total())
            return
        flow = order[at]
        for choice in choices[flow]:
            looks += 1
            if looks > most:
                return
            costs.homes[flow] = choice
            if costs.total() < best * (1 - 1e-9):
                go_through(at + 1)
            del costs.homes[flow]

    go_through(0)
    return CostOfHomes(chosen, None if looks > most else best)


def _no_home(together: Sequence[Flow]) -> list[str | None]:
    """Return None as a choice where a column of the event would save nothing of what is read.

    Elsewhere node 0 would be the cheapest of all, for nobody sends anything where one node does all.
    """
    keyed = any(column is not None for flow in together for read in flow.reads for column in read.columns)
    return [] if keyed or not any(flow.reads for flow in together) else [None]


def _candidates(program: Program, relation: str, every: Sequence[Flow]) -> list[str | None]:
    """Return what may be a home: columns by which maps are read or tables joined, else those of the key, else all."""
    used = {column for flow in every for read in flow.reads for column in read.columns if column is not None}
    used |= {column for name, column in various_columns(program) if name == relation}
    table = program.relation(relation)
    found = used or set(table.key)
    return [column for column in table.column_names if column in found or not found] or [None]
