"""Scalar functions of text. A character is a Unicode code point, everywhere."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cumulus.catalog.types import BIGINT, BOOLEAN, VARCHAR, Kind
from cumulus.scalars.casts import as_text
from cumulus.scalars.function import (
    ANYTHING,
    INTEGERS_TO_32,
    INTEGERS_TO_64,
    TEXT,
    ScalarFunction,
    all_as,
    define,
    failure,
)

# --- case -----------------------------------------------------------------------------------------------------------


def _simple(change: Callable[[str], str], others: dict[str, str]) -> Callable[[str], str]:
    """Return a mapping of text that changes each character on its own and never the length, as DuckDB's does."""
    table: dict[int, str] = {}

    class Mapping(dict[int, str]):
        def __missing__(self, code: int) -> str:
            character = chr(code)
            # Where Unicode's full mapping is longer than one character, the title form may still be one.
            candidates = (others.get(character, ""), change(character), character.title())
            self[code] = next((changed for changed in candidates if len(changed) == 1), character)
            return self[code]

    table = Mapping()

    def changed(text: str) -> str:
        return change(text) if text.isascii() else text.translate(table)

    return changed


lower = _simple(str.lower, {"İ": "i"})
upper = _simple(str.upper, {"ß": "ẞ"})


# --- LIKE -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pattern(function: str, pattern: str, escape: str) -> re.Pattern[str]:
    if len(escape) > 1:
        raise failure(function, (pattern, escape), "the escape must be one character or none")
    pieces: list[str] = []
    characters = iter(pattern)
    for character in characters:
        # An escape that is also a wildcard escapes.
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise failure(function, (pattern, escape), "the pattern ends with its escape character")
            pieces.append(re.escape(literal))
        elif character == "%":
            if pieces[-1:] != [".*"]:
                pieces.append(".*")
        else:
            pieces.append("." if character == "_" else re.escape(character))
    return re.compile("".join(pieces), re.DOTALL)


def like(text: str, pattern: str, escape: str = "") -> bool:
    """Whether `text` matches `pattern`: `%` is any text, `_` any character; without `escape` nothing escapes."""
    return _pattern("like", pattern, escape).fullmatch(text) is not None


def ilike(text: str, pattern: str, escape: str = "") -> bool:
    """Whether the lower-case `text` matches the lower-case `pattern`."""
    return _pattern("ilike", lower(pattern), lower(escape)).fullmatch(lower(text)) is not None


# --- parts ----------------------------------------------------------------------------------------------------------


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return `length` characters (backwards if negative) from `start` (1-based, from the end if negative)."""
    begin = start - 1 if start > 0 else (len(text) + start if start < 0 else -1)
    if length is None:
        return text[max(begin, 0) :]
    end = begin + length
    if length < 0:
        begin, end = end, begin
    return text[max(begin, 0) : max(end, 0)]


def left(text: str, count: int) -> str:
    """Return the first `count` characters, or all but the last -count."""
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last `count` characters, or all but the first -count."""
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def _trimming(strip: Callable[[str, str], str]) -> Callable[..., str]:
    """Return what takes characters off the ends of a text that `strip` looks at."""

    def trim(text: str, characters: str = " ") -> str:
        return strip(text, characters) if characters else text

    return trim


def replace(text: str, old: str, new: str) -> str:
    """Return `text` with every `old` replaced by `new`; unchanged if `old` is empty."""
    return text.replace(old, new) if old else text


def pad_left(text: str, length: int, padding: str) -> str:
    """Return `text` cut or padded on the left to `length` characters."""
    return _padding("lpad", text, length, padding) + text[: max(length, 0)]


def pad_right(text: str, length: int, padding: str) -> str:
    """Return `text` cut or padded on the right to `length` characters."""
    return text[: max(length, 0)] + _padding("rpad", text, length, padding)


def _padding(name: str, text: str, length: int, padding: str) -> str:
    missing = length - len(text)
    if missing <= 0:
        return ""
    if not padding:
        raise failure(name, (text, length, padding), "there is nothing to pad with")
    return (padding * (missing // len(padding) + 1))[:missing]


def position(text: str, part: str) -> int:
    """Return the 1-based position of the first `part` in `text`, 0 if there is none."""
    return text.find(part) + 1


def concat(*parts: Any) -> str:
    """Return the texts of all parts in a row."""
    return "".join([part if type(part) is str else as_text(part) for part in parts])


# --- types ----------------------------------------------------------------------------------------------------------


def _text(name: str, implement: Callable[..., Any], *parameters: frozenset[Kind], optional: int = 0) -> ScalarFunction:
    return define(name, implement, VARCHAR, TEXT, *parameters, optional=optional)


TEXT_FUNCTIONS: tuple[ScalarFunction, ...] = (
    define("concat", concat, VARCHAR, ANYTHING, many=True, arguments=all_as(VARCHAR)),
    define("like", like, BOOLEAN, TEXT, TEXT, TEXT, optional=1),
    define("ilike", ilike, BOOLEAN, TEXT, TEXT, TEXT, optional=1),
    _text("lower", lower),
    _text("upper", upper),
    define("length", len, BIGINT, TEXT),
    _text("substring", substring, INTEGERS_TO_64, INTEGERS_TO_64, optional=1),
    _text("left", left, INTEGERS_TO_64),
    _text("right", right, INTEGERS_TO_64),
    _text("trim", _trimming(str.strip), TEXT, optional=1),
    _text("ltrim", _trimming(str.lstrip), TEXT, optional=1),
    _text("rtrim", _trimming(str.rstrip), TEXT, optional=1),
    _text("replace", replace, TEXT, TEXT),
    define("starts_with", str.startswith, BOOLEAN, TEXT, TEXT),
    define("contains", operator.contains, BOOLEAN, TEXT, TEXT),
    define("strpos", position, BIGINT, TEXT, TEXT),
    _text("lpad", pad_left, INTEGERS_TO_32, TEXT),
    _text("rpad", pad_right, INTEGERS_TO_32, TEXT),
    _text("reverse", lambda text: text[::-1]),
)
