"""Memory of the native engine: blocks that grow, counted against a budget.

Every block belongs to a `MEMORY` record, which counts bytes. A block is moved when it grows (`realloc` moves pages, not
bytes, where blocks are large), so nothing points into one: tables refer to rows by number.
"""

from __future__ import annotations

from cumulus.engine.native.body import define
from cumulus.engine.native.kernel import I64, NOWHERE, PTR, Function, Signature, i64

# The record, as offsets in bytes.
USED = 0
"""Bytes that all blocks of the record take."""
BUDGET = 8
"""How many they may take."""
UNLIMITED = 1 << 62
"""A budget that nothing exceeds."""
REFUSED = 16
"""How many bytes were asked for in vain, the last time; 0 if that never happened."""
ADVISE = 24
"""The address of `madvise`, where there are huge pages; 0 elsewhere."""

LARGE = 1 << 22
"""Blocks from this size on ask for huge pages."""
_HUGE_PAGES = 14

_REALLOC = Signature("realloc", (PTR, I64), PTR)
_ADVISE = Signature("madvise", (I64, I64, I64), I64)
_FREE = Signature("free", (PTR,))
MEMSET = Signature("memset", (PTR, I64, I64), PTR)
MEMCPY = Signature("memcpy", (PTR, PTR, I64), PTR)


def _grow() -> Function:
    """Make a block larger; its address, or nowhere (then it stays as it is)."""
    parameters = [("memory", PTR), ("block", PTR), ("before", I64), ("after", I64)]
    with define("cu_grow", parameters, PTR, inline=False) as body:
        memory, block, before, after = body.function.parameters
        used = body.let(body.load(I64, memory, USED) + after - before, "used")
        with body.when(used > body.load(I64, memory, BUDGET), likely=False):
            body.store(I64, memory, REFUSED, after)
            body.leave(NOWHERE)
        moved = body.call(_REALLOC, block, after, hint="moved")
        with body.when(moved.eq(NOWHERE), likely=False):
            body.store(I64, memory, REFUSED, after)
            body.leave(NOWHERE)
        body.store(I64, memory, USED, used)
        with body.when(after >= LARGE, likely=False):
            advise = body.load(PTR, memory, ADVISE, "advise")
            with body.when(advise.ne(NOWHERE)):
                page = body.let((moved.to(I64) + 4095) & -4096, "page")
                body.call_at(advise, _ADVISE, page, after - 4096, i64(_HUGE_PAGES))
        body.leave(moved)
    return body.function


def _release() -> Function:
    """Give a block back."""
    with define("cu_release", [("memory", PTR), ("block", PTR), ("bytes", I64)], inline=False) as body:
        memory, block, count = body.function.parameters
        body.store(I64, memory, USED, body.load(I64, memory, USED) - count)
        body.run(_FREE, block)
    return body.function


GROW = _grow()
RELEASE = _release()
