"""What a switch has done of epochs that are not committed, so that it can be done again after a reset."""

from __future__ import annotations

from dataclasses import replace

from cumulus.cluster.machine_tasks import WriteOutputs
from cumulus.cluster.messages import EpochReady, EpochRefused, node_name
from cumulus.cluster.output_files import ready_messages
from cumulus.cluster.protocols.protocol import Sent, SwitchProtocol
from cumulus.machine import Effect, Name, Perform, Send


class OpenEpochs:
    """The epochs of a switch that are not committed.

    Parameters
    ----------
    publisher
        Who is told what is ready.
    """

    def __init__(self, publisher: Name) -> None:
        self._publisher = publisher
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
        sent = Send(node_name(node), message)
        self._sent.setdefault(epoch, []).append(sent)
        effects.append(sent)

    def write(self, epoch: int, task: WriteOutputs | None, effects: list[Effect]) -> None:
        """Let be written what there is of an epoch, after which the publisher is told."""
        self._writes[epoch] = task
        if task is None:
            effects.append(Send(self._publisher, EpochReady(epoch, ())))
        else:
            effects.append(Perform(task))

    def written(self, task: WriteOutputs, result: object, effects: list[Effect]) -> None:
        """Tell the publisher what was written, unless it is written again."""
        if task is self._writes.get(task.epoch):
            effects += ready_messages(self._publisher, task.epoch, result)

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
