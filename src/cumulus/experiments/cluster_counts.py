"""How often what matters happens in a simulated cluster, seen by what its machines take in and ask for."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.cluster.messages import CommitEpoch, Deltas, EpochEnd, Events, WriteOutputs
from cumulus.cluster.node import ClusterNode, NodeOutput
from cumulus.machine import Effect, Input, Machine, Name, Perform, Received, Send
from cumulus.simulation import Reports

NEEDED = (
    "block in order",
    "block sent again",
    "correction sent on",
    "deltas sent",
    "epoch",
    "epoch commit after a crash",
    "gated payload that waited",
    "late block",
    "late delta",
    "message lost",
    "snapshot with later versions present",
)
"""What must happen in a large run with all faults; else it has shown little."""


class BlocksSent:
    """The blocks that nodes have got, over all lives of a cluster: by node, table's group and first version."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Name, int, int], int] = {}

    def is_again(self, node: Name, group: int, version: int, life: int) -> bool:
        """Whether a block was sent in another life of the cluster before."""
        return self._seen.setdefault((node, group, version), life) != life


class CountedMachine:
    """A machine that is counted; it does what it does.

    Parameters
    ----------
    machine
        As it is.
    incarnation
        Of the cluster, from 1.
    """

    def __init__(self, machine: Machine, reports: Reports, blocks: BlocksSent, incarnation: int) -> None:
        self.machine = machine
        self._reports, self._blocks, self._incarnation = reports, blocks, incarnation
        self._node = machine if isinstance(machine, ClusterNode) else None

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Let the machine step, and count."""
        before = self._late()
        effects = self.machine.step(inputs)
        late = self._late()
        self._reports("late block", times=late[0] - before[0])
        self._reports("late delta", times=late[1] - before[1])
        self._reports("block in order", times=late[2] - before[2])
        sends = any(isinstance(effect, Send) and isinstance(effect.message, Deltas) for effect in effects)
        self._reports("correction sent on", times=int(sends and late[1] > before[1]))
        for effect in effects:
            self._count(effect)
        self._count_waiting(inputs, effects)
        return effects

    def check(self) -> None:
        """Check the machine."""
        self.machine.check()

    def _late(self) -> tuple[int, int, int]:
        """Return how many rows and deltas came late, and how many rows in order."""
        shares = None if self._node is None else self._node.shares
        return (0, 0, 0) if shares is None else (shares.rows_late, shares.deltas_late, shares.rows_in_order)

    def _count(self, effect: Effect) -> None:
        match effect:
            case Send(_, Deltas()):
                self._reports("deltas sent")
            case Send(node, Events(blocks)):
                again = [self._blocks.is_again(node, each.group, each.version, self._incarnation) for each in blocks]
                self._reports("block sent again", times=sum(again))
            case Perform(WriteOutputs(changed=NodeOutput(shares=shares))):
                later = any(rows.rows for maps in shares.values() for _, rows in maps.values())
                self._reports("snapshot with later versions present", times=int(later))
            case Perform(CommitEpoch()) if self._incarnation > 1:
                self._reports("epoch commit after a crash")
            case _:
                pass

    def _count_waiting(self, inputs: Sequence[Input], effects: Sequence[Effect]) -> None:
        """Count what came for the gate and was not applied at once, since others had not ended the epoch."""
        written = {
            effect.task.epoch
            for effect in effects
            if isinstance(effect, Perform) and isinstance(effect.task, WriteOutputs)
        }
        for each in inputs:
            match each:
                case Received(_, EpochEnd(epoch, _, payload)) if payload and epoch not in written:
                    self._reports("gated payload that waited")
                case _:
                    pass
