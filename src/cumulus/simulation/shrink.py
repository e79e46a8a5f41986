"""Makes a failing run smaller, choice by choice, as long as it still fails alike.

A run is smaller if its steps and its choices other than 0 are fewer, so what is left of a run has few machines at work,
few faults and few delays. Candidates come in a fixed order, so that a failure always ends in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cumulus.simulation.runs import SimulatedRun, repeated
from cumulus.simulation.scenario import Conditions, ScenarioOf


@dataclass(frozen=True)
class Shrunk:
    """A smaller run that fails alike.

    Parameters
    ----------
    run
        The run, with its trace; its choices give it again.
    attempts
        How many runs it took.
    """

    run: SimulatedRun
    attempts: int


def shrunk(scenario_of: ScenarioOf, failed: SimulatedRun, conditions: Conditions, attempts: int = 500) -> Shrunk:
    """Return a smaller run that fails alike, after at most so many attempts."""
    search = _Search(scenario_of, failed, conditions, attempts)
    before = None
    while before is not search.best and search.left > 0:
        before = search.best
        for name in before.choices:
            search.fails_with(name, 0, len(before.choices[name]), ())
        size = max((len(values) for values in search.best.choices.values()), default=0) // 2
        while size:
            for name in list(search.best.choices):
                _without_blocks(search, name, size)
            size //= 2
        _with_lower_numbers(search)
    smallest = repeated(scenario_of, search.best.choices, conditions, traced=True)
    return Shrunk(smallest, attempts - search.left)


class _Search:
    """The smallest failing run so far, and how many runs are left."""

    def __init__(self, scenario_of: ScenarioOf, failed: SimulatedRun, conditions: Conditions, attempts: int) -> None:
        assert failed.failure is not None, "only a failure can be made smaller"
        self.best = failed
        self.left = attempts
        self._scenario_of = scenario_of
        self._conditions = conditions
        self._kind = failed.failure.is_of

    def values(self, name: str) -> tuple[int, ...]:
        """Return the choices of a stream in the smallest run."""
        return tuple(self.best.choices.get(name, ()))

    def fails_with(self, name: str, start: int, end: int, instead: tuple[int, ...]) -> bool:
        """Whether it still fails with other choices in a part of a stream, and is smaller; then it is the smallest."""
        if self.left <= 0:
            return False
        self.left -= 1
        values = self.values(name)
        candidate = {**self.best.choices, name: (*values[:start], *instead, *values[end:])}
        conditions = self._conditions
        if self._kind[0] != "rest":
            # A candidate may wander off; what takes more steps is not smaller.
            conditions = replace(conditions, most_steps=min(conditions.most_steps, 2 * self.best.steps + 100))
        run = repeated(self._scenario_of, candidate, conditions)
        if run.failure is None or run.failure.is_of != self._kind or _size(run) >= _size(self.best):
            return False
        self.best = run
        return True


def _without_blocks(search: _Search, name: str, size: int) -> None:
    """Leave out blocks of so many choices of a stream, or let them be 0."""
    start = 0
    while start < len(values := search.values(name)) and search.left > 0:
        block = values[start : start + size]
        if search.fails_with(name, start, start + size, ()):
            continue
        if any(block):
            search.fails_with(name, start, start + size, (0,) * len(block))
        start += size


def _with_lower_numbers(search: _Search) -> None:
    """Let choices be 1, or half of what they are."""
    for name in list(search.best.choices):
        for place in range(len(search.values(name))):
            values = search.values(name)
            for lower in (1, values[place] // 2) if place < len(values) else ():
                if lower < values[place] and search.fails_with(name, place, place + 1, (lower,)):
                    break


def _size(run: SimulatedRun) -> tuple[int, int]:
    chosen = [value for values in run.choices.values() for value in values if value]
    return run.steps + len(chosen), sum(chosen)
