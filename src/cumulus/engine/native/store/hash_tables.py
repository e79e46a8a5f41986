"""Slot tables: from 32 bits of a hash to row numbers, growing without long pauses.

A slot is one word, `tag << 32 | row`; 0 is an empty one. The tag is the upper half of a hash, and says everything that
the table must know: in which segment a slot belongs (its upper bits, through a directory) and where in it its probing
begins (its lower bits). So tables grow and shrink without looking at rows.

A small table is one segment, which doubles. A segment of `SEGMENT` slots that is full is split in two by one more bit
of the tag (extendible hashing): growing costs a few microseconds at a time, however large the table is. Probing is
linear and stays in its segment; a removed slot is closed by moving later ones back, so there are no tombstones.

Row numbers begin at 1. Comparing keys is the business of `cumulus.engine.native.store.maps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, U32, Expr, Local, i64, select
from cumulus.engine.native.kernel.memory import MEMCPY, MEMSET, grow_block, release_block

# The record of a table, as offsets in bytes.
SLOTS = 0
"""The segments, one behind the other."""
DIRECTORY = 8
"""Upper bits of the tag → segment, U32 each."""
COUNTS = 16
"""Segment → how many slots are taken, and how many bits of the tag it is for, U32 each."""
SHIFT = 24
"""32 less the bits that the directory looks at."""
MASK = 32
"""Slots of a segment, less one."""
SEGMENTS = 40
"""How many there are."""
CAPACITY = 48
"""For how many there is room; 0 of a record that is no table."""
TABLE_SIZE = 56

FIRST_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
SECOND_FACTOR = 0xD6E8FEB86659FD93 - (1 << 64)
"""What hashes are mixed with."""
ROW = (1 << 32) - 1
"""What of a slot is the number of a row; and of what `put` of a map gives."""
SEGMENT = 1024
SMALLEST = 16
DEEPEST = 22
"""Bits of the tag that tell segments apart; the ten others place a slot."""


Record: TypeAlias = Callable[[int], int]
"""The word at an offset of a record."""


class MemoryBlock(NamedTuple):
    """A piece of memory that a record leads to.

    Parameters
    ----------
    place
        Where its address stands in the record.
    size
        Bytes.
    used
        How many of them, from the first on, mean something.
    """

    place: int
    size: int
    used: int


def table_blocks(record: Record, table: int) -> list[MemoryBlock]:
    """Return the blocks of the table that stands at an offset of a record."""
    capacity, segments = record(table + CAPACITY), record(table + SEGMENTS)
    segment, directory = (record(table + MASK) + 1) * 8, (1 << (32 - record(table + SHIFT))) * 4
    return [
        MemoryBlock(table + SLOTS, capacity * segment, segments * segment),
        MemoryBlock(table + DIRECTORY, directory, directory),
        MemoryBlock(table + COUNTS, capacity * 8, segments * 8),
    ]


def entrance(body: Body, table: Expr, tag: Expr) -> tuple[Local, Local, Local]:
    """Write where the probing for a tag begins: the segment's address, the first slot's number, the mask."""
    shift = body.load(I64, table, SHIFT, "shift")
    directory = body.load(PTR, table, DIRECTORY, "directory")
    mask = body.load(I64, table, MASK, "mask")
    segment = body.load(U32, directory.at((tag >> shift) << 2), 0, "segment")
    base = body.let(body.load(PTR, table, SLOTS, "slots").at((segment * (mask + 1)) << 3), "base")
    return base, body.let(tag & mask, "at"), mask


def _segment_of(body: Body, table: Expr, tag: Expr) -> Local:
    """Write the look-up of the segment of a tag."""
    directory = body.load(PTR, table, DIRECTORY)
    return body.load(U32, directory.at((tag >> body.load(I64, table, SHIFT)) << 2), 0, "segment")


def slot(body: Body, base: Expr, at: Expr) -> Local:
    """Write the reading of a slot."""
    return body.load(I64, base.at(at << 3), 0, "slot")


def _find_slot(body: Body, table: Expr, tag: Expr, row: Expr) -> tuple[Local, Local, Local]:
    """Write the search for a slot, which must be there; return its segment's address, its number, and the mask."""
    base, at, mask = entrance(body, table, tag)
    word = body.let((tag << 32) | row, "word")
    with body.loop():
        body.stop_if(slot(body, base, at).eq(word))
        body.set(at, (at + 1) & mask)
    return base, at, mask


