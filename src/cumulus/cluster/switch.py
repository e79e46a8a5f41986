"""A switch: the rows of its tables on their way to the nodes, epoch after epoch."""

from __future__ import annotations

from collections.abc import Sequence

from cumulus.cluster.codec import decode, encode
from cumulus.cluster.messages import (
    EpochCommit,
    EpochEnd,
    EpochTurn,
    ReadFiles,
    node_name,
    switch_name,
)
from cumulus.cluster.records import LoggedPayloads
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Append, Completed, Effect, Forget, Input, Perform, Received, Recovered, Send


class Switch:
    """The machine of a switch.

    Parameters
    ----------
    number
        From 0.
    tables
        Those whose rows come here.
    gates
        For each bucket of the gate's plan the number of its node.
    committed
        The last epoch that has a manifest.
    """

    def __init__(self, number: int, nodes: int, tables: frozenset[str], gates: Sequence[int], committed: int) -> None:
        self.name = switch_name(number)
        self._nodes, self._tables, self._gates = nodes, tables, gates
        self._committed = self._told = self._ended = committed
        self._read: dict[int, Sequence[bytes]] = {}
        """Epoch → what was read for it in a life before."""
        self._final: dict[int, bool] = {}
        """Epoch that was told and has not ended here → whether nothing is left to read after it."""
        self._records: dict[int, int] = {}
        """Epoch → its record in the log."""
        self._next_record = 1

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Recovered(first, records):
                    self._recover(first, records)
                case Received(_, EpochTurn() as turn):
                    self._take_turn(turn, effects)
                case Received(_, EpochCommit(epoch)):
                    self._commit(epoch, effects)
                case Received(sender, message):
                    name = type(message).__name__
                    raise RemoteProtocolError(f"{self.name}: {name} from {sender} is not for a switch")
                case Completed(ReadFiles(epoch=epoch), payloads):
                    record = b"".join(encode(LoggedPayloads(epoch, payloads)))
                    effects.append(Append(self._next_record, record))
                    self._records[epoch] = self._next_record
                    self._next_record += 1
                    self._end(epoch, payloads, effects)
                case _:
                    pass
        return effects

    def _recover(self, first: int, records: Sequence[bytes]) -> None:
        """Keep what was read for epochs that are not committed: they are told again, and must bring the same."""
        self._next_record = first + len(records)
        for number, record in enumerate(records, first):
            logged = decode(record)
            assert isinstance(logged, LoggedPayloads), logged
            self._records[logged.epoch] = number
            if logged.epoch > self._committed:
                self._read[logged.epoch] = logged.payloads

    def _take_turn(self, turn: EpochTurn, effects: list[Effect]) -> None:
        if turn.epoch != self._told + 1:
            raise RemoteProtocolError(f"{self.name}: epoch {turn.epoch} is told after {self._told}")
        self._told = turn.epoch
        self._final[turn.epoch] = turn.final
        known = self._read.pop(turn.epoch, None)
        if known is not None:
            self._end(turn.epoch, known, effects)
            return
        mine = {table: names for table, names in turn.files.items() if table in self._tables}
        effects.append(Perform(ReadFiles(turn.epoch, mine)))

    def _end(self, epoch: int, payloads: Sequence[bytes], effects: list[Effect]) -> None:
        """End an epoch here: tell all nodes, with what it has brought for their gates."""
        assert epoch == self._ended + 1, f"epoch {epoch} ends after {self._ended}"
        self._ended = epoch
        final = self._final.pop(epoch)
        for node in range(self._nodes):
            payload = b"".join(each for gate, each in zip(self._gates, payloads, strict=True) if gate == node)
            effects.append(Send(node_name(node), EpochEnd(epoch, final, payload)))

    def _commit(self, epoch: int, effects: list[Effect]) -> None:
        if epoch != self._committed + 1 or epoch > self._ended:
            raise RemoteProtocolError(f"{self.name}: epoch {epoch} is committed after {self._committed}")
        self._committed = epoch
        done = [each for each in self._records if each <= epoch]
        effects.append(Forget(max(self._records.pop(each) for each in done)))

    def check(self) -> None:
        """Check what holds between two steps."""
        assert self._committed <= self._ended <= self._told, (self._committed, self._ended, self._told)
        assert all(self._ended < epoch <= self._told for epoch in self._final), (self._final, self._ended, self._told)
