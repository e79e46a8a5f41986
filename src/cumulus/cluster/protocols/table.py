"""Which protocol a mode runs: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cumulus.cluster.messages import Deltas, Events
from cumulus.cluster.mode import Mode
from cumulus.cluster.planning.cluster_plan import ClusterPlan
from cumulus.cluster.protocols.central_messages import (
    Correct,
    Evaluate,
    Expect,
    Fetch,
    Push,
    Put,
    TickAsked,
    TickSet,
    TickTold,
)
from cumulus.cluster.protocols.central_source import CentralSourceNode, CentralSourceSwitch
from cumulus.cluster.protocols.central_target import CentralTargetNode, CentralTargetSwitch
from cumulus.cluster.protocols.elided_push import ElidedPushNode
from cumulus.cluster.protocols.eventual import EventualNode, EventualSwitch
from cumulus.cluster.protocols.four_logs import FourLogsNode
from cumulus.cluster.protocols.four_logs_switch import FourLogsSwitch
from cumulus.cluster.protocols.node_life import NodeLife
from cumulus.cluster.protocols.protocol import NodeProtocol, SwitchProtocol
from cumulus.cluster.protocols.ticks import TicksNode, TicksSwitch
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


def node_protocol(life: NodeLife) -> NodeProtocol:
    """Return what a node does for its spread maps in a life."""
    return ElidedPushNode(life) if life.plan.options.elide_push else MODES[life.plan.mode].node(life)


def switch_protocol(plan: ClusterPlan) -> SwitchProtocol:
    """Return what a switch sends of its blocks."""
    return MODES[plan.mode].switch(plan)


def takes_of(mode: Mode) -> Mapping[str, Mapping[type, str]]:
    """Return for each kind of machine what it takes in a mode, and from which kind of machine."""
    if mode not in MODES:
        return {}
    found = MODES[mode]
    return {NODE: found.takes, SWITCH: dict.fromkeys(found.answers, NODE)}
