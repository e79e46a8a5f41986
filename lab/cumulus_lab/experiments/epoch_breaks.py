"""Rules of how epochs end and are committed that can be broken on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cumulus.cluster.messages import EpochReady
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.placement.layout import ClusterLayout
from cumulus.cluster.planning.epoch_routes import NodeRoutes
from cumulus.cluster.switch import Switch
from cumulus.cluster.switches.commits import CommitsOfSwitches
from cumulus.cluster.switches.epoch_transitions import StaggeredTransitions
from cumulus.machine import Machine, Name, Send
from cumulus_lab.experiments.cluster_counts import machine_in


def _forget_an_edge(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Tell the next node no depth, and wait for none of the node before."""
    node = machine_in(machine)
    if isinstance(node, ClusterNode):
        number = int(name.removeprefix("node"))
        routes: NodeRoutes = getattr(node, "_routes")  # noqa: B009
        before, after = (number - 1) % layout.nodes, (number + 1) % layout.nodes
        sources = tuple(each - {before} for each in routes.sources)
        targets = tuple(tuple(each for each in told if each != after) for told in routes.targets)
        setattr(node, "_routes", replace(routes, sources=sources, targets=targets))  # noqa: B010
        setattr(node, "_marks", getattr(node, "_new_marks")())  # noqa: B009, B010
    return machine


def _be_ready_alone(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Tell the other switches that all nodes are ready when the switch is."""
    commits = _commits_of(machine)
    if commits is not None:
        take = commits.take

        def taken(sender: Name, ready: EpochReady) -> Iterator[Send]:
            if sender == name:
                own: Mapping[Name, Any] = getattr(commits, "_own")  # noqa: B009
                for node, told in own.items():
                    if node != name and told.last < ready.epoch:
                        yield from take(node, EpochReady(ready.epoch, ()))
            elif sender.startswith("node"):
                return  # it was said already
            yield from take(sender, ready)

        setattr(commits, "take", taken)  # noqa: B010
    return machine


def _commit_before_the_manifest(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """Tell nodes of a commit when all are ready, whether the manifest is there or not."""
    commits = _commits_of(machine)
    if commits is not None:
        take = commits.take

        def taken(sender: Name, ready: EpochReady) -> Iterator[Send]:
            yield from take(sender, ready)
            setattr(commits, "_manifest", getattr(commits, "_ready_everywhere"))  # noqa: B009, B010

        setattr(commits, "take", taken)  # noqa: B010
        setattr(commits, "note_manifest", lambda epoch: None)  # noqa: B010
    return machine


def _wait_for_no_token(name: Name, machine: Machine, layout: ClusterLayout) -> Machine:
    """End epochs at once, whoever has the token."""
    switch = machine_in(machine)
    if isinstance(switch, Switch):
        transitions = getattr(switch, "_transitions")  # noqa: B009
        if isinstance(transitions, StaggeredTransitions):
            setattr(transitions, "may_end", lambda epoch, now, is_urgent: True)  # noqa: B010
    return machine


def _commits_of(machine: Machine) -> CommitsOfSwitches | None:
    """Return what a switch does with what is ready, if it commits."""
    switch = machine_in(machine)
    commits = getattr(switch, "_commits") if isinstance(switch, Switch) else None  # noqa: B009
    return commits if isinstance(commits, CommitsOfSwitches) else None


EPOCH_BREAKS: Mapping[str, Callable[[Name, Machine, ClusterLayout], Machine]] = {
    "checkpoint edge forgotten": _forget_an_edge,
    "switch ready before its nodes": _be_ready_alone,
    "commit before the manifest": _commit_before_the_manifest,
    "token not waited for": _wait_for_no_token,
}
"""Name → a rule broken."""
BROKEN_ENDINGS: Mapping[str, Mapping[str, str]] = {
    "switch ready before its nodes": {"commit": "switches"},
    "commit before the manifest": {"commit": "switches"},
    "token not waited for": {"transitions": "staggered"},
}
"""Name → how epochs end where there is the rule."""
