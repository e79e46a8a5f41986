"""A switch: the rows of its tables on their way to the nodes, epoch after epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cumulus.cluster.blocks import BlockMaker
from cumulus.cluster.codec import decode, encode
from cumulus.cluster.intake import Intake
from cumulus.cluster.messages import (
    EpochCommit,
    EpochEnd,
    EpochPart,
    EpochReady,
    EpochTurn,
    Events,
    Payloads,
    ReadFiles,
    SaveState,
    WriteOutputs,
    node_name,
    switch_name,
)
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import LoggedPayloads, SwitchState, require_epochs
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Append, Completed, Effect, Forget, Input, Perform, Received, Recovered, Send

LEAST_LOG_BYTES = 32 << 20
"""A log is replaced by a snapshot when it has outgrown this and the last snapshot, if nothing else is said."""
PART_BYTES = 8 << 20
"""What is sent at once of the payload of an epoch."""


@dataclass(frozen=True, slots=True)
class SpreadIntake:
    """What a switch needs for spread views: where rows come in, and how they become blocks."""

    intake: Intake
    blocks: BlockMaker


class Switch:
    """The machine of a switch.

    Parameters
    ----------
    number
        From 0.
    tables
        Those whose rows come here.
    gates
        For each bucket of the gate's plan the number of its node; empty if nothing is gated.
    committed
        The last epoch that has a manifest.
    spread
        For spread views, empty; None if there are none.
    state
        A snapshot up to a committed epoch, if there is one.
    least_log_bytes
        A log that is larger, and larger than the last snapshot, is replaced by a new one.
    """

    def __init__(
        self,
        number: int,
        nodes: int,
        tables: frozenset[str],
        gates: Sequence[int],
        committed: int,
        spread: SpreadIntake | None,
        state: bytes | None = None,
        least_log_bytes: int = LEAST_LOG_BYTES,
    ) -> None:
        self.name = switch_name(number)
        self._nodes, self._tables, self._gates, self._spread = nodes, tables, gates, spread
        self._committed = self._told = self._ended = committed
        self._read: dict[int, LoggedPayloads] = {}
        """Epoch → what was read for it in a life before."""
        self._final: dict[int, bool] = {}
        """Epoch that was told and has not ended here → whether nothing is left to read after it."""
        self._records: dict[int, int] = {}
        """Epoch → its record in the log."""
        self._next_record = 1
        self._saved = 0
        """The epoch of the last snapshot that is on the disk."""
        self._least_log_bytes = least_log_bytes
        self._log_bytes, self._state_bytes = 0, 0 if state is None else len(state)
        if state is not None and spread is not None:
            saved: SwitchState = decode(state)
            self._saved = saved.epoch
            spread.intake.load(saved.intake)

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
                case Completed(ReadFiles(epoch=epoch), Payloads(gates, intake)):
                    self._end(self._logged(LoggedPayloads(epoch, gates, intake), effects), effects)
                case Completed(WriteOutputs(epoch=epoch), written):
                    effects.append(Send(PUBLISHER, EpochReady(epoch, written)))
                case Completed(SaveState(epoch=epoch), _):
                    self._saved = epoch
                    self._forget(effects)
                case _:
                    pass
        return effects

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _take_turn(self, turn: EpochTurn, effects: list[Effect]) -> None:
        if turn.epoch != self._told + 1:
            raise RemoteProtocolError(f"{self.name}: epoch {turn.epoch} is told after {self._told}")
        self._told = turn.epoch
        self._final[turn.epoch] = turn.final
        known = self._read.pop(turn.epoch, None)
        if known is not None:
            self._end(known, effects)
            return
        mine = {table: names for table, names in turn.files.items() if table in self._tables}
        effects.append(Perform(ReadFiles(turn.epoch, mine)))

    def _end(self, read: LoggedPayloads, effects: list[Effect]) -> None:
        """Send everything of an epoch, and tell the nodes that it has ended here."""
        epoch = read.epoch
        assert epoch == self._ended + 1, f"epoch {epoch} ends after {self._ended}"
        self._ended = epoch
        final = self._final.pop(epoch)
        outcome = None
        if self._spread is not None:
            outcome, nets = self._spread.intake.apply(epoch, [_for_intake(read)])
            for node, blocks in self._spread.blocks.make(epoch, nets):
                effects.append(Send(node_name(node), Events(blocks)))
        for node in range(self._nodes):
            payload = b"".join(each for gate, each in zip(self._gates, read.gates, strict=True) if gate == node)
            while len(payload) > PART_BYTES:
                effects.append(Send(node_name(node), EpochPart(epoch, payload[:PART_BYTES])))
                payload = payload[PART_BYTES:]
            effects.append(Send(node_name(node), EpochEnd(epoch, final, payload)))
        if self._gates or outcome is None:  # the gate takes the same rows in, and says what has become of them
            effects.append(Send(PUBLISHER, EpochReady(epoch, ())))
        else:
            effects.append(Perform(WriteOutputs(epoch, final, outcome)))
        if self._spread is not None and self._log_bytes > max(self._least_log_bytes, self._state_bytes):
            state = b"".join(encode(SwitchState(epoch, self._spread.intake.save())))
            self._log_bytes, self._state_bytes = 0, len(state)
            effects.append(Perform(SaveState(epoch, self._committed, state)))

    def _commit(self, epoch: int, effects: list[Effect]) -> None:
        if epoch != self._committed + 1 or epoch > self._ended:
            raise RemoteProtocolError(f"{self.name}: epoch {epoch} is committed after {self._committed}")
        self._committed = epoch
        self._forget(effects)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def _recover(self, first: int, records: Sequence[bytes]) -> None:
        """Take in committed epochs; keep what was read for others: they are told again, and must bring the same."""
        self._next_record = first + len(records)
        for number, record in enumerate(records, first):
            logged = decode(record)
            assert isinstance(logged, LoggedPayloads), logged
            self._records[logged.epoch] = number
            self._log_bytes += len(record)
            if logged.epoch > self._committed:
                self._read[logged.epoch] = logged
            elif self._spread is not None and logged.epoch > self._saved:
                self._spread.intake.apply(logged.epoch, [_for_intake(logged)])
        if self._spread is not None:
            require_epochs(self.name, self._records, self._saved, self._committed)

    def _logged(self, read: LoggedPayloads, effects: list[Effect]) -> LoggedPayloads:
        record = b"".join(encode(read))
        effects.append(Append(self._next_record, record))
        self._records[read.epoch] = self._next_record
        self._next_record += 1
        self._log_bytes += len(record)
        return read

    def _forget(self, effects: list[Effect]) -> None:
        """Give up the records of committed epochs; where there is an intake, only of those that are in a snapshot."""
        if self._spread is not None and self._saved > self._committed:
            return
        last = self._committed if self._spread is None else self._saved
        done = [each for each in self._records if each <= last]
        if done:
            effects.append(Forget(max(self._records.pop(each) for each in done)))

    def check(self) -> None:
        """Check what holds between two steps."""
        assert self._committed <= self._ended <= self._told, (self._committed, self._ended, self._told)
        assert all(self._ended < epoch <= self._told for epoch in self._final), (self._final, self._ended, self._told)


def _for_intake(read: LoggedPayloads) -> bytes:
    return read.intake or b"".join(read.gates)
