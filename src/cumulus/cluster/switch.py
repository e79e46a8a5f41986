"""A switch: the rows of its tables on their way to the nodes, epoch after epoch.

What clients send is taken in as soon as it is in the log, and belongs to the epoch that has not ended; what files have
is read when an epoch is told, and taken in at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from cumulus.cluster.clients.client_queue import ClientQueue
from cumulus.cluster.clients.client_sessions import ClientSessions
from cumulus.cluster.clients.credit import MOST_BYTES, Credit
from cumulus.cluster.clients.query_messages import Query, QueryAnswer
from cumulus.cluster.clients.switch_queries import SwitchQueries
from cumulus.cluster.intake import BlockMaker, Intake, OrderedIntake, intake_part
from cumulus.cluster.machine_log import LEAST_LOG_BYTES, MachineLog
from cumulus.cluster.machine_tasks import Payloads, ReadFiles, SaveState, Unreadable, WriteOutputs
from cumulus.cluster.messages import (
    ClientRows,
    EpochCommit,
    EpochReady,
    EpochRefused,
    EpochToken,
    EpochTurn,
    EpochWanted,
    RequestRefused,
    RowsAccepted,
    RowsHeld,
    StatusAsked,
    StatusTold,
    node_name,
    switch_name,
)
from cumulus.cluster.protocols.protocol import PassedOn
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.records import LoggedPayloads, LoggedRows, SwitchState
from cumulus.cluster.resets import Reset, Reunion
from cumulus.cluster.switches.commits import SwitchCommits
from cumulus.cluster.switches.epoch_transitions import EpochTransitions
from cumulus.cluster.switches.open_epochs import OpenEpochs
from cumulus.cluster.switches.switch_records import SwitchRecords
from cumulus.epochs.bucket.outcome import Outcome, merged_outcomes
from cumulus.epochs.intake.reading import Reading
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Completed, Effect, Input, Lost, Name, Perform, Received, Recovered, Send, Tick


@dataclass(frozen=True, slots=True)
class SpreadIntake:
    """What a switch needs for spread views: where rows come in, and how they become blocks.

    Parameters
    ----------
    has_marks
        As `cumulus.cluster.clients.switch_queries.SwitchQueries` takes it.
    """

    intake: Intake | OrderedIntake
    blocks: BlockMaker
    has_marks: bool = False

    def answers(self, node: int, message: object) -> Iterator[Send]:
        """Yield what nodes get for what one has answered; RemoteProtocolError if it is nothing that they do."""
        return (Send(node_name(to), told) for to, told in self.blocks.protocol.take(node, message))


class Switch:
    """The machine of a switch.

    Parameters
    ----------
    number
        From 0.
    reached
        The nodes that are told when an epoch has ended here: nobody else gets anything of it.
    tables
        Those whose rows come here.
    gates
        For each bucket of the gate's plan the number of its node; empty if nothing is gated.
    committed
        The last epoch that has a manifest.
    spread
        For spread views, empty; None if there are none.
    sessions
        What is known of its clients: nothing.
    commits, transitions
        What it does with what is ready and committed, and when it may end an epoch.
    static
        Whether a table of the switch is loaded in epoch 1: what clients send comes after that.
    state
        A snapshot up to a committed epoch, if there is one.
    least_log_bytes
        A log that is larger, and larger than the last snapshot, is replaced by a new one.
    process
        What its process knows of itself, which is told with the status.
    open_bytes
        With so much from clients in epochs that are not committed, more waits for a commit.
    """

    def __init__(
        self,
        number: int,
        nodes: int,
        reached: Sequence[int],
        tables: frozenset[str],
        gates: Sequence[int],
        committed: int,
        spread: SpreadIntake | None,
        sessions: ClientSessions,
        commits: SwitchCommits,
        transitions: EpochTransitions,
        *,
        static: bool = False,
        state: bytes | None = None,
        least_log_bytes: int = LEAST_LOG_BYTES,
        process: Mapping[str, object] = MappingProxyType({}),
        open_bytes: int = MOST_BYTES,
    ) -> None:
        self.name = switch_name(number)
        self._tables, self._gates, self._spread = tables, gates, spread
        self._peers = {node_name(each): each for each in range(nodes)}
        self._sessions, self._is_static, self._process = sessions, static, process
        self._committed = self._told = self._ended = committed
        self._urged = 0
        """The last epoch that was asked for since what clients have sent waits for it."""
        self._turns: dict[int, EpochTurn] = {}
        """The epochs that were told and have not ended here."""
        self._commits, self._open = commits, OpenEpochs(PUBLISHER, commits, reached, gates)
        self._transitions, self._now = transitions, 0
        self._reunion = Reunion((PUBLISHER, *self._peers))
        self._waiting = ClientQueue()
        self._taken: list[LoggedRows] = []
        self._outcomes: list[Outcome] = []
        """Of the epoch that has not ended: what clients have sent, and what has become of it."""
        self._credit = Credit(open_bytes)
        self._queries = SwitchQueries(tuple(self._peers), PUBLISHER, has_marks=bool(spread and spread.has_marks))
        self._log = MachineLog(self.name, least_log_bytes)
        self._records = SwitchRecords(self._log)
        if state is not None:
            saved: SwitchState = self._log.load(state)
            sessions.load(saved.clients, saved.forgotten)
            if spread is not None:
                spread.intake.load(saved.intake)

    @property
    def intake(self) -> Intake | OrderedIntake | None:
        """What takes rows in for spread views; None without any."""
        return None if self._spread is None else self._spread.intake

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            self._reunion.note(each)
            match each:
                case Recovered(first, records):
                    self._recover(first, records, effects)
                case Received(_, Reset(epoch=epoch)):
                    self._reset(epoch, effects)
                case Received(sender, EpochTurn() as turn) if sender == PUBLISHER:
                    self._take_turn(turn, effects)
                case Received(sender, EpochCommit(epoch)) if sender == PUBLISHER:
                    self._commits.note_manifest(epoch)
                    self._take_commits(effects)
                case Received(sender, EpochReady() as ready):
                    effects += self._commits.take(sender, ready)
                    self._take_commits(effects)
                case Received(sender, EpochToken() as token):
                    self._transitions.take(sender, token, self._now)
                    self._end_what_may(effects)
                case Received(sender, ClientRows() as rows):
                    has_room = self._waiting.append(sender, rows)
                    why = self._why_full or ("" if has_room else self._credit.why_spent)
                    if why:
                        effects.append(Send(sender, RowsHeld(rows.number, why, not has_room)))
                case Received(_, Query() | QueryAnswer()) | Lost():
                    effects += self._queries.take(each)
                case Received(sender, StatusAsked(number)):
                    effects.append(Send(sender, StatusTold(number, self._facts())))
                case Received(sender, message) if sender in self._peers and self._spread is not None:
                    effects += self._spread.answers(self._peers[sender], message)
                case Received(sender, message):
                    name = type(message).__name__
                    raise RemoteProtocolError(f"{self.name}: {name} from {sender} is not for a switch")
                case Completed(ReadFiles(epoch=epoch), Unreadable(message, hint)):
                    self._open.refuse(EpochRefused(epoch, message, hint), effects)
                case Completed(ReadFiles(epoch=epoch), Payloads(gates, intake)) if self._open.refused is None:
                    turn = self._turns[epoch]
                    self._records.hold(LoggedPayloads(epoch, gates, intake, turn.record))
                    self._end_what_may(effects)
                case Completed(WriteOutputs() as task, written):
                    self._open.written(task, written, effects)
                case Completed(SaveState(epoch=epoch), _):
                    self._log.saved = epoch
                    self._records.forget(self._committed, effects)
                case Tick(now):
                    self._now = now
                    self._credit.tell(now)
                    self._end_what_may(effects)
        while self._waiting and not self._why_full:
            self._take_waiting(effects)
        if self._waiting and self._urged <= self._ended == self._told:
            self._urged = self._ended + 1
            effects.append(Send(PUBLISHER, EpochWanted(self._urged, is_urgent=True)))  # or nobody might tell it yet
        effects += self._queries.forwarded(self._committed, is_held=self._records.has_known)
        return effects

    # --- what clients send ------------------------------------------------------------------------------------------

    @property
    def _why_full(self) -> str:
        """Why what clients send must wait for the end of another epoch; "" if it need not."""
        if self._is_static and self._ended == 0:
            return "its static tables are not loaded yet"
        if self._records.has_known:  # what comes now must not be in an earlier epoch than what was accepted then
            return "it has just been started, and what it had is not in again yet"
        if self._spread is not None and not self._spread.blocks.has_room(self._ended + 1):
            return "the epoch has as many calls as one may have"
        return self._credit.why_spent if self._credit.is_spent else ""

    def _take_waiting(self, effects: list[Effect]) -> None:
        """Take in at once what there is credit for, unless it is in; clients are told when it is on the disk."""
        epoch, place = self._ended + 1, self._log.next
        readings: list[Reading] = []
        senders: list[tuple[Name, int]] = []
        answers: list[Effect] = []
        size, room = 0, self._credit.left
        while self._waiting and size < room:
            client, rows = self._waiting.pop()
            found, sender = self._sessions.epoch_of(client, rows), self._sessions.sender_of(client, rows)
            if found is None:
                try:
                    readings.append(self._sessions.reading(client, rows, place, len(readings)))
                except RemoteProtocolError as problem:
                    answers.append(Send(client, RequestRefused(rows.number, problem.message, problem.hint)))
                    continue
                found = epoch
                senders.append(sender)
                self._sessions.note(*sender, epoch)
                size += len(rows.rows)
            answers.append(Send(client, RowsAccepted(rows.number, found)))
        if readings:
            logged = self._sessions.logged(readings, senders, epoch)
            self._records.append_rows(logged, effects)
            self._take_in(logged, effects)
        effects += answers

    def _take_in(self, logged: LoggedRows, effects: list[Effect]) -> None:
        """Send what rows of the epoch that has not ended change."""
        if not self._taken:
            effects.append(Send(PUBLISHER, EpochWanted(logged.epoch)))
        self._taken.append(logged)
        self._credit.take(logged.epoch, len(logged.intake) + sum(map(len, logged.gates)))
        if self._spread is not None:
            self._outcomes.append(self._apply(self._spread, logged, effects))

    def _apply(self, spread: SpreadIntake, logged: LoggedRows | LoggedPayloads, effects: list[Effect]) -> Outcome:
        """Send the blocks of what has come; return what has become of it."""
        outcome, nets = spread.intake.apply(logged.epoch, [intake_part(logged)])
        for node, message in spread.blocks.make(logged.epoch, nets):
            self._open.send(logged.epoch, node, message, effects)
            self._queries.note_sent(logged.epoch)
        return outcome

    def _take_known(self, effects: list[Effect]) -> None:
        """Take in what clients have sent in a life before for the epoch that has not ended."""
        for logged in self._records.take_rows(self._ended + 1):
            self._take_in(logged, effects)

    def _facts(self) -> dict[str, object]:
        """Return how this switch is."""
        facts: dict[str, object] = {"committed": self._committed, "epoch": self._ended, "log_bytes": self._log.bytes}
        return {**facts, **self._waiting.facts(), **self._credit.facts(), **self._queries.facts(), **self._process}

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _take_turn(self, turn: EpochTurn, effects: list[Effect]) -> None:
        if turn.epoch <= self._told:
            return  # it was told before a reset
        if turn.epoch != self._told + 1:
            raise RemoteProtocolError(f"{self.name}: epoch {turn.epoch} is told after {self._told}")
        self._told = turn.epoch
        self._turns[turn.epoch] = turn
        known = self._records.take_read(turn)
        if known is not None:
            self._records.hold(known, is_logged=True)
            self._end_what_may(effects)
            return
        mine = {table: names for table, names in turn.files.items() if table in self._tables}
        effects.append(Perform(ReadFiles(turn.epoch, mine)))

    def _end_what_may(self, effects: list[Effect]) -> None:
        """End epochs of which all is read, as far as it is this switch's turn."""
        while self._records.has_read(epoch := self._ended + 1) and self._transitions.may_end(
            epoch, self._now, is_urgent=bool(self._waiting)
        ):
            self._end(self._records.take_held(epoch, effects), effects)
            effects += self._transitions.ended(epoch)

    def _end(self, read: LoggedPayloads, effects: list[Effect]) -> None:
        """Send everything of an epoch, and tell the nodes that it has ended here."""
        epoch = read.epoch
        assert epoch == self._ended + 1, f"epoch {epoch} ends after {self._ended}"
        self._ended = epoch
        self._credit.end(epoch)
        final = self._turns.pop(epoch).final
        outcome, passed_on = None, PassedOn()
        if self._spread is not None:
            self._outcomes.append(self._apply(self._spread, read, effects))
            outcome, passed_on = merged_outcomes(self._outcomes), self._spread.blocks.protocol.take_passed_on()
        payloads = [*(logged.gates for logged in self._taken), read.gates]
        self._open.end(epoch, final, payloads, effects, passed_on)
        if outcome is not None and self._gates:  # the gate takes the same rows in, and counts them
            outcome = outcome.errors_alone() if outcome.errors else None
        self._open.write(epoch, None if outcome is None else WriteOutputs(epoch, final, outcome), effects)
        self._taken, self._outcomes = [], []
        self._log.save_if_due(epoch, self._committed, partial(self.state, epoch), effects)
        self._take_known(effects)

    def state(self, epoch: int) -> SwitchState:
        """Return a snapshot after an epoch, the last that has come here."""
        intake = b"" if self._spread is None else self._spread.intake.save()
        return SwitchState(epoch, intake, self._sessions.save(), self._sessions.forgotten)

    def _take_commits(self, effects: list[Effect]) -> None:
        """Do what is to be done of epochs that are committed now, and tell who is to hear of it here."""
        for epoch, told in self._commits.due():
            self._commit(epoch, effects)
            effects += told

    def _commit(self, epoch: int, effects: list[Effect]) -> None:
        if epoch != self._committed + 1 or epoch > self._ended:
            raise RemoteProtocolError(f"{self.name}: epoch {epoch} is committed after {self._committed}")
        self._committed = epoch
        self._open.commit(epoch)
        self._credit.commit(epoch)
        self._records.forget(epoch, effects)

    def _reset(self, epoch: int, effects: list[Effect]) -> None:
        """Go on in a new incarnation: send again what is open, to nodes that have taken back what they had of it."""
        if not self._reunion.is_due():
            return
        while self._committed < epoch:
            self._commit(self._committed + 1, effects)
        self._queries.reset()
        self._commits.reset(epoch)
        effects += self._transitions.reset(epoch, self._ended)
        self._open.repeat(effects, self._spread.blocks.protocol if self._spread else None)
        if self._taken:
            effects.append(Send(PUBLISHER, EpochWanted(self._ended + 1)))
        self._urged = 0

    # --- keeping ----------------------------------------------------------------------------------------------------

    def _recover(self, first: int, records: Sequence[bytes], effects: list[Effect]) -> None:
        """Take in committed epochs, then what clients have sent for the open one."""
        for epoch, parts in self._records.recover(first, records, self._sessions, self._committed):
            if self._spread is not None:
                for part in map(intake_part, parts):
                    self._spread.intake.apply(epoch, [part])
        self._take_known(effects)

    def check(self) -> None:
        """Check what holds between two steps."""
        assert self._committed <= self._ended <= self._told, (self._committed, self._ended, self._told)
        assert all(self._ended < epoch <= self._told for epoch in self._turns), (self._turns, self._ended, self._told)
