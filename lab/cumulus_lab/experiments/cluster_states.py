"""What must hold of the nodes of a simulated cluster when nothing is on its way, beside what they have written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cumulus.cluster.node import ClusterNode
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.engine.protocol import Key, Values


def check_nodes(nodes: Sequence[ClusterNode], plan: ClusterPlan) -> None:
    """Check that nothing is left to be sent, that replicas agree, and that an entry is where the layout says.

    Parameters
    ----------
    nodes
        All of them, in their order.
    """
    protocols = [each.protocol for each in nodes if each.protocol is not None]
    for protocol in protocols:
        assert not list(protocol.drain()), f"node {protocol.maps.number}: something was not sent"
    for name in protocols[0].maps.names if protocols else ():
        held = [dict(protocol.maps.maps.engine.items(name)) for protocol in protocols]
        for key in {key: None for entries in held for key in entries}:
            holders = plan.layout.nodes_of(name, key)
            _check_entry(f"{name}{list(key)}", key, holders, held)


def _check_entry(what: str, key: Key, holders: Sequence[int], held: Sequence[Mapping[Key, Values]]) -> None:
    first = held[holders[0]].get(key)
    for number, entries in enumerate(held):
        if number not in holders:
            assert key not in entries, f"{what} is on node {number}, and should be on {holders}"
            continue
        found = entries.get(key)
        is_same = found == first or (first is not None and found is not None and _are_close(first, found))
        assert is_same, f"{what} is {first} on node {holders[0]} and {found} on node {number}"


def _are_close(one: Values, other: Values) -> bool:
    return all(mine == their or math.isclose(mine, their, rel_tol=1e-9) for mine, their in zip(one, other, strict=True))
