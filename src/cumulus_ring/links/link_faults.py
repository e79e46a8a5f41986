"""Faults of a link that a seed decides: messages that are lost, late or sent twice, and a line that is narrow.

For tests and demonstrations: what is delayed keeps its order, so what is behind it is late, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

from cumulus.errors import UsageError


@dataclass(frozen=True, slots=True)
class LinkFaults:
    """What goes wrong on each link.

    Attributes
    ----------
    drop, duplicate
        The share of messages that never come, and of those that come twice.
    delay_ms
        How long each one is under way.
    bandwidth_mb_s
        What a link carries; 0 for as much as it can.
    seed
        Decides, with the names of both sides, which messages are hit.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    delay_ms: float = 0.0
    bandwidth_mb_s: float = 0.0
    seed: int = 0

    def line(self, name: str) -> FaultyLine:
        """Return what goes wrong on the link of this name; links that share a line share its bandwidth."""
        return FaultyLine(self, name)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What becomes of a message: how often it is sent, and when."""

    copies: int
    due: float


SPARED = Delivery(1, 0.0)
"""Of a message on a link without faults."""


class FaultyLine:
    """The faults of one link, message by message."""

    def __init__(self, faults: LinkFaults, name: str) -> None:
        self._faults = faults
        self._random = random.Random(f"{faults.seed} {name}")
        self._free_at = 0.0

    def delivery(self, size: int, now: float) -> Delivery:
        """Return what becomes of the next message, of so many bytes, which is to be sent now (in seconds)."""
        faults, chance = self._faults, self._random.random()
        copies = 0 if chance < faults.drop else 2 if chance < faults.drop + faults.duplicate else 1
        if faults.bandwidth_mb_s:
            self._free_at = max(self._free_at, now) + max(copies, 1) * size / (faults.bandwidth_mb_s * 1e6)
            now = self._free_at
        return Delivery(copies, now + faults.delay_ms / 1000)


def link_faults(text: str) -> LinkFaults:
    """Read faults as the command line has them, such as ``drop=0.01,delay-ms=5,seed=7``.

    Raises
    ------
    UsageError
        If it is something else.
    """
    known = {each.name.replace("_", "-"): each.name for each in fields(LinkFaults)}
    hint = f"Known are {', '.join(known)}, as in drop=0.01,delay-ms=5,seed=7."
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = part.partition("=")
        if not equals or name.strip() not in known:
            raise UsageError(f"{part!r} is no fault of a link", hint=hint)
        if known[name.strip()] in found:
            raise UsageError(f"{name.strip()} is given twice", hint=hint)
        try:
            found[known[name.strip()]] = float(number)
        except ValueError:
            raise UsageError(f"{part!r}: {number!r} is no number", hint=hint) from None
    faults = LinkFaults(**{**found, "seed": _whole(found.get("seed", 0.0), hint)})  # type: ignore[arg-type]
    if not all(0 <= value < float("inf") for value in found.values()) or faults.drop + faults.duplicate > 1:
        raise UsageError(
            f"{text!r}: no number may be negative, and drop and duplicate are shares, together at most 1", hint=hint
        )
    return faults


def _whole(number: float, hint: str) -> int:
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise UsageError(f"the seed {number:g} is no whole number", hint=hint)
    return int(number)
