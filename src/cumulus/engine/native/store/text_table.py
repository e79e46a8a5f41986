"""Texts in memory: each different one once, with a number from 0 on, for ever.

The bytes are UTF-8 (what Python calls `surrogatepass`, so that every str has some), and lie in blocks that never move:
code may hold an address while others add texts. Their order is that of the code points, SQL's. Number 0 is the empty
text, so a word that means nothing leads to a text all the same.

A text that needs no number is told by its address and its length, wherever it lies.
"""

from __future__ import annotations

from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, U8, U32, Expr, Local, Signature, i64, select
from cumulus.engine.native.kernel.memory import BUDGET, MEMCPY, USED, grow_block, release_block
from cumulus.engine.native.store import hash_tables
from cumulus.engine.native.store.hash_tables import FIRST_FACTOR, ROW, SECOND_FACTOR, entrance, slot

# The record, as offsets in bytes.
PLACES = 0
"""Number → where the text is: its length, U32, and behind it its bytes."""
COUNT = 8
"""How many texts there are."""
_CAPACITY = 16
_BLOCK = 24
"""The newest block; it begins with the address and the size of the one before."""
_FILLED = 32
"""Bytes of it that are taken."""
_SIZE = 40
"""Bytes of it."""
_MEMORY = 48
SEED = 56
"""What hashes begin with: nobody can know which texts collide."""
_TABLE = 64
RECORD_SIZE = _TABLE + hash_tables.TABLE_SIZE

_HEAD = 16
_LENGTH = 4
_SMALLEST_BLOCK, _LARGEST_BLOCK = 1 << 12, 1 << 20
_LONGEST = 1 << 31
_FEWEST = 16

NO_TEXT = 0xFF
"""A byte that no text has."""
_STR = Signature("PyUnicode_DecodeUTF8", (PTR, I64, PTR), PTR)
_BYTES = Signature("PyBytes_FromStringAndSize", (PTR, I64), PTR)
_MEMCMP = Signature("memcmp", (PTR, PTR, I64), I64)


def bytes_of(text: str) -> bytes:
    """Return a text as it lies in memory."""
    return text.encode("utf-8", "surrogatepass")


def text_at(body: Body, texts: Expr, number: Expr) -> tuple[Local, Local]:
    """Write where the text with a number is; return the address and the length."""
    place = body.load(PTR, body.load(PTR, texts, PLACES).at(number << 3), 0, "place")
    return body.let(place.at(_LENGTH), "text"), body.load(U32, place, 0, "length")


def character_width(body: Body, address: Expr) -> Expr:
    """Write how many bytes the character at an address has."""
    first = body.load(U8, address, 0, "first")
    return sum(((first >= least).to(I64) for least in (0xC0, 0xE0, 0xF0)), i64(1))


def goes_on(body: Body, address: Expr) -> Expr:
    """Write whether the byte at an address is not the first of its character."""
    return (body.load(U8, address, 0, "byte") & 0xC0).eq(0x80)


def _differs(body: Body, left: Expr, right: Expr, length: Expr) -> Expr:
    """Write a comparison of bytes: less than 0, 0 or more. What C gives has 32 bits."""
    return body.call(_MEMCMP, left, right, length, hint="differs") << 32


def _pair(body: Body, low: Expr, high: Expr) -> Expr:
    return body.load(U32, low, 0, "low") | (body.load(U32, high, 0, "high") << 32)


@kernel_function("cu_text_tag", [("text", PTR), ("length", I64), ("seed", I64)], I64)
def _tag(body: Body, text: Local, length: Local, seed: Local) -> None:
    """Return the hash of a text: 32 bits."""
    mixed = body.let(seed ^ (length * SECOND_FACTOR), "mixed")
    at, left, last = body.let(text, "at"), body.let(length, "left"), body.let(i64(0), "last")

    def mix(word: Expr) -> None:
        body.set(mixed, (mixed ^ word) * FIRST_FACTOR)
        body.set(mixed, mixed ^ (mixed >> 32))

    with body.loop_while(left >= 8):
        mix(_pair(body, at, at.at(4)))
        body.set(at, at.at(8))
        body.set(left, left - 8)
    with body.when(left >= 4):
        body.set(last, _pair(body, at, at.at(left - 4)))
    with body.otherwise(), body.when(left > 0):
        ends = body.load(U8, at, 0) | (body.load(U8, at.at(left - 1)) << 16)
        body.set(last, ends | (body.load(U8, at.at(left >> 1)) << 8))
    mix(last)
    body.leave((mixed * SECOND_FACTOR) >> 32)


