"""What a frame costs each side, and a round trip: ``python -m support.frame_costs``, with `tests` on the path.

Two machines in processes of their own: one sends frames of one size, as many as make 256 kB in one step, and goes on
when the other has all of them. CPU time is that of the whole process, step and codec (which does nothing) included.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from cumulus.machine import Completed, Effect, Input, Name, Perform, Received, Send
from cumulus.transport.machine_process import MachineMessage, Process
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec
from cumulus.transport.supervisor import Supervisor

STEP_BYTES = 1 << 18
SIZES = (200, 5_000, 100_000)
TRIPS = 5_000


class Bytes:
    """Messages are bytes already."""

    def encode(self, message: bytes) -> Sequence[bytes]:
        return [message]

    def decode(self, payload: bytes) -> bytes:
        return payload


class Sender:
    """Sends `count` frames of `size` bytes, so many at once, whenever it gets an answer; at the end says so."""

    def __init__(self) -> None:
        self.left = self.at_once = 0
        self.frame = b""

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received("supervisor", b"cpu"):
                    effects.append(Perform("cpu"))
                case Received("supervisor", order):
                    self.left, self.at_once, size = (int(part) for part in order.split())
                    self.frame = bytes(size)
                    effects += self._go_on()
                case Received():
                    effects += self._go_on()
                case Completed(_, seconds):
                    effects.append(Send(SUPERVISOR, seconds))
        return effects

    def _go_on(self) -> list[Effect]:
        if not self.left:
            return [Send(SUPERVISOR, b"over")]
        count = min(self.at_once, self.left)
        self.left -= count
        return [Send("b", b"%d" % count), *([Send("b", self.frame)] * count)]

    def check(self) -> None:
        assert self.left >= 0


class Receiver:
    """Answers when it has as many frames as were announced."""

    def __init__(self) -> None:
        self.left = 0

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received("supervisor", _):
                    effects.append(Perform("cpu"))
                case Received(sender, message):
                    if self.left:
                        self.left -= 1
                        if not self.left:
                            effects.append(Send(sender, b""))
                    else:
                        self.left = int(message)
                case Completed(_, seconds):
                    effects.append(Send(SUPERVISOR, seconds))
        return effects

    def check(self) -> None:
        assert self.left >= 0


def make(name: Name, _: Any) -> MachineSpec:
    """Make either side."""
    return MachineSpec(Sender() if name == "a" else Receiver(), Bytes(), lambda _: b"%.6f" % time.process_time())


def main() -> None:
    """Print the costs."""
    with Supervisor([Process(name, "support.frame_costs:make") for name in "ab"]) as supervisor:

        def said() -> bytes:
            found = supervisor.wait(60)
            assert isinstance(found, MachineMessage), found
            return found.payload

        def cpu(name: Name) -> float:
            supervisor.send(name, b"cpu")
            return float(said())

        def run(count: int, at_once: int, size: int) -> tuple[float, float, float]:
            """Return the seconds of CPU on either side, and those that passed."""
            before, begun = (cpu("a"), cpu("b")), time.perf_counter()
            supervisor.send("a", b"%d %d %d" % (count, at_once, size))
            assert said() == b"over"
            took = time.perf_counter() - begun
            return cpu("a") - before[0], cpu("b") - before[1], took

        print(f"load {os.getloadavg()[0]:.1f}")
        for size in SIZES:
            at_once = max(STEP_BYTES // size, 1)
            count = at_once * (100_000_000 // STEP_BYTES)
            run(count // 4, at_once, size)
            sending, receiving, took = run(count, at_once, size)
            print(
                f"{size:>7,} B: {sending / count * 1e6:6.2f} µs to send, {receiving / count * 1e6:6.2f} µs to receive, "
                f"{count * size / took / 1e6:,.0f} MB/s"
            )
        run(TRIPS // 4, 1, 8)
        sending, receiving, took = run(TRIPS, 1, 8)
        print(
            f"round trip: {took / TRIPS * 1e6:.0f} µs, of CPU {sending / TRIPS * 1e6:.0f} µs on one side and "
            f"{receiving / TRIPS * 1e6:.0f} µs on the other"
        )


if __name__ == "__main__":
    main()
