"""Ways that are measured by turns, in the CPU time of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from time import process_time


def measure_by_turns(ways: Mapping[str, Callable[[], float]], repetitions: int) -> list[tuple[str, float]]:
    """Return the median of what each way returns, by name; a first turn warms up, and does not count."""
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repetitions + 1):
        for name, way in ways.items():
            figure = way()
            if turn:
                figures[name].append(figure)
    return [(name, median(each)) for name, each in figures.items()]


def microseconds(do: Callable[[], object], count: int = 1) -> float:
    """Return how long one of `count` pieces of work takes."""
    start = process_time()
    do()
    return (process_time() - start) / count * 1e6
