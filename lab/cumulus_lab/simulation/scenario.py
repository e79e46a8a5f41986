"""What the caller says: which machines there are, how messages are written, what is checked, under which conditions.

A `Scenario` is what is run, and is made from choices, so that its own randomness is recorded and shrunk with the rest.
`Conditions` say how: faults, delays and limits, the same for all runs of a command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from cumulus.machine import Machine, Name
from cumulus_lab.simulation.choices import Choices, ChoiceStream
from cumulus_lab.simulation.disk import VirtualLog

if TYPE_CHECKING:
    from cumulus_lab.simulation.world import World

Factory: TypeAlias = Callable[[Name, int], Machine]
"""Makes the machine of a name for its life with a number, from 1. A life knows of earlier ones only what is on disk."""

Rates: TypeAlias = Mapping[str, float]
"""Name of a fault → how often it happens, per step of any machine."""

FAULTS: Rates = {"crash": 1 / 200, "partition": 1 / 200, "slow": 1 / 200, "skew": 1 / 2}
"""All faults, each as often as is usual; of skewed clocks the share of lives that have one."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How messages travel, so that what is tested is what is sent.

    Parameters
    ----------
    encode, decode
        To bytes and back.
    text
        One line about a message, for traces.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    text: Callable[[Any], str] = repr


@dataclass(frozen=True, slots=True)
class BackPressure:
    """When a machine does not read what feeds it.

    Parameters
    ----------
    most_unread
        How many bytes of it another member may leave unread; 0 for any number.
    fed_by
        Machine → the members that feed it; clients feed every machine.
    """

    most_unread: int = 0
    fed_by: Mapping[Name, frozenset[Name]] = field(default_factory=dict)


class Reports:
    """What machines say has happened: it is counted, and checks that wait for it are run after the step.

    A machine that is to report gets this from its factory and calls it.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.checked: frozenset[str] = frozenset()
        self.due: list[tuple[str, object]] = []

    def __call__(self, what: str, about: object = None, times: int = 1) -> None:
        """Count that something has happened so many times; `about` is for the check of this name, if there is one."""
        self.counts[what] += times
        if what in self.checked:
            self.due.append((what, about))


Perform: TypeAlias = Callable[[Name, Any], Any]


def _no_task(name: Name, task: Any) -> Any:
    raise AssertionError(f"{name} asks for {task!r}, and this scenario has nobody who performs tasks")


def _nobody_waits(world: World) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class StartIncarnation:
    """The task of a supervisor: start the members that do not run, then let all of them meet in a new incarnation.

    Each is then told of those that it has lost thereby, and gets the message, if there is one, before anything that
    another one has sent in that incarnation. With `ends` those that run are ended, and started again, too; otherwise
    only those of `ending` are.
    """

    incarnation: int
    message: Any = None
    ends: bool = False
    ending: frozenset[Name] = frozenset()


@dataclass(frozen=True)
class Scenario:
    """What is run.

    Parameters
    ----------
    machines
        All there are, by name; they are started in this order, at about the same time.
    wire
        How messages travel.
    perform
        Does the task that a machine of a name has asked for. At a crash the current one may have been done or not.
    logs
        The machines that have a log; it is the first that each life of them is told.
    supervisor
        The machine, if any, that starts the others but for itself and `clients`. It is told `Lost` of those that end,
        and performs `StartIncarnation`; before it nobody runs. If it crashes, all that it has started end, too. Without
        a supervisor machines start by themselves, and links between two of them come back by themselves.
    clients
        The machines that no supervisor has started.
    may_crash
        The machines that the fault `crash` may stop; those without a supervisor are started again after a while.
    after_step, at_rest
        Checks by name: after each step of a machine, before its effects are done, and whenever nothing is on its way
        any more. They say by exceptions what is wrong.
    at_report
        The same by what is reported, after the step or the task that has reported it; with the machine, and what the
        report is about.
    phases
        What is done, one after the other, when the world has come to rest; then it is run until it rests again.
    goes_on
        Whether machines wait for a time-out although nothing is on its way; then the world does not rest.
    reports
        What is counted, beside what the world counts itself.
    pressure
        When machines do not read what feeds them.
    disks
        Machine → its log; who makes a machine may replace it before.
    """

    machines: Mapping[Name, Factory]
    wire: Wire
    perform: Perform = _no_task
    logs: frozenset[Name] = frozenset()
    supervisor: Name = ""
    clients: frozenset[Name] = frozenset()
    may_crash: frozenset[Name] = frozenset()
    after_step: Mapping[str, Callable[[World, Name], None]] = field(default_factory=dict)
    at_rest: Mapping[str, Callable[[World], None]] = field(default_factory=dict)
    at_report: Mapping[str, Callable[[World, Name, object], None]] = field(default_factory=dict)
    phases: Sequence[Callable[[World], None]] = ()
    goes_on: Callable[[World], bool] = _nobody_waits
    reports: Reports = field(default_factory=Reports)
    pressure: BackPressure = field(default_factory=BackPressure)
    disks: dict[Name, VirtualLog] = field(default_factory=dict)

    @property
    def members(self) -> frozenset[Name]:
        """The machines that the supervisor starts."""
        return frozenset(self.machines) - self.clients - {self.supervisor} if self.supervisor else frozenset()


ScenarioOf: TypeAlias = Callable[[Choices], Scenario]
"""Makes the scenario of a run; what is random in it comes from the choices."""

Travel: TypeAlias = Callable[[ChoiceStream, Name, Name, int, int], int]
"""How many microseconds a message takes, by the choices of its sender, sender, receiver, size and the time now."""


@dataclass(frozen=True)
class Conditions:
    """How it is run.

    Parameters
    ----------
    faults
        How often each fault happens; those that are not named never do. A run leaves some of them out, by choice.
    most_faults
        Of each kind, so that every run can come to rest.
    longest_ms
        The longest delay of a message or a disk; a run chooses one of these.
    travel
        The time that messages take, instead of one up to the longest. Links keep their order all the same.
    tick_ms
        After how long each machine is told the time; 0 is never.
    rest_ms
        The world rests when for so long machines have done nothing at their ticks.
    most_steps
        A run that does not rest before has failed.
    checks_machines
        Whether `Machine.check` is called after each step.
    """

    faults: Rates = field(default_factory=dict)
    most_faults: int = 4
    longest_ms: Sequence[int] = (1, 10, 100)
    travel: Travel | None = None
    tick_ms: int = 20
    rest_ms: int = 100
    most_steps: int = 100_000
    checks_machines: bool = True

    def __post_init__(self) -> None:
        unknown = sorted(self.faults.keys() - FAULTS.keys())
        assert not unknown, f"no such fault: {', '.join(unknown)}; there are {', '.join(FAULTS)}"


def faults_named(names: Sequence[str]) -> Rates:
    """Return the faults of these names, each as often as is usual."""
    return {name: FAULTS[name] for name in names}
