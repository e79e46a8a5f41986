"""A machine for tests of what carries messages: it relays tokens, counts what comes, and insists on its order.

Its messages are lists, of which bytes may be the last part. ``["flood", to, first, count, size]`` asks it to send so
many numbered items, ``["item", n, padding]`` is one, and ``["carry", to, n, padding]`` is to become one. ``["pump",
via, to, n, size]`` asks for `n` of these, a few after each task, as from a source. ``["token", route]`` is to be sent
on along the route; ``["task", x]`` asks for a task; ``["compute", s]`` keeps it from all else;
``["nonsense"]`` it takes from nobody; ``["again", peers, count, size]`` begins anew, with items for all.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from cumulus.durable.log_files import RecordLog
from cumulus.errors import RemoteProtocolError
from cumulus.machine import (
    Append,
    Completed,
    Effect,
    Forget,
    Input,
    Lost,
    Name,
    Perform,
    Received,
    Recovered,
    Send,
    Tick,
)
from cumulus.transport.machine_spec import SUPERVISOR, MachineSpec, Piece

AT_ONCE = 20
"""How many items are pumped after each task."""


class ListCodec:
    """Lists as JSON, with the bytes behind it."""

    def encode(self, message: list[Any]) -> Sequence[Piece]:
        has_bytes = isinstance(message[-1], bytes)
        head = json.dumps(message[:-1] if has_bytes else message).encode()
        length = len(head).to_bytes(2, "little")
        return [length, head, message[-1]] if has_bytes else [length, head]

    def decode(self, payload: bytes) -> Any:
        end = 2 + int.from_bytes(payload[:2], "little")
        try:
            found = json.loads(payload[2:end])
        except ValueError:
            raise RemoteProtocolError(f"no message: {payload[:20]!r}") from None
        return [*found, payload[end:]] if end < len(payload) else found


class Relay:
    """Sends, counts and hands on; keeps a record of each token if it may."""

    def __init__(self, name: Name, *, keeps_records: bool = False) -> None:
        self.name = name
        self.items: Counter[Name] = Counter()
        self.told: list[Input] = []  # all but items
        self._keeps_records = keeps_records
        self._number = 0

    def step(self, inputs: Sequence[Input]) -> list[Effect]:
        effects: list[Effect] = []
        for each in inputs:
            match each:
                case Received(sender, ["item", number, _]):
                    if number != self.items[sender] + 1:
                        raise RemoteProtocolError(f"{self.name}: item {number} after {self.items[sender]}")
                    self.items[sender] = number
                    continue
                case Received(_, message):
                    effects += self._answer(message)
                    if message[0] == "carry":
                        continue
                case Recovered(first, records):
                    self._number = first - 1 + len(records)
                case Completed(["pump", via, to, left, size], number):
                    effects += [Send(via, ["carry", to, number + n, bytes(size)]) for n in range(AT_ONCE)]
                    effects += self._answer(["pump", via, to, left - AT_ONCE, size])
                    continue
                case Completed(task, result):
                    effects.append(Send(SUPERVISOR, ["done", task, result]))
                case Tick() | Lost():
                    pass
            self.told.append(each)
        return effects

    def _answer(self, message: list[Any]) -> list[Effect]:
        match message:
            case ["flood", to, first, many, size]:
                return [Send(to, ["item", first + n, bytes(size)]) for n in range(many)]
            case ["carry", to, number, padding]:
                return [Send(to, ["item", number, padding])]
            case ["again", peers, many, size]:
                self.items.clear()
                others = [peer for peer in peers if peer != self.name]
                return [Send(to, ["item", n, bytes(size)]) for n in range(1, many + 1) for to in others]
            case ["pump", _, _, left, _]:
                return [Perform(message)] if left else [Send(SUPERVISOR, ["pumped"])]
            case ["token", ""]:
                return [*self._record(b"end"), Send(SUPERVISOR, ["home", self.name])]
            case ["token", route]:
                to, _, rest = route.partition(" ")
                return [*self._record(route.encode()), Send(to, ["token", rest])]
            case ["count"]:
                return [Send(SUPERVISOR, ["counts", dict(self.items), self._number])]
            case ["task", task]:
                return [Perform(task)]
            case ["compute", seconds]:
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    pass
                return [Send(SUPERVISOR, ["computed"])]
            case ["forget", number]:
                return [Forget(number)]
        raise RemoteProtocolError(f"{self.name}: {message}")

    def _record(self, record: bytes) -> list[Effect]:
        if not self._keeps_records:
            return []
        self._number += 1
        return [Append(self._number, record)]

    def check(self) -> None:
        assert all(count > 0 for count in self.items.values())


def machine_of(spec: MachineSpec) -> Relay:
    """Return the relay in it."""
    assert isinstance(spec.machine, Relay)
    return spec.machine


_PUMPED = count(1, AT_ONCE)


def perform(task: Any) -> Any:
    """Sleep, fail, give the number of the next item, or something back."""
    match task:
        case ["pump", *_]:
            return next(_PUMPED)
        case ["sleep", seconds]:
            time.sleep(seconds)
        case ["fail", reason]:
            raise ValueError(reason)
    return task[1]


def make(name: Name, argument: dict[str, Any] | None) -> MachineSpec:
    """Make a relay for a process."""
    argument = argument or {}
    if "fail" in argument:
        raise ValueError(argument["fail"])
    folder = argument.get("log")
    return MachineSpec(
        Relay(name, keeps_records=folder is not None),
        ListCodec(),
        perform,
        program=argument.get("program", "p").encode(),
        log=RecordLog(Path(folder) / name) if folder else None,
        sources=frozenset(argument.get("sources", ())),
        tick_ms=argument.get("tick_ms", 0),
        may_send=lambda _, message: message[0] != "nonsense",
    )
