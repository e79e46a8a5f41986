"""The world: machines, the time, the network between them, their disks and tasks; one thing happens after the other.

All that happens is in one agenda: a message arrives, a record is on the disk, a task is done, a clock ticks, a
machine starts. An input wakes its machine, which takes in one or several of the inputs that wait, and whose effects are
then done in order; those behind an `Append` when its record is on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop

from cumulus.machine import Effect, Input, Lost, Name, Tick
from cumulus_lab.simulation.agenda import MILLISECOND, Agenda
from cumulus_lab.simulation.checks import FailedRunError, WorldChecks
from cumulus_lab.simulation.choices import Choices
from cumulus_lab.simulation.disk import VirtualLog
from cumulus_lab.simulation.effects import EffectQueue
from cumulus_lab.simulation.faults import Faults
from cumulus_lab.simulation.life import Life
from cumulus_lab.simulation.network import Cut, Network, usual_travel
from cumulus_lab.simulation.scenario import Conditions, Scenario, StartIncarnation
from cumulus_lab.simulation.trace import Trace

PAUSE = 2 * MILLISECOND
"""How long a machine takes to react, at most."""
SLOW_PAUSE = 200 * MILLISECOND
DOWN_TIME = 500 * MILLISECOND
"""How long a machine is down, cut off or slow, at most."""


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
        self._checks = WorldChecks(self, scenario, conditions)
        self._faults = Faults(conditions, choices, scenario.may_crash)
        longest = choices.stream("longest delay").one(conditions.longest_ms) * MILLISECOND
        self._longest = longest
        self.logs = scenario.disks
        self.logs |= {name: VirtualLog() for name in scenario.machines if name not in self.logs}
        self._numbers = dict.fromkeys(scenario.machines, 0)
        self._slow_until = dict.fromkeys(scenario.machines, 0)
        delays = {name: choices.stream(f"delays of {name}") for name in scenario.machines}
        self._paces = {name: choices.stream(f"pace of {name}") for name in scenario.machines}
        self._times = choices.stream("times")
        self._active = 0
        self._members = scenario.members
        self._incarnation = 0
        self.network = Network(
            self.agenda,
            self.lives,
            self._members,
            scenario.supervisor,
            scenario.wire,
            conditions.travel or usual_travel(longest),
            delays,
            self._tell,
            self._reconnect,
            self.counts,
            scenario.pressure,
        )
        self._effects = EffectQueue(
            self.agenda,
            self.network,
            scenario.logs,
            delays,
            longest,
            self._performed,
            self._tell,
            self._write,
        )
        for name in scenario.machines:
            if name not in self._members:
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
        goes_on = self.scenario.goes_on
        try:
            while heap and (
                agenda.pending or agenda.now < self._active + rest or self._checks.attempt("goes on", goes_on, self)
            ):
                agenda.now, _, deed, about = heappop(heap)
                agenda.pending -= 1
                deed(about)
                if self.steps > most:
                    milliseconds = agenda.now // MILLISECOND
                    raise self._checks.failed("rest", AssertionError(f"no rest after {most} steps, {milliseconds} ms"))
        except FailedRunError:
            raise
        except Exception as error:
            raise self._checks.failed("world", error) from error
        self._active = agenda.now
        self._checks.at_rest()

    def _write(self, what: str, *about: object) -> None:
        if self._trace is not None:
            self._trace.line(self.steps, self.agenda.now, what.format(*about))

    # --- steps ------------------------------------------------------------------------------------------------------

    def _tell(self, life: Life, told: Input) -> None:
        """Put an input into a machine's inbox, and let it step soon."""
        life.inbox.append(told)
        if type(told) is Lost:
            life.urgent = len(life.inbox)
        if not life.is_due and (life.incarnation or life.name not in self._members):
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
        if life.inbox:
            inbox = life.inbox
            taken = self._paces[life.name].below(len(inbox)) if len(inbox) > 1 else 0
            if taken:
                # What is sent after a loss goes over another link, so the machine must have been told by then.
                taken = max(taken, life.urgent)
            life.urgent = 0
            inputs, life.inbox = (inbox[:taken], inbox[taken:]) if taken else (inbox, [])
            self._step_with(life, inputs)
        life.is_due = False
        if life.inbox and life.is_alive:
            self._wake(life)

    def _step_with(self, life: Life, inputs: Sequence[Input]) -> None:
        self.steps += 1
        if self._trace is not None:
            self._trace.inputs(self.steps, self.agenda.now, life.name, inputs)
        try:
            effects = life.machine.step(inputs)
        except Exception as error:
            raise self._checks.failed("step", error) from error
        if effects or len(inputs) > 1 or type(inputs[0]) is not Tick:
            self._active = self.agenda.now
        self._checks.after_step(life)
        if self.steps >= self._faults.due:
            self._faults.strike(self, self.steps, life.name, effects)
        if life.is_alive:
            self._effects.take(life, effects)

    def _reconnect(self, life: Life, incarnation: int) -> None:
        """Let a member meet the others anew: what it answers to what came before is not sent any more."""
        if life.incarnation and life.inbox:
            inputs, life.inbox, life.urgent = life.inbox, [], 0
            self._step_with(life, inputs)
        if life.is_alive:
            self._write("{} meets the others, incarnation {}", life.name, incarnation)
            self.network.reconnected(life, incarnation)
            if life.inbox and not life.is_due:
                self._wake(life)

    # --- tasks -----------------------------------------------------------------------------------------------------

    def _performed(self, name: Name, task: object) -> object:
        if isinstance(task, StartIncarnation):
            self._renew(self.lives[name], task)
            return None
        result = self._checks.attempt("task", self.scenario.perform, name, task)
        self._checks.after_report(name)
        return result

    def _renew(self, supervisor: Life, task: StartIncarnation) -> None:
        """Start the members that do not run, and let all of them meet; end the others before, if that is asked for."""
        assert supervisor.name == self.scenario.supervisor, f"{supervisor.name} is no supervisor in this scenario"
        assert task.incarnation > self._incarnation, f"incarnation {task.incarnation} after {self._incarnation}"
        self._incarnation = task.incarnation
        for name in self.scenario.machines:
            if name in self._members:
                is_ended = task.ends or name in task.ending
                if is_ended:
                    supervisor.links.pop(name, None)  # it knows whom it ends
                if is_ended and name in self.lives:
                    self._end(name)
                if name not in self.lives:
                    self._start(name)
        self.network.start_incarnation(supervisor, task.incarnation, task.message)

    # --- lives ------------------------------------------------------------------------------------------------------

    def _start(self, name: Name) -> None:
        """Begin the next life of a machine."""
        self._active = self.agenda.now
        self._numbers[name] += 1
        number = self._numbers[name]
        machine = self._checks.attempt("start", self.scenario.machines[name], name, number)
        clock = self._faults.clock(self.agenda.now)
        self.counts["skew"] += clock.is_skewed
        life = Life(name, number, machine, self.logs[name], clock)
        self.lives[name] = life
        self._write("{} starts, life {}", name, number)
        if name in self.scenario.logs:
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
        """Stop a machine after these first effects of its last step are done; start it again later.

        With a supervisor end all that it has started, and it starts those that end.
        """
        if name == self.scenario.supervisor:
            for member in self.alive:
                if member in self._members:
                    self.crash(member)
        self.counts["crash"] += 1
        self._end(name, done)
        if name not in self._members:
            self.agenda.after(self._times.mostly_short(DOWN_TIME), self._start, name)

    def _end(self, name: Name, done: Sequence[Effect] = ()) -> None:
        """End a life, with what is not durable of it."""
        life, stream = self.lives.pop(name), self._times
        self._effects.take(life, done)
        life.is_alive = False
        lost = life.log.crash(stream)
        self._write("{} ends: records lost {}, tasks lost {}", name, lost, len(life.tasks))
        self.counts["record lost"] += lost
        self.counts["task lost"] += len(life.tasks)
        if life.tasks and not isinstance(life.tasks[0], StartIncarnation) and stream.chance(1 / 2):
            self._performed(name, life.tasks[0])
        self.network.crashed(life, stream, self._longest)

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
