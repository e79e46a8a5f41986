"""Rows of words put into groups and added up, column by column, in machine code.

Equal words are equal values, NULL included, so rows are grouped by their words. Sums are as a map keeps them: whole
numbers in 128 bits, floats as `cumulus.algebra.float_sums` has them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cumulus.engine.native.build import code_of
from cumulus.engine.native.kernel.body import Body, define, kernel_function
from cumulus.engine.native.kernel.language import (
    BOOL,
    F64,
    FALSE,
    I64,
    I128,
    PTR,
    TRUE,
    U8,
    U32,
    Expr,
    Function,
    Local,
    Module,
    Type,
    absolute,
    i64,
)
from cumulus.engine.native.kernel.loaded_code import LEVELS

Words = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]
"""The number of each row's group from 1 on, 0 for rows of none."""
_FEW_GROUPS, _STEP = 1 << 11, 1 << 5
"""For how many groups there is room at first, and how many times as many where that is too few."""
_MIXING = -7046029254386353131  # 2**64 divided by the golden ratio
_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p


def _group_function(width: int) -> Function:
    """Return the function that gives rows the numbers of their groups; its result is how many, -1 for too many."""
    parameters = [("columns", PTR), ("count", I64), ("wanted", PTR), ("codes", PTR), ("firsts", PTR)]
    with define(f"cu_group_{width}", [*parameters, ("slots", PTR), ("mask", I64), ("most", I64)], I64) as body:
        columns, count, wanted, codes, firsts, slots, mask, most = body.function.parameters
        lying = [body.load(PTR, columns, 8 * place, "column") for place in range(width)]
        groups = body.let(i64(0), "groups")
        with body.counting(0, count) as at:
            code = body.let(i64(0), "code")
            with body.when(body.load(U8, wanted.at(at), 0, "flag").ne(0), likely=True):
                words = [body.load(I64, each.at(at * 8), 0, "word") for each in lying]
                mixed = body.let(i64(0), "mixed")
                for word in words:
                    body.set(mixed, (mixed ^ word) * _MIXING)
                    body.set(mixed, mixed ^ (mixed >> 32))
                slot = body.let(mixed & mask, "slot")
                with body.loop():
                    found = body.load(U32, slots.at(slot * 4), 0, "found")
                    with body.when(found.eq(0), likely=False):
                        body.leave_if(groups.eq(most), -1)
                        body.set(groups, groups + 1)
                        body.store(U32, slots.at(slot * 4), 0, groups)
                        body.store(I64, firsts.at(groups * 8), 0, at)
                        body.set(code, groups)
                        body.stop()
                    first = body.load(I64, firsts.at(found * 8), 0, "first")
                    same: Expr = TRUE
                    for each, word in zip(lying, words, strict=True):
                        same = same & body.load(I64, each.at(first * 8), 0, "other").eq(word)
                    with body.when(same):
                        body.set(code, found)
                        body.stop()
                    body.set(slot, (slot + 1) & mask)
            body.store(U32, codes.at(at * 4), 0, code)
        body.leave(groups)
    return body.function


@kernel_function("cu_add_words", [("codes", PTR), ("count", I64), ("source", PTR), ("target", PTR)], I64)
def _add_words(body: Body, codes: Local, count: Local, source: Local, target: Local) -> None:
    with body.counting(0, count) as at:
        place = body.let(target.at(body.load(U32, codes.at(at * 4), 0, "code") * 16), "place")
        total = body.load(I128, place, 0, "total")
        body.store(I128, place, 0, total + body.load(I64, source.at(at * 8), 0, "word").to(I128))
    body.leave(0)


@kernel_function("cu_add_wide", [("codes", PTR), ("count", I64), ("source", PTR), ("target", PTR)], I64)
def _add_wide(body: Body, codes: Local, count: Local, source: Local, target: Local) -> None:
    failed = body.let(FALSE, "failed")
    with body.counting(0, count) as at:
        place = body.let(target.at(body.load(U32, codes.at(at * 4), 0, "code") * 16), "place")
        total, beyond = body.checked("add", body.load(I128, place), body.load(I128, source.at(at * 16)), "total")
        body.store(I128, place, 0, total)
        body.set(failed, failed | beyond)
    body.leave(failed.to(I64))


