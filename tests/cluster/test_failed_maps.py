"""Maps that are wrong since a step has failed: all nodes hear of them, also those that have started anew since."""

from __future__ import annotations

from cumulus.cluster import codec
from cumulus.cluster.messages import Deltas
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.planning.cluster_plan import plan_cluster
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.table import node_protocol
from cumulus.cluster.records import LoggedEpoch
from cumulus.cluster.resets import Reset
from cumulus.epochs.output.snapshots import Snapshots
from cumulus.machine import Input, Lost, Received, Recovered, Send
from support.spread_cases import spread_program

PLAN = plan_cluster(spread_program("shop"), 3)
FAILED = {"0": [1, "it is beyond its type"]}


def node(committed: int) -> ClusterNode:
    life = NodeLife(PLAN, 1, "interpreter", committed=committed)
    return ClusterNode(
        1,
        3,
        1,
        committed,
        Snapshots.after(None, 1),
        None,
        node_protocol(life),
        PLAN.epoch_routes.of_node(1),
    )


def told(machine: ClusterNode, *inputs: Input) -> list[tuple[str, object]]:
    """Return whom a node tells of which failures."""
    effects = machine.step(inputs)
    return [(each.to, each.message.failed) for each in effects if isinstance(each, Send) and each.message != Deltas([])]


def test_a_node_that_starts_again_tells_what_has_failed() -> None:
    logged = b"".join(codec.encode(LoggedEpoch(1, [], [], FAILED)))
    expected = [(name, {"0": (1, FAILED["0"][1])}) for name in ("node0", "node2")]
    assert told(node(1), Recovered(1, [logged])) == expected


def test_so_does_one_that_goes_back_to_the_last_commit_but_for_what_is_done_again() -> None:
    machine = node(0)
    assert told(machine, Recovered(1, ()), Received("node0", Deltas([], {**FAILED, "1": [2, "later"]}))) == []
    found = told(machine, Lost("node0"), Received("supervisor", Reset(0)))
    assert found == [], "nothing is committed in which it has failed"
    machine = node(1)
    machine.step([Recovered(1, [b"".join(codec.encode(LoggedEpoch(1, [], [], {})))])])
    machine.step([Received("node0", Deltas([], {**FAILED, "1": [2, "later"]}))])
    found = told(machine, Lost("node0"), Received("supervisor", Reset(1)))
    assert found == [(name, {"0": (1, FAILED["0"][1])}) for name in ("node0", "node2")]
