"""Makes a failing run smaller, choice by choice, as long as it still fails alike.

A run is smaller if its steps and its choices other than 0 are fewer, so what is left of a run has few machines at work,
few faults and few delays. Candidates come in a fixed order, so that a failure always ends in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from cumulus_lab.simulation.runs import SimulatedRun, repeated
from cumulus_lab.simulation.scenario import Conditions, ScenarioOf

_Change: TypeAlias = tuple[str, int, int, tuple[int, ...]]
"""A part of a stream, from a place to another, and what stands there instead."""


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


def shrunk(scenario_of: ScenarioOf, failed: SimulatedRun, conditions: Conditions, attempts: int = 1000) -> Shrunk:
    """Return a smaller run that fails alike, after at most so many attempts."""
    search = _Search(scenario_of, failed, conditions, attempts)
    before = None
    while before is not search.best and search.left > 0:
        before = search.best
        for moves_faults in (False, True):
            for name in before.choices:
                _without_block(search, name, 0, len(search.values(name)), moves_faults)
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

    def fails_with(self, *changes: _Change) -> bool:
        """Whether it still fails with these changes, and is smaller; then it is the smallest."""
        if self.left <= 0:
            return False
        self.left -= 1
        candidate = dict(self.best.choices)
        for name, start, end, instead in changes:
            values = candidate.get(name, ())
            candidate[name] = (*values[:start], *instead, *values[end:])
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
    while start < len(search.values(name)) and search.left > 0:
        if not _without_block(search, name, start, start + size):
            start += size


def _without_block(search: _Search, name: str, start: int, end: int, moves_faults: bool = True) -> bool:
    """Leave out a block, or let it be 0. With less going on faults must come earlier, so this is tried, too.

    Return whether it was left out.
    """
    values = search.values(name)
    block = values[start:end]
    left_out, zeros = (name, start, end, ()), (name, start, end, (0,) * len(block))
    if search.fails_with(left_out):
        return True
    if any(block) and search.fails_with(zeros):
        return False
    if moves_faults and 4 * len(block) >= len(values) and not name.startswith("fault"):
        for earlier in _earlier_faults(search):
            if search.fails_with(left_out, earlier) or search.fails_with(zeros, earlier):
                break
    return False


def _earlier_faults(search: _Search) -> list[_Change]:
    """Return changes that let one fault come earlier."""
    faults = [(name, values) for name, values in search.best.choices.items() if name.startswith("fault")]
    return [
        (name, place, place + 1, (value * share // 8,))
        for name, values in faults
        for place, value in enumerate(values)
        if value >= 8
        for share in range(1, 8)
    ]


def _with_lower_numbers(search: _Search) -> None:
    """Let choices be 1, or half of what they are, or a little less."""
    for name in list(search.best.choices):
        for place in range(len(search.values(name))):
            values = search.values(name)
            value = values[place] if place < len(values) else 0
            for lower in (1, value // 2, value - value // 4, value - 1):
                if 0 < lower < value and search.fails_with((name, place, place + 1, (lower,))):
                    break


def _size(run: SimulatedRun) -> tuple[int, int]:
    chosen = [value for values in run.choices.values() for value in values if value]
    return run.steps + len(chosen), sum(chosen)
