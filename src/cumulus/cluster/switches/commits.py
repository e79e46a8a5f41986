"""What a switch does when machines are ready with an epoch, and when it is committed.

With `--commit publisher` that is little: it tells the publisher that it is ready itself. With `--commit switches` each
switch has nodes of its own, by their numbers:

=======  ==========================  ==================================================================================
message  from, to                    what it says
=======  ==========================  ==================================================================================
READY    node → its switch           everything of an epoch is in, and durable there
READY    switch → all others         so it is at all nodes of this switch, and here: the minimum of what they have told
READY    lowest switch → publisher   so it is everywhere: the manifest may be written
COMMIT   publisher → switches        it is written
COMMIT   switch → its nodes          the same
=======  ==========================  ==================================================================================

A switch tells its nodes of a commit when two things are known to it: the manifest is there, and all switches have told
it that they are ready. What was written goes to the lowest switch alone, and on to the publisher.

References
----------
Cumulus semester paper, section 3.4: "Each switch will compute the minimum TS received from corresponding DW Nodes", and
"the switches split the work of broadcasting EPOCH COMMIT".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cumulus.cluster.messages import EpochCommit, EpochReady, node_name, switch_name
from cumulus.cluster.output_files import ready_messages
from cumulus.cluster.planning.epoch_endings import CommitBy
from cumulus.cluster.publisher import PUBLISHER
from cumulus.epochs.committed.manifest import Written
from cumulus.errors import RemoteProtocolError
from cumulus.machine import Name, Send


def coordinator_of(node: int, switches: int, commit: CommitBy) -> Name:
    """Return the machine that a node tells when it is ready, and that tells it what is committed.

    Examples
    --------
    >>> coordinator_of(5, 2, CommitBy.SWITCHES), coordinator_of(5, 2, CommitBy.PUBLISHER)
    ('switch1', 'publisher')
    """
    return switch_name(node % switches) if commit is CommitBy.SWITCHES else PUBLISHER


class SwitchCommits(Protocol):
    """What a switch does with what is ready, and committed."""

    def ready(self, epoch: int, result: object) -> Iterator[Send]:
        """Yield who is told that this switch is ready with an epoch; `result` is of the task that wrote."""

    def take(self, sender: Name, ready: EpochReady) -> Iterator[Send]:
        """Take what another machine is ready with; RemoteProtocolError if it should not say so here."""

    def note_manifest(self, epoch: int) -> None:
        """Note that the manifest of an epoch is there; RemoteProtocolError if it is not the next one."""

    def due(self) -> Iterator[tuple[int, list[Send]]]:
        """Yield epochs that are committed and were not before, each with who is told of it."""

    def reset(self, epoch: int) -> None:
        """Forget what is not committed: all will be ready again."""


class CommitsOfPublisher:
    """`SwitchCommits` where the publisher hears of all, and tells all."""

    def __init__(self, committed: int) -> None:
        self._committed = self._manifest = committed

    def ready(self, epoch: int, result: object) -> Iterator[Send]:
        """Yield what the publisher is told."""
        return ready_messages(PUBLISHER, PUBLISHER, epoch, result)

    def take(self, sender: Name, ready: EpochReady) -> Iterator[Send]:
        """Refuse what is for the publisher."""
        raise RemoteProtocolError(f"{sender} is ready with epoch {ready.epoch}, which is not for a switch")

    def note_manifest(self, epoch: int) -> None:
        """Note that the manifest of an epoch is there."""
        self._manifest = _next(self._manifest, epoch)

    def due(self) -> Iterator[tuple[int, list[Send]]]:
        """Yield epochs that have a manifest."""
        while self._committed < self._manifest:
            self._committed += 1
            yield self._committed, []

    def reset(self, epoch: int) -> None:
        """Go back to a committed epoch."""
        self._committed = self._manifest = epoch


@dataclass(slots=True)
class _Told:
    """What a machine has told of an epoch: what was written, and the names of files that it has sent."""

    written: Sequence[Written] = ()
    files: Sequence[str] = ()


@dataclass(slots=True)
class _Epochs:
    """What one machine, or another switch for its nodes, is ready with: the last epoch, and what it has told of those
    that are not passed on.
    """

    last: int
    told: dict[int, _Told] = field(default_factory=dict)


class CommitsOfSwitches:
    """`SwitchCommits` where each switch has nodes, and switches agree.

    Parameters
    ----------
    number
        Of this switch.
    nodes, switches
        How many there are.
    committed
        The last epoch that has a manifest.
    """

    def __init__(self, number: int, nodes: int, switches: int, committed: int) -> None:
        self._name = switch_name(number)
        self._nodes = [node_name(node) for node in range(number, nodes, switches)]
        self._switches = [switch_name(switch) for switch in range(switches)]
        self.reset(committed)

    def reset(self, epoch: int) -> None:
        """Forget what is not committed: all will be ready again."""
        self._committed = self._manifest = epoch
        self._own = {name: _Epochs(epoch) for name in (self._name, *self._nodes)}
        """What its nodes and it itself are ready with."""
        self._all = {name: _Epochs(epoch) for name in self._switches}
        """What all switches have told, this one among them."""
        self._asked = epoch
        """The last epoch of which the lowest switch has told the publisher."""

    @property
    def _lowest(self) -> Name:
        return self._switches[0]

    def ready(self, epoch: int, result: object) -> Iterator[Send]:
        """Yield what others are told, as far as this switch was the last of its group."""
        for each in ready_messages(PUBLISHER, self._name, epoch, result):
            if isinstance(each.message, EpochReady):
                yield from self.take(self._name, each.message)
            else:
                yield each

    def take(self, sender: Name, ready: EpochReady) -> Iterator[Send]:
        """Take what a machine is ready with; yield who is told what all are."""
        among = self._own if sender in self._own else self._all
        if sender not in among or ready.epoch != among[sender].last + 1:
            raise RemoteProtocolError(
                f"{self._name}: {sender} is ready with epoch {ready.epoch}, which does not wait for it"
            )
        among[sender].last = ready.epoch
        among[sender].told[ready.epoch] = _Told(ready.written, ready.files)
        yield from self._pass_on()

    def _pass_on(self) -> Iterator[Send]:
        mine = self._all[self._name]
        while min(each.last for each in self._own.values()) > mine.last:
            mine.last += 1
            together = mine.told[mine.last] = _joined(self._own, mine.last)
            for other in self._switches:
                if other != self._name:
                    told = together if other == self._lowest else _Told()
                    yield Send(other, EpochReady(mine.last, told.written, told.files))
        while self._name == self._lowest and self._ready_everywhere > self._asked:
            self._asked += 1
            together = _joined(self._all, self._asked)
            yield Send(PUBLISHER, EpochReady(self._asked, together.written, together.files))

    @property
    def _ready_everywhere(self) -> int:
        """The last epoch with which all switches are ready."""
        return min(each.last for each in self._all.values())

    def note_manifest(self, epoch: int) -> None:
        """Note that the manifest of an epoch is there."""
        self._manifest = _next(self._manifest, epoch)

    def due(self) -> Iterator[tuple[int, list[Send]]]:
        """Yield epochs that have a manifest, and with which all switches are ready."""
        while self._committed < min(self._manifest, self._ready_everywhere):
            self._committed += 1
            for each in self._all.values():
                each.told.pop(self._committed, None)
            yield self._committed, [Send(node, EpochCommit(self._committed)) for node in self._nodes]


def _joined(members: dict[Name, _Epochs], epoch: int) -> _Told:
    """Take out what machines have told of an epoch; return it together, in their order."""
    told = [each.told.pop(epoch) for each in members.values()]
    return _Told([each for one in told for each in one.written], [each for one in told for each in one.files])


def _next(last: int, epoch: int) -> int:
    if epoch != last + 1:
        raise RemoteProtocolError(f"epoch {epoch} is committed after {last}")
    return epoch


def commits_of_switch(number: int, nodes: int, switches: int, commit: CommitBy, committed: int) -> SwitchCommits:
    """Return what a switch does with what is ready and committed.

    Parameters
    ----------
    number
        Of the switch.
    nodes, switches
        How many there are.
    committed
        The last epoch that has a manifest.
    """
    if commit is CommitBy.SWITCHES:
        return CommitsOfSwitches(number, nodes, switches, committed)
    return CommitsOfPublisher(committed)
