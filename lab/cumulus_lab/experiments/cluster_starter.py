"""What starts the machines of a simulated cluster, as a supervisor does that of processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cumulus.cluster.messages import EpochTold, SourcesDone
from cumulus.cluster.publisher import PUBLISHER
from cumulus.cluster.resets import Halt, Halted, Reset
from cumulus.machine import Completed, Effect, Input, Lost, Name, Perform, Received, Send
from cumulus_lab.experiments.cluster_hosts import VirtualHosts
from cumulus_lab.simulation import StartIncarnation


@dataclass
class Starter:
    """Starts all machines, and starts them anew when one has ended, until all is read.

    Parameters
    ----------
    members
        Whom it starts.
    incarnations
        How many there were; it outlives the machine.
    is_wanted
        Whether somebody still waits for an answer when all is read.
    committed
        Returns the last committed epoch, if there is one.
    gated
        Those that cannot take back an epoch, and are ended with any other one; None: all are.
    hosts
        Where they are; None: where nothing is lost but they.
    """

    members: Sequence[Name]
    incarnations: list[int]
    is_wanted: Callable[[], bool]
    committed: Callable[[], int | None] = lambda: None
    gated: frozenset[Name] | None = None
    hosts: VirtualHosts | None = None
    lost: set[Name] = field(default_factory=set)
    halting: bool = False
    is_due: bool = True
    is_renewing: bool = False
    is_done: bool = False
    is_first: bool = True
    epochs: list[int] = field(default_factory=list)

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Take in what has happened; see `cumulus.machine.Machine`."""
        for each in inputs:
            match each:
                case Lost(peer) if peer in self.members:
                    self.is_due = True
                    self.lost.add(peer)
                case Received(_, Halted(epoch)) if self.halting:
                    self.halting = False
                    return [self._reset(epoch)]
                case Completed(StartIncarnation(), _):
                    self.is_renewing = False
                case Received(_, EpochTold(epoch, _)):
                    self.epochs.append(epoch)
                case Received(_, SourcesDone()):
                    self.is_done = True
                case Received(name, message) if self.hosts is not None:
                    self.hosts.take(name, message)
                case _:
                    pass
        if not self.is_due or self.is_renewing or (self.is_done and not self.is_wanted()):
            return []
        if self.halting and PUBLISHER not in self.lost:
            return []  # it will say so
        if self.gated is None or self.is_first:
            self.is_first = False
            if self.hosts is None:
                return [self._start(ends=True)]
            self.hosts.lose(self.lost)
            return [self._start(message=self.hosts.reset(self.committed() or 0), ends=True)]
        if PUBLISHER in self.lost:
            self.halting = False
            return [self._reset(self.committed() or 0)]
        self.halting = True
        return [Send(PUBLISHER, Halt())]

    def _reset(self, epoch: int) -> Effect:
        """Let all meet anew, and go back to a committed epoch."""
        assert self.gated is not None
        if self.hosts is None:
            return self._start(message=Reset(epoch), ending=self.gated)
        ending = self.gated | self.hosts.lose(self.lost)
        return self._start(message=self.hosts.reset(epoch), ending=ending)

    def _start(self, **how: Any) -> Effect:
        self.is_due, self.is_renewing = False, True
        self.lost.clear()
        self.incarnations.append(len(self.incarnations) + 1)
        return Perform(StartIncarnation(self.incarnations[-1], **how))

    def check(self) -> None:
        """Epochs are told in their order."""
        assert self.epochs == sorted(set(self.epochs)), self.epochs
