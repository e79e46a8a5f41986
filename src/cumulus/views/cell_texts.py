"""Values as texts that are safe to show: what a terminal would obey, or a line cannot hold, stands as an escape."""

from __future__ import annotations

import re
from typing import Any

from rich.cells import cell_len, set_cell_size

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, ends of lines, what turns the direction of writing, and halves of characters."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str) -> str:
    r"""Return a text with escapes for what must not reach a terminal.

    Examples
    --------
    >>> print(printable("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def cell(value: Any, width: int | None = None) -> str:
    """Return a value as the text of a cell, cut to a width in columns of a terminal.

    Examples
    --------
    >>> cell(None), cell("東京都", 5)
    ('NULL', '東京…')
    """
    if width is not None and isinstance(value, str):
        value = value[: width + 1]  # a character takes a column, or two: no need to look at all of a long text
    text = "NULL" if value is None else printable(str(value))
    if width is None or cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text with blanks to a width in columns of a terminal."""
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
