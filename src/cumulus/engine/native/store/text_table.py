"""Texts in memory: each different one once, with a number from 0 on, for ever.

The bytes are UTF-8 (what Python calls `surrogatepass`, so that every str has some), and lie in blocks that never move:
code may hold an address while others add texts. Their order is that of the code points, SQL's. Number 0 is the empty
text, so a word that means nothing leads to a text all the same.

A text that needs no number is told by its address and its length, wherever it lies.
"""

from __future__ import annotations

from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.lanes import NULL_WORD
from cumulus.engine.native.kernel.language import (
    I64,
    NOWHERE,
    PTR,
    U8,
    U32,
    Expr,
    Function,
    Local,
    Signature,
    i64,
    select,
)
from cumulus.engine.native.kernel.memory import BUDGET, GROW, MEMCPY, RELEASE, USED
from cumulus.engine.native.store.hash_tables import ROW, TABLE_FREE, TABLE_INSERT, TABLE_NEW, TABLE_SIZE, entrance, slot

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
RECORD_SIZE = _TABLE + TABLE_SIZE

_HEAD = 16
_LENGTH = 4
_SMALLEST_BLOCK, _LARGEST_BLOCK = 1 << 12, 1 << 20
_LONGEST = 1 << 31
_FEWEST = 16
_FIRST_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)
_SECOND_FACTOR = 0xD6E8FEB86659FD93 - (1 << 64)

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


def _tag() -> Function:
    """Return the hash of a text: 32 bits."""
    with define("cu_text_tag", [("text", PTR), ("length", I64), ("seed", I64)], I64) as body:
        text, length, seed = body.function.parameters
        mixed = body.let(seed ^ (length * _SECOND_FACTOR), "mixed")
        at, left, last = body.let(text, "at"), body.let(length, "left"), body.let(i64(0), "last")

        def mix(word: Expr) -> None:
            body.set(mixed, (mixed ^ word) * _FIRST_FACTOR)
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
        body.leave((mixed * _SECOND_FACTOR) >> 32)
    return body.function


def _created() -> Function:
    """Make a record of zeros, but for its seed, one with only the empty text; 1, or 0 if there is no memory."""
    with define("cu_texts_new", [("memory", PTR), ("texts", PTR)], I64, inline=False) as body:
        memory, texts = body.function.parameters
        body.store(PTR, texts, _MEMORY, memory)
        body.leave_if(body.call(TABLE_NEW, memory, texts.at(_TABLE)).eq(0), 0, likely=False)
        body.leave(body.call(NUMBER_OF, texts, texts, 0, hint="empty") + 1)
    return body.function


def _freed() -> Function:
    """Give back all memory."""
    with define("cu_texts_free", [("texts", PTR)], inline=False) as body:
        (texts,) = body.function.parameters
        memory = body.load(PTR, texts, _MEMORY, "memory")
        block, size = body.load(PTR, texts, _BLOCK, "block"), body.load(I64, texts, _SIZE, "size")
        with body.loop_while(block.ne(NOWHERE)):
            before = body.load(PTR, block, 0, "before")
            its_size = body.load(I64, block, 8, "its_size")
            body.run(RELEASE, memory, block, size)
            body.set(block, before)
            body.set(size, its_size)
        body.run(RELEASE, memory, body.load(PTR, texts, PLACES), body.load(I64, texts, _CAPACITY) << 3)
        body.run(TABLE_FREE, memory, texts.at(_TABLE))
    return body.function