@contextmanager
def slots_of(body: Body, table: Expr) -> Iterator[Local]:
    """Write a loop over the slots that are taken."""
    count = body.load(I64, table, SEGMENTS, "segments") * (body.load(I64, table, MASK, "mask") + 1)
    with body.counting(0, body.let(count, "count"), "number") as number:
        word = slot(body, body.load(PTR, table, SLOTS, "slots"), number)
        with body.when(word.ne(0)):
            yield word


@kernel_function("cu_table_new", [("memory", PTR), ("table", PTR)], I64, inline=False)
def new_table(body: Body, memory: Local, table: Local) -> None:
    """Make a table empty; 1, or 0 if there is no memory. A record of zeros is no table yet."""
    sizes = {SLOTS: 8 * SMALLEST, DIRECTORY: 4, COUNTS: 8}
    for offset, size in sizes.items():
        block = body.call(grow_block, memory, NOWHERE, 0, size, hint="block")
        body.leave_if(block.eq(NOWHERE), 0, likely=False)
        body.call(MEMSET, block, 0, size)
        body.store(PTR, table, offset, block)
    body.store(I64, table, SHIFT, 32)
    body.store(I64, table, MASK, SMALLEST - 1)
    body.store(I64, table, SEGMENTS, 1)
    body.store(I64, table, CAPACITY, 1)
    body.leave(1)


@kernel_function("cu_table_free", [("memory", PTR), ("table", PTR)], inline=False)
def free_table(body: Body, memory: Local, table: Local) -> None:
    """Give back the blocks of a table, which is none any more."""
    capacity = body.load(I64, table, CAPACITY, "capacity")
    body.leave_if(capacity.eq(0))
    bits = body.let(i64(32) - body.load(I64, table, SHIFT), "bits")
    sizes = {
        SLOTS: (capacity * (body.load(I64, table, MASK) + 1)) << 3,
        DIRECTORY: i64(4) << bits,
        COUNTS: capacity << 3,
    }
    for offset, size in sizes.items():
        body.run(release_block, memory, body.load(PTR, table, offset), size)
    body.store(I64, table, CAPACITY, 0)


def _place(body: Body, base: Expr, mask: Expr, word: Expr) -> None:
    """Write the putting of a slot into the first empty place of its segment."""
    at = body.let((word >> 32) & mask, "place")
    with body.loop():
        body.stop_if(slot(body, base, at).eq(0))
        body.set(at, (at + 1) & mask)
    body.store(I64, base.at(at << 3), 0, word)


@kernel_function("cu_table_double", [("memory", PTR), ("table", PTR)], I64, inline=False)
def _double(body: Body, memory: Local, table: Local) -> None:
    """Double the only segment of a small table; 1, or 0 if there is no memory."""
    before = body.let(body.load(I64, table, MASK) + 1, "before")
    size = body.let(before << 4, "size")
    old = body.load(PTR, table, SLOTS, "old")
    new = body.call(grow_block, memory, NOWHERE, 0, size, hint="new")
    body.leave_if(new.eq(NOWHERE), 0, likely=False)
    body.call(MEMSET, new, 0, size)
    mask = body.let(before * 2 - 1, "mask")
    with body.counting(0, before) as at:
        word = slot(body, old, at)
        with body.when(word.ne(0)):
            _place(body, new, mask, word)
    body.run(release_block, memory, old, before << 3)
    body.store(PTR, table, SLOTS, new)
    body.store(I64, table, MASK, mask)
    body.leave(1)


@kernel_function("cu_table_more_bits", [("memory", PTR), ("table", PTR)], I64, inline=False)
def _add_bit(body: Body, memory: Local, table: Local) -> None:
    """Let the directory look at one more bit of the tag; 1, or 0 if there is no memory."""
    shift = body.load(I64, table, SHIFT, "shift")
    entries = body.let(i64(1) << (i64(32) - shift), "entries")
    old = body.load(PTR, table, DIRECTORY, "old")
    new = body.call(grow_block, memory, NOWHERE, 0, entries << 3, hint="new")
    body.leave_if(new.eq(NOWHERE), 0, likely=False)
    with body.counting(0, entries) as at:
        segment = body.load(U32, old.at(at << 2), 0, "segment")
        body.store(U32, new.at(at << 3), 0, segment)
        body.store(U32, new.at(at << 3), 4, segment)
    body.run(release_block, memory, old, entries << 2)
    body.store(PTR, table, DIRECTORY, new)
    body.store(I64, table, SHIFT, shift - 1)
    body.leave(1)


