"""The publisher: when epochs begin, and when they are committed.

It lists what of the sources an epoch takes in, as the other hosts that read folders do, and tells the switches. Where
no files are left, it looks from time to time whether clients have sent rows, and begins an epoch if they have. When
all nodes have written what the epoch has changed, it writes the manifest, which is the commit. An epoch begins while
the one before is on its way, not earlier. What cannot be read ends the run, once all epochs before it are committed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cumulus.cluster.clients.query_messages import ForwardedQuery, QueryAnswer
from cumulus.cluster.machine_log import MachineLog
from cumulus.cluster.machine_tasks import CommitEpoch, GiveUp, ListFiles, Listing, Unreadable
from cumulus.cluster.messages import (
    EpochCommit,
    EpochReady,
    EpochRefused,
    EpochTold,
    EpochTurn,
    EpochWanted,
    SourcesDone,
    StatusAsked,
    StatusTold,
    node_name,
    switch_name,
)
from cumulus.cluster.output_files import AnswerRead, ListOutput, OutputFile, ReadOutput, StoreOutput
from cumulus.cluster.planning.epoch_endings import CommitBy
from cumulus.cluster.records import LoggedRefusal, LoggedTurn
from cumulus.cluster.resets import GoOn, Halt, Halted, Reset, Reunion
from cumulus.cluster.switches.files_elsewhere import FileLook, FilesFound
from cumulus.epochs.arrivals import Progress
from cumulus.epochs.committed.manifest import Written
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Completed, Effect, Forget, Input, Name, Perform, Received, Recovered, Send, Tick

PUBLISHER: Name = "publisher"
MOST_OPEN = 2
"""Epochs that have begun and are not committed, at most."""


@dataclass(slots=True)
class _Begun:
    """An epoch that has begun: what of the sources is in after it, how it was told, and what each machine has written
    of it.
    """

    progress: Progress
    record: int
    turn: EpochTurn
    written: dict[Name, Sequence[Written]] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    """Of it, that machines have sent."""


class Publisher:
    """The machine that begins and commits epochs.

    Parameters
    ----------
    watcher
        Who is told of committed epochs, and of the end.
    committed
        The last epoch that has a manifest.
    progress
        What of the sources is in then.
    every_ms
        How long to wait before looking for files again, or at what clients have sent, where there were none; None to
        end then.
    last
        The number of the last epoch to do; 0 for no end.
    commit
        With switches that commit, the lowest tells what all machines are ready with, and all tell their nodes.
    elsewhere
        Switch that reads files of its own host → the tables of these files.
    """

    def __init__(
        self,
        nodes: int,
        switches: int,
        watcher: Name,
        committed: int,
        progress: Progress,
        every_ms: int | None = None,
        last: int = 0,
        *,
        commit: CommitBy = CommitBy.PUBLISHER,
        elsewhere: Mapping[Name, Collection[str]] = MappingProxyType({}),
    ) -> None:
        self._watcher = watcher
        self._nodes = [node_name(each) for each in range(nodes)]
        self._switches = [switch_name(each) for each in range(switches)]
        is_told_all = commit is CommitBy.PUBLISHER
        self._ready_by = [*self._nodes, *self._switches] if is_told_all else self._switches[:1]
        """Who says that machines are ready with an epoch."""
        self._told_of_commits = [*self._switches, *self._nodes] if is_told_all else self._switches
        self._stored: set[str] = set()
        """Files of epochs that are not committed, which machines have sent."""
        self._committed = self._newest = committed
        self._progress = progress
        self._every_ms, self._last = every_ms, last
        self._begun: dict[int, _Begun] = {}
        self._refused: EpochRefused | None = None
        """The first epoch that cannot be read."""
        self._look = FileLook(elsewhere)
        self._is_listing = self._is_committing = self._is_done = self._has_told = False
        self._now = self._again_at = 0
        self._pending = 0
        """The last epoch for which clients have sent rows."""
        self._since: dict[int, int] = {}
        """Epoch that is not committed → when it was first heard of."""
        self._log = MachineLog(PUBLISHER)
        self._reunion = Reunion((*self._nodes, *self._switches))
        self._is_halting = self._is_halted = False

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        for each in inputs:
            self._reunion.note(each)
            match each:
                case Recovered(first, records):
                    self._recover(first, records, effects)
                case Received(_, Halt()):
                    self._is_halting = True
                case Received(_, Reset(epoch=epoch)):
                    self._reset(epoch, effects)
                case Received(sender, EpochReady() as ready) if sender in self._ready_by:
                    self._take_ready(sender, ready)
                case Received(sender, OutputFile() as file) if sender in (*self._nodes, *self._switches):
                    effects.append(Perform(StoreOutput(file)))
                    self._stored.add(file.name)
                case Received(sender, EpochRefused() as refused) if sender in (*self._nodes, *self._switches):
                    self._take_refusal(refused)
                case Received(sender, EpochWanted(epoch, is_urgent)) if sender in (*self._nodes, *self._switches):
                    self._pending = max(self._pending, epoch)
                    self._since.setdefault(epoch, self._now)
                    if is_urgent and epoch > self._newest:
                        self._again_at = self._now
                case Received(sender, FilesFound() as found):
                    self._look.take(sender, found)
                    self._take_listing(effects)
                case Received(sender, (ReadOutput() | ListOutput()) as asked):
                    effects.append(Perform(AnswerRead(sender, asked)))
                case Completed(AnswerRead(client, query=query), answer):
                    effects.append(Send(client, QueryAnswer(query, answer) if query else answer))
                case Received(sender, StatusAsked(number)):
                    effects.append(Send(sender, StatusTold(number, self._facts())))
                case Received(sender, ForwardedQuery(query, asked=StatusAsked(number))):
                    effects.append(Send(sender, QueryAnswer(query, StatusTold(number, self._facts()))))
                case Received(sender, ForwardedQuery(query, asked=(ReadOutput() | ListOutput()) as asked)):
                    effects.append(Perform(AnswerRead(sender, asked, query)))
                case Received(sender, message):
                    name = type(message).__name__
                    raise RemoteProtocolError(f"{PUBLISHER}: {name} from {sender} is not for the publisher")
                case Completed(ListFiles(epoch=epoch), Unreadable(message, hint)):
                    self._is_listing = False
                    self._take_refusal(EpochRefused(epoch, message, hint))
                case Completed(ListFiles(), listing):
                    self._look.note_here(listing)
                    self._take_listing(effects)
                case Completed(CommitEpoch(epoch=epoch), files_left):
                    self._commit(epoch, files_left, effects)
                case Tick(now):
                    self._now = now
                case _:
                    pass
        self._advance(effects)
        return effects

    def _recover(self, first: int, records: Sequence[bytes], effects: list[Effect]) -> None:
        """Tell again what was told in a life before and is not committed, as far as this one is to go."""
        turns: dict[int, tuple[LoggedTurn, int]] = {}
        for number, logged in self._log.recover(first, records):
            match logged:
                case LoggedTurn() as turn:
                    turns[turn.epoch] = turn, number
                case LoggedRefusal(epoch):
                    turns = {each: turn for each, turn in turns.items() if each < epoch}
                case other:
                    raise AssertionError(other)
        for epoch, (turn, number) in sorted(turns.items()):
            if self._committed < epoch <= (self._last or epoch):
                self._tell(replace(turn, final=turn.final or epoch == self._last), number, effects)

    def _take_listing(self, effects: list[Effect]) -> None:
        """Tell the next epoch if there is anything for it, and all have said what they see."""
        if not self._is_listing or not self._look.is_over:
            return
        self._is_listing = False
        listing = self._look.result(self._progress)
        if listing is None:
            self._is_done = self._every_ms is None
            self._again_at = self._now + (self._every_ms or 0)
            if self._is_done or self._pending <= self._newest:
                return
            listing = Listing({}, self._progress, False)
        logged = LoggedTurn(self._newest + 1, listing.files, listing.progress, listing.final)
        self._tell(logged, self._log.append(logged, effects), effects)

    def _tell(self, logged: LoggedTurn, record: int, effects: list[Effect]) -> None:
        assert logged.epoch == self._newest + 1, f"epoch {logged.epoch} begins after {self._newest}"
        self._newest, self._progress = logged.epoch, logged.progress
        turn = EpochTurn(logged.epoch, logged.files, logged.final, record)
        self._begun[logged.epoch] = _Begun(logged.progress, record, turn)
        self._since.setdefault(logged.epoch, self._now)
        effects += (Send(each, turn) for each in self._switches)

    def _take_refusal(self, refused: EpochRefused) -> None:
        if self._refused is None or refused.epoch < self._refused.epoch:
            self._refused = refused

    def _take_ready(self, sender: Name, ready: EpochReady) -> None:
        begun = self._begun.get(ready.epoch)
        if begun is None or sender in begun.written:
            raise RemoteProtocolError(
                f"{PUBLISHER}: {sender} is ready with epoch {ready.epoch}, which does not wait for it"
            )
        begun.written[sender] = ready.written
        begun.files |= {*ready.files}

    def _reset(self, epoch: int, effects: list[Effect]) -> None:
        """Go on in a new incarnation: tell again what is open, of which all machines will be ready again."""
        self._is_halting = self._is_halted = False
        if not self._reunion.is_due():
            return
        assert epoch == self._committed, f"epoch {epoch} is to be the last one, and {self._committed} is committed"
        effects.append(Perform(GoOn()))
        effects += self._look.again()
        self._stored.clear()
        for begun in self._begun.values():
            begun.written.clear()
            begun.files.clear()
            effects += (Send(each, begun.turn) for each in self._switches)

    def _advance(self, effects: list[Effect]) -> None:
        """Commit the oldest epoch if all have written it, and look for the files of the next one."""
        if self._is_halting:
            if not self._is_committing and not self._is_halted:
                self._is_halted = True
                effects.append(Send(self._watcher, Halted(self._committed)))
            return
        oldest = self._begun.get(self._committed + 1)
        if oldest is not None and not self._is_committing and self._is_ready(oldest):
            self._is_committing = True
            written = [each for name in self._ready_by for each in oldest.written[name]]
            effects.append(Perform(CommitEpoch(self._committed + 1, written, oldest.progress)))
        self._is_done |= 0 < self._last <= self._newest
        if self._refused is not None:
            if self._refused.epoch == self._committed + 1 and not self._has_told:
                self._has_told = True
                self._log.append(LoggedRefusal(self._refused.epoch), effects)
                effects.append(Perform(GiveUp(Unreadable(self._refused.message, self._refused.hint))))
        elif self._is_done:
            if not self._begun and not self._has_told:
                self._has_told = True
                effects.append(Send(self._watcher, SourcesDone()))
        elif len(self._begun) < MOST_OPEN and not self._is_listing and self._now >= self._again_at:
            self._is_listing = True
            effects.append(Perform(ListFiles(self._newest + 1, self._progress)))
            effects += self._look.begin(self._newest + 1, self._progress)

    def _is_ready(self, begun: _Begun) -> bool:
        """Whether all that an epoch has changed is written, and here."""
        return len(begun.written) == len(self._ready_by) and begun.files <= self._stored

    def _commit(self, epoch: int, files_left: int, effects: list[Effect]) -> None:
        self._is_committing = False
        self._committed = epoch
        done = self._begun.pop(epoch)
        self._stored -= done.files
        effects.append(Forget(done.record))
        self._since = {each: since for each, since in self._since.items() if each > epoch}
        effects += (Send(each, EpochCommit(epoch)) for each in self._told_of_commits)
        effects.append(Send(self._watcher, EpochTold(epoch, files_left + self._look.left)))

    def _facts(self) -> dict[str, object]:
        """Return how far all is; "behind_ms" is how long something has waited that is not committed."""
        since = min(self._since.values(), default=self._now)
        return {"committed": self._committed, "epoch": self._newest, "behind_ms": self._now - since}

    def check(self) -> None:
        """Check what holds between two steps."""
        assert list(self._begun) == list(range(self._committed + 1, self._newest + 1)), (self._begun, self._committed)
        assert len(self._begun) <= MOST_OPEN + 1
