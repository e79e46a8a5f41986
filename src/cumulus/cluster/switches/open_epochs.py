"""What a switch has done of epochs that are not committed, so that it can be done again after a reset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cumulus.cluster.machine_tasks import WriteOutputs
from cumulus.cluster.messages import EpochPart, EpochRefused, node_name
from cumulus.cluster.protocols.protocol import PassedOn, Sent, SwitchProtocol
from cumulus.cluster.switches.commits import SwitchCommits
from cumulus.machine import Effect, Name, Perform, Send

PART_BYTES = 8 << 20
"""What is sent at once of the payload of an epoch."""


class OpenEpochs:
    """The epochs of a switch that are not committed.

    Parameters
    ----------
    publisher
        Who is told what cannot be read.
    commits
        Says who is told what is ready.
    reached
        The nodes that are told when an epoch has ended here: nobody else gets anything of it.
    gates
        For each bucket of the gate's plan the number of its node.
    """

    def __init__(self, publisher: Name, commits: SwitchCommits, reached: Sequence[int], gates: Sequence[int]) -> None:
        self._publisher, self._commits, self._reached, self._gates = publisher, commits, reached, gates
        self._sent: dict[int, list[Send]] = {}
        """Epoch → what nodes were sent of it, in order."""
        self._writes: dict[int, WriteOutputs | None] = {}
        """Epoch that has ended → what is to be written of it."""
        self.refused: EpochRefused | None = None
        """The epoch that cannot be read."""

    def send(self, epoch: int, node: int, message: Sent, effects: list[Effect]) -> None:
        """Send a node something of an epoch.

        Parameters
        ----------
        node
            Its number.
        """
        assert node in self._reached, f"node {node} gets something of a switch for which it does not wait"
        sent = Send(node_name(node), message)
        self._sent.setdefault(epoch, []).append(sent)
        effects.append(sent)

    def end(
        self, epoch: int, final: bool, gates: Sequence[Sequence[bytes]], effects: list[Effect], passed_on: PassedOn
    ) -> None:
        """Tell the nodes that an epoch has ended here, with what is for their gates.

        Parameters
        ----------
        gates
            What has come at once, one after the other: for each bucket of the gate, packed.
        passed_on
            What nodes hear of blocks from other nodes.
        """
        parts: dict[int, list[bytes]] = {}
        for each in gates:
            for node, part in zip(self._gates, each, strict=True):
                parts.setdefault(node, []).append(part)
        payloads = {node: b"".join(found) for node, found in parts.items()}
        assert all(node in self._reached for node, payload in payloads.items() if payload), "a gate does not wait"
        for node in self._reached:
            payload = payloads.get(node, b"")
            last = (max(len(payload), 1) - 1) // PART_BYTES * PART_BYTES
            for at in range(0, last, PART_BYTES):
                self.send(epoch, node, EpochPart(epoch, payload[at : at + PART_BYTES]), effects)
            self.send(epoch, node, passed_on.end(epoch, final, payload[last:], node), effects)

    def write(self, epoch: int, task: WriteOutputs | None, effects: list[Effect]) -> None:
        """Let be written what there is of an epoch, after which this switch is ready with it."""
        self._writes[epoch] = task
        if task is None:
            effects += self._commits.ready(epoch, ())
        else:
            effects.append(Perform(task))

    def written(self, task: WriteOutputs, result: object, effects: list[Effect]) -> None:
        """Tell what was written, unless it is written again."""
        if task is self._writes.get(task.epoch):
            effects += self._commits.ready(task.epoch, result)

    def refuse(self, refused: EpochRefused, effects: list[Effect]) -> None:
        """Tell the publisher that an epoch cannot be read: it ends the run when all before are committed."""
        self.refused = refused
        effects.append(Send(self._publisher, refused))

    def commit(self, epoch: int) -> None:
        """Forget an epoch."""
        self._sent.pop(epoch, None)
        self._writes.pop(epoch, None)

    def repeat(self, effects: list[Effect], protocol: SwitchProtocol | None) -> None:
        """Do everything again: nodes have taken back what they had, and a new publisher knows of nothing.

        Parameters
        ----------
        protocol
            That says what nodes get; None if they get no blocks.
        """
        if protocol is not None:
            protocol.reset()
        for epoch in sorted(self._sent):
            effects += self._sent[epoch]
        for epoch, task in sorted(self._writes.items()):  # a publisher that begins removes what no manifest names
            self.write(epoch, None if task is None else replace(task), effects)
        if self.refused is not None:
            effects.append(Send(self._publisher, self.refused))