@kernel_function("cu_table_room", [("memory", PTR), ("table", PTR)], I64, inline=False)
def _make_room(body: Body, memory: Local, table: Local) -> None:
    """Make room for one more segment; 1, or 0 if there is no memory."""
    capacity = body.load(I64, table, CAPACITY, "capacity")
    body.leave_if(body.load(I64, table, SEGMENTS) < capacity, 1)
    after = body.let(capacity + (capacity >> 2) + 1, "after")
    size = 8 * SEGMENT
    old = body.load(PTR, table, SLOTS, "old")
    slots = body.call(grow_block, memory, old, capacity * size, after * size, hint="slots")
    with body.when(slots.eq(NOWHERE), likely=False):
        body.set(after, capacity + 1)  # near the end of the budget, step by step
        body.set(slots, body.call(grow_block, memory, old, capacity * size, after * size))
    body.leave_if(slots.eq(NOWHERE), 0, likely=False)
    body.store(PTR, table, SLOTS, slots)
    counts = body.call(grow_block, memory, body.load(PTR, table, COUNTS), capacity << 3, after << 3, hint="counts")
    with body.when(counts.eq(NOWHERE), likely=False):
        back = body.call(grow_block, memory, slots, after * size, capacity * size, hint="back")
        with body.when(back.ne(NOWHERE)):
            body.store(PTR, table, SLOTS, back)
        body.leave(0)
    body.store(PTR, table, COUNTS, counts)
    body.store(I64, table, CAPACITY, after)
    body.leave(1)


@kernel_function("cu_table_split", [("memory", PTR), ("table", PTR), ("tag", I64)], I64, inline=False)
def _split(body: Body, memory: Local, table: Local, tag: Local) -> None:
    """Split the segment of a tag in two; 1, or 0 if there is no memory or no bit left."""
    segment = _segment_of(body, table, tag)
    bits = body.load(U32, body.load(PTR, table, COUNTS).at(segment << 3), 4, "bits")
    body.leave_if(bits >= DEEPEST, 0, likely=False)
    is_last_bit = bits.eq(i64(32) - body.load(I64, table, SHIFT))
    with body.when(is_last_bit), body.when(body.call(_add_bit, memory, table).eq(0), likely=False):
        body.leave(0)
    body.leave_if(body.call(_make_room, memory, table).eq(0), 0, likely=False)
    size = 8 * SEGMENT
    old = body.call(grow_block, memory, NOWHERE, 0, size, hint="old")
    body.leave_if(old.eq(NOWHERE), 0, likely=False)
    other = body.load(I64, table, SEGMENTS, "other")
    slots = body.load(PTR, table, SLOTS, "slots")
    counts = body.load(PTR, table, COUNTS, "counts")
    one = body.let(slots.at(segment * size), "one")
    two = body.let(slots.at(other * size), "two")
    body.call(MEMCPY, old, one, size)
    body.call(MEMSET, one, 0, size)
    body.call(MEMSET, two, 0, size)
    moved, kept = body.let(i64(0), "moved"), body.let(i64(0), "kept")
    with body.counting(0, i64(SEGMENT)) as at:
        word = slot(body, old, at)
        with body.when(word.ne(0)):
            goes = body.let((word >> (i64(63) - bits)) & 1, "goes")
            body.set(moved, moved + goes)
            body.set(kept, kept + 1 - goes)
            _place(body, select(goes.eq(0), one, two), i64(SEGMENT - 1), word)
    body.run(release_block, memory, old, size)
    for number, count in ((segment, kept), (other, moved)):
        body.store(U32, counts.at(number << 3), 0, count)
        body.store(U32, counts.at(number << 3), 4, bits + 1)
    body.store(I64, table, SEGMENTS, other + 1)
    # Of the directory's entries for the old segment, the upper half.
    spread = body.let(i64(31) - bits - body.load(I64, table, SHIFT), "spread")
    first = body.let(((tag >> (i64(32) - bits)) * 2 + 1) << spread, "first")
    directory = body.load(PTR, table, DIRECTORY, "directory")
    with body.counting(first, first + (i64(1) << spread)) as at:
        body.store(U32, directory.at(at << 2), 0, other)
    body.leave(1)


