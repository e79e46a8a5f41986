"""Texts that UTF-8 can say, and those that it cannot."""

from __future__ import annotations


def half_character(text: str) -> int:
    r"""Return where a text has a lone surrogate, half a character that no UTF-8 says; -1 if nowhere.

    Examples
    --------
    >>> half_character("a\ud83d"), half_character("é")
    (1, -1)
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            return problem.start
    return -1