@kernel_function("cu_texts_free", [("texts", PTR)], inline=False)
def free_texts(body: Body, texts: Local) -> None:
    """Give back all memory."""
    memory = body.load(PTR, texts, _MEMORY, "memory")
    block, size = body.load(PTR, texts, _BLOCK, "block"), body.load(I64, texts, _SIZE, "size")
    with body.loop_while(block.ne(NOWHERE)):
        before = body.load(PTR, block, 0, "before")
        its_size = body.load(I64, block, 8, "its_size")
        body.run(release_block, memory, block, size)
        body.set(block, before)
        body.set(size, its_size)
    body.run(release_block, memory, body.load(PTR, texts, PLACES), body.load(I64, texts, _CAPACITY) << 3)
    body.run(hash_tables.free_table, memory, texts.at(_TABLE))


@kernel_function("cu_texts_room", [("texts", PTR), ("needed", I64)], I64, inline=False)
def _make_room(body: Body, texts: Local, needed: Local) -> None:
    """Make room for one more text of some bytes, its length included; 1, or 0 if there is no memory."""
    memory = body.load(PTR, texts, _MEMORY, "memory")
    capacity = body.load(I64, texts, _CAPACITY, "capacity")
    with body.when(body.load(I64, texts, COUNT).eq(capacity), likely=False):
        after = body.let(capacity + (capacity >> 1) + _FEWEST, "after")
        places = body.call(grow_block, memory, body.load(PTR, texts, PLACES), capacity << 3, after << 3, hint="places")
        body.leave_if(places.eq(NOWHERE), 0, likely=False)
        body.store(PTR, texts, PLACES, places)
        body.store(I64, texts, _CAPACITY, after)
    size = body.load(I64, texts, _SIZE, "size")
    body.leave_if(body.load(I64, texts, _FILLED) + needed <= size, 1, likely=True)
    wanted = body.let(size * 2, "wanted")
    body.set(wanted, select(wanted > _LARGEST_BLOCK, i64(_LARGEST_BLOCK), wanted))
    body.set(wanted, select(wanted < _SMALLEST_BLOCK, i64(_SMALLEST_BLOCK), wanted))
    body.set(wanted, select(wanted < needed + _HEAD, needed + _HEAD, wanted))
    block = body.call(grow_block, memory, NOWHERE, 0, wanted, hint="block")
    with body.when(block.eq(NOWHERE), likely=False):  # near the end of the budget, a small one
        least = i64(_SMALLEST_BLOCK)
        body.set(wanted, select(needed + _HEAD > least, needed + _HEAD, least))
        body.leave_if(body.load(I64, memory, USED) + wanted > body.load(I64, memory, BUDGET), 0)
        body.set(block, body.call(grow_block, memory, NOWHERE, 0, wanted))
    body.leave_if(block.eq(NOWHERE), 0, likely=False)
    body.store(PTR, block, 0, body.load(PTR, texts, _BLOCK))
    body.store(I64, block, 8, size)
    body.store(PTR, texts, _BLOCK, block)
    body.store(I64, texts, _FILLED, _HEAD)
    body.store(I64, texts, _SIZE, wanted)
    body.leave(1)


