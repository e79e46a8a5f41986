"""A node: what an epoch has brought, from all switches, to views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cumulus.cluster.codec import decode, encode
from cumulus.cluster.gate import Gate
from cumulus.cluster.messages import (
    EpochCommit,
    EpochEnd,
    EpochReady,
    SaveState,
    WriteOutputs,
    node_name,
    switch_name,
)
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import LoggedPayloads
from cumulus.epochs.output.sink import Written
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Append, Completed, Effect, Forget, Input, Name, Perform, Received, Recovered, Send

LEAST_LOG_BYTES = 32 << 20
"""A log is replaced by a snapshot when it has outgrown this and the last snapshot."""


@dataclass(slots=True)
class _OpenEpoch:
    """An epoch that is not committed: which switches have ended it, and what they have sent for the gate."""

    payloads: dict[Name, bytes] = field(default_factory=dict)
    is_final: bool = False


class ClusterNode:
    """The machine of a node.

    Parameters
    ----------
    number
        From 0.
    committed
        The last epoch that has a manifest.
    gate
        Its bucket, as a snapshot up to a committed epoch has left it; None if the node has none.
    state_bytes
        How many bytes that snapshot has.
    """

    def __init__(self, number: int, switches: int, committed: int, gate: Gate | None, state_bytes: int = 0) -> None:
        self.name = node_name(number)
        self._switches = [switch_name(each) for each in range(switches)]
        self._committed = committed
        self._gate = gate
        self._open: dict[int, _OpenEpoch] = {}
        self._doing = committed
        """The last epoch that the gate has begun."""
        self._is_writing = False
        self._next_record = 1
        self._records: dict[int, int] = {}
        """Epoch → its record in the log."""
        self._log_bytes, self._state_bytes = 0, state_bytes
        self._saved = 0 if gate is None else gate.epoch
        """The epoch of the last snapshot that is on the disk."""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(first, records):
                    self._recover(first, records)
                case Received(sender, EpochEnd() as end):
                    self._end(sender, end)
                case Received(_, EpochCommit(epoch)):
                    self._commit(epoch, effects)
                case Received(sender, message):
                    raise RemoteProtocolError(f"{self.name}: {type(message).__name__} from {sender} is not for a node")
                case Completed(WriteOutputs(epoch=epoch), written):
                    self._is_writing = False
                    effects.append(Send(PUBLISHER, EpochReady(epoch, written)))
                case Completed(SaveState(epoch=epoch), _):
                    self._saved = epoch
                    self._forget(effects)
                case _:
                    pass
        self._advance(effects)
        return effects

    def _recover(self, first: int, records: Sequence[bytes]) -> None:
        """Apply the committed epochs of the log behind the snapshot; what was not committed comes again."""
        self._next_record = first + len(records)
        for number, record in enumerate(records, first):
            logged = decode(record)
            assert isinstance(logged, LoggedPayloads), logged
            if self._gate is not None and self._gate.epoch < logged.epoch <= self._committed:
                self._gate.apply(logged.epoch, logged.payloads)
                self._records[logged.epoch] = number
                self._log_bytes += len(record)

    def _end(self, sender: Name, end: EpochEnd) -> None:
        if end.epoch <= self._committed:
            raise RemoteProtocolError(f"{self.name}: {sender} ends epoch {end.epoch}, which is committed")
        opened = self._open.setdefault(end.epoch, _OpenEpoch())
        if sender in opened.payloads:
            raise RemoteProtocolError(f"{self.name}: {sender} ends epoch {end.epoch} twice")
        opened.payloads[sender] = end.payload
        opened.is_final |= end.final

    def _advance(self, effects: list[Effect]) -> None:
        """Do the next epoch, if all switches have ended it and nobody reads the maps as they are now."""
        opened = self._open.get(self._doing + 1)
        if self._is_writing or opened is None or len(opened.payloads) < len(self._switches):
            return
        self._doing += 1
        epoch = self._doing
        del self._open[epoch]
        if self._gate is None:
            effects.append(Send(PUBLISHER, EpochReady(epoch, (Written(0, {}, {}, {}, True),))))
            return
        payloads = [opened.payloads[each] for each in self._switches]
        effects.append(self._logged(epoch, payloads))
        outcome = self._gate.apply(epoch, payloads)
        self._is_writing = True
        effects.append(Perform(WriteOutputs(epoch, opened.is_final, outcome)))
        if self._log_bytes > max(LEAST_LOG_BYTES, self._state_bytes):
            state = self._gate.save()
            self._log_bytes, self._state_bytes = 0, len(state)
            effects.append(Perform(SaveState(epoch, self._committed, state)))

    def _logged(self, epoch: int, payloads: Sequence[bytes]) -> Append:
        record = b"".join(encode(LoggedPayloads(epoch, payloads)))
        self._records[epoch] = number = self._next_record
        self._next_record += 1
        self._log_bytes += len(record)
        return Append(number, record)

    def _commit(self, epoch: int, effects: list[Effect]) -> None:
        if epoch != self._committed + 1 or epoch > self._doing:
            raise RemoteProtocolError(f"{self.name}: epoch {epoch} is committed after {self._committed}")
        self._committed = epoch
        self._forget(effects)

    def _forget(self, effects: list[Effect]) -> None:
        """Give up the records of epochs that are in a snapshot, and are committed, as it may be used only then."""
        done = [epoch for epoch in self._records if epoch <= min(self._saved, self._committed)]
        if done and self._saved <= self._committed:
            effects.append(Forget(max(self._records.pop(epoch) for epoch in done)))

    def check(self) -> None:
        """Check what holds between two steps."""
        assert self._committed <= self._doing <= self._committed + 2, (self._committed, self._doing)
        assert all(epoch > self._doing for epoch in self._open), (self._open.keys(), self._doing)
        assert self._gate is None or self._gate.epoch == self._doing
