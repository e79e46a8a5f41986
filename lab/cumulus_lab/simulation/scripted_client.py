"""A machine that says what it is told to say, and keeps what it hears: a client of the machines that are tested."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from cumulus.machine import Effect, Input, Name, Received, Send, Tick


class ScriptedClient:
    """Messages to be sent, each when the machine's clock has got so far.

    Parameters
    ----------
    lines
        Milliseconds, to whom, and what; in the order in which they are sent.
    """

    def __init__(self, lines: Iterable[tuple[int, Name, Any]] = ()) -> None:
        self._lines = deque(lines)
        self.heard: list[tuple[Name, Any]] = []

    def say(self, to: Name, message: Any) -> None:
        """Send this at the next tick, too."""
        self._lines.append((0, to, message))

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        """Keep what is heard, and say what is due."""
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received(sender, message):
                    self.heard.append((sender, message))
                case Tick(milliseconds):
                    while self._lines and self._lines[0][0] <= milliseconds:
                        _, to, message = self._lines.popleft()
                        effects.append(Send(to, message))
                case _:
                    pass
        return effects

    def check(self) -> None:
        """There is nothing that could be wrong."""
