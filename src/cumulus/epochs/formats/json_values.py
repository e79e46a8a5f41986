"""JSON as the careful reader has it: whole numbers of any length, decimals as written, the last of equal keys."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

MOST_LEVELS = 400
"""Deeper nesting is refused: Python would take more or less, by what called it."""

_LONG_NUMBER = 4000


def _whole(text: str) -> Any:
    """Return a whole number; a decimal of as many digits where Python refuses so many, and for the zero with a sign."""
    return int(text) if len(text) < _LONG_NUMBER and text != "-0" else Decimal(text)


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_int=_whole)
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def parse(text: str) -> Any:
    """Return what a JSON text says.

    Raises
    ------
    ValueError
        If it is not JSON, or nested too deep.
    """
    check_levels(text)
    try:
        return _DECODER.decode(text)
    except (ArithmeticError, RecursionError):
        raise ValueError("a number or nesting beyond all bounds") from None


def check_levels(text: str) -> None:
    """Raise ValueError if a text is nested deeper than `MOST_LEVELS`."""
    if len(text) <= MOST_LEVELS or text.count("[") + text.count("{") <= MOST_LEVELS:
        return
    level = 0
    for letter in re.findall(r"[][{}]", _STRINGS.sub("", text)):
        level += 1 if letter in "[{" else -1
        if level > MOST_LEVELS:
            raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
