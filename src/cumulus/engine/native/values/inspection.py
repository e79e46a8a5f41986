"""A map looked at from outside: its rows, what it takes, and whether everything holds that must."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cumulus.engine.frames.value_words import joined
from cumulus.engine.native.store import hash_tables, row_layout
from cumulus.engine.native.store.hash_tables import MemoryBlock
from cumulus.engine.native.store.row_layout import RowLayout
from cumulus.engine.protocol import MapStats

Words = tuple[int, ...]


_AT_ONCE = 1 << 20
"""How many slots are looked at together."""


class MapView:
    """A map read from outside."""

    def __init__(self, shape: RowLayout, record: int) -> None:
        self._shape = shape
        self._record = record
        self._row_size = shape.row_size
        self._roots: dict[int, tuple[bool, int, int, int]] = {}
        """Where `root` looks, by orders."""

    def matrix(self) -> npt.NDArray[np.int64]:
        """Return key words and value words of all rows that are there, a row each; a copy."""
        shape = self._shape
        rows = self.rows()
        found: npt.NDArray[np.int64] = rows[self._there(rows), : shape.keys + shape.values]
        return found

    def blocks(self) -> list[tuple[int, MemoryBlock]]:
        """Return the blocks of the map with their addresses."""
        return [(self._word(block.place), block) for block in self._shape.blocks(self._word)]

    def record(self) -> list[int]:
        """Return the words of its record."""
        return [self._word(offset) for offset in range(0, self._shape.record_size, 8)]

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return sum(block.size for block in self._shape.blocks(self._word))

    def stats(self) -> MapStats:
        """Return what it takes, and how its rows are found."""
        rows, chain = self._word(row_layout.LIVE), 0
        for index in range(len(self._shape.indexes)):
            if self._is_awake(index):
                chain = max(chain, self._longest_chain(index))
        if not self._shape.keys:
            return MapStats(rows, self.bytes)
        slots = self._table(row_layout.PRIMARY)
        taken, most, total = 0, 0, 0
        step = max(1, _AT_ONCE // slots.shape[1])
        for start in range(0, len(slots), step):
            words = slots[start : start + step]
            segments, places = np.nonzero(words)
            homes = (words[segments, places] >> np.uint64(32)).astype(np.int64)
            probes = ((places - homes) & (slots.shape[1] - 1)) + 1
            taken += len(probes)
            total += int(probes.sum())
            most = max(most, int(probes.max(initial=0)))
        return MapStats(rows, self.bytes, taken / slots.size, most, total / taken if taken else 0.0, chain)

    def _is_awake(self, index: int) -> bool:
        """Whether an index has been made."""
        return self._word(self._shape.table(index) + hash_tables.CAPACITY) > 0

    def _longest_chain(self, index: int) -> int:
        """Return how many rows the longest chain of an index has: each row asks ever further ones how far it is."""
        rows = self.rows()
        if not self._word(row_layout.LIVE):
            return 0
        link = rows[:, self._shape.link(index) // 8]
        following = np.zeros(len(rows) + 1, dtype=np.int64)
        following[1:] = np.where(self._there(rows), link & ((1 << 32) - 1), 0)
        length = (following > 0).astype(np.int64)
        while following.any():
            length += length[following]
            following = following[following]
        return int(length.max()) + 1

    def _there(self, rows: Any) -> Any:
        """Return which rows are there."""
        shape = self._shape
        return rows[:, shape.keys : shape.keys + shape.values].any(axis=1)

    def _table(self, table: int) -> Any:
        """Return the slots of a table, a segment each; not a copy."""
        at = self._record + table
        segments, mask = _word(at + hash_tables.SEGMENTS), _word(at + hash_tables.MASK)
        return _seen(_word(at + hash_tables.SLOTS), segments * (mask + 1), np.uint64).reshape(segments, mask + 1)

    # --- groups -----------------------------------------------------------------------------------------------------

    def chain(self, index: int, first: int) -> list[int]:
        """Return the rows of a chain, of which the first is given; none if that is 0."""
        found = []
        while first:
            found.append(first)
            first = self._half(first, self._shape.link(index))
        return found

    def root(self, order: int, first: int) -> int:
        """Return the root of a group whose chain begins with a row, 0 if it is no tree; without groups `first` is 0."""
        if order not in self._roots:
            shape = self._shape
            is_whole, node = shape.chain(order) is None, shape.node(order)
            at = shape.tree(order) + row_layout.ROOT if is_whole else node + row_layout.GROUP
            self._roots[order] = is_whole, at, node + row_layout.MARKS, shape.row_size
        is_whole, at, marks, size = self._roots[order]
        if is_whole:
            return self._word(at)
        row = self._word(row_layout.ROWS) + size * first
        is_tree = ctypes.c_uint32.from_address(row + marks).value
        return int(ctypes.c_uint32.from_address(row + at).value) if is_tree else 0

    def _sorting(self, order: int, words: Sequence[int]) -> list[int | float]:
        return [_sortable(words[word:], kind) for word, kind in self._shape.orders[order].words]

    def _half(self, row: int, offset: int) -> int:
        """Return half a word of a row."""
        return int(
            ctypes.c_uint32.from_address(self._word(row_layout.ROWS) + self._shape.row_size * row + offset).value
        )

    # --- what must hold ---------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Return what does not hold; nothing if the map is sound."""
        shape = self._shape
        if not shape.keys:
            return []
        rows = self.rows()
        there = self._there(rows)
        live = {number + 1: tuple(map(int, rows[number])) for number in map(int, np.flatnonzero(there))}
        found = []
        if len(live) != self._word(row_layout.LIVE):
            found.append(f"{len(live)} rows are there, {self._word(row_layout.LIVE)} are counted")
        free = self._free_rows(rows)
        if sorted([*free, *live]) != list(range(1, len(rows) + 1)):
            found.append("free rows and rows are not all rows")
        if not shape.is_by_index:
            slots = self._slots(row_layout.PRIMARY, found)
            if sorted(slots.values()) != sorted(live):
                found.append("the slots do not lead to the rows")
        keys = [row[: shape.keys] for row in live.values()]
        if len(set(keys)) != len(keys):
            found.append("two rows have one key")
        for index in filter(self._is_awake, range(len(shape.indexes))):
            self._check_index(index, live, found)
        for order in () if found else range(len(shape.orders)):  # they stand on the chains
            self._check_order(order, live, found)
        return found

    def _check_index(self, index: int, live: dict[int, Words], found: list[str]) -> None:
        shape = self._shape
        seen: dict[int, None] = {}
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
                seen[row] = None
                before, row = row, link & ((1 << 32) - 1)
        if sorted(seen) != sorted(live):
            found.append(f"index {index}: its chains do not hold all rows")
        if len(set(parts)) != len(parts):
            found.append(f"index {index}: two chains are for the same part of the key")

    def _check_order(self, number: int, live: dict[int, Words], found: list[str]) -> None:
        shape, order = self._shape, self._shape.orders[number]
        index = shape.chain(number)
        for first in [0] if index is None else self._slots(shape.table(index), found).values():
            root, rows = self.root(number, first), list[int]()
            if root or index is None:
                self._check_tree(number, root, live, rows, found)
                keys = [self._sorting(number, live[row]) for row in rows]
                if keys != sorted(keys):
                    found.append(f"order {number}: a tree is not in order")
            if order.most:
                self._check_best(number, rows, live, found)
            else:
                chain = [*live] if index is None else self.chain(index, first)
                self._check_group(number, first, chain, rows, found)

    def _check_group(self, number: int, first: int, chain: list[int], tree: list[int], found: list[str]) -> None:
        """Check that all rows of a group are a tree, or none is and they are few."""
        node = self._shape.node(number)
        if tree and sorted(tree) != sorted(chain):
            found.append(f"order {number}: the tree of row {first} does not hold all rows of the group")
        if not tree and any(self._half(row, node + row_layout.MARKS) for row in chain):
            found.append(f"order {number}: a row of the chain of row {first} has the marks of a tree")
        counted = self._half(first, node + row_layout.GROUP) if first else 0
        if not tree and not len(chain) <= counted <= row_layout.MOST_CHAINED:
            found.append(f"order {number}: the chain of row {first} counts {counted} rows and has {len(chain)}")

    def _check_best(self, number: int, held: list[int], live: dict[int, Words], found: list[str]) -> None:
        shape, order = self._shape, self._shape.orders[number]
        count, is_partial = (
            self._word(shape.tree(number) + place) for place in (row_layout.HELD, row_layout.IS_PARTIAL)
        )
        if len(held) != count or count > order.most:
            found.append(f"order {number}: it holds {len(held)} rows, counts {count}, and may have {order.most}")
        if not is_partial and sorted(held) != sorted(live):
            found.append(f"order {number}: it does not hold all rows")
        keys = {row: self._sorting(number, words) for row, words in live.items()}
        others = [keys[row] for row in live if row not in held]
        worst = [keys[row] for row in (held[-1:] if order.best == row_layout.LEFT else held[:1])]
        if any((each > worst[0]) is (order.best == row_layout.RIGHT) for each in others if worst):
            found.append(f"order {number}: a row that it does not hold is better than one that it holds")

    def _check_tree(
        self, number: int, row: int, live: dict[int, Words], rows: list[int], found: list[str]
    ) -> tuple[int, int, list[float]]:
        """Check the tree below a row, and list its rows; return its height, its flags and its sums."""
        shape, order = self._shape, self._shape.orders[number]
        if not row:
            return 0, 0, [0] * len(order.sums)
        if row not in live or row in rows or len(rows) > len(live):
            found.append(f"order {number}: a tree leads to row {row}, which is not there or seen before")
            return 0, 0, [0] * len(order.sums)
        words = live[row]
        links, marks = (_halves(words[shape.node(number) // 8 + place]) for place in (0, 1))
        left = self._check_tree(number, links[0], live, rows, found)
        rows.append(row)
        right = self._check_tree(number, links[1], live, rows, found)
        height, flags, sums = 1 + max(left[0], right[0]), left[1] | right[1], []
        told = marks[0] & row_layout.HEIGHT, (marks[0] >> row_layout.FLAGS) & ~row_layout.LOSSY
        for place, (word, kind) in enumerate(order.sums):
            own = _number(words[shape.keys + word :], kind)
            flags |= (own < 0) << place
            sums.append(left[2][place] + own + right[2][place])
            kept = _number(words[(shape.node(number) + order.sum(place)) // 8 :], "f" if kind == "f" else "w")
            if kept != sums[-1] and not (kind == "f" and math.isclose(kept, sums[-1], rel_tol=1e-9, abs_tol=1e-9)):
                found.append(f"order {number}: row {row} has the sum {kept}, not {sums[-1]}")
        if abs(left[0] - right[0]) > 1 or told != (height, flags):
            found.append(f"order {number}: row {row} has height and flags {told}, not {(height, flags)}")
        return height, flags, sums

    def _free_rows(self, rows: Any) -> list[int]:
        found: dict[int, None] = {}
        row = self._word(row_layout.FREE)
        while row and row not in found:
            found[row] = None
            row = int(rows[row - 1][0])
        return [*found]

    def _slots(self, table: int, found: list[str]) -> dict[tuple[int, int], int]:
        """Return where the slots of a table are, with their rows, after checking the segments."""
        at = self._record + table
        shift, mask = _word(at + hash_tables.SHIFT), _word(at + hash_tables.MASK)
        segments = _word(at + hash_tables.SEGMENTS)
        words = self._table(table)
        directory = _seen(_word(at + hash_tables.DIRECTORY), 1 << (32 - shift), np.uint32)
        counts = _seen(_word(at + hash_tables.COUNTS), 2 * segments, np.uint32).reshape(segments, 2)
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

    def rows(self) -> Any:
        """Return the words of all rows that ever were, a row each; not a copy, and gone when a row is put."""
        size, word = self._row_size, ctypes.c_int64.from_address
        last = word(self._record + row_layout.LAST).value
        start = word(self._record + row_layout.ROWS).value + size
        return _seen(start, last * size // 8, np.int64).reshape(last, size // 8)

    def _word(self, offset: int) -> int:
        return _word(self._record + offset)


def _halves(word: int) -> tuple[int, int]:
    return word & ((1 << 32) - 1), (word >> 32) & ((1 << 32) - 1)


def _sortable(words: Sequence[int], kind: str) -> int | float:
    match kind:
        case "u":
            return words[0] % (1 << 64)
        case "f":
            return words[0] if words[0] >= 0 else words[0] ^ ((1 << 63) - 1)
        case "c":
            return _number(words, "f")
        case _:
            return words[0]


def _number(words: Sequence[int], kind: str) -> int | float:
    """Return the number that words hold: of one word, of two, or a sum of floats and its compensation."""
    match kind:
        case "i":
            return words[0]
        case "w":
            return joined(words[0], words[1])
        case _:
            floats: tuple[float, float] = struct.unpack("<dd", struct.pack("<qq", *(*words, 0)[:2]))
            return floats[0] + floats[1]


def _word(address: int) -> int:
    return int(ctypes.c_int64.from_address(address).value)


def _seen(address: int, count: int, kind: Any) -> Any:
    """Return an array in memory as it is there."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype=kind)
