"""The world: machines, the time, the network between them, their disks and tasks; one thing happens after the other.

All that happens is in one agenda: a message arrives, a record is on the disk, a task is done, a clock ticks, a
machine starts. An input wakes its machine, which takes in one or several of the inputs that wait, and whose effects are
then done in order; those behind an `Append` when its record is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop
from typing import ParamSpec, TypeVar, assert_never

from cumulus.machine import Append, Completed, Effect, Forget, Input, Name, Perform, Send, Tick
from cumulus.simulation.agenda import MILLISECOND, Agenda
from cumulus.simulation.choices import Choices
from cumulus.simulation.disk import VirtualLog
from cumulus.simulation.failure import Failure, failure_of
from cumulus.simulation.faults import Faults
from cumulus.simulation.life import Life
from cumulus.simulation.network import Cut, Network, usual_travel
from cumulus.simulation.scenario import Conditions, Scenario
from cumulus.simulation.trace import Trace

P = ParamSpec("P")
T = TypeVar("T")

PAUSE = 2 * MILLISECOND
"""How long a machine takes to react, at most."""
SLOW_PAUSE = 200 * MILLISECOND
DOWN_TIME = 500 * MILLISECOND
"""How long a machine is down, cut off or slow, at most."""


class FailedRunError(Exception):
    """A run has failed; never leaves the room."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class World:
    """Machines that run.

    Parameters
    ----------
    scenario
        Which machines, and what is checked.
    conditions
        Faults, delays and limits.
    choices
        Where all that is random comes from.
    trace
        Who writes down what happens, if it is to be.
    """

    def __init__(
        self, scenario: Scenario, conditions: Conditions, choices: Choices, trace: Trace | None = None
    ) -> None:
        self.scenario = scenario
        self.conditions = conditions
        self.steps = 0
        self.counts = scenario.reports.counts
        self.agenda = Agenda()
        self.lives: dict[Name, Life] = {}
        self._trace = trace
        self._faults = Faults(conditions, choices, scenario.may_crash)
        longest = choices.stream("longest delay").one(conditions.longest_ms) * MILLISECOND
        self._longest = longest
        self.logs = {name: VirtualLog() for name in scenario.machines}
        self._numbers = dict.fromkeys(scenario.machines, 0)
        self._slow_until = dict.fromkeys(scenario.machines, 0)
        self._delays = {name: choices.stream(f"delays of {name}") for name in scenario.machines}
        self._paces = {name: choices.stream(f"pace of {name}") for name in scenario.machines}
        self._times = choices.stream("times")
        self._active = 0
        self.network = Network(
            self.agenda,
            self.lives,
            scenario.wire,
            conditions.travel or usual_travel(longest),
            self._delays,
            self._tell,
            self.counts,
        )
        scenario.reports.checked = frozenset(scenario.at_report)
        for name in scenario.machines:
            self.agenda.after(self._times.mostly_short(longest), self._start, name)

    @property
    def names(self) -> Sequence[Name]:
        """All machines, in the order of the scenario."""
        return list(self.scenario.machines)

    @property
    def alive(self) -> Sequence[Name]:
        """Those that run."""
        return [name for name in self.scenario.machines if name in self.lives]

    def run(self) -> None:
        """Run until nothing is on its way and the machines have nothing to do, then check what must hold at rest.

        Raises
        ------
        FailedRunError
            At the first failure; the world is not to be used any more.
        """
        agenda, most = self.agenda, self.conditions.most_steps
        heap = agenda.heap
        rest = self.conditions.rest_ms * MILLISECOND
        try:
            while heap and (agenda.pending or agenda.now < self._active + rest):
                agenda.now, _, deed, about = heappop(heap)
                agenda.pending -= 1
                deed(about)
                if self.steps > most:
                    milliseconds = agenda.now // MILLISECOND
                    raise self._failed("rest", AssertionError(f"no rest after {most} steps, {milliseconds} ms"))
        except FailedRunError:
            raise
        except Exception as error:
            raise self._failed("world", error) from error
        self._active = agenda.now
        for check, holds in self.scenario.at_rest.items():
            self._attempt(check, holds, self)

    def _failed(self, check: str, error: Exception) -> FailedRunError:
        return FailedRunError(failure_of(check, error, self.steps))

    def _attempt(self, check: str, does: Callable[P, T], *about: P.args, **named: P.kwargs) -> T:
        """Call what the caller has given."""
        try:
            return does(*about, **named)
        except Exception as error:
            raise self._failed(check, error) from error

    def _write(self, what: str, *about: object) -> None:
        if self._trace is not None:
            self._trace.line(self.steps, self.agenda.now, what.format(*about))

    # --- steps ------------------------------------------------------------------------------------------------------

    def _tell(self, life: Life, told: Input) -> None:
        """Put an input into a machine's inbox, and let it step soon."""
        life.inbox.append(told)
        if not life.is_due:
            self._wake(life)

    def _wake(self, life: Life) -> None:
        life.is_due = True
        pace = self._paces[life.name]
        if self._slow_until[life.name] > self.agenda.now:
            self.agenda.after(pace.mostly_short(SLOW_PAUSE), self._step, life)
        else:
            self.agenda.after(pace.mostly_short(PAUSE), self._step, life)

    def _step(self, life: Life) -> None:
        """Let a machine take in one or several of its inputs."""
        if not life.is_alive:
            return
        inbox, name = life.inbox, life.name
        taken = self._paces[name].below(len(inbox)) if len(inbox) > 1 else 0
        inputs, life.inbox = (inbox[:taken], inbox[taken:]) if taken else (inbox, [])
        self.steps += 1
        if self._trace is not None:
            self._trace.inputs(self.steps, self.agenda.now, name, inputs)
        try:
            effects = life.machine.step(inputs)
        except Exception as error:
            raise self._failed("step", error) from error
        if effects or len(inputs) > 1 or type(inputs[0]) is not Tick:
            self._active = self.agenda.now
        self._check(life)
        if self.steps >= self._faults.due:
            self._faults.strike(self, self.steps, name, effects)
        if life.is_alive:
            self._take(life, effects)
            life.is_due = False
            if life.inbox:
                self._wake(life)

    def _check(self, life: Life) -> None:
        """Check a machine that has stepped, and what the caller wants to know of it; its effects are not done yet."""
        if self.conditions.checks_machines:
            try:
                life.machine.check()
            except Exception as error:
                raise self._failed("check", error) from error
        for check, holds in self.scenario.after_step.items():
            self._attempt(check, holds, self, life.name)
        if self.scenario.reports.due:
            self._check_reports(life.name)

    def _check_reports(self, name: Name) -> None:
        """Check what is wanted of what a machine, or a task of it, has reported."""
        reports = self.scenario.reports
        due, reports.due = reports.due, []
        for check, about in due:
            self._attempt(check, self.scenario.at_report[check], self, name, about)

    # --- effects ----------------------------------------------------------------------------------------------------

    def _take(self, life: Life, effects: Sequence[Effect]) -> None:
        """Do the effects of a step, or let them wait for the records before them. Records are written at once."""
        for effect in effects:
            if type(effect) is Append:
                self._append(life, effect)
            if life.outbox or type(effect) is Append:
                life.outbox.append(effect)
            else:
                self._do(life, effect)

    def _append(self, life: Life, effect: Append) -> None:
        life.log.write(effect)
        self._write("{} writes record {}", life.name, effect.number)
        delay = self._delays[life.name].mostly_short(self._longest)
        life.disk_free = max(life.disk_free, self.agenda.now + delay)
        self.agenda.after(life.disk_free - self.agenda.now, self._durable, (life, effect.number))

    def _durable(self, about: tuple[Life, int]) -> None:
        """A record is on the disk: do what stands behind it, up to the next record that is not."""
        life, number = about
        if not life.is_alive:
            return
        life.log.durable = number
        self._write("{} has record {} on disk", life.name, number)
        outbox = life.outbox
        while outbox:
            effect = outbox[0]
            if type(effect) is not Append:
                self._do(life, effect)
            elif effect.number > number:
                break
            outbox.popleft()

    def _do(self, life: Life, effect: Effect) -> None:
        match effect:
            case Send():
                self.network.send(life, effect)
            case Perform(task):
                self._write("{} asks for {!r}", life.name, task)
                life.tasks.append(task)
                if len(life.tasks) == 1:
                    self._perform_next(life)
            case Forget(number):
                life.log.forget(number)
            case Append():
                raise AssertionError("records are written by `_take`")
            case _:
                assert_never(effect)

    def _perform_next(self, life: Life) -> None:
        self.agenda.after(self._delays[life.name].mostly_short(self._longest), self._complete, life)

    def _complete(self, life: Life) -> None:
        """The first task of a machine is done."""
        if life.is_alive:
            task = life.tasks.popleft()
            result = self._performed(life.name, task)
            if life.tasks:
                self._perform_next(life)
            self._tell(life, Completed(task, result))

    def _performed(self, name: Name, task: object) -> object:
        result = self._attempt("task", self.scenario.perform, name, task)
        self._check_reports(name)
        return result

    # --- lives ------------------------------------------------------------------------------------------------------

    def _start(self, name: Name) -> None:
        """Begin the next life of a machine."""
        self._numbers[name] += 1
        number = self._numbers[name]
        machine = self._attempt("start", self.scenario.machines[name], name, number)
        clock = self._faults.clock(self.agenda.now)
        self.counts["skew"] += clock.is_skewed
        life = Life(name, number, machine, self.logs[name], clock)
        self.lives[name] = life
        self._write("{} starts, life {}", name, number)
        if number > 1:
            self._tell(life, life.log.recovered(self._times))
        self.network.started(life)
        if self.conditions.tick_ms:
            self.agenda.tick_after(0, self._tick, life)

    def _tick(self, life: Life) -> None:
        """A machine's clock has gone on."""
        self.agenda.pending += 1
        if not life.is_alive:
            return
        self.agenda.tick_after(life.clock.microseconds_of(self.conditions.tick_ms), self._tick, life)
        told = Tick(life.clock.milliseconds(self.agenda.now))
        if life.inbox and type(life.inbox[-1]) is Tick:
            life.inbox[-1] = told
        else:
            self._tell(life, told)

    # --- faults -----------------------------------------------------------------------------------------------------

    def crash(self, name: Name, done: Sequence[Effect] = ()) -> None:
        """Stop a machine after these first effects of its last step are done; start it again later."""
        life, stream = self.lives.pop(name), self._times
        self._take(life, done)
        life.is_alive = False
        lost = life.log.crash(stream)
        self._write("{} crashes: records lost {}, tasks lost {}", name, lost, len(life.tasks))
        self.counts["crash"] += 1
        self.counts["record lost"] += lost
        self.counts["task lost"] += len(life.tasks)
        if life.tasks and stream.chance(1 / 2):
            self._performed(name, life.tasks[0])
        self.network.crashed(life, stream, self._longest)
        self.agenda.after(stream.mostly_short(DOWN_TIME), self._start, name)

    def partition(self, pairs: frozenset[tuple[Name, Name]]) -> None:
        """Hold up the messages of some pairs for a while."""
        if pairs:
            self.counts["partition"] += 1
            self._write("cut: {}", _pairs_text(pairs))
            self.agenda.after(self._times.mostly_short(DOWN_TIME), self._heal, self.network.cut(pairs))

    def _heal(self, cut: Cut) -> None:
        self._write("healed: {}", _pairs_text(cut.pairs))
        self.network.heal(cut)

    def slow(self, name: Name) -> None:
        """Let a machine step rarely for a while."""
        self.counts["slow"] += 1
        self._write("{} is slow for a while", name)
        self._slow_until[name] = self.agenda.now + self._times.mostly_short(DOWN_TIME)


def _pairs_text(pairs: frozenset[tuple[Name, Name]]) -> str:
    return ", ".join(f"{sender} → {to}" for sender, to in sorted(pairs))
