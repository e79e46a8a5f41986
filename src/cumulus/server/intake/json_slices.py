"""JSON texts of any length, parsed in slices: no call holds the interpreter's lock for more than some milliseconds.

Brackets and commas outside of texts are found first, by columns of bytes; their number bounds what will be made of the
text before any of it is. Between them lie slices that Python's own parser takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from cumulus.errors import LimitError, UsageError

SLICE_VALUES, SLICE_BYTES = 10_000, 256 << 10
"""Python's parser gets no more at once, but for one text that is longer."""
MOST_TEXT_BYTES = 16 << 20
"""Of one value, unless it is a text without escapes."""
_SCAN_BYTES = 256 << 10
_MOST_DEPTH = 100

_MARKS = np.zeros(256, np.bool_)
_MARKS[list(b"[]{},")] = True
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_KEY = re.compile(rb'[ \t\n\r]*("(?:[^"\\]|\\.)*")[ \t\n\r]*:', re.DOTALL)
_CLOSING = {ord("["): ord("]"), ord("{"): ord("}")}


def parsed_json(text: str | bytes, what: str, most_values: int | None = None) -> Any:
    """Return what a JSON text says, with numbers as they are written.

    Parameters
    ----------
    what
        What to call the text in an error.
    most_values
        How many values, objects and lists it may have.

    Raises
    ------
    UsageError
        If it is no JSON.
    LimitError
        If it has more values than it may; none is made then.

    Examples
    --------
    >>> parsed_json('{"a": 0.10}', "where")
    {'a': Decimal('0.10')}
    """
    if len(text) <= SLICE_VALUES:
        return _parsed(text, what)
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if json.detect_encoding(data[:4]) not in ("utf-8", "utf-8-sig"):
        raise UsageError(f"{what} is JSON in another encoding than UTF-8", hint="Send it as UTF-8.")
    return _Slices(data, what, most_values).parsed()


def _parsed(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError) as problem:
        told = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)[:200]
        raise UsageError(f"{what} is no JSON: {told}", hint="RFC 8259 says what JSON is.") from None


