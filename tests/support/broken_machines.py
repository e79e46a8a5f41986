"""Machines of which a rule is broken, in processes of their own: what `cumulus simulate cluster --break` does in one.

Each name is a factory, as `cumulus.transport.supervisor.Process` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from cumulus.cluster.codec import decode
from cumulus.cluster.node import ClusterNode
from cumulus.cluster.processes.import_without_pandas import start_machine
from cumulus.cluster.records import LoggedRows
from cumulus.cluster.switch import Switch
from cumulus.machine import Append, Effect, Input, Machine, Name, Recovered
from cumulus.transport.machine_spec import MachineSpec
from cumulus_lab.experiments.cluster_breaks import DoublesBlocks, WritesBeforeItIsDurable
from cumulus_lab.simulation import BrokenRule

Factory: TypeAlias = Callable[[Name, Mapping[str, Any]], MachineSpec]


class DoublesBlocksAfterReset(DoublesBlocks):
    """A switch that sends its blocks twice in a life that is not its first."""

    _is_first = True

    def inputs(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """See whether there were lives before."""
        self._is_first &= not any(isinstance(each, Recovered) and each.records for each in inputs)
        return inputs

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Send blocks twice, unless this is the first life."""
        return effects if self._is_first else super().effects(effects)


class AcceptsBeforeItIsDurable(BrokenRule):
    """A switch that keeps what clients send in memory until an epoch ends, and says at once that it is on the disk."""

    _held: Sequence[Effect] = ()

    def effects(self, effects: list[Effect]) -> list[Effect]:
        """Hold records of rows back until another one comes."""
        appends = [each for each in effects if isinstance(each, Append)]
        rest = [each for each in effects if not isinstance(each, Append)]
        if all(isinstance(decode(each.record), LoggedRows) for each in appends):
            self._held = [*self._held, *appends]
            return rest
        held, self._held = self._held, ()
        return [*held, *effects]


def _drops_corrections(node: ClusterNode) -> Machine:
    """Let a node add late deltas, and correct nothing."""
    if node.spread is not None:
        setattr(node.spread.maps, "correct", node.spread.maps.add)  # noqa: B010
    return node


def _broken(
    kind: type[Machine], breaking: Callable[[Any], Machine], name: Name, argument: Mapping[str, Any]
) -> MachineSpec:
    spec = start_machine(name, argument)
    machine = spec.machine
    return replace(spec, machine=breaking(machine)) if isinstance(machine, kind) else spec


corrections_dropped: Factory = partial(_broken, ClusterNode, _drops_corrections)
accepted_before_durable: Factory = partial(_broken, Switch, AcceptsBeforeItIsDurable)
ready_before_durable: Factory = partial(_broken, ClusterNode, WritesBeforeItIsDurable)
blocks_doubled_after_reset: Factory = partial(_broken, Switch, DoublesBlocksAfterReset)
