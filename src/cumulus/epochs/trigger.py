"""When epochs begin."""

from __future__ import annotations

from dataclasses import dataclass

from cumulus.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Schedule:
    """When epochs begin: `once`, with all there is; for ever, every so many seconds; or till all is read."""

    once: bool = False
    every_s: float | None = None


def parse_trigger(text: str) -> Schedule:
    """Return the trigger that `text` names.

    Raises
    ------
    UsageError
        If it is none.

    Examples
    --------
    >>> parse_trigger("once"), parse_trigger("5s").every_s, parse_trigger("250ms").every_s
    (Schedule(once=True, every_s=None), 5.0, 0.25)
    """
    if text in ("once", "available-now"):
        return Schedule(once=text == "once")
    number = text.rstrip("ms")
    unit = text[len(number) :]
    if unit not in _UNITS or not number.replace(".", "", 1).isdecimal():
        raise UsageError(f"unknown trigger {text!r}", hint="Use once, available-now, or a time such as 5s.")
    return Schedule(every_s=float(number) * _UNITS[unit])


def parse_interval(text: str) -> float:
    """Return how many seconds the trigger of a cluster that runs on names.

    Raises
    ------
    UsageError
        If it is none, or no time.
    """
    every_s = parse_trigger(text).every_s
    if every_s is None:
        raise UsageError(f"--trigger {text}: a cluster that runs on needs a time", hint="Give such as 1s or 250ms.")
    return every_s


def parse_patience(text: str, option: str = "--dead-after") -> float:
    """Return how many seconds an option names: a second at least, since machines are asked every second.

    Raises
    ------
    UsageError
        If it is no time, or less.

    Examples
    --------
    >>> parse_patience("30s"), parse_patience("2m")
    (30.0, 120.0)
    """
    try:
        seconds = parse_trigger(text).every_s
    except UsageError:
        seconds = None
    if seconds is None or seconds < 1:
        raise UsageError(f"{option} {text}: this is no time of a second or more", hint="Give such as 30s.")
    return seconds