def _room() -> Function:
    """Make room for one more text of some bytes, its length included; 1, or 0 if there is no memory."""
    with define("cu_texts_room", [("texts", PTR), ("needed", I64)], I64, inline=False) as body:
        texts, needed = body.function.parameters
        memory = body.load(PTR, texts, _MEMORY, "memory")
        capacity = body.load(I64, texts, _CAPACITY, "capacity")
        with body.when(body.load(I64, texts, COUNT).eq(capacity), likely=False):
            after = body.let(capacity + (capacity >> 1) + _FEWEST, "after")
            places = body.call(GROW, memory, body.load(PTR, texts, PLACES), capacity << 3, after << 3, hint="places")
            body.leave_if(places.eq(NOWHERE), 0, likely=False)
            body.store(PTR, texts, PLACES, places)
            body.store(I64, texts, _CAPACITY, after)
        size = body.load(I64, texts, _SIZE, "size")
        body.leave_if(body.load(I64, texts, _FILLED) + needed <= size, 1, likely=True)
        wanted = body.let(size * 2, "wanted")
        body.set(wanted, select(wanted > _LARGEST_BLOCK, i64(_LARGEST_BLOCK), wanted))
        body.set(wanted, select(wanted < _SMALLEST_BLOCK, i64(_SMALLEST_BLOCK), wanted))
        body.set(wanted, select(wanted < needed + _HEAD, needed + _HEAD, wanted))
        block = body.call(GROW, memory, NOWHERE, 0, wanted, hint="block")
        with body.when(block.eq(NOWHERE), likely=False):  # near the end of the budget, a small one
            least = i64(_SMALLEST_BLOCK)
            body.set(wanted, select(needed + _HEAD > least, needed + _HEAD, least))
            body.leave_if(body.load(I64, memory, USED) + wanted > body.load(I64, memory, BUDGET), 0)
            body.set(block, body.call(GROW, memory, NOWHERE, 0, wanted))
        body.leave_if(block.eq(NOWHERE), 0, likely=False)
        body.store(PTR, block, 0, body.load(PTR, texts, _BLOCK))
        body.store(I64, block, 8, size)
        body.store(PTR, texts, _BLOCK, block)
        body.store(I64, texts, _FILLED, _HEAD)
        body.store(I64, texts, _SIZE, wanted)
        body.leave(1)
    return body.function


def _added() -> Function:
    """Return the number of a text that is new, -1 if there is no memory; then nothing has changed."""
    parameters = [("texts", PTR), ("tag", I64), ("text", PTR), ("length", I64)]
    with define("cu_text_add", parameters, I64, inline=False) as body:
        texts, tag, text, length = body.function.parameters
        needed = body.let(length + _LENGTH, "needed")
        count = body.load(I64, texts, COUNT, "count")
        body.leave_if((length >= _LONGEST) | (count >= _LONGEST), -1, likely=False)
        body.leave_if(body.call(_ROOM, texts, needed).eq(0), -1, likely=False)
        done = body.call(TABLE_INSERT, body.load(PTR, texts, _MEMORY), texts.at(_TABLE), tag, count + 1, hint="done")
        body.leave_if(done.eq(0), -1, likely=False)
        filled = body.load(I64, texts, _FILLED, "filled")
        place = body.let(body.load(PTR, texts, _BLOCK).at(filled), "place")
        body.store(U32, place, 0, length)
        body.call(MEMCPY, place.at(_LENGTH), text, length)
        body.store(PTR, body.load(PTR, texts, PLACES).at(count << 3), 0, place)
        body.store(I64, texts, _FILLED, filled + needed)
        body.store(I64, texts, COUNT, count + 1)
        body.leave(count)
    return body.function


def _search(body: Body) -> tuple[Local, Local]:
    """Write the search for a text; return its number, -1 if it has none, and its hash."""
    texts, text, length = body.function.parameters
    tag = body.call(_TAG, text, length, body.load(I64, texts, SEED), hint="tag")
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


def _known() -> Function:
    """Return the number of a text, -1 if it has none."""
    with define("cu_text_known", [("texts", PTR), ("text", PTR), ("length", I64)], I64, inline=False) as body:
        body.leave(_search(body)[0])
    return body.function


def _number_of() -> Function:
    """Return the number of a text, which is added if it is new; -1 if there is no memory."""
    with define("cu_text_number", [("texts", PTR), ("text", PTR), ("length", I64)], I64, inline=False) as body:
        texts, text, length = body.function.parameters
        found, tag = _search(body)
        body.leave_if(found >= 0, found, likely=True)
        body.leave(body.call(_ADDED, texts, tag, text, length))
    return body.function


def _numbers_of() -> Function:
    """Write the numbers of texts, NULL's word for one whose length is below 0; 1, or 0 if there is no memory."""
    names = ("texts", "addresses", "lengths", "count", "words")
    types = (PTR, PTR, PTR, I64, PTR)
    with define("cu_text_numbers", list(zip(names, types, strict=True)), I64) as body:
        texts, addresses, lengths, count, words = body.function.parameters
        with body.counting(0, count) as at:
            length = body.load(I64, lengths.at(at << 3), 0, "length")
            number = body.let(i64(NULL_WORD), "number")
            with body.when(length >= 0, likely=True):
                body.set(number, body.call(NUMBER_OF, texts, body.load(PTR, addresses.at(at << 3)), length))
                body.leave_if(number < 0, 0, likely=False)
            body.store(I64, words.at(at << 3), 0, number)
        body.leave(1)
    return body.function


