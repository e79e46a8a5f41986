"""Scalar functions of text, the everyday ones first, then parts, codes, digests, distances.

A character is a Unicode code point, everywhere.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cumulus.catalog.types import BIGINT, BOOLEAN, INTEGER, VARCHAR, Kind
from cumulus.scalars.casts import as_text
from cumulus.scalars.function import (
    ANYTHING,
    INTEGERS,
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


LONGEST = 1 << 24
"""Characters that `repeat` makes at most."""


def repeat(text: str, count: int) -> str:
    """Return `text` so many times; an error where that is more than anybody wants."""
    if count > 0 and len(text) * count > LONGEST:
        raise failure("repeat", (text, count), f"the result is longer than {LONGEST} characters")
    return text * count


def split_part(text: str, separator: str, index: int) -> str:
    """Return the part with a 1-based index, from the end if negative; empty if there is none."""
    parts = text.split(separator) if separator else list(text)
    place = index - 1 if index > 0 else len(parts) + index
    return parts[place] if index and 0 <= place < len(parts) else ""


def translate(text: str, old: str, new: str) -> str:
    """Return `text` with the characters of `old` replaced by those of `new`; those that have none go."""
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else None)
    return text.translate(table)


def overlay(text: str, new: str, start: int, length: int | None = None) -> str:
    """Return `text` with `length` characters (as many as `new` has) from the 1-based `start` replaced by `new`."""
    count = len(new) if length is None or length < 0 else length
    begin = start - 1
    return text[: max(begin, 0)] + new + text[max(begin + count, 0) :]


def character(code: int) -> str:
    """Return the character of a code point."""
    if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
        raise failure("chr", (code,), "there is no such code point")
    return chr(code)


def _first_code(missing: int) -> Callable[[str], int]:
    """Return what gives the code point of the first character, `missing` if there is none."""
    return lambda text: ord(text[0]) if text else missing


def byte_count(text: str) -> int:
    """Return the length in UTF-8 bytes."""
    return len(text.encode())


def _digest(name: str) -> Callable[[str], str]:
    def digest(text: str) -> str:
        return hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()

    return digest


def hexadecimal(value: Any) -> str:
    """Return the UTF-8 bytes of a text in hexadecimal, or an integer (a negative one in 64 or 128 bits)."""
    return value.encode().hex().upper() if isinstance(value, str) else f"{_unsigned(value):X}"


def binary(value: int) -> str:
    """Return an integer in binary (a negative one in 64 or 128 bits)."""
    return f"{_unsigned(value):b}"


def _unsigned(value: int) -> int:
    return value if value >= 0 else value + (1 << (64 if value >= -1 << 63 else 128))


def concat_with(separator: str | None, *parts: Any) -> str | None:
    """Return the texts of the parts that are there, with a separator between them; None without a separator."""
    if separator is None:
        return None
    return separator.join([part if type(part) is str else as_text(part) for part in parts if part is not None])


# --- distances ------------------------------------------------------------------------------------------------------
# Of code points, as in DuckDB.


def levenshtein(left: str, right: str) -> int:
    """Return how many insertions, deletions and replacements lead from one text to the other."""
    costs = list(range(len(right) + 1))
    for at, mine in enumerate(left, 1):
        before, costs[0] = costs[0], at
        for place, yours in enumerate(right, 1):
            cost = min(costs[place] + 1, costs[place - 1] + 1, before + (mine != yours))
            before, costs[place] = costs[place], cost
    return costs[-1]


def damerau_levenshtein(left: str, right: str) -> int:
    """Return the Levenshtein distance where swapping two neighbours is one step."""
    # Lowrance and Wagner: a swap may have other steps in between.
    most = len(left) + len(right)
    table = [[most] * (len(right) + 2) for _ in range(len(left) + 2)]
    last_row: dict[str, int] = {}
    for at in range(len(left) + 1):
        table[at + 1][1] = at
    for place in range(len(right) + 1):
        table[1][place + 1] = place
    for at, mine in enumerate(left, 1):
        last_column = 0
        for place, yours in enumerate(right, 1):
            row, column = last_row.get(yours, 0), last_column
            cost = 1
            if mine == yours:
                cost, last_column = 0, place
            table[at + 1][place + 1] = min(
                table[at][place] + cost,
                table[at + 1][place] + 1,
                table[at][place + 1] + 1,
                table[row][column] + (at - row - 1) + 1 + (place - column - 1),
            )
        last_row[mine] = at
    return table[-1][-1]


def hamming(left: str, right: str) -> int:
    """Return at how many places two texts of one length differ."""
    if len(left) != len(right) or not left:
        raise failure("hamming", (left, right), "the texts must have the same length, and not be empty")
    return sum(one != other for one, other in zip(left, right, strict=True))


STRING_FUNCTIONS: tuple[ScalarFunction, ...] = (
    define("repeat", repeat, VARCHAR, TEXT, INTEGERS_TO_64),
    define("ends_with", str.endswith, BOOLEAN, TEXT, TEXT),
    define("split_part", split_part, VARCHAR, TEXT, TEXT, INTEGERS_TO_64),
    define("translate", translate, VARCHAR, TEXT, TEXT, TEXT),
    define("overlay", overlay, VARCHAR, TEXT, TEXT, INTEGERS_TO_64, INTEGERS_TO_64, optional=1),
    define("chr", character, VARCHAR, INTEGERS_TO_32),
    define("ascii", _first_code(missing=0), INTEGER, TEXT),
    define("unicode", _first_code(missing=-1), INTEGER, TEXT),
    define("strlen", byte_count, BIGINT, TEXT),
    define("bit_length", lambda text: 8 * len(text.encode()), BIGINT, TEXT),
    *(define(name, _digest(name), VARCHAR, TEXT) for name in ("md5", "sha1", "sha256")),
    define("hex", hexadecimal, VARCHAR, TEXT | INTEGERS),
    define("bin", binary, VARCHAR, INTEGERS),
    define("concat_ws", concat_with, VARCHAR, TEXT, ANYTHING, many=True, strict=False, arguments=all_as(VARCHAR)),
    define("levenshtein", levenshtein, BIGINT, TEXT, TEXT),
    define("damerau_levenshtein", damerau_levenshtein, BIGINT, TEXT, TEXT),
    define("hamming", hamming, BIGINT, TEXT, TEXT),
)
