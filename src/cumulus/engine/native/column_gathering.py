"""Words of all rows of a map copied into columns, in one pass over the rows.

A pass for each column would read all of the memory that the rows lie in as often as there are columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cumulus.engine.native.build import code_of
from cumulus.engine.native.kernel.body import Body, kernel_function
from cumulus.engine.native.kernel.language import I64, PTR, Local, Module, i64, select
from cumulus.engine.native.kernel.loaded_code import LEVELS

WORTH = 1 << 16
"""So many rows are worth the loading of code."""
_TOGETHER = 8
"""The logarithm of how many rows are looked at for one column after the other: they stay in the cache."""
_SPEC = 24
"""Bytes that say of a column where in a row it is, where its first value goes, and how far apart its values lie."""


@kernel_function("cu_gather", [("rows", PTR), ("size", I64), ("count", I64), ("specs", PTR), ("width", I64)])
def _gather_function(body: Body, rows: Local, size: Local, count: Local, specs: Local, width: Local) -> None:
    with body.counting(0, body.let((count + ((1 << _TOGETHER) - 1)) >> _TOGETHER, "blocks")) as block:
        first = body.let(block << _TOGETHER, "first")
        after = body.let(first + (1 << _TOGETHER), "after")
        last = body.let(select(after < count, after, count), "last")
        with body.counting(i64(0), width) as which:
            spec = body.let(specs.at(which * _SPEC), "spec")
            source = body.let(rows.at(body.load(I64, spec, 0, "offset")), "source")
            target = body.load(PTR, spec, 8, "target")
            step = body.load(I64, spec, 16, "step")
            with body.counting(first, last) as at:
                body.store(I64, target.at(at * step), 0, body.load(I64, source.at(at * size), 0, "word"))


@cache
def _gather() -> tuple[Any, Any]:
    code = code_of([Module([_gather_function])], LEVELS[-1])
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    return code.function("cu_gather", None, pointer, number, number, pointer, number), code


def gather(rows: npt.NDArray[np.int64], words: Sequence[tuple[int, int]]) -> list[npt.NDArray[np.int64]]:
    """Return columns of rows: each of one word, or of two that are side by side, by the first and how many."""
    count, width = rows.shape
    columns = [np.empty(count if many == 1 else (count, many), np.int64) for _, many in words]
    specs = [
        (8 * (first + part), column.ctypes.data + 8 * part, 8 * many)
        for (first, many), column in zip(words, columns, strict=True)
        for part in range(many)
    ]
    given = np.array(specs, np.int64)
    function, _ = _gather()
    function(rows.ctypes.data, 8 * width, count, given.ctypes.data, len(specs))
    return columns
