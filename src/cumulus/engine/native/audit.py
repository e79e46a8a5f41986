"""Checks of everything that holds in a map, for tests and for whoever suspects a fault."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cumulus.engine.native import maps, tables
from cumulus.engine.native.maps import Shape

Words = tuple[int, ...]


class MapView:
    """A map read from outside.

    Parameters
    ----------
    shape, record
        Its layout, and the address of its record.
    """

    def __init__(self, shape: Shape, record: int) -> None:
        self._shape = shape
        self._record = record

    def items(self) -> Iterator[tuple[Words, Words]]:
        """Iterate over key words and value words, in the order of the rows."""
        shape = self._shape
        rows = self._rows()
        if rows.size:
            for row in rows[rows[:, shape.keys : shape.keys + shape.values].any(axis=1)].tolist():
                yield tuple(row[: shape.keys]), tuple(row[shape.keys : shape.keys + shape.values])

    def matrix(self) -> npt.NDArray[np.int64]:
        """Return key words and value words of all rows that are there, a row each; a copy."""
        shape = self._shape
        rows = self._rows()
        there = rows[:, shape.keys : shape.keys + shape.values].any(axis=1)
        found: npt.NDArray[np.int64] = rows[there, : shape.keys + shape.values]
        return found

    def problems(self) -> list[str]:
        """Return what does not hold; nothing if the map is sound."""
        shape = self._shape
        if not shape.keys:
            return []
        rows = self._rows()
        there = rows[:, shape.keys : shape.keys + shape.values].any(axis=1)
        live = {number + 1: tuple(map(int, rows[number])) for number in map(int, np.flatnonzero(there))}
        found = []
        if len(live) != self._word(maps.LIVE):
            found.append(f"{len(live)} rows are there, {self._word(maps.LIVE)} are counted")
        free = self._free_rows(rows)
        if sorted([*free, *live]) != list(range(1, len(rows) + 1)):
            found.append("free rows and rows are not all rows")
        slots = self._slots(maps.PRIMARY, found)
        if sorted(slots.values()) != sorted(live):
            found.append("the slots do not lead to the rows")
        keys = [row[: shape.keys] for row in live.values()]
        if len(set(keys)) != len(keys):
            found.append("two rows have one key")
        for index in range(len(shape.indexes)):
            self._check_index(index, live, found)
        return found

    def _check_index(self, index: int, live: dict[int, Words], found: list[str]) -> None:
        shape = self._shape
        seen: list[int] = []
        parts: list[Words] = []
        place = shape.keys + shape.values + index
        for first in self._slots(shape.table(index), found).values():
            before, row = 0, first
            part = tuple(live[row][word] for word in shape.indexes[index]) if row in live else ()
            parts.append(part)
            while row:
                if row not in live or row in seen:
                    found.append(f"index {index}: a chain leads to row {row}, which is not there or seen before")
                    return
                if tuple(live[row][word] for word in shape.indexes[index]) != part:
                    found.append(f"index {index}: row {row} is in the wrong chain")
                link = live[row][place] & ((1 << 64) - 1)
                if link >> 32 != before:
                    found.append(f"index {index}: row {row} does not know who is before it")
                seen.append(row)
                before, row = row, link & ((1 << 32) - 1)
        if sorted(seen) != sorted(live):
            found.append(f"index {index}: its chains do not hold all rows")
        if len(set(parts)) != len(parts):
            found.append(f"index {index}: two chains are for the same part of the key")

    def _free_rows(self, rows: Any) -> list[int]:
        found: list[int] = []
        row = self._word(maps.FREE)
        while row and row not in found:
            found.append(row)
            row = int(rows[row - 1][0])
        return found

    def _slots(self, table: int, found: list[str]) -> dict[tuple[int, int], int]:
        """Return where the slots of a table are, with their rows, after checking the segments."""
        at = self._record + table
        shift, mask = _word(at + tables.SHIFT), _word(at + tables.MASK)
        segments = _word(at + tables.SEGMENTS)
        words = _array(_word(at + tables.SLOTS), segments * (mask + 1), np.uint64).reshape(segments, mask + 1)
        directory = _array(_word(at + tables.DIRECTORY), 1 << (32 - shift), np.uint32)
        counts = _array(_word(at + tables.COUNTS), 2 * segments, np.uint32).reshape(segments, 2)
        slots: dict[tuple[int, int], int] = {}
        for segment in range(segments):
            taken = [int(place) for place in np.flatnonzero(words[segment])]
            if len(taken) != counts[segment][0]:
                found.append(f"segment {segment} counts {counts[segment][0]} slots and has {len(taken)}")
            for place in taken:
                word = int(words[segment][place])
                tag = word >> 32
                slots[segment, place] = word & ((1 << 32) - 1)
                if directory[tag >> shift] != segment:
                    found.append(f"a slot of segment {segment} belongs into another")
                probed = tag & mask
                while probed != place:
                    if not words[segment][probed]:
                        found.append(f"a slot of segment {segment} cannot be found")
                        break
                    probed = (probed + 1) & mask
        return slots

    def _rows(self) -> Any:
        last, size = self._word(maps.LAST), self._shape.row_size
        start = self._word(maps.ROWS) + size
        return _array(start, last * size // 8, np.int64).reshape(last, size // 8)

    def _word(self, offset: int) -> int:
        return _word(self._record + offset)


def _word(address: int) -> int:
    return int(ctypes.c_int64.from_address(address).value)


def _array(address: int, count: int, kind: Any) -> Any:
    """Return a copy of an array in memory."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype=kind).copy()