@kernel_function("cu_table_insert", [("memory", PTR), ("table", PTR), ("tag", I64), ("row", I64)], I64, inline=False)
def insert_slot(body: Body, memory: Local, table: Local, tag: Local, row: Local) -> None:
    """Add a slot; 1, or 0 if there is no memory.

    Parameters
    ----------
    memory, table
        The memory record that pays, and the hash table.
    tag, row
        Hash of the key, 32 bits, and number of the row.
    """
    with body.loop():
        segment = _segment_of(body, table, tag)
        count = body.let(body.load(PTR, table, COUNTS).at(segment << 3), "count")
        taken = body.load(U32, count, 0, "taken")
        slots = body.let(body.load(I64, table, MASK) + 1, "slots")
        with body.when(taken < (slots * 13) >> 4, likely=True):
            body.store(U32, count, 0, taken + 1)
            base, _, mask = entrance(body, table, tag)
            _place(body, base, mask, (tag << 32) | row)
            body.leave(1)
        with body.when(slots < SEGMENT), body.when(body.call(_double, memory, table).eq(0), likely=False):
            body.leave(0)
        with body.otherwise(), body.when(body.call(_split, memory, table, tag).eq(0), likely=False):
            body.leave(0)


@kernel_function("cu_table_remove", [("table", PTR), ("tag", I64), ("row", I64)], inline=False)
def remove_slot(body: Body, table: Local, tag: Local, row: Local) -> None:
    """Take a slot away, which must be there.

    Parameters
    ----------
    table
        The hash table.
    tag, row
        Hash of the key, 32 bits, and number of the row.
    """
    base, hole, mask = _find_slot(body, table, tag, row)
    at = body.let(hole, "next")
    with body.loop():
        body.set(at, (at + 1) & mask)
        later = slot(body, base, at)
        body.stop_if(later.eq(0))
        # It may move back if its probing began at the hole or before.
        with body.when(((at - (later >> 32)) & mask) >= ((at - hole) & mask)):
            body.store(I64, base.at(hole << 3), 0, later)
            body.set(hole, at)
    body.store(I64, base.at(hole << 3), 0, 0)
    segment = _segment_of(body, table, tag)
    count = body.let(body.load(PTR, table, COUNTS).at(segment << 3), "count")
    body.store(U32, count, 0, body.load(U32, count) - 1)


@kernel_function("cu_table_rename", [("table", PTR), ("tag", I64), ("row", I64), ("to", I64)], inline=False)
def rename_slot(body: Body, table: Local, tag: Local, row: Local, to: Local) -> None:
    """Let a slot, which must be there, lead to another row.

    Parameters
    ----------
    table
        The hash table.
    tag, row
        Hash of the key, 32 bits, and number of the row.
    to
        The new number of the row.
    """
    base, at, _ = _find_slot(body, table, tag, row)
    body.store(I64, base.at(at << 3), 0, (tag << 32) | to)


@kernel_function("cu_table_clear", [("memory", PTR), ("table", PTR)], I64, inline=False)
def clear_table(body: Body, memory: Local, table: Local) -> None:
    """Empty a table; 1, or 0 if there is no memory. What is no table stays none."""
    body.leave_if(body.load(I64, table, CAPACITY).eq(0), 1)
    with body.when(body.load(I64, table, CAPACITY).eq(1)):
        body.call(MEMSET, body.load(PTR, table, SLOTS), 0, (body.load(I64, table, MASK) + 1) << 3)
        body.store(U32, body.load(PTR, table, COUNTS), 0, 0)
        body.leave(1)
    body.run(free_table, memory, table)
    body.leave(body.call(new_table, memory, table))


TABLE_FUNCTIONS = (
    *(new_table, free_table, _double, _add_bit, _make_room, _split),
    *(insert_slot, remove_slot, rename_slot, clear_table),
)