def _copied() -> Function:
    """Write the ends of texts that lie behind each other, and the bytes if there is a place; return all bytes' count.

    The text of NULL's word has no bytes.
    """
    names = ("texts", "numbers", "count", "ends", "bytes")
    types = (PTR, PTR, I64, PTR, PTR)
    with define("cu_texts_copy", list(zip(names, types, strict=True)), I64) as body:
        texts, numbers, count, ends, target = body.function.parameters
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
    return body.function


def _object() -> Function:
    """Return a text as a new str; what is no text (its first byte is none of UTF-8) as bytes, and nothing as none.

    `errors` is what Python's decoder is told.
    """
    with define("cu_text_object", [("texts", PTR), ("number", I64), ("errors", PTR)], PTR) as body:
        texts, number, errors = body.function.parameters
        with body.when(~number.below(body.load(I64, texts, COUNT)), likely=False):
            body.leave(body.call(_BYTES, NOWHERE, 0))
        text, length = text_at(body, texts, number)
        with body.when(length > 0, likely=True), body.when(body.load(U8, text).eq(NO_TEXT), likely=False):
            body.leave(body.call(_BYTES, text, length))
        body.leave(body.call(_STR, text, length, errors))
    return body.function


def _order() -> Function:
    """Return a number that is to 0 as one text to another."""
    parameters = [("left", PTR), ("left_length", I64), ("right", PTR), ("right_length", I64)]
    with define("cu_text_order", parameters, I64, inline=False) as body:
        left, left_length, right, right_length = body.function.parameters
        shorter = select(left_length < right_length, left_length, right_length)
        differs = body.let(_differs(body, left, right, body.let(shorter, "shorter")), "order")
        body.leave(select(differs.eq(0), left_length - right_length, differs))
    return body.function


def _equal() -> Function:
    """Return whether two texts are equal."""
    parameters = [("left", PTR), ("left_length", I64), ("right", PTR), ("right_length", I64)]
    with define("cu_text_equal", parameters, I64, inline=False) as body:
        left, left_length, right, right_length = body.function.parameters
        body.leave_if(left_length.ne(right_length), 0)
        body.leave(_differs(body, left, right, left_length).eq(0).to(I64))
    return body.function


def _characters() -> Function:
    """Return how many characters a text has."""
    with define("cu_text_characters", [("text", PTR), ("length", I64)], I64, inline=False) as body:
        text, length = body.function.parameters
        found = body.let(length, "found")
        with body.counting(0, length) as at:
            body.set(found, found - goes_on(body, text.at(at)).to(I64))
        body.leave(found)
    return body.function


def _behind() -> Function:
    """Return how many bytes the first `count` characters of a text have, or all if there are fewer."""
    with define("cu_text_behind", [("text", PTR), ("length", I64), ("count", I64)], I64, inline=False) as body:
        text, length, count = body.function.parameters
        at, left = body.let(i64(0), "at"), body.let(count, "left")
        with body.loop_while((at < length) & (left > 0)):
            body.set(at, at + character_width(body, text.at(at)))
            body.set(left, left - 1)
        body.leave(select(at < length, at, length))
    return body.function


_TAG, _ROOM = _tag(), _room()
_ADDED = _added()
KNOWN, NUMBER_OF = _known(), _number_of()
NUMBERS_OF = _numbers_of()
TEXTS_NEW, TEXTS_FREE = _created(), _freed()
COPIED, OBJECT = _copied(), _object()
ORDER, EQUAL = _order(), _equal()
CHARACTERS, BEHIND = _characters(), _behind()
TEXT_FUNCTIONS = (
    *(_TAG, _ROOM, _ADDED, KNOWN, NUMBER_OF, NUMBERS_OF, TEXTS_NEW, TEXTS_FREE, COPIED, OBJECT),
    *(ORDER, EQUAL, CHARACTERS, BEHIND),
)
