"""Which protocol a mode runs: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cumulus.cluster.messages import Deltas, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.central_options import DEFAULT_CENTRAL, CentralOptions
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import (
    Correct,
    Evaluate,
    Expect,
    Fetch,
    ForwardedBlock,
    Push,
    Put,
    PutsAsked,
    PutsTold,
    RootBlock,
    TickAsked,
    TickSet,
    TickTold,
    VersionCommit,
)
from cumulus.cluster.protocols.central_source import CentralSourceNode, CentralSourceSwitch
from cumulus.cluster.protocols.central_target import CentralTargetNode, CentralTargetSwitch
from cumulus.cluster.protocols.elided_push import ElidedPushNode
from cumulus.cluster.protocols.eventual import EventualNode, EventualSwitch
from cumulus.cluster.protocols.four_logs import FourLogsNode
from cumulus.cluster.protocols.four_logs_switch import FourLogsSwitch
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.polled_work import PollingSwitch
from cumulus.cluster.protocols.protocol import NodeProtocol, SwitchProtocol
from cumulus.cluster.protocols.ticks import TicksNode, TicksSwitch
from cumulus.cluster.protocols.tree_dispatch import TreeNode, TreeSwitch
from cumulus.cluster.senders import NODE, SWITCH


@dataclass(frozen=True, slots=True)
class ModeProtocol:
    """The protocol of a mode.

    Parameters
    ----------
    node, switch
        Make what one of them does.
    takes
        Message → the kind of machine that sends it to a node.
    answers
        What nodes answer to switches.
    """

    node: Callable[[NodeLife], NodeProtocol]
    switch: Callable[[ClusterPlan], SwitchProtocol]
    takes: Mapping[type, str]
    answers: tuple[type, ...] = ()


MODES: Mapping[Mode, ModeProtocol] = {
    Mode.EVENTUAL: ModeProtocol(EventualNode, EventualSwitch, {Events: SWITCH, Deltas: NODE}),
    Mode.CENTRAL_TARGET: ModeProtocol(
        CentralTargetNode, CentralTargetSwitch, {Put: SWITCH, Fetch: SWITCH, Push: NODE, Deltas: NODE}
    ),
    Mode.FOUR_LOGS: ModeProtocol(
        FourLogsNode,
        FourLogsSwitch,
        {Put: SWITCH, Fetch: SWITCH, Push: NODE, Correct: NODE, Deltas: NODE},
    ),
    Mode.TICKS: ModeProtocol(
        TicksNode,
        TicksSwitch,
        {TickAsked: SWITCH, TickSet: SWITCH, Push: NODE, Deltas: NODE},
        (TickTold,),
    ),
    Mode.CENTRAL_SOURCE: ModeProtocol(
        CentralSourceNode, CentralSourceSwitch, {Evaluate: SWITCH, Expect: SWITCH, Push: NODE, Deltas: NODE}
    ),
}
"""The modes that spread maps; in the others nodes have no protocol."""
TREE = ModeProtocol(TreeNode, TreeSwitch, {RootBlock: SWITCH, ForwardedBlock: NODE, Push: NODE, Deltas: NODE})
"""Of central-target, where nodes send blocks on along a tree."""
POLLS: Mapping[type, str] = {PutsAsked: SWITCH, VersionCommit: SWITCH}
"""What nodes take beside, where the switch asks how far they are."""


def protocol_of(mode: Mode, central: CentralOptions = DEFAULT_CENTRAL) -> ModeProtocol:
    """Return the protocol of a mode that spreads maps."""
    found = TREE if central.has_tree else MODES[mode]
    if central.poll_blocks:
        found = replace(found, takes={**found.takes, **POLLS}, answers=(*found.answers, PutsTold))
    return found


def node_protocol(life: NodeLife) -> NodeProtocol:
    """Return what a node does for its spread maps in a life."""
    plan = life.plan
    return ElidedPushNode(life) if plan.options.elide_push else protocol_of(plan.mode, plan.central).node(life)


def switch_protocol(plan: ClusterPlan) -> SwitchProtocol:
    """Return what a switch sends of its blocks."""
    found = protocol_of(plan.mode, plan.central).switch(plan)
    every = plan.central.poll_blocks
    return PollingSwitch(found, plan.nodes, every) if every else found


def takes_of(mode: Mode, central: CentralOptions = DEFAULT_CENTRAL) -> Mapping[str, Mapping[type, str]]:
    """Return for each kind of machine what it takes in a mode, and from which kind of machine."""
    if mode not in MODES:
        return {}
    found = protocol_of(mode, central)
    return {NODE: found.takes, SWITCH: dict.fromkeys(found.answers, NODE)}
