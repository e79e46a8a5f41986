"""Memory of the native engine: blocks that grow, counted against a budget.

Every block belongs to a `MEMORY` record, which counts bytes. A block is moved when it grows (its pages, not its bytes,
where it is large), so nothing points into one: tables refer to rows by number.

Blocks that stay `SMALL` are given beyond the budget: what undoing, emptying and deleting need, so that a full warehouse
can still be emptied.
"""

from __future__ import annotations

from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import I64, NOWHERE, PTR, Expr, Local, Signature, i64, select

# The record, as offsets in bytes.
USED = 0
"""Bytes that all blocks of the record take."""
BUDGET = 8
"""How many they may take."""
UNLIMITED = 1 << 62
"""A budget that nothing exceeds."""
REFUSED = 16
"""How many bytes `USED` would have become, had it been granted what was last refused; 0 if that never happened."""
SYSTEM = 24
"""The address of the addresses of `SYSTEM_FUNCTIONS`, where there are all of them (Linux); 0 elsewhere."""
SYSTEM_FUNCTIONS = ("mmap", "mremap", "munmap", "madvise")

LARGE = 1 << 22
"""Blocks from this size on are mapped in huge pages."""
SMALL = 1 << 15
"""Blocks up to this size are refused only by the machine."""
_HUGE, _PAGE = 1 << 21, 1 << 16
_SYSTEM = {name: 8 * place for place, name in enumerate(SYSTEM_FUNCTIONS)}
# Linux's numbers: read and write; private and anonymous; to a fixed place; advice.
_WRITABLE, _ANONYMOUS, _MOVED, _HUGE_PAGES = 3, 0x22, 3, 14

_REALLOC = Signature("realloc", (PTR, I64), PTR)
_ADVISE = Signature("madvise", (I64, I64, I64), I64)
_FREE = Signature("free", (PTR,))
_MAP = Signature("mmap", (I64, I64, I64, I64, I64, I64), PTR)
_REMAP = Signature("mremap", (I64, I64, I64, I64, I64), I64)
_UNMAP = Signature("munmap", (I64, I64), I64)
MEMSET = Signature("memset", (PTR, I64, I64), PTR)
MEMCPY = Signature("memcpy", (PTR, PTR, I64), PTR)


def _is_mapped(system: Expr, count: Expr) -> Expr:
    return system.ne(NOWHERE) & (count >= LARGE)


def _pages(count: Expr) -> Expr:
    """Write a number of bytes rounded up to whole pages, of any size that there is."""
    return (count + (_PAGE - 1)) & -_PAGE


@kernel_function("cu_map", [("system", PTR), ("block", PTR), ("before", I64), ("after", I64)], PTR, inline=False)
def _map(body: Body, system: Local, block: Local, before: Local, after: Local) -> None:
    """Map fresh memory, or what is mapped already, to where huge pages begin; its address, or nowhere.

    What lies there alike before and after is moved by whole tables of pages: 0.2 ms for 800 MB, where `realloc`, which
    moves by pages and splits huge ones, takes 270.
    """
    unmap = body.load(PTR, system, _SYSTEM["munmap"], "unmap")
    reserve = body.load(PTR, system, _SYSTEM["mmap"], "reserve")
    size = body.let(after + _HUGE, "size")
    what = (i64(_WRITABLE), i64(_ANONYMOUS), i64(-1), i64(0))
    room = body.call_at(reserve, _MAP, i64(0), size, *what, hint="room")
    start = body.let(room.to(I64), "start")
    body.leave_if(start.eq(-1), NOWHERE, likely=False)
    first = body.let((start + (_HUGE - 1)) & -_HUGE, "first")
    with body.when(block.eq(NOWHERE)):
        advise = body.load(PTR, system, _SYSTEM["madvise"], "advise")
        body.call_at(advise, _ADVISE, first, after, i64(_HUGE_PAGES))
    with body.otherwise():
        remap = body.load(PTR, system, _SYSTEM["mremap"], "remap")
        moved = body.call_at(remap, _REMAP, block.to(I64), before, after, i64(_MOVED), first, hint="moved")
        with body.when(moved.ne(first), likely=False):
            body.call_at(unmap, _UNMAP, start, size)
            body.leave(NOWHERE)
    for begin, end in ((start, first), (first + after, start + size)):
        with body.when(end > begin):
            body.call_at(unmap, _UNMAP, begin, end - begin)
    body.leave(room.at(first - start))


@kernel_function("cu_drop", [("memory", PTR), ("block", PTR), ("bytes", I64)], inline=False)
def _drop(body: Body, memory: Local, block: Local, count: Local) -> None:
    """Give a block back to the system."""
    system = body.load(PTR, memory, SYSTEM, "system")
    with body.when(_is_mapped(system, count), likely=False):
        unmap = body.load(PTR, system, _SYSTEM["munmap"], "unmap")
        body.call_at(unmap, _UNMAP, block.to(I64), _pages(count))
    with body.otherwise():
        body.run(_FREE, block)


@kernel_function("cu_resize", [("memory", PTR), ("block", PTR), ("before", I64), ("after", I64)], PTR, inline=False)
def _resize(body: Body, memory: Local, block: Local, before: Local, after: Local) -> None:
    """Make a block of another size; its address, or nowhere (then it stays as it is).

    Where the system can map, large blocks are mapped, and small ones allocated: the size alone says which.
    """
    system = body.load(PTR, memory, SYSTEM, "system")
    was, will = body.let(_is_mapped(system, before), "was"), body.let(_is_mapped(system, after), "will")
    with body.when(~was & ~will, likely=True):
        body.leave(body.call(_REALLOC, block, after))
    with body.when(was & will):
        body.leave(body.call(_map, system, block, _pages(before), _pages(after)))
    moved = body.local(PTR, "moved")
    with body.when(will):
        body.set(moved, body.call(_map, system, NOWHERE, i64(0), _pages(after)))
    with body.otherwise():
        body.set(moved, body.call(_REALLOC, NOWHERE, after))
    with body.when(moved.ne(NOWHERE), likely=True):
        body.call(MEMCPY, moved, block, select(after < before, after, before))
        body.run(_drop, memory, block, before)
    body.leave(moved)


@kernel_function("cu_grow", [("memory", PTR), ("block", PTR), ("before", I64), ("after", I64)], PTR, inline=False)
def grow_block(body: Body, memory: Local, block: Local, before: Local, after: Local) -> None:
    """Make a block larger; its address, or nowhere (then it stays as it is)."""
    used = body.let(body.load(I64, memory, USED) + after - before, "used")
    is_over = (used > body.load(I64, memory, BUDGET)) & (after > SMALL) & (after > before)
    with body.when(is_over, likely=False):
        body.store(I64, memory, REFUSED, used)
        body.leave(NOWHERE)
    moved = body.call(_resize, memory, block, before, after, hint="moved")
    with body.when(moved.eq(NOWHERE), likely=False):
        body.store(I64, memory, REFUSED, used)
        body.leave(NOWHERE)
    body.store(I64, memory, USED, used)
    body.leave(moved)


@kernel_function("cu_release", [("memory", PTR), ("block", PTR), ("bytes", I64)], inline=False)
def release_block(body: Body, memory: Local, block: Local, count: Local) -> None:
    """Give a block back."""
    body.store(I64, memory, USED, body.load(I64, memory, USED) - count)
    body.run(_drop, memory, block, count)


MEMORY_FUNCTIONS = (_drop, _map, _resize, grow_block, release_block)
