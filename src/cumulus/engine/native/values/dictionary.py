"""Dictionary encoding: texts and intervals are stored once, and 64-bit numbers refer to them."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cumulus.catalog.types import Interval
from cumulus.engine.frames.value_words import NULL_WORD
from cumulus.engine.limits import format_bytes
from cumulus.engine.native.kernel.loaded_code import Loaded, system_functions
from cumulus.engine.native.kernel.memory import BUDGET, REFUSED, SYSTEM, UNLIMITED, USED
from cumulus.engine.native.store import text_table
from cumulus.engine.native.store.text_table import bytes_of
from cumulus.engine.native.values.codec import BigIntegers
from cumulus.errors import MemoryLimitError

Words = npt.NDArray[np.int64]
_I64, _PTR = ctypes.c_int64, ctypes.c_void_p
_MEMORY_SIZE = 64
_SPAN = bytes([text_table.NO_TEXT])
"""What the bytes of an interval begin with, and no text's."""
_GAP = _SPAN + b"-"
"""What the bytes of a number without a value begin with."""
_FEW = 10_000
_REMEMBERED, _SHORT = 1 << 16, 256
"""How many numbers Python remembers, and of how long texts."""


class Dictionary:
    """Numbers for texts and intervals: the same for equal ones, from 0 on. And boxes for long numbers.

    A number stays as long as a row of a map names it, or a reader lives: see `cumulus.engine.native.values.text_sweep`.

    They are kept where machine code finds them: `texts` is the address of a `cumulus.engine.native.store.text_table`
    record.

    Parameters
    ----------
    code
        Has the functions of `cumulus.engine.native.program.BASE`.

    Examples
    --------
    >>> from cumulus.engine.native.build import code_of
    >>> from cumulus.engine.native.program import BASE
    >>> numbers = Dictionary(code_of([BASE], 0))
    >>> numbers["a"], numbers["b"], numbers["a"], numbers.values_of[1], [*numbers.values_of]
    (1, 2, 1, 'a', ['', 'a', 'b'])
    """

    def __init__(self, code: Loaded) -> None:
        self.boxes = BigIntegers()
        self.widen: Callable[[], bool] = lambda: False
        """Asked for more memory than was granted: whether there is more now."""
        self.readers: WeakSet[Any] = WeakSet()
        """What holds numbers outside maps: as long as there is one, all numbers stay as they are."""
        self.sweep_at = _FEW
        """With so many texts most may be dead: see `cumulus.engine.native.values.text_sweep`."""
        self._known: dict[Any, int] = {}
        buffer = ctypes.create_string_buffer(_MEMORY_SIZE + text_table.RECORD_SIZE + 8)
        self._memory = (ctypes.addressof(buffer) + 7) // 8 * 8
        self.texts = self._memory + _MEMORY_SIZE
        _I64.from_address(self._memory + BUDGET).value = UNLIMITED
        _I64.from_address(self._memory + SYSTEM).value = system_functions()
        _I64.from_address(self.texts + text_table.SEED).value = int.from_bytes(os.urandom(8), "little", signed=True)
        self._refused = _I64.from_address(self._memory + REFUSED)
        self.count = _I64.from_address(self.texts + text_table.COUNT)
        """How many texts there are, dead ones included."""
        self.values_of = Values(self.texts)
        """Number → text or interval."""
        self.use(code)
        self._new = code.function(text_table.new_texts.name, _I64, _PTR, _PTR)
        self._free = code.function(text_table.free_texts.name, None, _PTR)
        free = code.function(text_table.free_texts.name, None, _PTR)
        self._finalizer = weakref.finalize(self.values_of, _free, free, self.texts, buffer, code)
        self._finalizer.atexit = False
        if not self._new(self._memory, self.texts):
            raise MemoryError

    def close(self) -> None:
        """Give back the memory of the texts; nobody uses them any more."""
        self._finalizer()

    def use(self, code: Loaded) -> None:
        """Call the functions of some code from now on."""
        self.values_of.use(code)
        self._number = code.function(text_table.number_of_text.name, _I64, _PTR, ctypes.c_char_p, _I64)
        self._find = code.function(text_table.find_text.name, _I64, _PTR, ctypes.c_char_p, _I64)
        self._numbers = code.function(text_table.number_texts.name, _I64, _PTR, _PTR, _PTR, _I64, _PTR)
        self._copy = code.function(text_table.copy_texts.name, _I64, _PTR, _PTR, _I64, _PTR, _PTR)

    @property
    def are_many(self) -> bool:
        """Whether it is time to look whether texts are dead."""
        return self.count.value >= self.sweep_at

    @property
    def bytes(self) -> int:
        """How many bytes the texts and intervals take; of the numbers of any length about how many."""
        return int(_I64.from_address(self._memory + USED).value) + self.boxes.bytes

    def grant(self, count: int | None) -> None:
        """Say how many bytes texts may take from now on; None if nobody limits them."""
        _I64.from_address(self._memory + BUDGET).value = UNLIMITED if count is None else count

    @property
    def refused(self) -> int:
        """How many bytes texts would have taken when they were refused memory the last time; 0 if never."""
        return self._refused.value

    def reset_refusals(self) -> None:
        """Forget what was refused."""
        self._refused.value = 0

    def replace(self, values: Iterable[Any]) -> None:
        """Make values, of which the first is the empty text, those with the numbers from 0 on; None for one without.

        Nobody may use a number that was given before.
        """
        seed = _I64.from_address(self.texts + text_table.SEED).value
        self._known.clear()
        self._free(self.texts)
        ctypes.memset(self.texts, 0, text_table.RECORD_SIZE)
        _I64.from_address(self.texts + text_table.SEED).value = seed
        if not self._new(self._memory, self.texts):
            raise MemoryError
        for number, value in enumerate(values):
            # What was saved without its value has no row: something else that no text is stands for it.
            data = _GAP + b"%d" % number if value is None else _data_of(value)
            found = self._number(self.texts, data, len(data))
            while found < 0:
                self._ask()
                found = self._number(self.texts, data, len(data))
            assert found == number, "each value is there once"
        self.sweep_at = min(self.sweep_at, len(self.values_of) + _FEW)

    def words_known(self, value: Any) -> tuple[int, ...]:
        """Return the only word of a value, or of NULL; KeyError if the value has no number."""
        if value is None:
            return (NULL_WORD,)
        found = self._known.get(value)
        if found is None:
            data = value.encode("utf-8", "surrogatepass") if type(value) is str else _data_of(value)
            found = self._find(self.texts, data, len(data))
        if found < 0:
            raise KeyError(value)
        return (found,)

    def __getitem__(self, value: Any) -> int:
        found: int | None = self._known.get(value)
        if found is None:
            data = _data_of(value)
            found = self._number(self.texts, data, len(data))
            while found < 0:
                self._ask()
                found = self._number(self.texts, data, len(data))
            if len(data) <= _SHORT:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[value] = found
        return found

    def number_all(self, addresses: Words, lengths: Words, into: Words) -> None:
        """Put down the numbers of texts in memory, NULL's word where the length is below 0."""
        where = (each.ctypes.data for each in (addresses, lengths))
        given = (self.texts, *where, len(lengths), into.ctypes.data)
        while not self._numbers(*given):
            self._ask()

    def _ask(self) -> None:
        if not self.widen():
            raise MemoryLimitError(
                f"the texts ({len(self.values_of):,}, {format_bytes(self.bytes)}) do not fit into memory",
                hint="Delete rows that name them, or load the warehouse with a greater memory_limit.",
            )

    def array(self, numbers: Words) -> pa.Array:
        """Return the texts with some numbers, NULL for its word, as Arrow's large_string."""
        numbers = np.ascontiguousarray(numbers)
        ends = np.zeros(len(numbers) + 1, dtype=np.int64)
        given = (self.texts, numbers.ctypes.data, len(numbers), ends.ctypes.data + 8)
        data = np.empty(self._copy(*given, None), dtype=np.uint8)
        self._copy(*given, data.ctypes.data)
        nulls = numbers == NULL_WORD
        valid = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None
        return pa.Array.from_buffers(pa.large_string(), len(numbers), [valid, pa.py_buffer(ends), pa.py_buffer(data)])


class Values:
    """The values of a dictionary by their numbers, and all in the order of these."""

    def __init__(self, texts: int) -> None:
        self._texts = texts

    def use(self, code: Loaded) -> None:
        """Call the functions of some code from now on."""
        self._code = code
        self._object = ctypes.PYFUNCTYPE(ctypes.py_object, _PTR, _I64, ctypes.c_char_p)(
            code.address(text_table.text_object.name)
        )

    def __len__(self) -> int:
        return int(_I64.from_address(self._texts + text_table.COUNT).value)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> Any:
        found = self._object(self._texts, number, b"surrogatepass")
        if type(found) is str:
            return found
        if not found:
            raise IndexError(number)
        if found.startswith(_GAP):
            return None
        return Interval(*map(int, found[2:].split()))


def _data_of(value: Any) -> bytes:
    return _SPAN + b"=%d %d %d" % value if isinstance(value, Interval) else bytes_of(value)


def _free(free: Any, texts: int, *alive: Any) -> None:
    free(texts)
    del alive
