"""Which nodes may send which others something of a map, and which nodes a switch may tell of rows of a table.

Both follow from the tables by which rows, deltas and slices are routed, whatever the rows are. A pair that is left out
never has a message; one that is there may have none.

References
----------
Cumulus consistency paper, section 4.3: "The layout fully determines both where a node sends deltas, as well as from
where it receives deltas." And section 4.1, the dispatch table of a coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from cumulus.cluster.placement.correspondence import NamedFlow, Place, corresponding, named_flows, place_of
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.placement.segments import Flow, Reach, ReplicaSet, flow_of, lies_by

if TYPE_CHECKING:
    import numpy as np

    Edges: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
    """Sender × receiver: whether the one may send the other something; False on the diagonal."""


def edges_of_deltas(layout: ClusterLayout) -> Iterator[tuple[str, Edges]]:
    """Yield maps, each with the edges for what one statement adds: from its home to the replicas of the map.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +r(a, b) { q[] += m[b]; p[b] += 1 } ON +s(b) { m[b] += 1 }")
    >>> layout = ClusterLayout(program, {(0, 0): "b", (0, 1): "b", (1, 0): "b"}, 3)
    >>> {name: edges.astype(int).tolist() for name, edges in edges_of_deltas(layout) if edges.any()}
    {'q': [[0, 0, 0], [1, 0, 0], [1, 0, 0]]}
    """
    for (index, place), home in layout.homes.items():
        trigger = layout.program.triggers[index]
        flow = flow_of(layout.program, trigger, trigger.statements[place])
        yield flow.writes.map, _edges_of_flow(layout, flow, home)


def _edges_of_flow(layout: ClusterLayout, flow: Flow, home: str | None) -> Edges:
    import numpy as np

    found = np.zeros((layout.nodes, layout.nodes), np.bool_)
    senders = slice(0, 1) if home is None else slice(None)
    for each in layout.sets[flow.writes.map]:
        if not _lies_at_home(layout, flow, each, home):
            found[senders, 0 if each.reach is Reach.FIRST else slice(None)] = True
    np.fill_diagonal(found, False)
    return found


def _lies_at_home(layout: ClusterLayout, flow: Flow, each: ReplicaSet, home: str | None) -> bool:
    """Whether what a row adds to a replica set is added on the node where the row is at home."""
    if home is None:
        return each.reach is Reach.FIRST
    if each.reach is not Reach.KEY or flow.writes.columns[each.axis] != home:
        return False
    return lies_by(layout.program, flow.relation, home, flow.writes.map, each.axis)


def edges_of_slices(layout: ClusterLayout) -> Iterator[tuple[str, Edges]]:
    """Yield maps, each with the edges for one read of it: from who owns a slice to who computes with it.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +r(a, b) { q[] += m[b]; p[b] += m[b] } ON +s(b) { m[b] += 1 }")
    >>> layout = ClusterLayout(program, {(0, 0): "b", (0, 1): "b", (1, 0): "b"}, 3, has_replicas=False)
    >>> [(name, edges.astype(int).tolist()) for name, edges in edges_of_slices(layout) if edges.any()]
    [('m', [[0, 0, 0], [1, 0, 0], [1, 0, 0]])]
    """
    for flow in named_flows(layout.program):
        yield from _edges_of_reads(layout, flow)


def _edges_of_reads(layout: ClusterLayout, flow: NamedFlow) -> Iterator[tuple[str, Edges]]:
    import numpy as np

    program, regions = layout.program, layout.regions
    writes = _of_any_row(place_of(program, flow.relation, flow.writes, regions[flow.writes.map]))
    for read in flow.reads:
        reads = _of_any_row(place_of(program, flow.relation, read, regions[read.map]))
        found = np.zeros((layout.nodes, layout.nodes), np.bool_)
        for reader, writer in corresponding(reads, writes):
            found[reader, writer] = reader != writer
        yield read.map, found


def _of_any_row(place: Place) -> Place:
    """Return a place whose columns may have any values: they range over all parts, as loop variables do."""
    return Place((), (*((f"column {name}", cut) for name, cut in place.columns), *place.loops))


def nodes_at_home(layout: ClusterLayout, tables: Collection[str]) -> set[int]:
    """Return the nodes on which rows of some tables may be evaluated.

    Examples
    --------
    >>> from cumulus.m3 import parse
    >>> program = parse("ON +r(a) { q[] += 1 } ON +s(b) { m[b] += 1 }")
    >>> layout = ClusterLayout(program, {(0, 0): None, (1, 0): "b"}, 3)
    >>> nodes_at_home(layout, ["r"]), nodes_at_home(layout, ["s"]), nodes_at_home(layout, ["t"])
    ({0}, {0, 1, 2}, set())
    """
    found: set[int] = set()
    for (index, _), home in layout.homes.items():
        if layout.program.triggers[index].relation in tables:
            found |= {0} if home is None else set(range(layout.nodes))
    return found


def nodes_added_to(layout: ClusterLayout, tables: Collection[str]) -> set[int]:
    """Return the nodes that have replicas of what rows of some tables add to."""
    triggers = [each for each in layout.program.triggers if each.relation in tables]
    sets = [each for trigger in triggers for written in trigger.statements for each in layout.sets[written.map]]
    return {node for each in sets for node in ((0,) if each.reach is Reach.FIRST else range(layout.nodes))}


def owners_asked(layout: ClusterLayout, tables: Collection[str]) -> set[int]:
    """Return the nodes that own what rows of some tables read or add to."""
    program, found = layout.program, set[int]()
    for flow in named_flows(program):
        if flow.relation in tables:
            for each in (flow.writes, *flow.reads):
                place = _of_any_row(place_of(program, flow.relation, each, layout.regions[each.map]))
                found |= {node for node, _ in corresponding(place, Place((), ()))}
    return found
