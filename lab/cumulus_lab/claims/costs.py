"""What nodes spend on an event, a delta and a message: fitted to real runs, to compute larger clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """Microseconds of CPU at nodes.

    Parameters
    ----------
    event, delta, message
        For an event, for a delta that a node takes in, and for a message between machines.
    """

    event: float
    delta: float
    message: float

    def per_event(self, deltas: float, messages: float) -> float:
        """Return what all nodes together spend on an event with so many deltas and messages."""
        return self.event + self.delta * deltas + self.message * messages

    def __str__(self) -> str:
        return f"{self.event:.2f} µs an event, {self.delta:.2f} a delta, {self.message:.0f} a message"


def fitted_costs(runs: Sequence[tuple[float, float, float]]) -> NodeCosts:
    """Return the costs, none of them negative, that fit runs best: deltas and messages of an event → microseconds.

    Examples
    --------
    >>> fitted_costs([(1, 0.1, 3), (2, 0.1, 4), (1, 0.2, 5), (2, 0.2, 6)])
    NodeCosts(event=0.0, delta=1.0, message=20.0)
    """
    told = np.array(runs, dtype=float)
    features = np.column_stack([np.ones(len(told)), told[:, 0], told[:, 1]])
    best: tuple[float, npt.NDArray[np.float64]] = (float("inf"), np.zeros(3))
    for count in range(1, 4):
        for chosen in combinations(range(3), count):
            part, *_ = np.linalg.lstsq(features[:, chosen], told[:, 2], rcond=None)
            costs = np.zeros(3)
            costs[list(chosen)] = part
            missed = float(((features @ costs - told[:, 2]) ** 2).sum())
            if (costs >= -1e-9).all() and missed < best[0] - 1e-9:
                best = (missed, costs)
    event, delta, message = (max(round(float(each), 9), 0.0) for each in best[1])
    return NodeCosts(event, delta, message)
