"""Records of a node's machine: what it was told and what it said, as lines of JSON that another machine can be told.

The first line says what the machine was made with; each other one is a step: the time, the event, and what was to be
done. Messages are lists, their kind first and then their fields in order; a slot is its number. A step at which the
machine failed has the error's text in the place of what was to be done.

Lines are written under the lock of the machine's host, into a buffer that is emptied each time that the machine is told
the time: nothing grows, and a node that is killed loses the last moments alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

from cumulus.errors import InputError, StoreError
from cumulus.machine import Name
from cumulus_ring.machine.messages import (
    ChunkCame,
    ChunkHeader,
    ChunkRequest,
    LeaseReleased,
    PullBlocked,
    QuerySubmitted,
    Reconfigured,
    Refreshed,
    RequestsCame,
    RingEffect,
    RingEvent,
    ScanReopened,
    StraightCame,
    TimePassed,
)
from cumulus_ring.machine.node import RingNode
from cumulus_ring.machine.settings import RingSettings

FORMAT = "cumulus ring record 1"
RECORD = "record.jsonl"
"""The file of a record, in the folder of its node."""

_KINDS = (*get_args(RingEvent), *get_args(RingEffect), ChunkHeader, ChunkRequest)
_WORDS: dict[type[Any], str] = {kind: kind.__name__ for kind in _KINDS} | {
    QuerySubmitted: "Asked",
    ScanReopened: "AskedAgain",
    PullBlocked: "Waits",
    LeaseReleased: "Released",
}
"""Kind of message → its word in a record. Format 1 has older words for four of them."""
_EVENTS: dict[str, type[Any]] = {_WORDS[kind]: kind for kind in get_args(RingEvent)}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS}


class Recorder:
    """Writes down the steps of one machine, until `close` or until the disk takes no more; for one thread at a time.

    Parameters
    ----------
    place
        The file; what was there is replaced.
    name, settings, seed
        What the machine is made with.

    Raises
    ------
    StoreError
        If the file cannot be made.
    """

    def __init__(self, place: Path, name: Name, settings: RingSettings, seed: int) -> None:
        try:
            self._file = place.open("w", encoding="utf-8", buffering=1 << 16)
        except OSError as problem:
            raise StoreError(
                f"{place} cannot be written: {problem.strerror}",
                hint="Make room or allow it, or start without --record.",
            ) from None
        self._write({"format": FORMAT, "name": name, "seed": seed, "settings": asdict(settings)})

    def step(self, node: RingNode, now_us: int, event: RingEvent) -> list[RingEffect]:
        """Let the machine take a step, and write it down."""
        told = _said(event)  # before it is in the machine's hands
        try:
            effects = node.step(now_us, event)
        except Exception as problem:
            self._write([now_us, told, _failure(problem)])
            self._flush()
            raise
        self._write([now_us, told, [_said(each) for each in effects]])
        if isinstance(event, TimePassed):
            self._flush()
        return effects

    def close(self) -> None:
        """Write what is left."""
        with suppress(OSError):
            self._file.close()

    def _write(self, what: Any) -> None:
        if not self._file.closed:
            try:
                self._file.write(json.dumps(what, separators=(",", ":")) + "\n")
            except OSError as problem:
                self._give_up(problem)

    def _flush(self) -> None:
        if not self._file.closed:
            try:
                self._file.flush()
            except OSError as problem:
                self._give_up(problem)

    def _give_up(self, problem: OSError) -> None:
        """The node goes on; its log says where the record ends."""
        print(f"{self._file.name} goes no further: {problem.strerror}", flush=True)
        self.close()


@dataclass(frozen=True, slots=True)
class ReplayOfRecord:
    """What has come of a replay.

    Parameters
    ----------
    name
        Of the node.
    steps
        How many were taken.
    difference
        The first step at which the two machines differ, in words; empty if there is none.
    is_cut
        The last line is not whole: its node was killed, or its disk full.
    """

    name: Name
    steps: int
    difference: str
    is_cut: bool


def replay(place: Path) -> ReplayOfRecord:
    """Tell another machine what a record says that one was told, and compare what they say.

    Raises
    ------
    InputError
        If it is no record.
    """
    try:
        with place.open(encoding="utf-8") as lines:
            return _replayed(lines, place)
    except UnicodeDecodeError:
        raise InputError(f"{place} is no record: it is not text", hint=_HINT) from None
    except OSError as problem:
        raise InputError(f"{place} cannot be read: {problem.strerror}", hint=_HINT) from None


_HINT = f"A record is the {RECORD} that a node of `cumulus ring start --record` writes in its folder."


def _replayed(lines: Iterator[str], place: Path) -> ReplayOfRecord:
    node = _machine(next(lines, ""), place)
    steps = 0
    for number, line in enumerate(lines, 2):
        if not line.endswith("\n"):
            return ReplayOfRecord(node.name, steps, "", is_cut=True)
        try:
            now, told, wanted = json.loads(line)
            event = _event(told)
        except (ValueError, TypeError, KeyError):
            raise InputError(f"{place}:{number} is no step of a machine: {line[:80]!r}", hint=_HINT) from None
        said = _answer(node, now, event)
        if said != wanted:
            return ReplayOfRecord(node.name, steps, _difference(number, told, wanted, said), is_cut=False)
        steps += 1
    return ReplayOfRecord(node.name, steps, "", is_cut=False)


def _machine(line: str, place: Path) -> RingNode:
    try:
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise ValueError
        settings = head["settings"]
        settings["loit_levels"] = tuple(settings["loit_levels"])
        return RingNode(head["name"], RingSettings(**settings), random.Random(head["seed"]))
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{place} is no record, or one of another release: {line[:80]!r}", hint=_HINT) from None


def _answer(node: RingNode, now_us: int, event: RingEvent) -> Any:
    """Return what the machine says, as it comes back from JSON."""
    try:
        said: Any = [_said(each) for each in node.step(now_us, event)]
    except Exception as problem:  # noqa: BLE001  # what was recorded may have failed as well
        said = _failure(problem)
    return json.loads(json.dumps(said))


def _failure(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"


def _difference(number: int, told: Any, wanted: Any, said: Any) -> str:
    lines = [f"line {number}: told {_short(told)}"]
    if isinstance(wanted, str) or isinstance(said, str):
        return "\n".join([*lines, f"  was: {_short(wanted)}", f"  is:  {_short(said)}"])
    place = next((at for at, pair in enumerate(zip(wanted, said, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(wanted), len(said)) if place is None else place
    for label, effects in (("was:", wanted), ("is: ", said)):
        lines.append(f"  {label} {_short(effects[at]) if at < len(effects) else 'nothing more'}")
    return "\n".join(lines) + f" (effect {at + 1} of {len(wanted)} and {len(said)})"


def _short(what: Any) -> str:
    text = json.dumps(what)
    return text if len(text) <= 300 else f"{text[:300]}…"


# --- messages as lists ----------------------------------------------------------------------------------------------


def _said(message: RingEvent | RingEffect) -> list[Any]:
    kind = type(message)
    return [_WORDS[kind], *(_value(name, getattr(message, name)) for name in _FIELDS[kind])]


def _value(name: str, value: Any) -> Any:
    match name:
        case "slot":
            return value if isinstance(value, int) else value.number
        case "header":
            return [getattr(value, field) for field in _FIELDS[ChunkHeader]]
        case "requests":
            return [[getattr(each, field) for field in _FIELDS[ChunkRequest]] for each in value]
        case "owned":
            return list(value.items())
        case _:
            return value


def _event(told: Sequence[Any]) -> RingEvent:
    """Return the event that `_said` has made into a list."""
    kind = _EVENTS[told[0]]
    values: dict[str, Any] = dict(zip(_FIELDS[kind], map(_tuples, told[1:]), strict=True))
    if kind in (ChunkCame, StraightCame):
        values["header"] = ChunkHeader(*values["header"])
    elif kind is RequestsCame:
        values["requests"] = tuple(ChunkRequest(*each) for each in values["requests"])
    elif kind in (Reconfigured, Refreshed):
        owned: Mapping[int, int] = dict(values["owned"])
        values["owned"] = owned
    found: RingEvent = kind(**values)
    return found


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