@kernel_function("cu_add_cells", [("codes", PTR), ("count", I64), ("source", PTR), ("target", PTR)], I64)
def _add_cells(body: Body, codes: Local, count: Local, source: Local, target: Local) -> None:
    """Add as `cumulus.algebra.float_sums.add_cells` does."""
    with body.counting(0, count) as at:
        place = body.let(target.at(body.load(U32, codes.at(at * 4), 0, "code") * 24), "place")
        cell = body.let(source.at(at * 24), "cell")
        total, delta = body.load(F64, place, 0, "total"), body.load(F64, cell, 0, "delta")
        moved = body.let(total + delta, "moved")
        lost = body.local(F64, "lost")
        with body.when(absolute(total) >= absolute(delta)):
            body.set(lost, (total - moved) + delta)
        with body.otherwise():
            body.set(lost, (delta - moved) + total)
        body.store(F64, place, 0, moved)
        body.store(F64, place, 8, body.load(F64, place, 8) + lost + body.load(F64, cell, 8))
        body.store(F64, place, 16, body.load(F64, place, 16) + body.load(F64, cell, 16))
    body.leave(0)


def _end_function(type_: Type, end: str) -> Function:
    """Return the function that finds for each group the row with its least or greatest number, 0 for none."""
    size = 16 if type_ is I128 else 8
    parameters = [("codes", PTR), ("count", I64), ("source", PTR), ("target", PTR)]
    with define(f"cu_{end.lower()}_{type_.value}", parameters, I64) as body:
        codes, count, source, target = body.function.parameters
        with body.counting(0, count) as at:
            code = body.load(U32, codes.at(at * 4), 0, "code")
            with body.when(code.ne(0)):
                best = body.load(I64, target.at(code * 8), 0, "best")
                number = body.load(type_, source.at(at * size), 0, "number")
                is_better = body.local(BOOL, "better")
                body.set(is_better, TRUE)
                with body.when(best.ne(0)):
                    held = body.load(type_, source.at((best - 1) * size), 0, "held")
                    body.set(is_better, number < held if end == "MIN" else number > held)
                with body.when(is_better):
                    body.store(I64, target.at(code * 8), 0, at + 1)
        body.leave(0)
    return body.function


@cache
def _adding() -> Any:
    ends = [_end_function(type_, end) for type_ in (I64, I128) for end in ("MIN", "MAX")]
    return code_of([Module([_add_words, _add_wide, _add_cells, *ends])], LEVELS[-1])


@cache
def _grouping(width: int) -> tuple[Any, Any]:
    code = code_of([Module([_group_function(width)])], LEVELS[-1])
    return code.function(f"cu_group_{width}", _NUMBER, _POINTER, _NUMBER, *[_POINTER] * 4, _NUMBER, _NUMBER), code


@cache
def _over_codes(name: str) -> Any:
    return _adding().function(name, _NUMBER, _POINTER, _NUMBER, _POINTER, _POINTER)


def group_rows(columns: Sequence[Words], wanted: npt.NDArray[np.bool_]) -> tuple[Codes, Words]:
    """Return the groups of rows by their words in some columns, and of each group the number of its first row."""
    count = len(wanted)
    codes = np.empty(count, np.uint32)
    pointers = np.array([each.ctypes.data for each in columns], np.int64)
    function, _ = _grouping(len(columns))
    most = _FEW_GROUPS
    while True:
        firsts, slots = np.empty(most + 1, np.int64), np.zeros(4 * most, np.uint32)
        arrays = (each.ctypes.data for each in (wanted, codes, firsts, slots))
        groups = function(pointers.ctypes.data, count, *arrays, len(slots) - 1, most)
        if groups >= 0:
            return codes, firsts[1 : groups + 1].copy()
        most = min(most * _STEP, 1 << (count - 1).bit_length())


def add_up(codes: Codes, groups: int, numbers: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """Return the sums of numbers by groups, in two words each, or cells; None if one fits neither 128 bits nor DOUBLE.

    Parameters
    ----------
    numbers
        For each row a word, the two of a wide number, or the three floats of a cell.
    """
    is_cell, is_wide = numbers.dtype == np.float64, numbers.ndim == 2
    sums = np.zeros((groups + 1, 3), np.float64) if is_cell else np.zeros((groups + 1, 2), np.int64)
    name = "cu_add_cells" if is_cell else "cu_add_wide" if is_wide else "cu_add_words"
    if _over_codes(name)(codes.ctypes.data, len(codes), numbers.ctypes.data, sums.ctypes.data):
        return None
    if is_cell and not np.isfinite(sums[:, 0]).all():
        return None
    return sums[1:]


def end_rows(codes: Codes, groups: int, numbers: Words, end: str) -> Words:
    """Return for each group the row with its least ("MIN") or greatest number, -1 for a group without rows."""
    best = np.zeros(groups + 1, np.int64)
    name = f"cu_{end.lower()}_{I128.value if numbers.ndim == 2 else I64.value}"
    _over_codes(name)(codes.ctypes.data, len(codes), numbers.ctypes.data, best.ctypes.data)
    return best[1:] - 1
