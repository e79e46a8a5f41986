"""A machine whose log is copied to a standby: what must outlive its host waits until the standby has it.

That is what it tells clients of rows that are accepted, and the publisher of epochs that are ready. Everything else
goes on at once: were the host lost, a reset would take it back. A record is sent when it is on the disk here. So what
the standby has is a beginning of what is here, and whatever was told, the standby has what it rests on.

References
----------
Semester paper, section 6 ("redundant nodes").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, TypeAlias

from cumulus.cluster.machine_tasks import SaveState
from cumulus.cluster.messages import EpochReady, RowsAccepted
from cumulus.cluster.resets import Reset
from cumulus.cluster.standby.copies import (
    CopyForget,
    CopyHeld,
    CopyKept,
    CopyMessage,
    CopyOffered,
    CopyReady,
    CopyRecord,
    CopyState,
    CopyWhole,
    ReadOwnLog,
)
from cumulus.machine import Append, Completed, Effect, Forget, Input, Machine, Name, Perform, Received, Recovered, Send
from cumulus.transport.machine_spec import SUPERVISOR

AckPolicy: TypeAlias = Literal["standby", "local"]
"""Whether rows are accepted when the standby has them, or when the disk of their switch has."""


class CopiedMachine:
    """A machine, and the copy of its log; it does what the machine does.

    Parameters
    ----------
    machine
        As it would be without.
    branch
        Of its log (`cumulus.cluster.standby.copies`).
    saved
        The epoch of the snapshot that it has begun with; 0 without one.
    ack
        What an accepted row waits for. Epochs wait for the standby always: a machine that takes this one's place must
        have all that is committed.
    """

    def __init__(self, name: Name, machine: Machine, branch: int, saved: int, ack: AckPolicy) -> None:
        self.machine = machine
        self._name, self._branch, self._saved = name, branch, saved
        self._waiting: tuple[type, ...] = (EpochReady,) if ack == "local" else (EpochReady, RowsAccepted)
        self._standby: Name | None = None
        """"" for none; None before that was told."""
        self._is_streaming = self._is_answered = self._has_told = False
        """Whether records go to the standby as they come; whether it has all that they come behind; and whether the
        supervisor knows that it has caught up."""
        self._reading: ReadOwnLog | None = None
        """What is read for the standby in this incarnation."""
        self._appended = self._forgotten = 0
        """The last records that were appended, and that are not needed any more."""
        self._unkept: deque[CopyRecord] = deque()
        """What the standby is not known to have."""
        self._held: deque[tuple[int, Send]] = deque()
        """What waits until it has a record."""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        effects: list[Effect] = []
        own: list[Input] = []
        for each in inputs:
            match each:
                case Received(sender, CopyHeld(last)) if sender == self._standby:
                    self._carry_on(last, effects)
                case Received(sender, CopyKept(last)) if sender == self._standby:
                    if self._is_streaming:
                        self._is_answered = True
                        self._take_kept(last)
                case Received(_, CopyHeld() | CopyKept()):
                    pass  # of a standby that it has no more
                case Completed(ReadOwnLog() as task, whole):
                    if task is self._reading:
                        self._reading = None
                        self._stream_behind(task.last, effects, whole)
                case Completed(SaveState(epoch, committed, state), _):
                    self._saved = max(self._saved, epoch)
                    self._stream(CopyState(epoch, committed, state), effects)
                    own.append(each)
                case Recovered(first, records):
                    self._forgotten = first - 1
                    self._appended = first - 1 + len(records)
                    self._unkept.extend(CopyRecord(number, record) for number, record in enumerate(records, first))
                    own.append(each)
                case Received(_, Reset(_, standbys)):
                    self._meet(standbys.get(self._name, ""), effects)
                    own.append(each)
                case _:
                    own.append(each)
        for effect in self.machine.step(own) if own else ():
            self._take(effect, effects)
        self._release(effects)
        return effects

    def check(self) -> None:
        """Check what holds between two steps."""
        self.machine.check()
        assert not self._unkept or self._unkept[-1].number == self._appended, (self._name, self._appended)

    @property
    def _kept(self) -> int:
        """The last record that the standby has."""
        return self._appended - len(self._unkept)

    def _meet(self, standby: Name, effects: list[Effect]) -> None:
        """Begin an incarnation: machines do again what they were about to do, and clients go on waiting."""
        self._held = deque(each for each in self._held if isinstance(each[1].message, RowsAccepted))
        self._standby, self._reading = standby, None
        self._is_streaming = self._is_answered = self._has_told = False
        if not standby:
            self._unkept.clear()
            return
        effects.append(Send(standby, CopyOffered(self._branch, self._forgotten + 1, self._appended, self._saved)))

    def _carry_on(self, last: int, effects: list[Effect]) -> None:
        """Go on behind what the standby has; send all if that is another log, or if what is between is not here.

        An answer may be one to what was asked in an incarnation before: what it says is so all the same.
        """
        if self._is_streaming or self._reading is not None:
            return
        first = self._unkept[0].number if self._unkept else self._appended + 1
        if first - 1 <= last <= self._appended:
            self._stream_behind(last, effects)
        else:
            self._reading = ReadOwnLog(self._branch, self._forgotten + 1, self._appended)
            effects.append(Perform(self._reading))

    def _stream_behind(self, last: int, effects: list[Effect], whole: CopyWhole | None = None) -> None:
        """Send what is behind a record, and from now on all as it comes.

        Parameters
        ----------
        whole
            What is up to this record, if the standby does not have it.
        """
        self._is_streaming, self._is_answered = True, whole is None
        if whole is None:
            self._take_kept(last)
        else:
            self._stream(whole, effects)
        for each in self._unkept:
            if each.number > last:
                self._stream(each, effects)

    def _stream(self, message: CopyMessage, effects: list[Effect]) -> None:
        if self._is_streaming and self._standby:
            effects.append(Send(self._standby, message))

    def _take_kept(self, last: int) -> None:
        assert last <= self._appended, (self._name, last, self._appended)
        while self._unkept and self._unkept[0].number <= last:
            self._unkept.popleft()

    def _take(self, effect: Effect, effects: list[Effect]) -> None:
        match effect:
            case Append(number, record):
                effects.append(effect)
                self._appended = number
                if self._standby != "":
                    self._unkept.append(CopyRecord(number, record))
                    self._stream(self._unkept[-1], effects)
            case Forget(number):
                effects.append(effect)
                self._forgotten = max(self._forgotten, number)
                self._stream(CopyForget(number), effects)
            case Send(_, message) if isinstance(message, self._waiting) and (self._held or self._kept < self._appended):
                self._held.append((self._appended, effect))  # also behind what is about to go: links keep their order
            case _:
                effects.append(effect)

    def _release(self, effects: list[Effect]) -> None:
        while self._held and self._held[0][0] <= self._kept:
            effects.append(self._held.popleft()[1])
        if self._is_answered and not self._has_told and self._kept == self._appended:
            self._has_told = True
            assert self._standby
            effects.append(Send(SUPERVISOR, CopyReady(self._standby, self._branch)))