class _Slices:
    """A text with the places of its brackets and commas."""

    def __init__(self, data: bytes, what: str, most_values: int | None) -> None:
        self._data, self._what = data, what
        places: list[npt.NDArray[np.int64]] = []
        count = 0
        for found in _marks(data):
            count += len(found)
            if most_values is not None and count > 2 * most_values:  # a comma, and a bracket of two
                raise LimitError(
                    f"{what} has more than {most_values:,} values", hint="Send fewer rows in a request, or plain ones."
                )
            places.append(found)
        self._places = np.concatenate(places)
        self._kinds = np.frombuffer(data, np.uint8)[self._places]
        self._depths = np.cumsum(_STEPS[self._kinds], dtype=np.int32)
        if len(self._depths) and self._depths.max() > _MOST_DEPTH:
            raise self._wrong(0, "it is nested too deeply")

    def parsed(self) -> Any:
        """Return what the text says."""
        begin = 3 if self._data.startswith(b"\xef\xbb\xbf") else 0
        return self._value(begin, len(self._data), 0, len(self._places))

    def _wrong(self, place: int, told: str) -> UsageError:
        return UsageError(f"{self._what} is no JSON: byte {place:,}: {told}", hint="RFC 8259 says what JSON is.")

    def _piece(self, data: bytes, place: int) -> Any:
        if len(data) > SLICE_BYTES and (text := _plain_text(data.strip())) is not None:
            return text
        if len(data) > MOST_TEXT_BYTES:
            raise LimitError(
                f"{self._what}: the value at byte {place:,} has more than {MOST_TEXT_BYTES:,} bytes",
                hint="Keep such texts elsewhere.",
            )
        return _parsed(data, f"{self._what}, from byte {place:,} on,")

    def _value(self, begin: int, end: int, first: int, last: int) -> Any:
        """Return the value between two bytes, with the marks from one number to before another."""
        if first == last or (last - first <= SLICE_VALUES and end - begin <= SLICE_BYTES):
            return self._piece(self._data[begin:end], begin)
        opening, closing = int(self._places[first]), int(self._places[last - 1])
        around = self._data[begin:opening].strip(), self._data[closing + 1 : end].strip()
        if any(around) or _CLOSING.get(self._data[opening]) != self._data[closing]:
            raise self._wrong(opening, "a bracket, or what is beside it, does not belong there")
        if self._data[opening] == ord("["):
            return self._list(first, last)
        return self._object(first, last)

    def _list(self, first: int, last: int) -> list[Any]:
        found: list[Any] = []
        for begin, end, inner, after, is_one in self._groups(first, last):
            if is_one:
                found.append(self._value(begin, end, inner, after))
            else:
                found += self._piece(b"[" + self._data[begin:end] + b"]", begin)
        return found

    def _object(self, first: int, last: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for begin, end, inner, after, is_one in self._groups(first, last):
            if is_one:
                key = _KEY.match(self._data, begin, end)
                if key is None:
                    raise self._wrong(begin, "a member of an object has no name")
                found[_parsed(key[1], self._what)] = self._value(key.end(), end, inner, after)
            else:
                found.update(self._piece(b"{" + self._data[begin:end] + b"}", begin))
        return found

    def _groups(self, first: int, last: int) -> Iterator[tuple[int, int, int, int, bool]]:
        """Yield neighbouring members of a container, as many as one slice takes, or one that is larger.

        Each is two bytes, two numbers of marks, and whether it is one large member.
        """
        depth = self._depths[first]
        inside = slice(first + 1, last - 1)
        if (self._depths[inside] < depth).any():
            raise self._wrong(int(self._places[first]), "brackets do not match")
        is_comma = (self._kinds[inside] == ord(",")) & (self._depths[inside] == depth)
        commas = np.append(np.flatnonzero(is_comma) + first + 1, last - 1)  # the last one is the bracket
        ends = self._places[commas]
        at, begin, mark = 0, int(self._places[first]) + 1, first + 1
        while at < len(commas):
            most_mark = np.searchsorted(commas, mark + SLICE_VALUES, "right") - 1
            most_byte = np.searchsorted(ends, begin + SLICE_BYTES, "right") - 1
            to = max(at, int(min(most_mark, most_byte)))
            end, after = int(ends[to]), int(commas[to])
            is_one = to == at and (after - mark > SLICE_VALUES or end - begin > SLICE_BYTES)
            if not self._data[begin:end].strip() if end - begin < SLICE_BYTES else False:
                raise self._wrong(begin, "there is a comma, and no value")
            yield begin, end, mark, after, is_one
            at, begin, mark = to + 1, end + 1, after + 1


def _plain_text(data: bytes) -> str | None:
    """Return the text that a long value is, if nothing in it needs the parser; else None."""
    if len(data) < 2 or not data[0] == data[-1] == _QUOTE or b"\\" in data or not data.isascii():
        return None
    inside = np.frombuffer(data, np.uint8)[1:-1]
    return None if bool((inside == _QUOTE).any()) or bool((inside < 32).any()) else str(data[1:-1], "ascii")


def _marks(data: bytes) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the places of brackets and commas outside of texts."""
    is_inside, is_escaped = False, False
    for begin in range(0, len(data), _SCAN_BYTES):
        part = np.frombuffer(data, np.uint8, min(_SCAN_BYTES, len(data) - begin), begin)
        quotes = part == _QUOTE
        backslashes = np.flatnonzero(part == _BACKSLASH)
        if is_escaped or len(backslashes):
            escaped, is_escaped = _escaped(backslashes, len(part), is_escaped)
            quotes[escaped] = False
        inside = (np.cumsum(quotes) + is_inside) & 1
        is_inside = bool(inside[-1])
        yield np.flatnonzero(_MARKS[part] & (inside == 0)) + begin


def _escaped(backslashes: Any, count: int, is_first: bool) -> tuple[Any, bool]:
    """Return which bytes follow a backslash that counts, and whether the next part's first byte does.

    Of several backslashes in a row each second one is itself escaped.
    """
    if is_first and (not len(backslashes) or backslashes[0] != 0):
        before = np.array([0], np.int64)
    else:
        before = np.zeros(0, np.int64)
        if is_first:
            backslashes = backslashes[1:]
            before = np.array([0], np.int64)
    if not len(backslashes):
        return before, False
    starts = np.flatnonzero(np.diff(backslashes, prepend=-2) != 1)
    lengths = np.diff(np.append(starts, len(backslashes)))
    after = backslashes[starts] + lengths
    odd = after[lengths % 2 == 1]
    is_next = bool(len(odd) and odd[-1] == count)
    return np.concatenate([before, odd[odd < count]]), is_next
