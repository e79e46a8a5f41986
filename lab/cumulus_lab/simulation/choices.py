"""The one source of everything that is random in a run: choices are recorded, so a run can be repeated and shrunk.

A choice is a number below a bound, and 0 always stands for the simplest: no fault, the shortest delay, all inputs at
once. Choices belong to named streams, such as the delays of one machine's messages, and each stream has its own
generator. So a choice that is left out while a failure is shrunk moves the later choices of its own stream alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Recording: TypeAlias = Mapping[str, Sequence[int]]
"""The choices of a run, by stream; what is missing at the end of a stream is 0."""

SIMPLEST: Recording = {}
"""Every choice is 0."""


class ChoiceStream:
    """Choices of one kind, one after the other.

    Parameters
    ----------
    draw
        What gives a number of at least 0 and less than 1.
    """

    __slots__ = ("_draw", "taken")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self.taken: list[int] = []

    def below(self, bound: int) -> int:
        """Choose a number of at least 0 and less than `bound`."""
        value = int(self._draw() * bound)
        self.taken.append(value)
        return value

    def chance(self, share: float) -> bool:
        """Whether something happens that is to happen in this share of cases."""
        happens = self._draw() >= 1.0 - share
        self.taken.append(int(happens))
        return happens

    def one(self, things: Sequence[T]) -> T:
        """Choose one of several things; the first is the simplest."""
        return things[self.below(len(things))]

    def mostly_short(self, longest: int) -> int:
        """Choose a length of at most `longest`: a quarter of it on average, half of them less than an eighth."""
        value = self.below(256)
        return value * value * value * longest >> 24


class _RepeatedChoices(ChoiceStream):
    """Choices as they were recorded; a choice that is not possible here becomes the nearest."""

    __slots__ = ("_left",)

    def __init__(self, recorded: Sequence[int]) -> None:
        super().__init__(lambda: 0.0)
        self._left = iter(recorded)

    def below(self, bound: int) -> int:
        value = min(next(self._left, 0), bound - 1)
        self.taken.append(value)
        return value

    def chance(self, share: float) -> bool:
        happens = next(self._left, 0) > 0 and share > 0
        self.taken.append(int(happens))
        return happens


class Choices:
    """Streams of choices, made by a seed or repeated from a recording.

    Parameters
    ----------
    seed
        Decides every choice, in any process and on any machine.
    recording
        Choices to repeat; then the seed says nothing any more.
    """

    def __init__(self, seed: int = 0, recording: Recording | None = None) -> None:
        self.seed = seed
        self._recording = recording
        self._streams: dict[str, ChoiceStream] = {}

    def stream(self, name: str) -> ChoiceStream:
        """Return the stream of this name; always the same one."""
        stream = self._streams.get(name)
        if stream is None:
            if self._recording is None:
                # Seeded by a text, which Python digests itself: the same numbers whatever the hashes of this process.
                stream = ChoiceStream(random.Random(f"{self.seed} {name}").random)
            else:
                stream = _RepeatedChoices(self._recording.get(name, ()))
            self._streams[name] = stream
        return stream

    def recording(self) -> dict[str, tuple[int, ...]]:
        """Return what has been chosen so far, without the zeros at the end of each stream."""
        taken = {name: _without_last_zeros(stream.taken) for name, stream in self._streams.items()}
        return {name: values for name, values in taken.items() if values}


def _without_last_zeros(values: Sequence[int]) -> tuple[int, ...]:
    length = len(values)
    while length and not values[length - 1]:
        length -= 1
    return tuple(values[:length])


def recording_text(recording: Recording) -> str:
    """Write a recording on one line, to keep it beside a test."""
    return json.dumps({name: list(values) for name, values in recording.items()}, separators=(",", ":"))


def recording_of(text: str) -> dict[str, tuple[int, ...]]:
    """Read what `recording_text` has written.

    Examples
    --------
    >>> recording_of(recording_text({"delays": (3, 0, 1)}))
    {'delays': (3, 0, 1)}
    """
    return {name: tuple(values) for name, values in json.loads(text).items()}
