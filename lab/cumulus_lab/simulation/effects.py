"""What machines ask for is done in order: messages are sent, records written, tasks performed one after the other.

Records are written at once, and what stands behind one waits until it is on the disk, as the driver of
`cumulus.transport` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from cumulus.machine import Append, Completed, Effect, Forget, Input, Name, Perform, Send
from cumulus_lab.simulation.agenda import Agenda
from cumulus_lab.simulation.choices import ChoiceStream
from cumulus_lab.simulation.life import Life
from cumulus_lab.simulation.network import Network


class EffectQueue:
    """The effects of all machines.

    Parameters
    ----------
    agenda
        When what is done.
    network
        Where messages go.
    logs
        The machines that have a log.
    streams, longest
        The choices about what takes time at each machine, and the longest that it may take.
    perform, tell, write
        Performs a task; puts an input into the inbox of a life; adds a line to the trace.
    """

    def __init__(
        self,
        agenda: Agenda,
        network: Network,
        logs: frozenset[Name],
        streams: Mapping[Name, ChoiceStream],
        longest: int,
        perform: Callable[[Name, Any], Any],
        tell: Callable[[Life, Input], None],
        write: Callable[..., None],
    ) -> None:
        self._agenda = agenda
        self._network = network
        self._logs = logs
        self._streams = streams
        self._longest = longest
        self._perform = perform
        self._tell = tell
        self._write = write

    def take(self, life: Life, effects: Sequence[Effect]) -> None:
        """Do the effects of a step, or let them wait for the records before them."""
        for effect in effects:
            if type(effect) is Append:
                self._append(life, effect)
            if life.outbox or type(effect) is Append:
                life.outbox.append((effect, life.incarnation))
            else:
                self._do(life, effect, life.incarnation)

    def _append(self, life: Life, effect: Append) -> None:
        assert life.name in self._logs, f"{life.name} appends a record, and has no log in this scenario"
        life.log.write(effect)
        self._write("{} writes record {}", life.name, effect.number)
        now = self._agenda.now
        life.disk_free = max(life.disk_free, now + self._streams[life.name].mostly_short(self._longest))
        self._agenda.after(life.disk_free - now, self._durable, (life, effect.number))

    def _durable(self, about: tuple[Life, int]) -> None:
        """A record is on the disk: do what stands behind it, up to the next record that is not."""
        life, number = about
        if not life.is_alive:
            return
        life.log.durable = number
        self._write("{} has record {} on disk", life.name, number)
        outbox = life.outbox
        while outbox:
            effect, incarnation = outbox[0]
            if type(effect) is not Append:
                self._do(life, effect, incarnation)
            elif effect.number > number:
                break
            outbox.popleft()

    def _do(self, life: Life, effect: Effect, incarnation: int) -> None:
        match effect:
            case Send():
                self._network.send(life, effect, incarnation)
            case Perform(task):
                self._write("{} asks for {!r}", life.name, task)
                life.tasks.append(task)
                if len(life.tasks) == 1:
                    self._begin_task(life)
            case Forget(number):
                life.log.forget(number)
            case Append():
                raise AssertionError("a record is written when it comes")
            case _:
                assert_never(effect)

    def _begin_task(self, life: Life) -> None:
        self._agenda.after(self._streams[life.name].mostly_short(self._longest), self._complete, life)

    def _complete(self, life: Life) -> None:
        """The first task of a machine is done."""
        if life.is_alive:
            task = life.tasks.popleft()
            result = self._perform(life.name, task)
            if life.tasks:
                self._begin_task(life)
            self._tell(life, Completed(task, result))