@kernel_function("cu_text_add", [("texts", PTR), ("tag", I64), ("text", PTR), ("length", I64)], I64, inline=False)
def _add(body: Body, texts: Local, tag: Local, text: Local, length: Local) -> None:
    """Return the number of a text that is new, -1 if there is no memory; then nothing has changed."""
    needed = body.let(length + _LENGTH, "needed")
    count = body.load(I64, texts, COUNT, "count")
    body.leave_if((length >= _LONGEST) | (count >= _LONGEST), -1, likely=False)
    body.leave_if(body.call(_make_room, texts, needed).eq(0), -1, likely=False)
    done = body.call(
        hash_tables.insert_slot, body.load(PTR, texts, _MEMORY), texts.at(_TABLE), tag, count + 1, hint="done"
    )
    body.leave_if(done.eq(0), -1, likely=False)
    filled = body.load(I64, texts, _FILLED, "filled")
    place = body.let(body.load(PTR, texts, _BLOCK).at(filled), "place")
    body.store(U32, place, 0, length)
    body.call(MEMCPY, place.at(_LENGTH), text, length)
    body.store(PTR, body.load(PTR, texts, PLACES).at(count << 3), 0, place)
    body.store(I64, texts, _FILLED, filled + needed)
    body.store(I64, texts, COUNT, count + 1)
    body.leave(count)


def _search(body: Body, texts: Expr, text: Expr, length: Expr) -> tuple[Local, Local]:
    """Write the search for a text; return its number, -1 if it has none, and its hash."""
    tag = body.call(_tag, text, length, body.load(I64, texts, SEED), hint="tag")
    base, at, mask = entrance(body, texts.at(_TABLE), tag)
    places = body.load(PTR, texts, PLACES, "places")
    found = body.let(i64(-1), "found")
    with body.loop():
        word = slot(body, base, at)
        body.stop_if(word.eq(0))
        with body.when((word >> 32).eq(tag)):
            number = body.let((word & ROW) - 1, "number")
            place = body.load(PTR, places.at(number << 3), 0, "place")
            with body.when(body.load(U32, place, 0).eq(length), likely=True):
                same = _differs(body, place.at(_LENGTH), text, length).eq(0)
                with body.when(same, likely=True):
                    body.set(found, number)
                    body.stop()
        body.set(at, (at + 1) & mask)
    return found, tag


@kernel_function("cu_text_known", [("texts", PTR), ("text", PTR), ("length", I64)], I64, inline=False)
def find_text(body: Body, texts: Local, text: Local, length: Local) -> None:
    """Return the number of a text, -1 if it has none."""
    body.leave(_search(body, texts, text, length)[0])


@kernel_function("cu_text_number", [("texts", PTR), ("text", PTR), ("length", I64)], I64, inline=False)
def number_of_text(body: Body, texts: Local, text: Local, length: Local) -> None:
    """Return the number of a text, which is added if it is new; -1 if there is no memory."""
    found, tag = _search(body, texts, text, length)
    body.leave_if(found >= 0, found, likely=True)
    body.leave(body.call(_add, texts, tag, text, length))


@kernel_function("cu_texts_new", [("memory", PTR), ("texts", PTR)], I64, inline=False)
def new_texts(body: Body, memory: Local, texts: Local) -> None:
    """Make a record of zeros, but for its seed, one with only the empty text; 1, or 0 if there is no memory."""
    body.store(PTR, texts, _MEMORY, memory)
    body.leave_if(body.call(hash_tables.new_table, memory, texts.at(_TABLE)).eq(0), 0, likely=False)
    body.leave(body.call(number_of_text, texts, texts, 0, hint="empty") + 1)


@kernel_function(
    "cu_text_numbers", [("texts", PTR), ("addresses", PTR), ("lengths", PTR), ("count", I64), ("words", PTR)], I64
)
def number_texts(body: Body, texts: Local, addresses: Local, lengths: Local, count: Local, words: Local) -> None:
    """Write the numbers of texts, NULL's word for one whose length is below 0; 1, or 0 if there is no memory."""
    with body.counting(0, count) as at:
        length = body.load(I64, lengths.at(at << 3), 0, "length")
        number = body.let(i64(NULL_WORD), "number")
        with body.when(length >= 0, likely=True):
            body.set(number, body.call(number_of_text, texts, body.load(PTR, addresses.at(at << 3)), length))
            body.leave_if(number < 0, 0, likely=False)
        body.store(I64, words.at(at << 3), 0, number)
    body.leave(1)


