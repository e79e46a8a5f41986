"""A run as text, message by message: for golden tests, and for who reads a failure.

Each line has the step, the virtual time in milliseconds, and what has happened. A message stands where it is taken in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cumulus.machine import Completed, Input, Lost, Name, Received, Recovered, Tick
from cumulus_lab.simulation.agenda import MILLISECOND


class Trace:
    """The lines of a run.

    Parameters
    ----------
    text
        One line about a message.
    ticks
        Whether to tell what clocks show, too.
    """

    def __init__(self, text: Callable[[Any], str], ticks: bool = False) -> None:
        self.lines: list[str] = []
        self._text = text
        self._ticks = ticks

    def line(self, step: int, now: int, what: str) -> None:
        """Add a line."""
        milliseconds, rest = divmod(now, MILLISECOND)
        self.lines.append(f"{step:>5} {milliseconds:>5}.{rest:03}  {what}")

    def inputs(self, step: int, now: int, name: Name, inputs: Sequence[Input]) -> None:
        """Add what a machine takes in at a step."""
        for each in inputs:
            match each:
                case Received(sender, message):
                    self.line(step, now, f"{sender} → {name}: {self._text(message)}")
                case Recovered(first, records):
                    self.line(step, now, f"{name} recovers {_counted(len(records), 'record')} from {first} on")
                case Completed(task, result):
                    self.line(step, now, f"{name} has done {task!r}: {result!r}")
                case Lost(peer):
                    self.line(step, now, f"{name} has lost {peer}")
                case Tick(milliseconds):
                    if self._ticks:
                        self.line(step, now, f"{name} sees {milliseconds} ms")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
