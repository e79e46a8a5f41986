"""Which nodes may send which others something of a map, and which nodes a switch may tell of rows of a table.

Both follow from the tables by which rows, deltas and slices are routed, whatever the rows are. A pair that is left out
never has a message; one that is there may have none.

References
----------
Cumulus consistency paper, section 4.3: "The layout fully determines both where a node sends deltas, as well as from
where it receives deltas." And section 4.1, the dispatch table of a coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from cumulus.cluster.placement.correspondence import (
    NamedFlow,
    Place,
    corresponding,
    named_flows,
    place_of,
    place_of_any_row,
)
from cumulus.cluster.placement.layout import ClusterLayout

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
    import numpy as np

    for each in layout.additions():
        home = place_of_any_row(each.home.place)
        found = np.zeros((layout.nodes, layout.nodes), np.bool_)
        for _, target in each.targets:
            for sender, receiver in corresponding(home, place_of_any_row(target)):
                found[sender, receiver] = sender != receiver
        yield each.flow.writes.map, found


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
    writes = place_of_any_row(place_of(program, flow.relation, flow.writes, regions[flow.writes.map]))
    for read in flow.reads:
        reads = place_of_any_row(place_of(program, flow.relation, read, regions[read.map]))
        found = np.zeros((layout.nodes, layout.nodes), np.bool_)
        for reader, writer in corresponding(reads, writes):
            found[reader, writer] = reader != writer
        yield read.map, found


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
    return _nodes_of(each.home.place for each in layout.additions() if each.flow.relation in tables)


def nodes_added_to(layout: ClusterLayout, tables: Collection[str]) -> set[int]:
    """Return the nodes that have replicas of what rows of some tables add to."""
    added = (each for each in layout.additions() if each.flow.relation in tables)
    return _nodes_of(place for each in added for _, place in each.targets)


def owners_asked(layout: ClusterLayout, tables: Collection[str]) -> set[int]:
    """Return the nodes that own what rows of some tables read or add to."""
    program = layout.program
    flows = (flow for flow in named_flows(program) if flow.relation in tables)
    return _nodes_of(
        place_of(program, flow.relation, each, layout.regions[each.map])
        for flow in flows
        for each in (flow.writes, *flow.reads)
    )


def _nodes_of(places: Iterable[Place]) -> set[int]:
    """Return the nodes of places, whatever the rows are."""
    any_rows = dict.fromkeys(map(place_of_any_row, places))
    return {node for each in any_rows for node, _ in corresponding(each, Place((), ()))}
