"""What is called of the caller's and of the machines' that may fail, and what a failure is then called."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from cumulus.machine import Name
from cumulus_lab.simulation.failure import Failure, failure_of
from cumulus_lab.simulation.life import Life
from cumulus_lab.simulation.scenario import Conditions, Scenario

if TYPE_CHECKING:
    from cumulus_lab.simulation.world import World

P = ParamSpec("P")
T = TypeVar("T")


class FailedRunError(Exception):
    """A run has failed."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))


class WorldChecks:
    """The checks of a world.

    Parameters
    ----------
    world
        What they look at.
    scenario
        The caller's.
    conditions
        Whether machines are checked.
    """

    def __init__(self, world: World, scenario: Scenario, conditions: Conditions) -> None:
        self._world = world
        self._scenario = scenario
        self._checks_machines = conditions.checks_machines
        scenario.reports.checked = frozenset(scenario.at_report)

    def failed(self, check: str, error: Exception) -> FailedRunError:
        """Return what is raised when a check has failed."""
        return FailedRunError(failure_of(check, error, self._world.steps))

    def attempt(self, check: str, does: Callable[P, T], *about: P.args, **named: P.kwargs) -> T:
        """Call what belongs to others; what it raises is the failure of a check."""
        try:
            return does(*about, **named)
        except Exception as error:
            raise self.failed(check, error) from error

    def after_step(self, life: Life) -> None:
        """Check a machine that has stepped, and what the caller wants to know of it; its effects are not done yet."""
        if self._checks_machines:
            self.attempt("check", life.machine.check)
        for check, holds in self._scenario.after_step.items():
            self.attempt(check, holds, self._world, life.name)
        if self._scenario.reports.due:
            self.after_report(life.name)

    def after_report(self, name: Name) -> None:
        """Check what is wanted of what a machine, or a task of it, has reported."""
        reports = self._scenario.reports
        due, reports.due = reports.due, []
        for check, about in due:
            self.attempt(check, self._scenario.at_report[check], self._world, name, about)

    def at_rest(self) -> None:
        """Check what must hold when nothing is on its way."""
        for check, holds in self._scenario.at_rest.items():
            self.attempt(check, holds, self._world)