@kernel_function(
    "cu_texts_copy", [("texts", PTR), ("numbers", PTR), ("count", I64), ("ends", PTR), ("bytes", PTR)], I64
)
def copy_texts(body: Body, texts: Local, numbers: Local, count: Local, ends: Local, target: Local) -> None:
    """Write the ends of texts that lie behind each other, and the bytes if there is a place; return all bytes' count.

    The text of NULL's word has no bytes.
    """
    end = body.let(i64(0), "end")
    with body.counting(0, count) as at:
        number = body.load(I64, numbers.at(at << 3), 0, "number")
        with body.when(number.ne(NULL_WORD), likely=True):
            text, length = text_at(body, texts, number)
            with body.when(target.ne(NOWHERE)):
                body.call(MEMCPY, target.at(end), text, length)
            body.set(end, end + length)
        body.store(I64, ends.at(at << 3), 0, end)
    body.leave(end)


@kernel_function("cu_text_object", [("texts", PTR), ("number", I64), ("errors", PTR)], PTR)
def text_object(body: Body, texts: Local, number: Local, errors: Local) -> None:
    """Return a text as a new str; what is no text (its first byte is none of UTF-8) as bytes, and nothing as none.

    `errors` is what Python's decoder is told.
    """
    with body.when(~number.below(body.load(I64, texts, COUNT)), likely=False):
        body.leave(body.call(_BYTES, NOWHERE, 0))
    text, length = text_at(body, texts, number)
    with body.when(length > 0, likely=True), body.when(body.load(U8, text).eq(NO_TEXT), likely=False):
        body.leave(body.call(_BYTES, text, length))
    body.leave(body.call(_STR, text, length, errors))


@kernel_function(
    "cu_text_order", [("left", PTR), ("left_length", I64), ("right", PTR), ("right_length", I64)], I64, inline=False
)
def compare_texts(body: Body, left: Local, left_length: Local, right: Local, right_length: Local) -> None:
    """Return a number that is to 0 as one text to another."""
    shorter = select(left_length < right_length, left_length, right_length)
    differs = body.let(_differs(body, left, right, body.let(shorter, "shorter")), "order")
    body.leave(select(differs.eq(0), left_length - right_length, differs))


@kernel_function(
    "cu_text_equal", [("left", PTR), ("left_length", I64), ("right", PTR), ("right_length", I64)], I64, inline=False
)
def texts_equal(body: Body, left: Local, left_length: Local, right: Local, right_length: Local) -> None:
    """Return whether two texts are equal."""
    body.leave_if(left_length.ne(right_length), 0)
    body.leave(_differs(body, left, right, left_length).eq(0).to(I64))


@kernel_function("cu_text_characters", [("text", PTR), ("length", I64)], I64, inline=False)
def count_characters(body: Body, text: Local, length: Local) -> None:
    """Return how many characters a text has."""
    found = body.let(length, "found")
    with body.counting(0, length) as at:
        body.set(found, found - goes_on(body, text.at(at)).to(I64))
    body.leave(found)


@kernel_function("cu_text_behind", [("text", PTR), ("length", I64), ("count", I64)], I64, inline=False)
def bytes_of_first(body: Body, text: Local, length: Local, count: Local) -> None:
    """Return how many bytes the first `count` characters of a text have, or all if there are fewer."""
    at, left = body.let(i64(0), "at"), body.let(count, "left")
    with body.loop_while((at < length) & (left > 0)):
        body.set(at, at + character_width(body, text.at(at)))
        body.set(left, left - 1)
    body.leave(select(at < length, at, length))


TEXT_FUNCTIONS = (
    *(_tag, _make_room, _add, find_text, number_of_text, number_texts, new_texts, free_texts, copy_texts, text_object),
    *(compare_texts, texts_equal, count_characters, bytes_of_first),
)
