"""Patterns of LIKE, and texts that stand in a program, as code.

A pattern is *pieces* between its `%`, and a piece is bytes, and None for each `_`. The first piece stands at the start
of the text, the last one at its end, those between are looked for one behind the other: what is found first leaves the
most to the next. Equal bytes begin and end where characters do, so only `_` knows of characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeAlias

from cumulus.engine.native.kernel.body import Body, define
from cumulus.engine.native.kernel.language import FALSE, I64, PTR, TRUE, U8, U32, Expr, Function, Local, i64
from cumulus.engine.native.store.text_table import bytes_of, character_width, goes_on

Piece: TypeAlias = "tuple[bytes | None, ...]"


def pieces_of(pattern: str, escape: str = "") -> tuple[Piece, ...] | None:
    """Return the pieces of a pattern, None if it is none: Python knows what to say.

    Examples
    --------
    >>> pieces_of("%special%r_q%"), pieces_of("a!%", "!"), pieces_of("a!", "!")
    (((), (b'special',), (b'r', None, b'q'), ()), ((b'a%',),), None)
    """
    if len(escape) > 1:
        return None
    pieces: list[list[bytes | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        piece = pieces[-1]
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                return None
        elif character == "%":
            pieces.append([])
            continue
        elif character == "_":
            piece.append(None)
            continue
        else:
            literal = character
        last = piece.pop() if piece and piece[-1] is not None else b""
        assert last is not None
        piece.append(last + bytes_of(literal))
    return tuple(map(tuple, pieces))


def equals(body: Body, address: Expr, known: bytes) -> Expr:
    """Write whether the bytes at an address, of which there are enough, are those that are known."""
    count = len(known)
    if not count:
        return TRUE
    wide = [*range(0, count - 3, 4), *([count - 4] if count % 4 and count > 3 else [])]
    parts = [(U32, at, 4) for at in wide] or [(U8, at, 1) for at in range(count)]
    found = body.let(FALSE, "same")
    with ExitStack() as before:
        for cell, at, size in parts[:-1]:
            here = body.load(cell, address, at, "part")
            before.enter_context(body.when(here.eq(int.from_bytes(known[at : at + size], "little"))))
        cell, at, size = parts[-1]
        here = body.load(cell, address, at, "part")
        body.set(found, here.eq(int.from_bytes(known[at : at + size], "little")))
    return found


def match_function(name: str, pieces: Sequence[Piece]) -> Function:
    """Return the function `(address of a text, its length)` → 1 where it matches, else 0."""
    with define(name, [("text", PTR), ("length", I64)], I64, inline=False) as body:
        text, length = body.function.parameters
        at, end = body.let(i64(0), "at"), body.let(length, "end")
        for item in pieces[0]:
            _forwards(body, text, at, end, item)
        if len(pieces) == 1:
            body.leave(at.eq(end).to(I64))
            return body.function
        for item in reversed(pieces[-1]):
            _backwards(body, text, at, end, item)
        for piece in pieces[1:-1]:
            _look_for(body, text, at, end, piece)
        body.leave(1)
    return body.function


def _forwards(body: Body, text: Expr, at: Local, end: Local, item: bytes | None) -> None:
    """Write the passing of an item that must stand at `at`."""
    if item is None:
        body.leave_if(at >= end, 0)
        body.set(at, at + character_width(body, text.at(at)))
        return
    body.leave_if(at + len(item) > end, 0)
    body.leave_if(~equals(body, text.at(at), item), 0)
    body.set(at, at + len(item))


def _backwards(body: Body, text: Expr, at: Local, end: Local, item: bytes | None) -> None:
    """Write the passing of an item that must stand before `end`."""
    if item is None:
        body.leave_if(at >= end, 0)
        body.set(end, end - 1)
        with body.loop():
            body.stop_if(at >= end)
            body.stop_if(~goes_on(body, text.at(end)))
            body.set(end, end - 1)
        return
    body.leave_if(at + len(item) > end, 0)
    body.leave_if(~equals(body, text.at(end - len(item)), item), 0)
    body.set(end, end - len(item))


def _look_for(body: Body, text: Expr, at: Local, end: Local, piece: Piece) -> None:
    """Write the search for the first place of a piece; `at` is behind it then."""
    first = next((place for place, item in enumerate(piece) if item is not None), len(piece))
    for item in piece[:first]:
        _forwards(body, text, at, end, item)
    if first == len(piece):
        return
    with body.loop():
        here = body.let(at, "here")
        with ExitStack() as tests:
            for place, item in enumerate(piece[first:]):
                size = 1 if item is None else len(item)
                fits = here + size <= end
                if place == 0:
                    body.leave_if(~fits, 0, likely=False)
                else:
                    tests.enter_context(body.when(fits))
                if item is None:
                    body.set(here, here + character_width(body, text.at(here)))
                else:
                    tests.enter_context(body.when(equals(body, text.at(here), item)))
                    body.set(here, here + size)
            body.set(at, here)
            body.stop()
        body.set(at, at + 1)
