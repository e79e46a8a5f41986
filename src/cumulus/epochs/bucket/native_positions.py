"""The newest position that was seen of each key, for sources that deliver a change more than once.

A map of its own beside those of a program: key words to a position. Whole columns are asked at once.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.arrow import typed
from cumulus.catalog.schema import Column
from cumulus.catalog.types import BIGINT
from cumulus.engine.native.build import code_of
from cumulus.engine.native.kernel.body import define
from cumulus.engine.native.kernel.language import I64, PTR, U8, Function, Module, Signature
from cumulus.engine.native.kernel.loaded_code import LEVELS, MachineCode, system_functions
from cumulus.engine.native.kernel.memory import BUDGET, SYSTEM, UNLIMITED
from cumulus.engine.native.program import BASE, library
from cumulus.engine.native.store.hash_tables import ROW
from cumulus.engine.native.store.memory_layout import MapLayout, lanes_of, value_lanes
from cumulus.engine.native.store.row_layout import CREATED, RowLayout, address
from cumulus.engine.native.values.columns import column_words
from cumulus.engine.native.values.dictionary import Dictionary
from cumulus.engine.native.values.frames import frame, words_of
from cumulus.engine.native.values.map_access import StoredMap

Words: TypeAlias = npt.NDArray[np.int64]
_RECORD = 64
POSITION = "position of it"
"""The last column of `Newest.dump`; no column of SQL is called so without quotes."""


def _newest(shape: RowLayout) -> Signature:
    """Return the function `(map, rows of key words and a position, how many, flags)` → 1, or 0 without memory."""
    return Signature(f"cu_{shape.name}_newest", (PTR, PTR, I64, PTR), I64)


def _newest_function(shape: RowLayout) -> Function:
    """Set the flag of each row whose position is newer than all that were seen of its key, and remember it."""
    names = ("map", "rows", "count", "flags")
    with define(_newest(shape).name, list(zip(names, (PTR, PTR, I64, PTR), strict=True)), I64) as body:
        map_, rows, count, flags = body.function.parameters
        with body.counting(0, count) as at:
            place = body.let(rows.at(at * (8 * (shape.keys + 1))), "place")
            keys = [body.load(I64, place, 8 * word, "key") for word in range(shape.keys)]
            position = body.load(I64, place, 8 * shape.keys, "position")
            row = body.call(shape.put, map_, *keys, hint="row")
            with body.when(row.eq(0), likely=False):
                body.leave(0)
            kept = body.let(address(body, shape, map_, row & ROW), "kept")
            is_new = (row >= CREATED) | (position > body.load(I64, kept, shape.value(0)))
            with body.when(is_new):
                body.store(I64, kept, shape.value(0), position)
                body.store(I64, kept, shape.value(1), 1)
                body.store(U8, flags.at(at), 0, 1)
        body.leave(1)
    return body.function


@cache
def _code(shape: RowLayout) -> MachineCode:
    return code_of([BASE, library(shape), Module([_newest_function(shape)])], LEVELS[-1])


class Newest:
    """Positions by key; NotNativeError if a column of the primary key has no type."""

    def __init__(self, keys: Sequence[Column]) -> None:
        lanes = lanes_of(keys)
        store = MapLayout("", 0, tuple(each.name for each in keys), lanes, value_lanes([BIGINT, BIGINT]))
        self._keys, self._shape = keys, store.shape
        self._code = _code(self._shape)
        self._dictionary = Dictionary(self._code)
        self._memory = ctypes.create_string_buffer(_RECORD + self._shape.record_size + 8)
        at = (ctypes.addressof(self._memory) + 7) // 8 * 8
        ctypes.c_int64.from_address(at + BUDGET).value = UNLIMITED
        ctypes.c_int64.from_address(at + SYSTEM).value = system_functions()
        self._at = at + _RECORD
        new = self._code.function(self._shape.new.name, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        if not new(at, self._at):
            raise MemoryError
        free = self._code.function(self._shape.free.name, None, ctypes.c_void_p)
        weakref.finalize(self, _free, free, self._at, self._memory, self._code).atexit = False
        self._map = StoredMap(self._code, store, self._at, self._dictionary)
        pointer = ctypes.c_void_p
        self._function = self._code.function(
            _newest(self._shape).name, ctypes.c_int64, pointer, pointer, ctypes.c_int64, pointer
        )

    def take(self, columns: Sequence[pa.ChunkedArray], positions: Words) -> npt.NDArray[np.bool_] | None:
        """Return which rows are newer than all before them, these rows included, and remember them.

        None, and nothing is remembered, if a value is not of its column's type.
        """
        words: list[npt.NDArray[np.int64]] = []
        for key, column, lane in zip(self._keys, columns, self._map.store.keys, strict=True):
            assert key.type is not None
            found = typed(column, key.type)
            if found is None or (found.null_count and not lane.nullable):
                return None
            words += column_words(found, lane, self._dictionary)
        matrix = np.ascontiguousarray(np.stack([*words, positions], axis=1))
        flags = np.zeros(len(positions), dtype=np.bool_)
        if not self._function(self._at, matrix.ctypes.data, len(matrix), flags.ctypes.data):
            raise MemoryError("the positions do not fit into memory")
        return flags

    def get(self, key: tuple[Any, ...]) -> int | None:
        """Return the newest position of a key."""
        found = self._map.at(key)
        return None if found is None else int(found[0])

    def update(self, positions: Mapping[tuple[Any, ...], int]) -> None:
        """Remember positions that are newer than all before."""
        for key, position in positions.items():
            words = self._map.codec.new_key_words(key)
            if words is None or not self._map.put(words, [position, 1]):
                raise MemoryError("the positions do not fit into memory")

    def dump(self) -> pa.Table:
        """Return all keys with their positions: the key columns, and a last one."""
        columns = frame(self._map.store, self._map.view.matrix(), self._dictionary)
        assert columns is not None, "keys of a table have its columns' types"
        return pa.table(columns[:-1], names=[*(each.name for each in self._keys), POSITION])

    def load(self, table: pa.Table) -> None:
        """Remember what `dump` has given, and nothing else."""
        self._map.clear()
        ones = pa.chunked_array([np.ones(table.num_rows, dtype=np.int64)])
        matrix = words_of(self._map.store, [*table.columns, ones], self._dictionary)
        assert matrix is not None, "`dump` has given it"
        if not self._map.adopt_words(matrix):
            raise MemoryError("the positions do not fit into memory")


def _free(free: Any, at: int, *alive: Any) -> None:
    free(at)
    del alive
