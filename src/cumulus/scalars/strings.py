"""Scalar functions of text beyond the everyday ones: parts, codes, digests, distances. A character is a code point."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from cumulus.catalog.types import BIGINT, BOOLEAN, INTEGER, VARCHAR, Kind
from cumulus.scalars.casts import as_text
from cumulus.scalars.function import ANYTHING, INTEGERS, TEXT, ScalarFunction, Types, failure, takes

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


def ascii_code(text: str) -> int:
    """Return the code point of the first character, 0 if there is none."""
    return ord(text[0]) if text else 0


def code_point(text: str) -> int:
    """Return the code point of the first character, -1 if there is none."""
    return ord(text[0]) if text else -1


def byte_count(text: str) -> int:
    """Return the length in UTF-8 bytes."""
    return len(text.encode())


def bit_count(text: str) -> int:
    """Return the length in UTF-8 bits."""
    return 8 * len(text.encode())


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
# DuckDB compares bytes here, and so do these.


def levenshtein(left: str, right: str) -> int:
    """Return how many insertions, deletions and replacements lead from one text to the other."""
    return _distance(left.encode(), right.encode(), swaps=False)


def damerau_levenshtein(left: str, right: str) -> int:
    """Return the Levenshtein distance where swapping two neighbours is one step."""
    return _distance(left.encode(), right.encode(), swaps=True)


def _distance(left: bytes, right: bytes, *, swaps: bool) -> int:
    if not swaps:
        costs = list(range(len(right) + 1))
        for at, mine in enumerate(left, 1):
            before, costs[0] = costs[0], at
            for place, yours in enumerate(right, 1):
                found = min(costs[place] + 1, costs[place - 1] + 1, before + (mine != yours))
                before, costs[place] = costs[place], found
        return costs[-1]
    # Lowrance and Wagner: a swap may have other steps in between.
    most = len(left) + len(right)
    table = [[most] * (len(right) + 2) for _ in range(len(left) + 2)]
    last_row: dict[int, int] = {}
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
    mine, yours = left.encode(), right.encode()
    if len(mine) != len(yours) or not mine:
        raise failure("hamming", (left, right), "the texts must have the same length, and not be empty")
    return sum(one != other for one, other in zip(mine, yours, strict=True))


# --- types ----------------------------------------------------------------------------------------------------------

_COUNT = INTEGERS - {Kind.HUGEINT}


def _joined_types(types: Types) -> Types:
    return (VARCHAR,) * len(types)


STRING_FUNCTIONS: tuple[ScalarFunction, ...] = (
    ScalarFunction("repeat", repeat, takes("repeat", VARCHAR, TEXT, _COUNT)),
    ScalarFunction("ends_with", str.endswith, takes("ends_with", BOOLEAN, TEXT, TEXT)),
    ScalarFunction("split_part", split_part, takes("split_part", VARCHAR, TEXT, TEXT, _COUNT)),
    ScalarFunction("translate", translate, takes("translate", VARCHAR, TEXT, TEXT, TEXT)),
    ScalarFunction("overlay", overlay, takes("overlay", VARCHAR, TEXT, TEXT, _COUNT, _COUNT, optional=1)),
    ScalarFunction("chr", character, takes("chr", VARCHAR, _COUNT - {Kind.BIGINT})),
    ScalarFunction("ascii", ascii_code, takes("ascii", INTEGER, TEXT)),
    ScalarFunction("unicode", code_point, takes("unicode", INTEGER, TEXT)),
    ScalarFunction("strlen", byte_count, takes("strlen", BIGINT, TEXT)),
    ScalarFunction("bit_length", bit_count, takes("bit_length", BIGINT, TEXT)),
    ScalarFunction("md5", _digest("md5"), takes("md5", VARCHAR, TEXT)),
    ScalarFunction("sha1", _digest("sha1"), takes("sha1", VARCHAR, TEXT)),
    ScalarFunction("sha256", _digest("sha256"), takes("sha256", VARCHAR, TEXT)),
    ScalarFunction("hex", hexadecimal, takes("hex", VARCHAR, TEXT | INTEGERS)),
    ScalarFunction("bin", binary, takes("bin", VARCHAR, INTEGERS)),
    ScalarFunction(
        "concat_ws", concat_with, takes("concat_ws", VARCHAR, TEXT, ANYTHING, many=True), False, _joined_types
    ),
    ScalarFunction("levenshtein", levenshtein, takes("levenshtein", BIGINT, TEXT, TEXT)),
    ScalarFunction("damerau_levenshtein", damerau_levenshtein, takes("damerau_levenshtein", BIGINT, TEXT, TEXT)),
    ScalarFunction("hamming", hamming, takes("hamming", BIGINT, TEXT, TEXT)),
)
